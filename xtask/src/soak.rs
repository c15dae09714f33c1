//! `cargo xtask soak`: the long forms. Each entry is one line of the list in `entries`.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::clock::{Stopwatch, Took};
use crate::fuzz::{self, Length};
use crate::link_abi::Build;
use crate::place::Place;
use crate::report::{Outcome, Table};
use crate::say::{complain, say};
use crate::shell::{Cmd, target_dir};
use crate::{link_abi, setup, sim};

/// Property-test cases in one minute, roughly, on a small machine.
const PROPERTY_CASES_PER_MINUTE: u64 = 10_000;

/// Seeds of the simulator for each minute that is asked for.
const SEEDS_PER_MINUTE: u64 = 10_000;

/// Rounds in one minute, roughly, of what is hard on the memory of a card.
const CARD_ROUNDS_PER_MINUTE: u64 = 100;

/// The test that runs every program of a table, which has an entry of its own.
const EVERY_PROGRAM: &str = "every_program_many_times";

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Minutes per entry; entries that count cases scale with it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: u64,
    /// Run only the entries whose name starts so; repeat for several
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the entries and what each shows
    #[arg(long)]
    list: bool,
}

struct Entry {
    name: String,
    shows: &'static str,
    /// Minutes it takes, roughly.
    minutes: u64,
    run: Box<dyn Fn() -> Result<Ran>>,
}

/// How an entry without a failure went.
#[derive(Debug, PartialEq, Eq)]
enum Ran {
    /// It showed what it is there to show.
    Whole,
    /// So many of its tests found a program missing, and passed without it.
    Partly { skipped: u64 },
    /// A tool is missing, so nothing ran and nothing was shown: which one, and how to get it.
    Not { missing: String },
}

/// Has everything run that an entry has: then its success is the success of the whole.
fn whole(run: impl Fn() -> Result<()> + 'static) -> Box<dyn Fn() -> Result<Ran>> {
    Box::new(move || run().map(|()| Ran::Whole))
}

fn entries(minutes: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for target in fuzz::targets()? {
        entries.push(Entry {
            name: format!("fuzz {target}"),
            shows: "no input makes a parser panic, loop or disagree with its emitter",
            minutes,
            run: whole(move || {
                fuzz::install_cargo_fuzz()
                    .and_then(|()| fuzz::run_target(&target, Length::Seconds(minutes * 60)))
            }),
        });
    }
    entries.push(Entry {
        name: "stock".into(),
        shows: "perftest in every way it has, 50 pairs at once, pairs that are killed, on the drop-in library",
        minutes: 8,
        run: whole(|| {
            let abi = link_abi::link(Build::Alone { release: false })?;
            let others = format!("test -p ferroce-abi --test stock -- --skip {EVERY_PROGRAM}");
            let cmd = Cmd::cargo(&others).env("FERROCE_SOAK", "1");
            cmd.env(link_abi::FOLDER, abi.display().to_string()).env(setup::REQUIRE_ALL, "1").run()
        }),
    });
    entries.push(Entry {
        name: "programs".into(),
        shows: "every program of docs/drop-in.md that uses rdma_cm or rsockets, 100 times, over IPv4 and IPv6; perftest 10 times",
        minutes: 25,
        run: whole(|| {
            let abi = link_abi::link(Build::Alone { release: false })?;
            let cmd = Cmd::cargo(&format!("test -p ferroce-abi --test stock -- --nocapture {EVERY_PROGRAM}"));
            let cmd = cmd.env("FERROCE_SOAK", "1").env(link_abi::FOLDER, abi.display().to_string());
            cmd.env(setup::REQUIRE_ALL, "1").run()
        }),
    });
    entries.push(Entry {
        name: "middleware".into(),
        shows: "UCX, Open MPI over it and libfabric for long, also under loss; 20 pairs of all programs at once, some killed",
        minutes: 17,
        run: whole(|| {
            let abi = link_abi::link(Build::Alone { release: false })?;
            let cmd = Cmd::cargo("test -p ferroce-cli --test middleware -- --test-threads 1");
            let cmd = cmd.env("FERROCE_SOAK", "1").env(link_abi::FOLDER, abi.display().to_string());
            cmd.env(setup::REQUIRE_ALL, "1").run()
        }),
    });
    entries.push(Entry {
        name: "selftest".into(),
        shows: "`ferroce selftest` passes 50 times on our own card, over each path",
        minutes: 5,
        run: whole(|| {
            let cmd = Cmd::cargo("test -p ferroce-cli --test commands -- selftest::all_of_it");
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "sim".into(),
        shows: "100,000 seeded runs with faults break no guarantee, at 10 minutes",
        minutes: minutes * 4,
        run: whole(move || sim::run_with(&["--seeds", &(SEEDS_PER_MINUTE * minutes).to_string()])),
    });
    entries.push(Entry {
        name: "interop".into(),
        shows: "we and the Linux kernel understand each other for 10,000 rounds of its own tools",
        minutes: 15,
        run: Box::new(|| match crate::interop::missing() {
            Some(missing) => Ok(Ran::Not { missing }),
            None => crate::interop::long().map(|()| Ran::Whole),
        }),
    });
    entries.push(Entry {
        name: "card".into(),
        shows: "`ferroce selftest`, endpoints, brokers and the store over the kernel's soft-RoCE as a card; 1,000 times what leaks",
        minutes: 45,
        run: Box::new(|| match crate::interop::missing() {
            Some(missing) => Ok(Ran::Not { missing }),
            None => crate::interop::cards().map(|()| Ran::Whole),
        }),
    });
    entries.push(Entry {
        name: "planted".into(),
        shows: "the simulator finds every bug that was planted on purpose",
        minutes: 5,
        run: whole(|| sim::run_with(&["--planted"])),
    });
    entries.push(Entry {
        name: "loom".into(),
        shows: "no order of threads loses a call, a wake or a completion, with more pre-emptions",
        minutes: 3,
        run: whole(|| crate::test::loom_models(&Place::Front, None)),
    });
    entries.push(Entry {
        name: "sanitizer".into(),
        shows: "AddressSanitizer finds nothing in the tests of the device, of lanes and of the verbs",
        minutes: 6,
        run: whole(address_sanitizer),
    });
    entries.push(Entry {
        name: "wear".into(),
        shows: "AddressSanitizer finds nothing where regions of a card are dropped under work, its queues go with events and its peers are killed, 1,000 times each (at 10 minutes), over the drop-in library",
        minutes,
        run: whole(move || {
            let abi = link_abi::link(Build::Alone { release: false })?;
            let rounds = CARD_ROUNDS_PER_MINUTE * minutes;
            // One after the other: each has a limit of its own.
            let cmd = sanitized("-p ferroce-verbs --test wear --test kept_regions --test on_a_card");
            let cmd = cmd.env("FERROCE_ROUNDS", rounds.to_string()).env(link_abi::FOLDER, abi.display().to_string());
            cmd.env("FERROCE_PATIENCE", (minutes * 60).to_string()).env(setup::REQUIRE_ALL, "1").run()
        }),
    });
    entries.push(Entry {
        name: "processes".into(),
        shows: "processes that sleep, spin, stop and die, 2,500 of them while they share memory, a million deregistrations under a storm of WRITEs by each path (at 10 minutes), devices that come and go, many threads, hostile packets",
        minutes: minutes * 2,
        run: whole(move || {
            let tests = "--test processes --test lifecycle --test hostile --test engines";
            let cmd = Cmd::cargo(&format!("test -p ferroce-device -p ferroce-verbs {tests}"));
            cmd.env("FERROCE_SOAK", minutes.to_string()).run()
        }),
    });
    entries.push(Entry {
        name: "endpoint".into(),
        shows: "10 GiB of messages under loss to a receiver that stalls, and 4,000 connections",
        minutes: 4,
        run: whole(|| {
            let tests = "--test soak --test connecting --test processes -- --nocapture";
            let cmd = Cmd::cargo(&format!("test -p ferroce-endpoint {tests}"));
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "broker".into(),
        shows: "5 million messages among 8 members under loss, every function answers; a member is killed 20 times under load",
        minutes: 5,
        run: whole(|| {
            let tests = "--test all_to_all --test crash -- --nocapture --test-threads 1";
            let cmd = Cmd::cargo(&format!("test -p ferroce-broker {tests}"));
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "pool".into(),
        shows: "10 million items from 4 threads, and no two of them in one place",
        minutes: 1,
        run: whole(|| {
            let cmd = Cmd::cargo("test -p ferroce-broker --test pool -- --nocapture");
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "kv".into(),
        shows: "a minute of gets and puts on three nodes under faults is linearizable",
        minutes: 2,
        run: whole(|| {
            let cmd = Cmd::cargo("test -p ferroce-kv -- --nocapture");
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "stories".into(),
        shows: "a million messages to a server of callbacks whose client is killed; 200 connections, 500 rounds of cancelled futures",
        minutes: 5,
        run: whole(|| {
            let cmd = Cmd::cargo("test -p ferroce-snow -p ferroce-cancelled -- --nocapture --test-threads 1");
            cmd.env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "spray".into(),
        shows: "live queue pairs stand 60,000 lies a second and keep half their speed",
        minutes: minutes.min(2) + 1,
        run: whole(move || {
            let cmd = Cmd::cargo("test -p ferroce-device --test spray -- --nocapture --test-threads 1");
            cmd.env("FERROCE_SOAK", minutes.to_string()).run()
        }),
    });
    entries.push(Entry {
        name: "neighbour".into(),
        shows: "a million forged MADs and as many other packets of another user end no live connection of any kind",
        minutes: 3,
        run: whole(|| {
            let cmd = Cmd::cargo("test -p ferroce --test neighbour -- --nocapture --test-threads 1");
            cmd.env("FERROCE_SOAK", "1").env(setup::REQUIRE_ALL, setup::require_all()).run()
        }),
    });
    entries.push(Entry {
        name: "switchboard".into(),
        shows: "100 processes come and go on one port while leaders die: nothing is misdelivered, pairs go on",
        minutes: minutes * 3,
        run: whole(move || {
            let soak = |line: &str| Cmd::cargo(line).env("FERROCE_SOAK", minutes.to_string()).run();
            soak("test -p ferroce-switchboard --lib")?;
            soak("test -p ferroce-verbs --test neighbours")
        }),
    });
    entries.push(Entry {
        name: "mesh".into(),
        shows: "faults of 200 networks of 10,240 RNICs are named, better than by three others; a day without a fault has no finding; a window takes at most 2 s and 1.5 GiB; 20 times each, faults of a Clos network of kernel routers are named by processes; with 64 agents, every process is killed in turn and no finding is lost",
        minutes: 140,
        run: whole(|| {
            let tests = "--test score -- --nocapture --test-threads 1";
            Cmd::cargo(&format!("test --release -p ferroce-mesh {tests}")).env("FERROCE_SOAK", "1").run()?;
            Cmd::cargo("bench -p ferroce-mesh --bench window").run()?;
            let clos = "test --release -p ferroce-cli --test mesh_clos -- --nocapture";
            Cmd::cargo(clos).env("FERROCE_SOAK", "1").run()?;
            let crash = "test --release -p ferroce-cli --test mesh killed_processes -- --nocapture";
            Cmd::cargo(crash).env("FERROCE_SOAK", "1").run()
        }),
    });
    entries.push(Entry {
        name: "miri".into(),
        shows: "Miri finds no undefined behaviour in registered memory and in what threads meet at",
        minutes: 5,
        run: Box::new(miri),
    });
    entries.push(Entry {
        name: "properties wire".into(),
        shows: "what the wire crate promises holds for many more random values",
        minutes,
        run: Box::new(move || {
            let cases = PROPERTY_CASES_PER_MINUTE * minutes;
            let cmd = Cmd::cargo("test -p ferroce-wire").env("PROPTEST_CASES", cases.to_string());
            counting_skips(&cmd.env(setup::REQUIRE_ALL, setup::require_all()))
        }),
    });
    Ok(entries)
}

/// The tests of the device and of the crates that it stands on.
const DEVICE_TESTS: &str = "-p ferroce-sys -p ferroce-memory -p ferroce-lane -p ferroce-fabric -p ferroce-switchboard -p ferroce-device --tests";

/// The device's and the verbs' tests under AddressSanitizer. The sanitizer is not stable: the one
/// variable lets a stable compiler have it. An explicit target keeps it away from build scripts.
fn address_sanitizer() -> Result<()> {
    // The tests of `lifecycle` measure memory, of which the sanitizer keeps back what was freed.
    let verbs =
        "--lib --test completions --test memory --test objects --test posting --test processes --test work";
    let cases = "--test conformance --test conformance_veth";
    let all = [
        DEVICE_TESTS.to_owned(),
        format!("-p ferroce-verbs {verbs}"),
        format!("-p ferroce-conformance {cases}"),
    ];
    all.into_iter().try_for_each(|tests| sanitized(&tests).run())
}

/// Tests under AddressSanitizer.
fn sanitized(tests: &str) -> Cmd {
    let line = format!("test {tests} --target x86_64-unknown-linux-gnu --target-dir");
    let cmd = Cmd::cargo(&line).arg(target_dir().join("sanitizer"));
    cmd.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address")
}

/// The parts of the device that Miri can run. It comes with nightly toolchains only: where it is not
/// installed, nothing was shown.
fn miri() -> Result<Ran> {
    let installed = Cmd::cargo("miri --version").captured().is_ok_and(|(works, _)| works);
    if !installed {
        let missing = "miri is missing; `rustup component add miri` on a nightly toolchain brings it";
        return Ok(Ran::Not { missing: missing.into() });
    }
    for tests in ["-p ferroce-memory --lib", "-p ferroce-sys --lib -- sync::ring sync::mailbox"] {
        let line = format!("miri test --target-dir {} {tests}", target_dir().join("miri").display());
        Cmd::cargo(&line).run()?;
    }
    Ok(Ran::Whole)
}

/// Runs tests and counts those that found a program missing.
fn counting_skips(cmd: &Cmd) -> Result<Ran> {
    let mut skipped = 0;
    cmd.run_seeing(|line| skipped += u64::from(crate::test::is_skip_notice(line)))?;
    Ok(if skipped == 0 { Ran::Whole } else { Ran::Partly { skipped } })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut entries = entries(args.minutes)?;
    entries.retain(|entry| args.only.is_empty() || args.only.iter().any(|name| entry.name.starts_with(name)));
    if entries.is_empty() {
        bail!("soak: no entry has that name; see cargo xtask soak --list");
    }
    if args.list {
        for entry in &entries {
            say!("{:16} {:>4} min  {}", entry.name, entry.minutes, entry.shows);
        }
        return Ok(());
    }
    // What an entry needs and does not find is its own to tell: some need nothing.
    match setup::run() {
        Ok(note) => say!("setup: {note}"),
        Err(error) => say!("setup: {error:#}"),
    }
    let total = Stopwatch::start();
    let table = run_entries(&entries, &total);
    say!("\n{table}");
    let failed = table.failed();
    if !failed.is_empty() {
        bail!("soak: failed: {}; see above", failed.join(", "));
    }
    say!("xtask soak: {} in {}", summary(&table), total.read());
    Ok(())
}

/// What an end without a failure says: what was not run is not among what passed.
fn summary(table: &Table) -> String {
    let passed = table.passed();
    match table.missing().as_slice() {
        [] => format!("passed, {passed} entries"),
        missing => format!("{passed} entries passed, {} NOT RUN: {}", missing.len(), missing.join(", ")),
    }
}

/// Runs them all: one finding should not cost the night of the others.
fn run_entries(entries: &[Entry], total: &Stopwatch) -> Table {
    let mut table = Table::default();
    let mut left: u64 = entries.iter().map(|entry| entry.minutes).sum();
    for (index, entry) in entries.iter().enumerate() {
        say!(
            "\n== [{}/{}] {}: {} (about {}; {} since the start, about {} left)",
            index + 1,
            entries.len(),
            entry.name,
            entry.shows,
            minutes(entry.minutes),
            total.read(),
            minutes(left),
        );
        left -= entry.minutes;
        let watch = Stopwatch::start();
        let result = (entry.run)();
        let took = watch.read();
        match result {
            Ok(Ran::Whole) => table.push(&entry.name, Outcome::Passed { took, note: String::new() }),
            Ok(Ran::Partly { skipped }) => {
                let note = format!("{skipped} tests SKIPPED what they are for");
                table.push(&entry.name, Outcome::Passed { took, note });
            }
            Ok(Ran::Not { missing }) => {
                complain!("\n== {} NOT RUN: {missing}", entry.name);
                table.push(&entry.name, Outcome::Missing { what: missing });
            }
            Err(error) => {
                complain!("\n== {} FAILED: {error:#}", entry.name);
                table.push(&entry.name, Outcome::Failed { took, why: format!("{error:#}") });
            }
        }
    }
    table
}

const fn minutes(minutes: u64) -> Took {
    Took(Duration::from_secs(minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, run: Box<dyn Fn() -> Result<Ran>>) -> Entry {
        Entry { name: name.into(), shows: "", minutes: 1, run }
    }

    #[test]
    fn a_failure_does_not_stop_the_others() {
        let entries = [entry("bad", whole(|| bail!("as intended"))), entry("good", whole(|| Ok(())))];
        let table = run_entries(&entries, &Stopwatch::start());
        assert_eq!(table.failed(), ["bad"]);
        assert!(table.to_string().contains("good  ok"));
    }

    #[test]
    fn a_missing_tool_is_not_run_and_never_passed() {
        let absent = || Ok(Ran::Not { missing: "the tool is missing; install it".into() });
        let entries = [entry("good", whole(|| Ok(()))), entry("absent", Box::new(absent))];
        let table = run_entries(&entries, &Stopwatch::start());
        assert_eq!((table.passed(), table.failed().len(), table.missing()), (1, 0, vec!["absent"]));
        let text = table.to_string();
        assert!(text.contains("absent  NOT RUN"), "{text}");
        assert!(text.contains("the tool is missing; install it"), "{text}");
        assert_eq!(summary(&table), "1 entries passed, 1 NOT RUN: absent");
    }

    #[test]
    fn every_fuzz_target_gets_the_minutes_asked_for() {
        let entries = entries(3).unwrap();
        for target in fuzz::targets().unwrap() {
            let entry = entries.iter().find(|entry| entry.name == format!("fuzz {target}"));
            assert_eq!(entry.map(|entry| entry.minutes), Some(3), "{target}");
        }
    }

    #[test]
    fn no_entry_hides_behind_the_name_of_another() {
        let entries = entries(1).unwrap();
        for (index, entry) in entries.iter().enumerate() {
            let chosen: Vec<usize> = entries
                .iter()
                .enumerate()
                .filter(|(_, other)| other.name.starts_with(&entry.name))
                .map(|(other, _)| other)
                .collect();
            assert_eq!(chosen, [index], "`--only '{}'` runs others too", entry.name);
        }
    }
}

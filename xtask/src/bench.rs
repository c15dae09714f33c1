//! `cargo xtask bench`: the only source of performance figures.

mod callgrind;
mod checkout;
mod compare;
mod drop_in;
mod instructions;
mod line;
mod nic;
mod pairs;
mod programs;
mod refusals;
mod table;
mod trace;

use anyhow::{Result, bail, ensure};

use crate::say::say;
use crate::shell::Cmd;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// List the packages with benchmarks and what they show
    #[arg(long)]
    list: bool,
    /// Only this: wire, transport, device, shared, refusals, instructions, trace, endpoint, probe, broker, drop-in
    /// or programs
    #[arg(long)]
    only: Option<String>,
    /// All but wire and transport: one short look at every figure; it shows that all work, and little more
    #[arg(long)]
    quick: bool,
    /// Device, or refusals, instructions or trace if only they are asked for: print JSON instead of a table (and run
    /// nothing else)
    #[arg(long)]
    json: bool,
    /// Device, endpoint, broker, drop-in and programs: keep each process on a core of its own
    #[arg(long)]
    pin: bool,
    /// Device, drop-in and programs: how often every figure is measured
    #[arg(long)]
    repeats: Option<usize>,
    /// Instructions: count those of this commit, too, and fail if the work tree takes 2 % more
    #[arg(long, value_name = "REV")]
    before: Option<String>,
    /// Handed to the benchmarks, for example a filter
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure two commits in turn, and say which figures changed
    #[command(long_about = pairs::ABOUT)]
    Pairs(pairs::Args),
}

struct Bench {
    package: &'static str,
    shows: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench { package: "wire", shows: "parse, emit and ICRC per packet" },
    Bench { package: "transport", shows: "requester and responder per packet" },
    Bench { package: nic::PACKAGE, shows: "the soft NIC beside plain sockets and copies" },
    Bench { package: refusals::NAME, shows: "instructions for each refused packet, beside their budgets" },
    Bench { package: instructions::NAME, shows: "instructions of the shortest ways through the device" },
    Bench { package: trace::NAME, shows: "what a record costs: figures of the device with and without one" },
    Bench { package: "endpoint", shows: "messages and streams beside the verbs below them and TCP" },
    Bench { package: "probe", shows: "probes, and what they cost, beside datagrams of plain sockets" },
    Bench { package: "meshd", shows: "10,240 simulated agents at a controller and an analyzer" },
    Bench { package: "broker", shows: "messages at several batch sizes beside the verbs below them" },
    Bench {
        package: drop_in::NAME,
        shows: "perftest on the drop-in library beside ferroce perf and plain sockets",
    },
    Bench {
        package: programs::NAME,
        shows: "rstream, iperf3, UCX, Open MPI and libfabric on it, beside the same programs over TCP",
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(Command::Pairs(args)) = &args.command {
        return pairs::run(args);
    }
    if args.only.as_deref() == Some(nic::SHARED) {
        nic::run(args, &[nic::SHARED_ROWS])?;
        // Their table has no form in JSON, and a filter is for figures of the table above.
        return if args.json || !args.rest.is_empty() { Ok(()) } else { drop_in::run(args) };
    }
    let only = args.only.as_deref();
    ensure!(
        args.before.is_none() || only == Some(instructions::NAME),
        "--before counts instructions: add --only instructions; `bench pairs` compares the other figures"
    );
    let has_json = |only: &&str| [refusals::NAME, instructions::NAME, trace::NAME].contains(only);
    let only = if args.json { only.filter(has_json).or(Some(nic::PACKAGE)) } else { only };
    let chosen =
        |bench: &&Bench| only.is_none_or(|only| bench.package == only.trim_start_matches("ferroce-"));
    let benches: Vec<&Bench> = BENCHES.iter().filter(chosen).collect();
    if benches.is_empty() {
        let known: Vec<_> = BENCHES.iter().map(|bench| bench.package).collect();
        bail!("{:?} has no benchmarks; use one of: {}", only.unwrap_or_default(), known.join(", "));
    }
    for Bench { package, shows } in benches {
        if !args.json {
            say!("ferroce-{package}: {shows}");
        }
        if args.list {
            continue;
        }
        if *package == nic::PACKAGE {
            nic::run(args, &[])?;
            continue;
        }
        if *package == refusals::NAME {
            refusals::run(args)?;
            continue;
        }
        if *package == instructions::NAME {
            instructions::run(args)?;
            continue;
        }
        if *package == trace::NAME {
            trace::run(args)?;
            continue;
        }
        if *package == drop_in::NAME {
            drop_in::run(args)?;
            continue;
        }
        if *package == programs::NAME {
            programs::run(args)?;
            continue;
        }
        // Those that measure two processes have one benchmark, which knows these.
        let knows = matches!(*package, "endpoint" | "probe" | "broker" | "meshd");
        let flags = [(args.quick && knows, "--quick"), (args.pin && knows, "--pin")];
        let flags = flags.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| (*flag).to_owned());
        let handed: Vec<String> = flags.chain(args.rest.iter().cloned()).collect();
        let mut cmd = Cmd::cargo("bench -p").arg(format!("ferroce-{package}"));
        if !handed.is_empty() {
            // Not the tests of the library, which do not know them.
            cmd = cmd.args(["--bench", "*", "--"]).args(&handed);
        }
        cmd.run()?;
    }
    Ok(())
}

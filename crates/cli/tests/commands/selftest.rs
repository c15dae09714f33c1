//! `ferroce selftest`, on our own card and on our own drop-in library as a card of the system.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::run::{Out, command, ferroce, finish};

/// A file of this test that is gone with it.
struct Report(PathBuf);

impl Report {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("ferroce-selftest-{name}-{}.json", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn read(&self) -> (String, Value) {
        let text = fs::read_to_string(&self.0).unwrap();
        let json = serde_json::from_str(&text).unwrap();
        (text, json)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Over our drop-in library as the machine's own.
fn over_dropin(address: &str, words: &[&str]) -> Out {
    let program = Path::new(env!("CARGO_BIN_EXE_ferroce"));
    let mut command = ferroce_testkit::dropin::command(program, address);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap())
}

/// The names of all values of a report, without those of single cases.
fn keys(of: &Value, before: &str, into: &mut BTreeSet<String>) {
    let Value::Object(fields) = of else { return };
    for (name, value) in fields {
        let path = format!("{before}{name}");
        if name == "capabilities" {
            into.insert(path);
        } else if value.is_object() {
            keys(value, &format!("{path}."), into);
        } else {
            into.insert(path);
        }
    }
}

#[test]
fn a_part_of_it_passes_on_our_own_card() {
    let report = Report::new("soft");
    let words = ["selftest", "--device", "ferroce_lo", "--address", "127.0.188.1", "--only", "operations"];
    let out = ferroce(&[&words[..], &["--json", report.path()]].concat()).success();
    for part in [
        "ferroce_lo (Ferroce's own card, ",
        "operations     12 passed",
        "12 of 12 cases passed",
        "The report is in",
    ] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
    assert_eq!(out.stderr, "");
    let (_, json) = report.read();
    assert_eq!((&json["summary"]["passed"], &json["summary"]["not_run"]), (&12.into(), &0.into()));
    assert_eq!((&json["device"]["driver"], &json["settings"]["path"]), (&"ferroce".into(), &"wire".into()));
    assert_eq!(json["device"]["capabilities"]["MaskedAtomics"], true);
}

#[test]
fn all_of_it_passes_on_each_path_of_our_own_card() {
    for (path, address) in [("wire", "127.0.188.2"), ("local", "127.0.188.3"), ("shared", "127.0.188.4")] {
        let words = ["selftest", "--device", "lo", "--address", address, "--path", path];
        // For long, many times.
        let is_long = env::var_os("FERROCE_SOAK").is_some_and(|value| value == "1");
        for _ in 0..if is_long { 50 } else { 1 } {
            let json = ferroce(&[&words[..], &["--json", "-"]].concat()).success().json();
            let cases = json["cases"].as_array().unwrap().len();
            assert!(cases >= 138, "{cases}");
            assert_eq!(
                (&json["summary"]["passed"], &json["settings"]["path"]),
                (&cases.into(), &path.into())
            );
        }
    }
}

#[test]
fn a_card_of_the_system_says_what_it_does_not_have() {
    let words = ["selftest", "--device", "ferroce_lo", "--only", "operations,limits_are_named", "--verbose"];
    let out = over_dropin("127.0.187.2", &words).success();
    for part in [
        "10 of 13 cases passed, 3 are not possible here",
        "masked atomics: masked_compare_and_swap, masked_fetch_and_add",
        "requests that the API never makes: limits_are_named",
    ] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
    let line = out.stdout.lines().find(|line| line.starts_with("masked_fetch_and_add ")).unwrap();
    assert!(line.ends_with("not possible here: the device has no masked atomics"), "{line}");
    let json = over_dropin(
        "127.0.187.3",
        &["selftest", "--device", "ferroce_lo", "--only", "masked_fetch", "--json", "-"],
    );
    let json = json.success().json();
    assert_eq!(json["cases"][0]["missing"], "MaskedAtomics");
    assert_eq!(json["device"]["capabilities"]["MaskedAtomics"], false);
    assert_eq!((&json["device"]["link"], &json["settings"]["path"]), (&"Ethernet".into(), &Value::Null));
}

/// A network that loses everything: work ends with an error, and datagrams never come.
fn without_a_network(address: &str, report: &Report, more: &[&str]) -> Out {
    let words =
        ["selftest", "--device", "ferroce_lo", "--address", address, "--limit", "4", "--json", report.path()];
    let words = [&words[..], &["--only", "send_arrives,datagram_with_immediate"], more].concat();
    finish(command(&words).env("FERROCE_FAULTS", "loss=1,seed=7").spawn().unwrap())
}

#[test]
fn what_fails_and_what_never_comes_is_told_and_the_exit_code_is_1() {
    let report = Report::new("failing");
    let out = without_a_network("127.0.188.5", &report, &[]);
    assert_eq!(out.failure(), "ferroce: of the cases 1 failed, 1 timed out");
    for part in [
        "\nfailed\n  send_arrives\n",
        "\ntimed out\n  datagram_with_immediate\n    it waited for the end of a receive (datagrams.rs:",
    ] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
    let (_, json) = report.read();
    let [failed, timed_out] = [&json["cases"][0], &json["cases"][1]];
    assert!(
        failed["text"].as_str().unwrap().contains("RetryExceeded")
            || failed["text"].as_str().unwrap().contains("did not answer"),
        "{failed}"
    );
    assert!(failed["at"].as_str().unwrap().starts_with("operations.rs:"), "{failed}");
    assert!(timed_out["waited_for"].as_str().unwrap().starts_with("the end of a receive"), "{timed_out}");
}

/// What would tell where a report comes from.
fn secrets() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut secrets = vec![read("/proc/sys/kernel/hostname"), env::temp_dir().display().to_string()];
    secrets.extend(["HOME", "USER", "LOGNAME"].iter().filter_map(|name| env::var(name).ok()));
    secrets.push(env!("CARGO_MANIFEST_DIR").to_owned());
    let json = ferroce(&["devices", "--json"]).success().json();
    for info in json["devices"].as_array().unwrap().iter().chain(json["closed"].as_array().unwrap()) {
        secrets.extend(info["node_guid"].as_str().map(|guid| guid.replace(':', "")));
        secrets.extend(info["node_guid"].as_str().map(str::to_owned));
        for gid in info["gids"].as_array().unwrap() {
            secrets.extend(
                [&gid["gid"], &gid["address"]].iter().filter_map(|text| text.as_str()).map(str::to_owned),
            );
        }
    }
    secrets.retain(|text| !text.is_empty() && text != "::1");
    secrets
}

/// Whether a text has another one in it that is not a part of longer words.
fn has_word(text: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    })
}

#[test]
fn a_report_does_not_tell_where_it_comes_from() {
    let report = Report::new("anonymous");
    let _ = without_a_network("127.0.188.6", &report, &[]);
    let (text, json) = report.read();
    assert_eq!(json["whole"], false);
    for secret in secrets().iter().map(String::as_str).chain(["127.0.188.6", "188, 6", "/home", "::ffff:"]) {
        assert!(!has_word(&text, secret), "{secret}: {text}");
    }
    let whole = Report::new("whole");
    let _ = without_a_network("127.0.188.7", &whole, &["--whole"]);
    let (text, json) = whole.read();
    assert_eq!((&json["whole"], &json["device"]["address"]), (&true.into(), &"127.0.188.7".into()));
    let host = &secrets()[0];
    assert!(has_word(&text, host) && has_word(&text, "127.0.188.7"), "{text}");
}

#[test]
fn the_form_of_a_report_stays() {
    let words = ["selftest", "--device", "ferroce_lo", "--address", "127.0.188.8", "--only", "send_arrives"];
    let json = ferroce(&[&words[..], &["--json", "-"]].concat()).success().json();
    assert_eq!(json["ferroce_selftest"], 1);
    let mut found = BTreeSet::new();
    keys(&json, "", &mut found);
    // What is taken away or renamed here is a new number of the form; what is added is not.
    let expected = "at_once|cases|device.active_mtu|device.attributes.core_clock_khz|device.attributes.max_completion_queues|\
        device.attributes.max_completions|device.attributes.max_inline|device.attributes.max_memory_regions|\
        device.attributes.max_queue_depth|device.attributes.max_queue_pairs|device.attributes.max_read_depth|\
        device.attributes.max_sge|device.attributes.max_shared_receive_queues|device.attributes.timestamp_mask|\
        device.capabilities|device.driver|device.firmware|device.known|device.link|device.name|device.provider|device.state|ferroce|\
        ferroce_selftest|interrupted|machine.architecture|machine.kernel|machine.libibverbs|machine.rdma_core|seconds|\
        settings.at_once|settings.limit_seconds|settings.only|settings.path|summary.crashed|summary.failed|\
        summary.known|summary.not_possible|summary.not_run|summary.passed|summary.timed_out|whole";
    let expected: BTreeSet<String> = expected.split('|').skip(1).map(str::to_owned).collect();
    assert_eq!(found, expected);
    let mut of_case = BTreeSet::new();
    keys(&json["cases"][0], "", &mut of_case);
    assert_eq!(of_case.into_iter().collect::<Vec<_>>(), ["group", "name", "outcome", "seconds"]);
    assert_eq!(json["machine"]["architecture"], env::consts::ARCH);
}

#[test]
fn one_case_can_be_run_alone() {
    let words = ["selftest", "--device", "ferroce_lo", "--address", "127.0.188.9", "--case"];
    let out = ferroce(&[&words[..], &["read_brings"]].concat()).success();
    assert_eq!(out.stdout, "{\"outcome\":\"passed\"}\n");
    let out = ferroce(&[&words[..], &["no_such"]].concat());
    assert_eq!(out.code, Some(2));
    assert!(out.stderr.contains("there is no such case"), "{}", out.stderr);
}

#[test]
fn cases_are_started_though_a_loader_has_started_this_program() {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    if !ferroce_testkit::judge::has_file(LOADER) {
        return;
    }
    let words = ["selftest", "--device", "ferroce_lo", "--address", "127.0.188.11", "--only", "read_brings"];
    let mut loader = std::process::Command::new(LOADER);
    loader.arg(env!("CARGO_BIN_EXE_ferroce")).args(words);
    let out =
        finish(loader.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(out.success().stdout.contains("1 of 1 cases passed"));
}

#[test]
fn what_cannot_be_run_says_why_and_the_exit_code_is_2() {
    let out = ferroce(&["selftest"]);
    assert_eq!(out.code, Some(2));
    assert!(
        out.stdout.contains("ferroce_lo") && out.stdout.contains("ferroce selftest --device"),
        "{}",
        out.stdout
    );
    assert!(out.stderr.contains("no device was named"), "{}", out.stderr);
    for (words, why) in [
        (&["--device", "mlx5_9"][..], "mlx5_9"),
        (&["--device", "ferroce_lo", "--address", "192.0.2.77"], "192.0.2.77"),
        (&["--device", "ferroce_lo", "--only", "no_such"], "there is no such group or case"),
        (
            &["--device", "lo", "--address", "127.0.188.10", "--json", "/nowhere/report.json"],
            "/nowhere/report.json cannot be written",
        ),
        (&["--whole"], "--json"),
        (&["--path", "wire"], "--device"),
    ] {
        let out = ferroce(&[&["selftest"], words].concat());
        assert_eq!(out.code, Some(2), "{words:?}: {}", out.stderr);
        assert!(out.stderr.contains(why), "{words:?}: {}", out.stderr);
    }
    let out = over_dropin("127.0.187.4", &["selftest", "--device", "ferroce_lo", "--path", "local"]);
    assert_eq!(out.code, Some(2));
    assert!(out.stderr.contains("choice of paths"), "{}", out.stderr);
    // The devices that there are.
    let out = over_dropin("127.0.187.5", &["selftest"]);
    assert!(out.stdout.contains("ferroce, firmware"), "{}", out.stdout);
}

#[test]
fn the_list_teaches_what_is_tried() {
    let out = ferroce(&["selftest", "--list", "--only", "sizes"]).success().stdout;
    assert!(out.starts_with("sizes: messages of all lengths"), "{out}");
    assert!(out.contains("\n  path_mtu_256\n") && !out.contains("send_arrives"), "{out}");
    assert!(ferroce(&["selftest", "--list"]).success().stdout.lines().count() > 130);
}

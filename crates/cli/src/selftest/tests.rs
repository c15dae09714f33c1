//! The command without a device: what is chosen, and what is told of results of all kinds.

use std::time::Duration;

use ferroce_conformance::known::RXE;
use ferroce_conformance::{CASES, Ended, Missing, Outcome};
use serde_json::json;

use super::anonymous::Names;
use super::chosen;
use super::judged::{Judged, Kind};
use super::machine::{Secrets, rdma_core};
use super::report::{Summary, case, line, print, verdict};

fn ended(name: &'static str, outcome: Outcome) -> Ended<'static> {
    Ended { name, outcome, took: Duration::from_micros(12_345), said: "thread died\n".to_owned() }
}

fn of_all_kinds() -> Vec<Ended<'static>> {
    let text = "assertion failed at 10.7.0.9\n  left: 1".to_owned();
    vec![
        ended("send_arrives", Outcome::Passed),
        ended("masked_fetch_and_add", Outcome::Missing(Missing::named("MaskedAtomics").unwrap())),
        ended("read_brings", Outcome::Failed { text, at: Some("operations.rs:60".to_owned()) }),
        ended(
            "peer_is_gone",
            Outcome::TimedOut { waited_for: Some("the end of a send (order.rs:1)".to_owned()) },
        ),
        ended("psn_wraps_around", Outcome::TimedOut { waited_for: None }),
        ended(
            "atomics_are_atomic",
            Outcome::Crashed { how: "its process was ended by signal 11".to_owned() },
        ),
    ]
}

#[test]
fn cases_are_chosen_by_group_and_by_name() {
    let names = |only: &[&str]| -> Result<Vec<&str>, String> {
        let only: Vec<String> = only.iter().map(|word| (*word).to_owned()).collect();
        let chosen = chosen(&only).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|case| case.name).collect())
    };
    assert_eq!(names(&[]).unwrap().len(), CASES.len());
    // A group is its cases, though names of others contain the word.
    let memory = names(&["memory"]).unwrap();
    assert!(
        !memory.contains(&"read_into_read_only_memory") && memory.contains(&"deregistering_what_is_read")
    );
    assert_eq!(
        names(&["fetch_and_add", "write_arrives"]).unwrap(),
        ["write_arrives", "fetch_and_add", "masked_fetch_and_add"]
    );
    for wrong in [&["no_such"][..], &["send_arrives", "no_such"], &[""]] {
        assert!(names(wrong).unwrap_err().contains("--list"), "{wrong:?}");
    }
}

#[test]
fn the_table_says_what_came_of_each() {
    let mut text = Vec::new();
    print(&mut text, &of_all_kinds(), None).unwrap();
    let text = String::from_utf8(text).unwrap();
    for part in [
        "  operations     1 passed, 1 not possible here, 1 failed",
        "  masked atomics: masked_fetch_and_add\n",
        "\nfailed\n  read_brings\n    operations.rs:60: assertion failed at 10.7.0.9\n      left: 1\n",
        "\ntimed out\n  peer_is_gone\n    it waited for the end of a send (order.rs:1)\n",
        "  psn_wraps_around\n    what it waited for is not known\n",
        "\ncrashed\n  atomics_are_atomic\n    its process was ended by signal 11\n    thread died\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let lines: Vec<String> = of_all_kinds().iter().map(|ended| line(ended, None)).collect();
    assert!(lines[0].ends_with(" passed, 0.01 s"), "{}", lines[0]);
    assert!(lines[2].ends_with(" failed: operations.rs:60: assertion failed at 10.7.0.9"), "{}", lines[2]);
}

#[test]
fn a_case_of_the_report_has_what_is_known_and_no_address() {
    let names = Names::of_this_machine(&Secrets::default());
    let told: Vec<_> = of_all_kinds().iter().map(|ended| case(&Judged::new(ended, None), &names)).collect();
    assert_eq!(
        told[..4],
        [
            json!({ "group": "operations", "name": "send_arrives", "seconds": 0.012, "outcome": "passed" }),
            json!({ "group": "operations", "name": "masked_fetch_and_add", "seconds": 0.012,
                    "outcome": "not_possible", "missing": "MaskedAtomics" }),
            json!({ "group": "operations", "name": "read_brings", "seconds": 0.012, "outcome": "failed",
                    "text": "assertion failed at <address>\n  left: 1", "at": "operations.rs:60",
                    "stderr": "thread died\n" }),
            json!({ "group": "remote_errors", "name": "peer_is_gone", "seconds": 0.012, "outcome": "timed_out",
                    "waited_for": "the end of a send (order.rs:1)", "stderr": "thread died\n" }),
        ]
    );
    let whole = case(&Judged::new(&of_all_kinds()[2], None), &Names::none());
    assert!(whole["text"].as_str().unwrap().contains("10.7.0.9"));
}

#[test]
fn only_what_is_wrong_is_a_failure() {
    let all_well =
        Summary { passed: 100, not_possible: 34, known: 4, failed: 0, timed_out: 0, crashed: 0, not_run: 0 };
    let say = |summary: Summary| verdict(&summary);
    assert_eq!(say(all_well), None);
    assert_eq!(say(Summary { not_possible: 0, ..all_well }), None);
    let some = Summary { failed: 2, crashed: 1, not_run: 3, ..all_well };
    assert_eq!(say(some).as_deref(), Some("of the cases 2 failed, 1 crashed"));
    assert_eq!(say(Summary { timed_out: 1, ..all_well }).as_deref(), Some("of the cases 1 timed out"));
    assert_eq!(say(Summary { not_run: 3, ..all_well }).as_deref(), Some("interrupted: 3 cases were not run"));
}

#[test]
fn what_is_known_of_a_driver_is_no_failure_and_what_is_new_is_one() {
    let text = |text: &str| Outcome::Failed { text: text.to_owned(), at: None };
    let lacks = |name: &str| Outcome::Missing(Missing::named(name).unwrap());
    let status = "left: LocalQpOperation, right: LocalLength";
    for (name, outcome, kind) in [
        ("send_arrives", Outcome::Passed, Kind::Passed),
        ("message_longer_than_the_receive", text(status), Kind::Known),
        // Known to fail, but not of this.
        ("message_longer_than_the_receive", text("the bytes came out of order"), Kind::Failed),
        ("message_longer_than_the_receive", Outcome::TimedOut { waited_for: None }, Kind::TimedOut),
        ("message_longer_than_the_receive", Outcome::Crashed { how: status.to_owned() }, Kind::Crashed),
        // Another case that sees the same.
        ("read_brings", text(status), Kind::Failed),
        ("masked_fetch_and_add", lacks("MaskedAtomics"), Kind::NotPossible),
        ("masked_fetch_and_add", lacks("Windows"), Kind::Failed),
        ("read_brings", lacks("MaskedAtomics"), Kind::Failed),
    ] {
        let ended = ended(name, outcome);
        let judged = Judged::new(&ended, Some(&RXE));
        assert_eq!(judged.kind, kind, "{ended:?}");
        assert_eq!(judged.why.is_some(), matches!(kind, Kind::Known | Kind::NotPossible), "{ended:?}");
    }
}

#[test]
fn a_report_on_a_known_driver_tells_why_and_what_is_new() {
    let text = "left: LocalQpOperation".to_owned();
    let results = [
        ended("send_arrives", Outcome::Passed),
        ended("type_2_window_opens_a_part", Outcome::Passed),
        ended("message_longer_than_the_receive", Outcome::Failed { text, at: None }),
        ended("masked_fetch_and_add", Outcome::Missing(Missing::named("MaskedAtomics").unwrap())),
        ended("read_brings", Outcome::Missing(Missing::named("Windows").unwrap())),
    ];
    let mut told = Vec::new();
    print(&mut told, &results, Some(&RXE)).unwrap();
    let told = String::from_utf8(told).unwrap();
    let failed = "read_brings\n    the device has no memory windows, which is not known of the driver rxe\n";
    for part in [
        "  operations     1 passed, 1 not possible here, 1 failed",
        "  errors         1 as known of this driver",
        "\nknown of this driver (rxe; tried with Linux 6.1",
        "operation that failed: message_longer_than_the_receive\n",
        "  the IBA has no masked atomics: masked_fetch_and_add\n",
        "\npassed all the same\n  they are known not to pass on this driver: type_2_window_opens_a_part\n",
        &format!("\nfailed\n  {failed}"),
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
    assert!(!told.contains("not possible here: the device"), "{told}");
    let names = Names::none();
    let cases: Vec<_> = results.iter().map(|ended| case(&Judged::new(ended, Some(&RXE)), &names)).collect();
    assert_eq!((&cases[0]["known"], &cases[1]["known"]), (&json!(null), &json!(null)));
    assert_eq!((&cases[2]["outcome"], &cases[3]["outcome"]), (&json!("known"), &json!("not_possible")));
    assert!(cases[2]["known"].as_str().unwrap().starts_with("work that meets memory"), "{}", cases[2]);
    assert_eq!(cases[3]["known"], "the IBA has no masked atomics");
    assert_eq!((&cases[4]["outcome"], &cases[4]["missing"]), (&json!("failed"), &json!("Windows")));
}

#[test]
fn the_release_of_rdma_core_is_in_the_name_of_its_library() {
    assert_eq!(rdma_core("libibverbs.so.1.14.44.0").as_deref(), Some("44.0"));
    assert_eq!(rdma_core("libibverbs.so.1.14.50.0").as_deref(), Some("50.0"));
    for other in ["libibverbs.so.1", "libibverbs.so", "libibverbs.so.1.14", "libibverbs.so.1.14.x"] {
        assert_eq!(rdma_core(other), None, "{other}");
    }
}

//! What runs cases, what is told of them, and their list: the library itself is compiled once, without tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferroce_conformance::{CASES, Case, GROUPS, Missing, Outcome, Runner};
use ferroce_verbs::Capability;
use serde_json::json;

/// Cases that are scripts.
const SCRIPTS: &[(&str, &str)] = &[
    ("passes", r#"echo '{"outcome":"passed"}'"#),
    ("lacks", r#"echo '{"outcome":"not_possible","missing":"MaskedAtomics"}'"#),
    ("fails", r#"echo 'the end is near' >&2; echo '{"outcome":"failed","text":"no","at":"a.rs:1"}'"#),
    ("is chatty", r#"echo hello; echo '{"outcome":"passed"}'; echo; echo '{"more":1}'"#),
    ("segfaults", "kill -SEGV $$"),
    ("exits", "exit 3"),
    ("tells then crashes", r#"echo '{"outcome":"passed"}'; kill -KILL $$"#),
    ("hangs", "exec tail -f /dev/null"),
    ("stops", "kill -STOP $$"),
    ("closes its pipes and hangs", "exec tail -f /dev/null >/dev/null 2>/dev/null"),
    (
        "floods",
        r#"head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo; echo '{"outcome":"passed"}'"#,
    ),
    // What it leaves behind holds the pipes, and is gone with the test's own.
    ("leaves another behind", r#"timeout 20 tail -f /dev/null & echo '{"outcome":"passed"}'"#),
];

fn script(name: &str) -> Command {
    let (_, script) = SCRIPTS.iter().find(|(known, _)| *known == name).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn names() -> Vec<&'static str> {
    SCRIPTS.iter().map(|(name, _)| *name).collect()
}

fn crashed(how: &str) -> Outcome {
    Outcome::Crashed { how: how.to_owned() }
}

#[test]
fn a_case_that_hangs_or_crashes_is_a_result_and_the_rest_goes_on() {
    let limit = Duration::from_millis(400);
    let runner = Runner { limit, grace: limit, at_once: 3, ..Runner::new(&script) };
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |of: &AtomicUsize| {
        of.fetch_add(1, Ordering::Relaxed);
    };
    let all = runner.run(&names(), &|_| count(&begun), &|_| count(&ended)).unwrap();
    assert_eq!((begun.into_inner(), ended.into_inner()), (SCRIPTS.len(), SCRIPTS.len()));
    let hung = Outcome::TimedOut { waited_for: None };
    let lacks = Missing::named("MaskedAtomics").unwrap();
    let expected = [
        Outcome::Passed,
        Outcome::Missing(lacks),
        Outcome::Failed { text: "no".to_owned(), at: Some("a.rs:1".to_owned()) },
        Outcome::Passed,
        crashed("its process was ended by signal 11 (segmentation fault)"),
        crashed("its process ended with code 3 and did not say what became of the case"),
        Outcome::Passed,
        hung.clone(),
        hung.clone(),
        hung,
        Outcome::Passed,
        Outcome::Passed,
    ];
    for ((ended, name), expected) in all.iter().zip(names()).zip(expected) {
        assert_eq!((ended.name, &ended.outcome), (name, &expected));
        let hangs = matches!(expected, Outcome::TimedOut { .. });
        assert_eq!(ended.took >= 2 * limit, hangs, "{ended:?}");
    }
    assert_eq!(all[2].said, "the end is near\n");
    assert!(all[10].said.len() <= 32 << 10);
}

#[test]
fn what_is_stopped_starts_no_more_and_tells_of_no_more() {
    let begun = AtomicUsize::new(0);
    let stop = || begun.load(Ordering::Relaxed) == 2;
    let runner = Runner { stop: &stop, ..Runner::new(&script) };
    let begins = |_: &str| {
        begun.fetch_add(1, Ordering::Relaxed);
    };
    let all = runner.run(&names(), &begins, &|_| {}).unwrap();
    assert_eq!(all.iter().map(|one| one.name).collect::<Vec<_>>(), ["passes"]);
    assert_eq!(begun.into_inner(), 2);
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    let command = |_: &str| Command::new("/nowhere/at/all");
    let runner = Runner::new(&command);
    let error = runner.run(&["passes"], &|_| {}, &|_| {}).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn what_is_told_is_what_was_told() {
    let text = || "a \"word\"\nof two lines".to_owned();
    let all = [
        Outcome::Passed,
        Outcome::Missing(Missing::RawRequests),
        Outcome::Failed { text: text(), at: Some("order.rs:7".to_owned()) },
        Outcome::Failed { text: text(), at: None },
        Outcome::TimedOut { waited_for: Some(text()) },
        Outcome::TimedOut { waited_for: None },
        Outcome::Crashed { how: text() },
    ];
    let named = Capability::ALL.iter().map(|one| Outcome::Missing(Missing::Capability(*one)));
    for outcome in all.into_iter().chain(named) {
        let line = outcome.to_json().to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        assert_eq!(Outcome::from_json(&serde_json::from_str(&line).unwrap()), Some(outcome));
    }
    for odd in [json!(null), json!({}), json!({ "outcome": "well" }), json!({ "outcome": "not_possible" })] {
        assert_eq!(Outcome::from_json(&odd), None, "{odd}");
    }
}

#[test]
fn each_case_has_a_name_of_its_own_and_a_group_that_is_explained() {
    let names: HashSet<&str> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), CASES.len());
    let mut groups: Vec<&str> = CASES.iter().map(|case| case.group).collect();
    groups.dedup();
    assert_eq!(groups, GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert!(Case::find("sixteen_mebibytes").is_none() && Case::find("").is_none());
}

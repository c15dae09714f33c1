//! What runs cases, what is told of them, and their list: the library itself is compiled once, without tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferroce_conformance::known::DRIVERS;
use ferroce_conformance::{CASES, Case, GROUPS, Missing, Outcome, Runner};
use ferroce_verbs::Capability;
use serde_json::json;

/// Cases that are scripts, and what becomes of them.
fn scripts() -> Vec<(&'static str, &'static str, Outcome)> {
    let passed = || Outcome::Passed;
    let crashed = |how: &str| Outcome::Crashed { how: how.to_owned() };
    let lacks = Outcome::Missing(Missing::named("MaskedAtomics").unwrap());
    let failed = Outcome::Failed { text: "no".to_owned(), at: Some("a.rs:1".to_owned()) };
    vec![
        ("passes", r#"echo '{"outcome":"passed"}'"#, passed()),
        ("lacks", r#"echo '{"outcome":"not_possible","missing":"MaskedAtomics"}'"#, lacks),
        ("fails", r#"echo 'the end' >&2; echo '{"outcome":"failed","text":"no","at":"a.rs:1"}'"#, failed),
        ("is chatty", r#"echo hello; echo '{"outcome":"passed"}'; echo; echo '{"more":1}'"#, passed()),
        ("segfaults", "kill -SEGV $$", crashed("its process was ended by signal 11 (segmentation fault)")),
        ("exits", "exit 3", crashed("its process ended with code 3 and did not say what became of the case")),
        ("tells then crashes", r#"echo '{"outcome":"passed"}'; kill -KILL $$"#, passed()),
        (
            "floods",
            r#"head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo; echo '{"outcome":"passed"}'"#,
            passed(),
        ),
        // What it leaves behind holds the pipes.
        ("leaves another behind", r#"timeout 5 tail -f /dev/null & echo '{"outcome":"passed"}'"#, passed()),
    ]
}

/// Cases that never end.
const ENDLESS: &[(&str, &str)] = &[
    ("hangs", "exec tail -f /dev/null"),
    ("stops", "kill -STOP $$"),
    ("closes its pipes and hangs", "exec tail -f /dev/null >/dev/null 2>/dev/null"),
];

fn script(name: &str) -> Command {
    let scripts = scripts();
    let mut all = scripts.iter().map(|(known, script, _)| (*known, *script)).chain(ENDLESS.iter().copied());
    let (_, script) = all.find(|(known, _)| *known == name).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_case_that_crashes_is_a_result_and_the_rest_goes_on() {
    let runner = Runner { at_once: 3, ..Runner::new(&script) };
    let names: Vec<&str> = scripts().iter().map(|(name, ..)| *name).collect();
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |of: &AtomicUsize| {
        of.fetch_add(1, Ordering::Relaxed);
    };
    let all = runner.run(&names, &|_| count(&begun), &|_| count(&ended)).unwrap();
    assert_eq!((begun.into_inner(), ended.into_inner()), (names.len(), names.len()));
    for (ended, (name, _, expected)) in all.iter().zip(scripts()) {
        assert_eq!((ended.name, &ended.outcome), (name, &expected));
    }
    assert_eq!(all[2].said, "the end\n");
    assert!(all[7].said.len() <= 32 << 10, "only the end of it is kept: {}", all[7].said.len());
}

#[test]
fn a_case_that_hangs_is_a_result_and_the_rest_goes_on() {
    let limit = Duration::from_millis(100);
    let runner = Runner { limit, grace: limit, ..Runner::new(&script) };
    let names: Vec<&str> = ENDLESS.iter().map(|(name, _)| *name).collect();
    let all = runner.run(&names, &|_| {}, &|_| {}).unwrap();
    for (ended, name) in all.iter().zip(&names) {
        assert_eq!((ended.name, &ended.outcome), (*name, &Outcome::TimedOut { waited_for: None }));
        assert!(ended.took >= 2 * limit, "{ended:?}");
    }
    assert_eq!(all.len(), names.len());
}

#[test]
fn what_is_stopped_starts_no_more_and_ends_what_runs() {
    let begun = AtomicUsize::new(0);
    let stop = || begun.load(Ordering::Relaxed) == 2;
    let runner = Runner { stop: &stop, ..Runner::new(&script) };
    let begins = |_: &str| {
        begun.fetch_add(1, Ordering::Relaxed);
    };
    let all = runner.run(&["passes", "hangs", "fails"], &begins, &|_| {}).unwrap();
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

#[test]
fn what_is_known_of_drivers_is_of_cases_that_there_are_and_each_has_one_reason() {
    for driver in DRIVERS {
        let lacking = driver.lacks.iter().flat_map(|lack| lack.cases.iter().copied());
        let all: Vec<&str> = driver.differs.iter().map(|(name, _)| *name).chain(lacking).collect();
        for name in &all {
            assert!(Case::find(name).is_some() && driver.spoils(name), "{}: {name}", driver.name);
        }
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "{}", driver.name);
        for lack in driver.lacks {
            let missing = Outcome::Missing(lack.what);
            assert!(lack.cases.iter().all(|name| driver.explains(name, &missing) == Some(lack.why)));
            assert_eq!(driver.explains("read_brings", &missing), None);
        }
    }
    let rxe = ferroce_conformance::known::Driver::named("rxe").unwrap();
    let missing: usize = rxe.lacks.iter().map(|lack| lack.cases.len()).sum();
    assert_eq!((rxe.differs.len(), missing), (8, 24));
}

//! `ferroce selftest` in the guest, over the kernel's soft-RoCE as a card, by the guest's own `libibverbs`.
//!
//! Each case passes, or misses or does what is known of the driver (`ferroce_conformance::known`); anything else is a failure.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_conformance::CASES;
use ferroce_conformance::known::{self, Difference};
use serde_json::Value;

use crate::doctor::bring;
use crate::far::Far;
use crate::pair::check;
use crate::proof;
use crate::{Args, Result};

/// What the short form tries: cases that pass and that are not possible, and each difference that does not take long.
const SOME: &str = "send_arrives,read_brings,masked_fetch_and_add,limits_are_named,peer_errors_are_events,\
    message_longer_than_the_receive,datagram_longer_than_the_receive,send_with_a_key_that_cannot_be_invalidated,\
    type_2_window_belongs_to_one_queue_pair,type_2_window_opens_a_part";

/// Seconds that all of it may take in an emulated guest.
const PATIENCE: u64 = 1200;

/// Cases that pass at least.
const ENOUGH: u64 = 100;

/// Where the report is in the guest.
const FILE: &str = "/tmp/selftest.json";

/// Some of the cases; then as a user that may not use the card.
pub(crate) fn some(guest: IpAddr) -> Result<()> {
    let mut said = String::new();
    let report = report(guest, &format!("--only {SOME}"), |line| {
        said.push_str(line);
        said.push('\n');
    });
    let report = report.map_err(|error| format!("{error}: {said}"))?;
    judge(&report).map_err(|error| format!("{error}: {said}"))?;
    let known = report["summary"]["known"].as_u64().unwrap_or(0);
    check("whether it met what is known", known > 0, true)?;
    forbidden(guest)
}

/// All of them, each told when it has ended. What is known is shown by the kernel alone.
pub(crate) fn all(args: &Args) -> Result<()> {
    let program = args.ferroce.as_deref().ok_or("the program `ferroce` was not given")?;
    bring::bring(args.guest, program, "ferroce")?;
    let wanted = if args.only.is_empty() { String::new() } else { format!("--only {}", args.only.join(",")) };
    let mut shown: Vec<&Difference> = Vec::new();
    for (_, difference) in known::RXE.differs {
        // The same reason for several is shown once.
        if shown.iter().any(|other| std::ptr::eq(*other, *difference)) {
            continue;
        }
        shown.push(difference);
        if !proof::is_shown(difference, args.guest)? {
            return Err(format!("the kernel alone does not do this any more: {}", difference.why).into());
        }
    }
    let report = report(args.guest, &wanted, |line| eprintln!("{line}"))?;
    let summary = &report["summary"];
    println!("selftest of the kernel's soft-RoCE: {summary}");
    judge(&report)?;
    if args.only.is_empty() {
        check("cases", report["cases"].as_array().map(Vec::len), Some(CASES.len()))?;
        check("whether enough passed", summary["passed"].as_u64() >= Some(ENOUGH), true)?;
    }
    Ok(())
}

/// Runs it: its report.
fn report(guest: IpAddr, words: &str, told: impl FnMut(&str)) -> Result<Value> {
    let mut far = Far::connect(guest)?;
    far.be_patient(Duration::from_secs(PATIENCE + 20))?;
    far.start(&format!(
        "ulimit -l unlimited; rm -f {FILE}; timeout {PATIENCE} \
         ferroce selftest --device rxe0 --address {guest} --at-once 1 --verbose --json {FILE} {words} 2>&1"
    ))?;
    let code = far.follow(told)?;
    let text = Far::connect(guest)?.run(&format!("cat {FILE}"))?;
    let report = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    check("the exit code", code, 0)?;
    Ok(report)
}

/// Whether the report is that of a device whose driver is known, and nothing in it is new.
fn judge(report: &Value) -> Result<()> {
    let told = |text: &Value| text.as_str().unwrap_or_default().to_owned();
    check("the driver", told(&report["device"]["driver"]), known::RXE.name.to_owned())?;
    check("with what it was tried", told(&report["device"]["known"]), known::RXE.tried.to_owned())?;
    for word in ["failed", "timed_out", "crashed", "not_run"] {
        check(word, report["summary"][word].as_u64(), Some(0))?;
    }
    for case in report["cases"].as_array().into_iter().flatten() {
        let outcome = told(&case["outcome"]);
        let is_explained = case["known"].is_string();
        check(&format!("whether {} is explained", case["name"]), is_explained, outcome != "passed")?;
    }
    Ok(())
}

/// As a user without the right: nothing is run, and the file is named.
fn forbidden(guest: IpAddr) -> Result<()> {
    let mut far = Far::connect(guest)?;
    let file = "/dev/infiniband/uverbs0";
    far.start(&format!(
        "chmod 0600 {file}; su nobody -c \"ferroce selftest --device rxe0\" 2>&1; code=$?; chmod 0666 {file}; exit $code"
    ))?;
    let (code, said) = far.finish()?;
    check(&format!("the exit code without the right ({said})"), code, 2)?;
    check(&format!("whether {said:?} names the file"), said.contains(file), true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn well() -> Value {
        json!({
            "device": { "driver": "rxe", "known": known::RXE.tried },
            "summary": { "passed": 1, "known": 1, "failed": 0, "timed_out": 0, "crashed": 0, "not_run": 0 },
            "cases": [
                { "name": "read_brings", "outcome": "passed" },
                { "name": "masked_fetch_and_add", "outcome": "not_possible", "known": "why" },
                { "name": "message_longer_than_the_receive", "outcome": "known", "known": "why" },
            ],
        })
    }

    #[test]
    fn a_report_without_anything_new_is_well() {
        judge(&well()).unwrap();
    }

    #[test]
    fn anything_new_is_a_failure() {
        for (place, value, complaint) in [
            ("/summary/failed", json!(1), "failed"),
            ("/summary/not_run", json!(1), "not_run"),
            ("/summary/crashed", Value::Null, "crashed"),
            ("/device/driver", json!("mlx5_core"), "the driver"),
            ("/device/known", Value::Null, "with what"),
            ("/cases/1/known", Value::Null, "masked_fetch_and_add"),
            ("/cases/0/outcome", json!("failed"), "read_brings"),
        ] {
            let mut report = well();
            *report.pointer_mut(place).unwrap() = value;
            let error = judge(&report).unwrap_err().to_string();
            assert!(error.contains(complaint), "{place}: {error}");
        }
    }
}

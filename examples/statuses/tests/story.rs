//! The program as its readers run it: every status comes, with all that is told of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output, Stdio};

use ferroce::Status;
use serde_json::Value;

fn statuses(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_ferroce-statuses");
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

fn success(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = statuses(args);
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    String::from_utf8(stdout).unwrap()
}

/// How the peer's work ends, where it has any, and the states of both queue pairs, Ann's first.
const fn aftermath(status: Status) -> (Option<Status>, [&'static str; 2]) {
    match status {
        Status::Success => (None, ["Rts", "Rts"]),
        Status::LocalLength => (Some(Status::RemoteInvalidRequest), ["Err", "Err"]),
        Status::RemoteInvalidRequest => (Some(Status::LocalLength), ["Err", "Err"]),
        Status::LocalProtection => (Some(Status::RemoteOperation), ["Err", "Err"]),
        Status::RemoteOperation => (Some(Status::LocalProtection), ["Err", "Err"]),
        Status::LocalAccess => (Some(Status::RemoteAccess), ["Err", "Err"]),
        Status::RemoteAccess => (None, ["Err", "Err"]),
        Status::RetryExceeded => (None, ["Err", "Init"]),
        _ => (None, ["Err", "Rts"]),
    }
}

#[test]
fn every_status_comes_and_is_told_for_programs() {
    let json: Value = serde_json::from_str(&success(&["--json"])).unwrap();
    let told = json["statuses"].as_array().unwrap();
    let names: Vec<String> = told.iter().map(|told| told["status"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, Status::ALL.map(|status| format!("{status:?}")));
    for (status, told) in Status::ALL.into_iter().zip(told) {
        let (wqe, cqe) = (&told["wqe"], &told["cqe"]);
        assert_eq!((&told["code"], &cqe["status"]), (&status.code().into(), &status.code().into()));
        assert_eq!((&wqe["wr_id"], &wqe["qp"]), (&cqe["wr_id"], &cqe["qp"]), "{told:#}");
        assert_eq!(cqe["vendor_error"], 0);
        let last = if status == Status::Success { "COMPLETED" } else { "ERROR" };
        let states = wqe["states"].as_array().unwrap();
        assert_eq!((&states[0], states.last().unwrap()), (&"POSTED".into(), &last.into()), "{told:#}");
        let (peer, qps) = aftermath(status);
        assert_eq!(
            told["peer"]["status"],
            peer.map_or(Value::Null, |peer| format!("{peer:?}").into()),
            "{told:#}"
        );
        assert_eq!([&told["qp_states"]["Ann"], &told["qp_states"]["Bob"]], qps, "{told:#}");
        assert!(told["c_name"].as_str().unwrap().starts_with("IBV_WC_"), "{told:#}");
        for words in ["what", "means", "remedy", "here"] {
            assert!(told[words].as_str().unwrap().len() > 6, "{told:#}");
        }
    }
}

#[test]
fn every_status_is_told_for_people() {
    let text = success(&[]);
    for (place, status) in Status::ALL.into_iter().enumerate() {
        let title = format!("\n== {} of 13: {status:?} (IBV_WC_", place + 1);
        let (_, rest) = text.split_once(&title).unwrap_or_else(|| panic!("no {title:?} in {text}"));
        let told = rest.split("\n== ").next().unwrap();
        for line in [
            "\n  WQE     ",
            "          POSTED -> ",
            "\n  CQE     wr_id ",
            "\n  QPs     ",
            "\n  remedy  ",
            "\n  here    ",
        ] {
            assert!(told.contains(line), "no {line:?} in {told}");
        }
        let means = format!("\n  means   {status}\n");
        assert!(told.contains(&means), "no {means:?} in {told}");
        assert!(
            told.contains(&format!(", status {} {status:?}, vendor error 0, byte length ", status.code())),
            "{told}"
        );
    }
    assert!(text.lines().all(|line| line.len() <= 130), "{text}");
}

#[test]
fn one_status_alone_can_be_asked_for() {
    let text = success(&["--only", "remoteaccess"]);
    assert!(text.contains("== 1 of 1: RemoteAccess (IBV_WC_REM_ACCESS_ERR, 10)\n"), "{text}");
    let wrong = statuses(&["--only", "Error"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && said.contains("the statuses are Success, "), "{said}");
}

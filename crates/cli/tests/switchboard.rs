//! `ferroce switchboard`, while this process has a device open.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use ferroce_device::{Config, Nic};
use serde_json::Value;

fn run(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ferroce")).arg("switchboard").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_shows_which_process_owns_which_slot() {
    let nic = Nic::open(Config { address: Some([127, 0, 65, 1].into()), ..Config::new("lo") }).unwrap();
    let said: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let ours = said["switchboards"].as_array().unwrap().iter().find(|seen| seen["address"] == "127.0.65.1");
    let ours = ours.unwrap_or_else(|| panic!("{said:#}"));
    let pid = std::process::id();
    assert_eq!((&ours["interface"], &ours["leader"]), (&Value::from("lo"), &Value::from(pid)));
    let slot = &ours["slots"][0];
    assert_eq!(slot["pid"], pid, "{ours:#}");
    assert_eq!((&slot["alive"], &slot["leads"]), (&Value::from(true), &Value::from(true)));

    let text = run(&["lo"]);
    let line = text.lines().skip_while(|line| !line.contains("127.0.65.1")).nth(2).unwrap_or_default();
    assert!(line.contains(&pid.to_string()) && line.ends_with("leads"), "{text}");
    drop(nic);
}

#[test]
fn a_word_that_is_no_interface_is_refused_with_help() {
    for args in [&["x"][..], &["no-such-one", "--json"], &["ferroce_list"], &["--list"], &["lo", "x"]] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_ferroce")).arg("switchboard").args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{args:?}: {said}");
        assert!(said.contains("Usage: ferroce switchboard [OPTIONS] [INTERFACE]"), "{args:?}: {said}");
        assert!(said.contains("try '--help'"), "{args:?}: {said}");
    }
    // An interface by its own name or by that of its device is none of these.
    let nic = Nic::open(Config { address: Some([127, 0, 65, 2].into()), ..Config::new("lo") }).unwrap();
    for name in ["lo", "ferroce_lo"] {
        let said = run(&[name]);
        assert!(said.contains("127.0.65.2"), "{name}: {said}");
    }
    drop(nic);
}

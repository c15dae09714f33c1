//! `ferroce run` and `ferroce env`, as people and scripts use them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The folder of the library: from `cargo xtask test`, or linked here.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        env::var_os("FERROCE_ABI").map_or_else(
            || {
                let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
                let mut command = Command::new(env!("CARGO"));
                command.args(["xtask", "link-abi"]).current_dir(root).stdout(Stdio::null());
                assert!(command.status().unwrap().success());
                Path::new(env!("CARGO_BIN_EXE_ferroce")).with_file_name("abi")
            },
            PathBuf::from,
        )
    })
}

fn ferroce(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(args).env("FERROCE_LIBRARIES", libraries());
    for name in ["LD_LIBRARY_PATH", "FERROCE_NETDEV", "FERROCE_FAULTS", "FERROCE_PCAP", "FERROCE_PATH"] {
        command.env_remove(name);
    }
    command.env("FERROCE_ADDRESS", "127.0.89.1");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

#[test]
fn a_stock_program_and_its_children_see_the_device() {
    if !ferroce_testkit::judge::has_file("/usr/bin/ibv_devices") {
        return;
    }
    for program in [&["ibv_devices"][..], &["sh", "-c", "(ibv_devices)"]] {
        let output = ferroce(&[&["run", "--"], program].concat()).output().unwrap();
        assert!(output.status.success() && said(&output).contains("ferroce_lo"), "{}", said(&output));
    }
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_command() {
    let ended = |script: &str| ferroce(&["run", "--", "sh", "-c", script]).status().unwrap();
    assert_eq!(ended("exit 7").code(), Some(7));
    assert_eq!(ended("kill -TERM $$").signal(), Some(15));
    assert_eq!(ended("exit 0").code(), Some(0));
}

#[test]
fn settings_reach_the_program() {
    let args = ["run", "--faults", "loss=0.5,seed=3", "--path", "wire", "--netdev", "lo", "--pcap", "x.pcap"];
    let script = "echo $FERROCE_FAULTS $FERROCE_PATH $FERROCE_NETDEV $FERROCE_PCAP $LD_LIBRARY_PATH";
    let output = ferroce(&[&args[..], &["--", "sh", "-c", script]].concat())
        .env("LD_LIBRARY_PATH", "/nowhere")
        .output()
        .unwrap();
    let pcap = env::current_dir().unwrap().join("x.pcap");
    let folder = fs::canonicalize(libraries()).unwrap();
    let expected =
        format!("loss=0.5,seed=3 wire lo {} {}:/nowhere\n", pcap.display(), folder.display());
    assert_eq!(said(&output), expected);
}

#[test]
fn env_prints_what_a_shell_can_eval() {
    let output = ferroce(&["env", "--path", "wire"]).output().unwrap();
    let script = format!("{}\necho $FERROCE_PATH", String::from_utf8(output.stdout).unwrap());
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(said(&shell), "wire\n");
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    for (args, words) in [
        (&["run", "--faults", "loss=lots", "--", "true"][..], "loss"),
        (&["run", "--path", "sideways", "--", "true"], "sideways"),
        (&["run", "--netdev", "a,,b", "--", "true"], "a,,b"),
        (&["run", "--", "no-such-program"], "no-such-program cannot be run"),
    ] {
        let output = ferroce(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said(&output).contains(words), "{args:?}: {}", said(&output));
    }
    let output = ferroce(&["run", "--", "true"]).env("FERROCE_LIBRARIES", "/nowhere").output().unwrap();
    assert!(said(&output).contains("there is no libibverbs.so.1 in it"), "{}", said(&output));
    assert_eq!(ferroce(&["run"]).output().unwrap().status.code(), Some(2));
}

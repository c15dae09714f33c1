//! `ferroce run` and `ferroce env`, as people and scripts use them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::env;
use std::fs;
use std::net::TcpListener;
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
    let args = [&args[..], &["--service", "train"]].concat();
    let script =
        "echo $FERROCE_FAULTS $FERROCE_PATH $FERROCE_NETDEV $FERROCE_PCAP $FERROCE_SERVICE $LD_LIBRARY_PATH";
    let output = ferroce(&[&args[..], &["--", "sh", "-c", script]].concat())
        .env("LD_LIBRARY_PATH", "/nowhere")
        .output()
        .unwrap();
    let pcap = env::current_dir().unwrap().join("x.pcap");
    let folder = fs::canonicalize(libraries()).unwrap();
    let expected =
        format!("loss=0.5,seed=3 wire lo {} train {}:/nowhere\n", pcap.display(), folder.display());
    assert_eq!(said(&output), expected);
}

/// An empty folder for captures.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

#[test]
fn every_process_has_a_capture_of_its_own() {
    if !ferroce_testkit::judge::has_file("/usr/bin/ibv_devinfo") {
        return;
    }
    let folder = folder("captures-one-after-another");
    let first = folder.join("trace.pcap");
    let run = |script: &str| {
        let pcap = first.to_str().unwrap();
        let output = ferroce(&["run", "--pcap", pcap, "--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    };
    run("ibv_devinfo; ibv_devinfo; ibv_devinfo");
    let made = files(&folder);
    assert!(made.len() == 3 && made.contains(&first), "{made:?}");
    // The next run begins anew, and leaves what has a number in its name.
    run("ibv_devinfo");
    assert_eq!(files(&folder), made);
    // A file that a process writes is not taken away.
    let busy = fs::File::open(&first).unwrap();
    busy.lock().unwrap();
    let before = fs::read(&first).unwrap();
    run("ibv_devinfo");
    assert_eq!((files(&folder).len(), fs::read(&first).unwrap()), (4, before));
}

#[test]
fn both_ends_of_a_conversation_are_written_down_whole() {
    if !ferroce_testkit::judge::has_file("/usr/bin/ibv_rc_pingpong") {
        return;
    }
    let folder = folder("captures-at-once");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tool = format!("ibv_rc_pingpong -g 0 -n 20 -p {port}");
    // A client that comes too early begins anew, with a capture of nothing.
    let script = format!("{tool} & until {tool} 127.0.0.1; do :; done; wait $!");
    let pcap = folder.join("trace.pcap");
    let output =
        ferroce(&["run", "--pcap", pcap.to_str().unwrap(), "--", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let sends = |file: &PathBuf| {
        let decoded = ferroce(&["decode", file.to_str().unwrap()]).output().unwrap();
        said(&decoded).lines().filter(|line| line.contains("SEND")).count()
    };
    let mut counts: Vec<usize> = files(&folder).iter().map(sends).filter(|count| *count > 0).collect();
    counts.sort_unstable();
    // Twenty messages of four packets, both ways; packets that were sent again come on top.
    assert!(counts.len() == 2 && counts[0] >= 160, "{counts:?}: {}", said(&output));
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

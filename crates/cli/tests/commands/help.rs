//! What the binary says about itself.

use std::env;
use std::fs;
use std::process;

use crate::golden::golden;
use crate::run::{Running, command, ferroce};

const COMMANDS: [&str; 15] = [
    "demo",
    "devices",
    "doctor",
    "perf",
    "mesh-perf",
    "mesh",
    "ping",
    "probe",
    "secret",
    "stat",
    "switchboard",
    "decode",
    "trace",
    "completions",
    "man",
];

#[test]
fn help_teaches() {
    golden("help.txt", &trimmed(&ferroce(&["--help"]).success().stdout));
    golden("help-perf.txt", &trimmed(&ferroce(&["perf", "--help"]).success().stdout));
}

/// Without the blanks that clap leaves at the ends of lines.
fn trimmed(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn every_command_has_examples() {
    for name in COMMANDS {
        let long = ferroce(&["help", name]).success().stdout;
        assert!(long.contains("Examples:\n"), "{name}: {long}");
        let short = ferroce(&[name, "-h"]).success().stdout;
        assert!(short.len() < long.len(), "{name}");
    }
}

#[test]
fn wrong_command_lines_are_refused() {
    for (args, complaint) in [
        (&["sing"][..], "unrecognized subcommand 'sing'"),
        (&["demo", "--loud"], "unexpected argument '--loud'"),
        (&["perf"], "<VERB>"),
        (&["perf", "sing"], "invalid value 'sing'"),
        (&["perf", "write", "--bw", "--lat"], "cannot be used with"),
        (&["perf", "write", "--size", "4x"], "no unit \"x\""),
        (&["perf", "write", "--size", "0"], "1 byte to 1 GiB"),
        (&["perf", "write", "--size", "2G"], "1 byte to 1 GiB"),
        (&["perf", "write", "--size", "1G", "--qps", "8"], "too much memory"),
        (&["perf", "write", "--size", "8", "--all-sizes"], "cannot be used with"),
        (&["perf", "write", "--depth", "0"], "a depth of 1 to 8192"),
        (&["perf", "write", "--duration", "forever"], "no number of seconds"),
        (&["perf", "write", "--duration", "-1"], "unexpected argument"),
        (&["perf", "write", "--iterations", "0"], "0 is not in"),
        (&["perf", "write", "--lat", "--qps", "2"], "--lat measures one queue pair"),
        (&["perf", "send", "--target", "spin"], "cannot spin on memory"),
        (&["perf", "atomic", "--size", "16"], "an atomic has 8 bytes"),
        (&["perf", "write", "--server"], "cannot be used with"),
        (&["perf", "write", "--connect", "localhost", "--path", "local"], "leave out --connect"),
        (&["perf", "write", "--address", "127.0.0.9"], "--server"),
        (&["perf", "--server", "--bind", "somewhere"], "invalid value 'somewhere'"),
        (
            &["perf", "write", "--connect", "localhost:http"],
            "\"http\" after \"localhost\" is no port from 1 to 65535",
        ),
        (&["perf", "write", "--connect", "localhost:70000"], "no port from 1 to 65535"),
        (&["perf", "write", "--connect", "[::1"], "not closed"),
        (&["perf", "write", "--connect", "localhost:1", "--port", "2"], "say it once"),
        (&["perf", "write", "--forever"], "cannot be used with '--forever'"),
        (&["perf", "--forever"], "--server"),
        (&["perf", "write", "--bind", "127.0.0.1"], "cannot be used with"),
        (&["doctor", "--only", "sing"], "invalid value 'sing'"),
        (&["doctor", "--root", "/no/such"], "--root /no/such: there is no such folder"),
        (&["doctor", "--json", "-v"], "cannot be used with"),
        (&["switchboard", "x"], "\"x\" is no interface with an address; those of this machine: lo"),
        (&["mesh-perf", "--members", "1"], "1 is not in 2..=32"),
        (&["mesh-perf", "--size", "0"], "1 byte to 16 MiB"),
        (&["mesh-perf", "--duration", "0"], "no number of seconds"),
        (&["mesh-perf", "--plot", "mesh.png"], "ends in .svg"),
        (&["ping"], "<HOST>"),
        (&["ping", "localhost", "--interval", "0"], "between 0.0001 and 3600 seconds"),
        (&["ping", "localhost", "--qpn", "1"], "no queue pair number"),
        (&["ping", "localhost", "--port", "50000", "--paths"], "cannot be used with"),
        (&["ping", "localhost", "--expect", "8"], "--paths"),
        (&["ping", "localhost", "--flood", "--interval", "1"], "cannot be used with"),
        (&["ping", "localhost", "--plot", "rtt.png"], "ends in .svg"),
        (&["probe", "responder", "--rate", "0"], "0 is not in"),
        (&["completions", "csh"], "invalid value 'csh'"),
    ] {
        let out = ferroce(args);
        assert!(out.usage().contains(complaint), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn nothing_at_all_shows_the_help() {
    let out = ferroce(&[]);
    assert!(out.usage().contains("Where to begin:"), "{}", out.stderr);
}

#[test]
fn shells_learn_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ferroce(&["completions", shell]).success().stdout;
        for word in COMMANDS.iter().chain(&["all-sizes", "iterations"]) {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn there_is_a_manual() {
    let page = ferroce(&["man"]).success().stdout;
    assert!(page.contains(".TH ferroce 1") && page.contains("Where to begin"), "{page}");
    let dir = env::temp_dir().join(format!("ferroce-man-{}", process::id()));
    ferroce(&["man", dir.to_str().unwrap()]).success();
    for name in COMMANDS {
        let page = fs::read_to_string(dir.join(format!("ferroce-{name}.1"))).unwrap();
        assert!(page.contains(".TH ferroce-") && page.contains("Examples"), "{name}: {page}");
    }
    fs::remove_dir_all(&dir).unwrap();
    // A file in the way.
    fs::write(&dir, "").unwrap();
    let out = ferroce(&["man", dir.to_str().unwrap()]);
    fs::remove_file(&dir).unwrap();
    assert!(out.failure().contains("cannot make the directory"), "{}", out.stderr);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for args in [&["completions", "bash"][..], &["demo"], &["devices", "-v"], &["man"]] {
        let mut running = Running::start(command(args));
        assert_ne!(running.line(), "");
        let out = running.leave();
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

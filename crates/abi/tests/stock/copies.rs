//! Several copies of the card in one process: the drop-in libraries, and plugins in Rust that bring their own.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::library::can_compile;
use crate::library::{compiled_with, folder, succeeds, with_library};

/// The plugin: beside the libraries if `cargo xtask test` has compiled it, else compiled here.
fn plugin() -> PathBuf {
    let built = folder().with_file_name("examples").join("libsecond_copy.so");
    if env::var_os("FERROCE_ABI").is_none() || !built.is_file() {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "ferroce-abi", "--example", "second_copy"]);
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(status.success(), "{command:?}");
    }
    built
}

/// The program of the tests, with the plugin under two names.
struct Copies {
    program: PathBuf,
    plugins: [PathBuf; 2],
    address: &'static str,
}

impl Copies {
    fn new(address: &'static str) -> Option<Self> {
        if !can_compile() {
            return None;
        }
        let other = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plugin-{address}.so"));
        let plugin = plugin();
        fs::copy(&plugin, &other).unwrap();
        Some(Self { program: compiled_with("copies", &[]), plugins: [plugin, other], address })
    }

    fn command(&self, loading: &str, closing: &str) -> Command {
        let mut command = with_library(&self.program, self.address);
        command.args([loading, closing]).args(&self.plugins);
        command
    }
}

/// All orders of some letters.
fn orders(letters: &str) -> Vec<String> {
    if letters.is_empty() {
        return vec![String::new()];
    }
    let without = |at: usize| letters[..at].to_owned() + &letters[at + 1..];
    let first =
        |at: usize| orders(&without(at)).into_iter().map(move |rest| letters[at..=at].to_owned() + &rest);
    (0..letters.len()).flat_map(first).collect()
}

#[test]
fn copies_of_the_card_in_one_process_live_beside_each_other_in_any_order() {
    let Some(copies) = Copies::new("127.0.88.56") else { return };
    let mut pairs = Vec::new();
    for loading in orders("vcp") {
        pairs.extend(orders("vcp").into_iter().map(|closing| (loading.clone(), closing)));
    }
    pairs.extend([("vcpq", "vcpq"), ("qpcv", "vqpc")].map(|(one, two)| (one.to_owned(), two.to_owned())));
    for (loading, closing) in pairs {
        let said = succeeds(copies.command(&loading, &closing));
        assert_eq!(said, "all went well\n", "{loading} {closing}");
    }
}

#[test]
fn a_process_with_copies_that_becomes_another_program_leaves_no_slot() {
    let Some(copies) = Copies::new("127.0.88.57") else { return };
    assert_eq!(succeeds(copies.command("vcpq", "exec")), "all went well\n");
}

/// Where a thread cannot have descriptors of its own, to close one would end the locks of the first copy.
#[test]
fn where_copies_would_harm_each_other_the_second_is_refused() {
    let Some(copies) = Copies::new("127.0.88.58") else { return };
    for (loading, refusals) in [("vp", 1), ("pv", 1), ("pqv", 2)] {
        let said = succeeds(copies.command(loading, "refused"));
        assert!(said.contains("one card\n"), "{said}");
        assert_eq!(said.matches("another copy of Ferroce in this process").count(), refusals, "{said}");
    }
}

#[test]
fn a_killed_process_with_copies_leaves_its_slots_to_others() {
    let Some(copies) = Copies::new("127.0.88.59") else { return };
    // Not by `timeout`, which would be killed in its place.
    let waiting = copies.command("vcpq", "wait");
    let mut killed = Command::new(&copies.program);
    killed.args(["vcpq", "wait"]).args(&copies.plugins).stdin(Stdio::null()).stdout(Stdio::piped());
    killed.envs(waiting.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut killed = killed.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let rows = |pid: u32| {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|line| line.split_whitespace().nth(4) == Some(&pid.to_string())).count()
    };
    assert!(rows(killed.id()) >= 3, "a slot for each copy");
    // One that is in the group, or just on its way, goes on; and so do others later.
    let beside = copies.command("vp", "pv").stdout(Stdio::piped()).spawn().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(rows(killed.id()), 0);
    assert_eq!(String::from_utf8_lossy(&beside.wait_with_output().unwrap().stdout), "all went well\n");
    assert_eq!(succeeds(copies.command("pvc", "cvp")), "all went well\n");
}

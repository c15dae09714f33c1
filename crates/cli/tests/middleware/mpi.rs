//! Open MPI over UCX: messages, collective functions and one-sided windows.

use std::path::Path;
use std::process::Command;

use ferroce_testkit::judge;

use crate::support::{LOSS, Unprivileged, compiled, is_long, run, succeeds};

/// The words before the program. All of them select: messages and windows by UCX, and more ranks than processors.
fn mpirun(ranks: u32) -> Vec<String> {
    let words = format!(
        "mpirun --allow-run-as-root --oversubscribe -n {ranks} --mca pml ucx --mca osc ucx --mca btl ^openib"
    );
    words.split_whitespace().map(str::to_owned).collect()
}

/// Only our device, and none of the shared memory.
fn over(mut command: Command, transport: &str) -> Command {
    command.env("UCX_TLS", format!("{transport},self")).env("UCX_NET_DEVICES", "ferroce_lo:1");
    command
}

fn is_here() -> bool {
    judge::has_file("/usr/bin/mpirun") && judge::has_file("/usr/bin/mpicc")
}

fn rounds() -> &'static str {
    if is_long() { "20" } else { "1" }
}

/// Runs a program with 2 and 4 ranks over both transports; the short form has each number and each transport once.
fn all_ranks_agree(program: &str, address: &str, variables: &[(&str, &str)]) {
    let binary = compiled("mpicc", program);
    let mut runs = vec![("rc_v", 4), ("ud_v", 2)];
    if is_long() {
        runs.extend([("rc_v", 2), ("ud_v", 4)]);
    }
    for (transport, ranks) in runs {
        all_right(&run_of(&binary, address, ranks), transport, ranks, variables);
    }
}

fn run_of(binary: &Path, address: &str, ranks: u32) -> impl Fn() -> Command {
    let [binary, address] = [binary.to_str().unwrap(), address].map(str::to_owned);
    move || {
        let start = mpirun(ranks);
        let words: Vec<&str> = start.iter().map(String::as_str).chain([binary.as_str(), rounds()]).collect();
        run(&address, &words)
    }
}

fn all_right(command: &impl Fn() -> Command, transport: &str, ranks: u32, variables: &[(&str, &str)]) {
    let mut command = over(command(), transport);
    command.envs(variables.iter().copied());
    let said = succeeds(command);
    let expected = format!("{ranks} ranks, {} rounds, all right", rounds());
    assert!(said.contains(&expected), "{transport}: {said}");
}

#[test]
fn ranks_send_messages_and_do_collective_work() {
    if is_here() {
        all_ranks_agree("mpi_messages", "127.0.92.10", &[]);
    }
}

#[test]
fn ranks_use_windows_of_each_other() {
    if is_here() {
        all_ranks_agree("mpi_windows", "127.0.92.11", &[]);
    }
}

#[test]
fn ranks_agree_where_packets_are_lost() {
    if is_here() {
        all_ranks_agree("mpi_messages", "127.0.92.12", &[LOSS]);
        all_ranks_agree("mpi_windows", "127.0.92.13", &[LOSS]);
    }
}

#[test]
fn a_user_without_any_right_runs_ranks_too() {
    if !is_here() {
        return;
    }
    for program in ["mpi_messages", "mpi_windows"] {
        let Some(user) = Unprivileged::become_with(&compiled("mpicc", program)) else { return };
        for transport in if is_long() { &["rc_v", "ud_v"][..] } else { &["rc_v"] } {
            let start = mpirun(4);
            let [binary, rounds] = [user.program(), rounds().to_owned()];
            let words: Vec<&str> = start.iter().chain([&binary, &rounds]).map(String::as_str).collect();
            all_right(&|| user.run("127.0.92.14", &words), transport, 4, &[]);
        }
    }
}

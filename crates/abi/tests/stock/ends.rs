//! How connections by rdma_cm end when one of the two programs does.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use ferroce_testkit::judge;

use crate::library::{compiled_with, with_library};
use crate::pairs::signal_program_of;

/// Soon enough, in milliseconds: what a program may expect.
const SOON: u64 = 2000;

/// How often it is tried to be soon enough: on a busy machine everything may take long.
const TRIES: usize = 5;

/// One end of a connection, as `cm_ends.c` has it.
struct End {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl End {
    fn start(program: &Path, role: &str, own: &str, server: &str, port: u16) -> Self {
        Self::start_with(program, role, own, server, port, &[])
    }

    fn start_with(
        program: &Path,
        role: &str,
        own: &str,
        server: &str,
        port: u16,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = with_library(program, own);
        command.envs(variables.iter().copied());
        command.args([role, server, &port.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The line that begins with a word. Nothing else but what is usual may come before it; the program's own limit of
    /// time ends a wait in vain.
    fn says(&mut self, word: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if line.starts_with(word) {
                return line;
            }
            let usual = ["ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_REQUEST"];
            assert!(usual.iter().any(|kind| line.contains(kind)), "{line} instead of {word}");
            seen.push(line);
        }
        panic!("it never said {word}, but {seen:?}");
    }

    fn stands(&mut self) {
        assert!(self.says("RDMA_CM_EVENT_ESTABLISHED").contains(" 0 "));
    }

    /// When it heard that the connection is over, in milliseconds.
    fn hears_of_the_end(&mut self) -> u64 {
        let line = self.says("RDMA_CM_EVENT_DISCONNECTED 0 ");
        let time = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        self.says("RDMA_CM_EVENT_TIMEWAIT_EXIT 0 ");
        time
    }

    fn does(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for End {
    fn drop(&mut self) {
        signal_program_of(&self.child, "-KILL");
        let _ = self.child.wait();
    }
}

/// The time since the machine started, in milliseconds.
fn uptime() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    let (seconds, hundredths) = text.split_whitespace().next().unwrap().split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1000 + hundredths.parse::<u64>().unwrap() * 10
}

fn program() -> Option<PathBuf> {
    compiled("cm_ends")
}

fn compiled(name: &str) -> Option<PathBuf> {
    let can = judge::is_here("gcc") && judge::has_file("/usr/include/rdma/rdma_cma.h");
    can.then(|| compiled_with(name, &["-lrdmacm", "-libverbs"]))
}

/// A server and a client, connected.
fn pair(program: &Path, server: &str, client: &str, port: u16) -> [End; 2] {
    let mut first = End::start(program, "server", server, server, port);
    first.says("listens");
    let mut second = End::start(program, "client", client, server, port);
    second.stands();
    first.stands();
    [first, second]
}

/// Something ends one of the two, and the other one hears of it soon.
fn hears_soon(program: &Path, [server, client]: [&str; 2], port: u16, end: impl Fn(&mut End)) {
    for server_ends in [true, false] {
        let mut times = Vec::new();
        for _ in 0..TRIES {
            let [mut ending, mut left] = pair(program, server, client, port);
            if !server_ends {
                std::mem::swap(&mut ending, &mut left);
            }
            let before = uptime();
            end(&mut ending);
            times.push(left.hears_of_the_end().saturating_sub(before));
            left.ends();
            if times.last().is_some_and(|time| *time <= SOON) {
                break;
            }
        }
        assert!(
            times.iter().any(|time| *time <= SOON),
            "server ends: {server_ends}, heard of after {times:?} ms"
        );
    }
}

fn kill(end: &mut End) {
    signal_program_of(&end.child, "-KILL");
}

#[test]
fn of_a_process_of_the_same_address_that_is_killed_its_peer_hears_soon() {
    let Some(program) = program() else { return };
    hears_soon(&program, ["127.0.91.1"; 2], 7501, kill);
}

/// Nothing is left at the address of the one that is killed: the kernel says so.
#[test]
fn of_a_process_of_another_address_that_is_killed_its_peer_hears_soon() {
    let Some(program) = program() else { return };
    hears_soon(&program, ["127.0.91.2", "127.0.91.3"], 7502, kill);
}

/// Another process is left at the address: it answers for the one that is killed.
#[test]
fn of_a_process_that_is_killed_beside_others_its_peer_hears_soon() {
    let Some(program) = program() else { return };
    let beside = |address, port| {
        let mut other = End::start(&program, "server", address, address, port);
        other.says("listens");
        other
    };
    let _others = [beside("127.0.91.4", 7503), beside("127.0.91.5", 7504)];
    hears_soon(&program, ["127.0.91.4", "127.0.91.5"], 7505, kill);
}

#[test]
fn of_a_process_that_ends_without_a_word_its_peer_hears_soon() {
    let Some(program) = program() else { return };
    for addresses in [["127.0.91.6"; 2], ["127.0.91.7", "127.0.91.8"]] {
        hears_soon(&program, addresses, 7506, |end| end.does("exit"));
    }
}

/// A process that is stopped is silent, and comes back.
#[test]
fn a_process_that_is_stopped_for_a_while_loses_no_connection() {
    let Some(program) = program() else { return };
    for [server, client] in [["127.0.91.9"; 2], ["127.0.91.10", "127.0.91.11"]] {
        let [mut server, mut client] = pair(&program, server, client, 7507);
        let stops = |stopped: &End, waiting: &mut End| {
            signal_program_of(&stopped.child, "-STOP");
            waiting.does("wait 3500");
            waiting.says("quiet");
            signal_program_of(&stopped.child, "-CONT");
        };
        stops(&server, &mut client);
        stops(&client, &mut server);
        client.does("part");
        server.hears_of_the_end();
        client.hears_of_the_end();
        server.ends();
        client.ends();
    }
}

/// It was: for two seconds no other process got the port.
#[test]
fn a_port_whose_listener_went_is_for_the_next_process_that_wants_it() {
    let Some(program) = program() else { return };
    let address = "127.0.91.12";
    let mut last: Option<[End; 2]> = None;
    for _ in 0..3 {
        let mut server = End::start(&program, "server", address, address, 7508);
        server.says("listens");
        let mut client = End::start(&program, "client", address, address, 7508);
        client.stands();
        server.stands();
        server.does("close");
        server.says("closed");
        // The one before it lives on, with its connection.
        if let Some([mut before, mut its_client]) = last.replace([server, client]) {
            before.does("part");
            before.hears_of_the_end();
            its_client.hears_of_the_end();
            before.ends();
        }
    }
}

/// It was: as long as the destroyed id was remembered, the question was neither answered nor told.
#[test]
fn a_question_that_comes_again_after_its_id_was_destroyed_is_a_new_one() {
    let Some(program) = compiled("cm_asked") else { return };
    let [server, client] = ["127.0.91.13", "127.0.91.14"];
    let lost = [("FERROCE_FAULTS", "loss=1,seed=1")];
    let mut server_end = End::start_with(&program, "server", server, server, 7509, &lost);
    server_end.says("listens");
    let _client = End::start(&program, "client", client, server, 7509);
    server_end.says("asked twice");
    server_end.ends();
}

//! The other process of a benchmark: it speaks, it ends with the first one, and its failure is seen.
//!
//! This program is also all the processes that it starts, so it has a `main` of its own.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_testkit::process::{Parent, Peer, PeerError};

/// How long the end of a process is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name] = &args[..]
        && role == "--role"
    {
        return play(name).unwrap_or(ExitCode::FAILURE);
    }
    let tests: [(&str, fn()); 5] = [
        ("lines_go_both_ways", lines_go_both_ways),
        ("bytes_are_exchanged", bytes_are_exchanged),
        ("a_failure_is_seen", a_failure_is_seen),
        ("one_that_is_dropped_is_gone", one_that_is_dropped_is_gone),
        ("no_process_outlives_a_parent_that_is_killed", no_process_outlives_a_parent_that_is_killed),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Is the process of a role.
fn play(role: &str) -> Result<ExitCode, PeerError> {
    match role {
        "echo" => {
            Parent.say(format_args!("heard {}", Parent.hear()?))?;
            let stop = Parent.watch();
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Parent.say("goodbye")?;
        }
        "bytes" => {
            let mut byte = [0];
            while io::stdin().read_exact(&mut byte).is_ok() {
                Parent.say(char::from(byte[0].wrapping_add(1)))?;
            }
        }
        "failure" => {
            Parent.wait();
            return Ok(ExitCode::from(3));
        }
        // It notices nothing.
        "deaf" => loop {
            std::thread::park();
        },
        "follower" => {
            Parent.follow();
            Parent.say("ready")?;
            loop {
                std::thread::park();
            }
        }
        "middle" => {
            let mut follower = Peer::start(["--role", "follower"])?;
            Parent.say(follower.hear()?)?;
            loop {
                std::thread::park();
            }
        }
        _ => return Ok(ExitCode::FAILURE),
    }
    Ok(ExitCode::SUCCESS)
}

/// A process of this role, and a stream that ends when it, and all that it started, have ended.
fn watched(role: &str) -> (Peer, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("two sockets");
    ours.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--role", role]).stderr(OwnedFd::from(theirs));
    (Peer::start_by(command).expect("a process"), ours)
}

fn lines_go_both_ways() {
    let mut peer = Peer::start(["--role", "echo"]).expect("a process");
    peer.say("one line").expect("it hears");
    assert_eq!(peer.hear().expect("it answers"), "heard one line");
    assert_eq!(peer.stop().expect("it ends"), "goodbye\n");
}

fn bytes_are_exchanged() {
    let mut peer = Peer::start(["--role", "bytes"]).expect("a process");
    let mut answer = [0; 6];
    peer.exchange(b"abc", &mut answer).expect("it answers");
    assert_eq!(&answer, b"b\nc\nd\n");
    assert_eq!(peer.stop().expect("it ends"), "");
}

fn a_failure_is_seen() {
    let mut peer = Peer::start(["--role", "no such role"]).expect("a process");
    assert!(matches!(peer.hear(), Err(PeerError::EndedEarly)));
    let peer = Peer::start(["--role", "failure"]).expect("a process");
    match peer.stop() {
        Err(PeerError::Failed(status)) => assert_eq!(status.code(), Some(3)),
        other => panic!("{other:?} instead of a failure"),
    }
}

fn one_that_is_dropped_is_gone() {
    let (peer, mut stream) = watched("deaf");
    drop(peer);
    assert_eq!(stream.read(&mut [0]).expect("its end"), 0);
}

fn no_process_outlives_a_parent_that_is_killed() {
    let (mut middle, mut stream) = watched("middle");
    assert_eq!(middle.hear().expect("both run"), "ready");
    // As by the signal that no process can catch.
    drop(middle);
    assert_eq!(stream.read(&mut [0]).expect("the end of both"), 0);
}

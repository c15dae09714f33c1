//! A peer in another process that dies without a word: every call returns in time, with the cause.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

#[path = "../../verbs/tests/processes/child.rs"]
mod child;

use std::thread;
use std::time::Duration;

use child::{Other, eventually, listen, role, tell};
use ferroce_endpoint::*;
use ferroce_verbs::{Completion, PathPolicy, Service};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(60);

/// Hosts from here on share memory with the processes that connect to them.
const NEAR: u8 = 20;

fn device(host: u8) -> Context {
    Context::builder("lo").address([127, 0, 117, host]).shared(host >= NEAR).open().unwrap()
}

/// Peers that are gone are noticed soon.
fn impatient(host: u8) -> Options {
    let context = device(host);
    let options = Options::new().context(&context).ack_timeout(12).retries(5);
    options.keepalive(Some(Duration::from_millis(300))).linger(Duration::from_millis(500))
}

/// The other process: it accepts one connection, and does as its role says until it is killed.
#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    let (role, host) = role.split_once(' ').unwrap();
    let host = host.parse().unwrap();
    let listener =
        Listener::bind_with(("127.0.117.".to_owned() + &format!("{host}:7000")).as_str(), &impatient(host));
    let listener = listener.unwrap();
    tell(&listener.local_addr().to_string());
    let connection = listener.accept().wait_for(SOON).unwrap();
    match role {
        // Says that it is there, and nothing more.
        "silent" => connection.send(b"here").wait_for(SOON).unwrap(),
        "sink" => {
            connection.send(b"here").wait_for(SOON).unwrap();
            while connection.recv().wait_for(SOON).unwrap().is_some() {}
        }
        "source" => loop {
            connection.send(&[7; 300_000]).wait_for(SOON).unwrap();
        },
        "echo" => {
            while let Some(message) = connection.recv().wait_for(SOON).unwrap() {
                connection.send(&message.into_vec()).wait_for(SOON).unwrap();
            }
            connection.close().wait_for(SOON).unwrap();
            tell("closed");
            return;
        }
        other => panic!("no role {other}"),
    }
    listen();
}

/// The other process, at this host, and a connection to it from host 1; or from the same host, through memory.
fn start(role: &str, host: u8) -> (Other, Connection) {
    let is_near = host >= NEAR;
    // Any other path is refused.
    let variables: &[_] = if is_near { &[("FERROCE_PATH", "shared")] } else { &[] };
    let mut other = Other::start("the_other_process", &format!("{role} {host}"), variables);
    let address = other.hear();
    let options = if is_near { impatient(host).path(PathPolicy::Shared) } else { impatient(1) };
    let connection = Connection::connect_with(&address, &options).wait().unwrap();
    (other, connection)
}

ferroce_testkit::over_both! {
    two_processes_talk_and_part_in_peace: 2, 22;
    killed_while_it_receives: 3, 23;
    killed_while_it_sends: 4, 24;
    killed_while_both_are_silent: 5, 25;
    killed_while_a_stream_is_read: 6, 26;
}

const GONE: Error = Error::Lost(Cause::PeerSilent);

fn two_processes_talk_and_part_in_peace(host: u8) {
    let (mut other, connection) = start("echo", host);
    for len in [0, 100, 20_000, 2_000_000] {
        connection.send(&vec![1; len]).wait_for(SOON).unwrap();
        assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap().len(), len);
    }
    connection.shutdown().wait_for(SOON).unwrap();
    assert!(connection.recv().wait_for(SOON).unwrap().is_none());
    assert_eq!(other.hear(), "closed");
    other.join();
    connection.close().wait_for(SOON).unwrap();
}

fn killed_while_it_receives(host: u8) {
    let (mut other, connection) = start("sink", host);
    assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"here");
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            loop {
                if let Err(error) = connection.send(&[3; 500_000]).wait_for(SOON) {
                    return error;
                }
            }
        });
        while connection.counters().sent < 50 && !sending.is_finished() {
            park_a_moment();
        }
        other.kill();
        assert_eq!(sending.join().unwrap(), GONE);
    });
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(GONE));
    assert_eq!(connection.close().wait_for(SOON), Err(GONE));
    assert_eq!(connection.state(), State::Lost(Cause::PeerSilent));
}

fn killed_while_it_sends(host: u8) {
    let (mut other, connection) = start("source", host);
    for _ in 0..20 {
        assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap().len(), 300_000);
    }
    other.kill();
    // What had arrived may still be received.
    let error = loop {
        match connection.recv().wait_for(SOON) {
            Ok(message) => assert_eq!(message.unwrap().len(), 300_000),
            Err(error) => break error,
        }
    };
    assert_eq!(error, GONE);
}

fn killed_while_both_are_silent(host: u8) {
    let (mut other, connection) = start("silent", host);
    assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"here");
    other.kill();
    // Neither end sends: only the question for a sign of life finds out.
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(GONE));
    // The port and the address are free for the next one.
    let (_other, connection) = start("silent", host);
    assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"here");
}

fn killed_while_a_stream_is_read(host: u8) {
    use std::io::Read;
    let (mut other, connection) = start("source", host);
    let mut stream = connection.into_stream();
    let mut bytes = [0; 4096];
    stream.read_exact(&mut bytes).unwrap();
    other.kill();
    let error = loop {
        match stream.read(&mut bytes) {
            Ok(count) => assert!(count > 0, "an end that was not said"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

/// Lets the other process get on.
fn park_a_moment() {
    child::let_pass(Duration::from_millis(1));
}

/// The process that drops a connection to one that was killed, and goes on to poll its device for something else.
#[test]
fn the_one_that_drops_it() {
    let role = role().unwrap_or_default();
    let Some(how) = role.strip_prefix("drops ") else { return };
    let (whose, path) = how.split_once(' ').unwrap();
    let is_shared = whose == "shared";
    // Over the network the peers have other addresses.
    let ([own, host, lingers], policy) = match path {
        "shared" => ([NEAR + 10; 3], PathPolicy::Shared),
        _ => ([1, 7, 8], PathPolicy::Prefer),
    };
    // The goodbye is never confirmed, and a silent peer is not noticed for minutes.
    let patient = impatient(own).ack_timeout(20).retries(7).keepalive(None).path(policy);
    // The second lingers until this process ends.
    for (host, linger) in [(host, Duration::from_millis(300)), (lingers, SOON)] {
        let context = device(own);
        let mut other = Other::start("the_other_process", &format!("silent {host}"), &[]);
        let address = other.hear();
        let hub = CompletionHub::new(&context, 1000).unwrap();
        let options = patient.clone().linger(linger).context(&context);
        let options = if is_shared { options.completion_hub(&hub) } else { options };
        let connection = Connection::connect_with(&address, &options).wait().unwrap();
        assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"here");
        // Leaves a waker behind, as programs do.
        assert!(connection.recv().wait_for(Duration::from_millis(1)).is_err());
        other.kill();
        let queue = context.completion_queue(16).unwrap();
        let domain = context.protection_domain().unwrap();
        let _qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
        assert!(!is_parked(), "nothing polls the device");
        // The keeper is there for as long as it lingers.
        let before = threads();
        drop(connection);
        eventually("the driver is parked", || {
            (0..100).for_each(|_| assert_eq!(queue.poll(&mut [Completion::EMPTY; 4]), 0));
            is_parked()
        });
        match linger {
            SOON => assert_eq!(threads(), before + 1, "it is parked although the connection lingers"),
            _ => eventually("lingering has a limit", || threads() == before),
        }
    }
    tell("parked");
    std::process::exit(0);
}

#[test]
fn a_dropped_connection_whose_peer_was_killed_lets_the_driver_park() {
    for how in ["own wire", "shared wire", "own shared", "shared shared"] {
        let said = child::run_alone("the_one_that_drops_it", &format!("drops {how}"), &[]);
        assert_eq!(said, ["parked"], "whose completion queue, and which path: {how}");
    }
}

/// Whether the driver of the only device of this process leaves its socket to programs that poll: its bell and its alarm are
/// all that it waits for.
fn is_parked() -> bool {
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    // A descriptor may be gone meanwhile.
    let files = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
    let waits = files.map(|info| info.lines().filter(|line| line.starts_with("tfd:")).count());
    let waits: Vec<usize> = waits.filter(|waits| *waits > 0).collect();
    let what = "the bell and the alarm, perhaps a socket and its error queues, or a process that shares memory and what that rings";
    assert!(matches!(waits[..], [2..=6]), "{what}: {waits:?}");
    waits == [2]
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

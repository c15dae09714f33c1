//! What other programs, broken peers and missing servers are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::run::{Out, ferroce, server};

/// Says something to a server that serves once; its answer, and its end.
fn say(text: &[u8]) -> (String, Out) {
    let (server, port) = server(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    // A server that has heard enough hangs up, perhaps before everything is said.
    let _ = stream.write_all(text);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    (answer, server.finish())
}

const RUN: &str =
    "ferroce-perf/1 run verb=write measure=bw size=64 qps=1 depth=4 target=sleep verify=0 way=wire";
const REGION: &str = "region=0x1000:64:0x00000001";
const QP: &str = "qp=0x000011/0x000001/1024@127.0.0.1";

#[test]
fn a_server_tells_a_program_that_is_no_client() {
    for (text, complaint) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "says \"GET / HTTP/1.1\""),
        ("ferroce-perf/9 run\n".to_owned(), "another version"),
        ("ferroce-perf/1 dance\n".to_owned(), "\"dance\""),
        (format!("{RUN} {REGION}\n"), "names no queue pair"),
        (format!("{RUN} {REGION} {QP} {QP}\n"), "names 2 queue pairs, and says 1"),
        (format!("{RUN} {QP}\n"), "does not say \"region\""),
        (format!("{RUN} {REGION} {QP}\n").replace("size=64", "size=99999999999"), "1 byte to 1 GiB"),
        (format!("{RUN} {REGION} {QP}\n").replace("127.0.0.1", "192.0.2.1"), "reaches this machine only"),
        (format!("{RUN} {REGION} {QP}\n").replace("127.0.0.1", "::1"), "both must be IPv4 or both IPv6"),
        (format!("{RUN} {REGION} {QP}"), "in the middle of a line"),
        ("x".repeat(200_000), "said too much"),
        ("ferroce-perf/1 done messages=4\n".to_owned(), "did not say what to do"),
    ] {
        let (answer, out) = say(text.as_bytes());
        let line = out.failure();
        assert!(line.contains(complaint), "{line}");
        if text.len() < 10_000 {
            assert!(answer.contains("ferroce-perf/1 error ") && answer.contains(complaint), "{answer}");
        }
    }
    let (_, out) = say(b"\xff\xfe\n");
    assert!(out.failure().contains("no text"), "{}", out.stderr);
}

#[test]
fn a_client_that_leaves_is_noticed() {
    let (answer, out) = say(format!("{RUN} {REGION} {QP}\n").as_bytes());
    assert!(answer.starts_with("ferroce-perf/1 ready region="), "{answer}");
    assert!(out.failure().contains("hung up in the middle"), "{}", out.stderr);
    let (answer, out) = say(b"");
    assert_eq!(answer, "");
    assert!(out.success().stdout.ends_with(": 0 measured\n"));
}

#[test]
fn a_client_tells_what_is_wrong_with_a_server() {
    for (answer, complaint) in [
        ("SSH-2.0-OpenSSH_9.6\r\n", "says \"SSH-2.0-OpenSSH_9.6\""),
        ("ferroce-perf/1 error no room\n", "the other end: no room"),
        ("ferroce-perf/1 done messages=3\n", "not ready"),
        ("", "hung up"),
    ] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let serving = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            asked
        });
        let out = ferroce(&["perf", "write", "--connect", "127.0.0.1", "--port", &port]);
        assert!(out.failure().contains(complaint), "{}", out.stderr);
        let asked = serving.join().unwrap();
        assert!(asked.starts_with("ferroce-perf/1 run verb=write measure=bw size=65536 qps=1 "), "{asked}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    // A port that was free a moment ago.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let out = ferroce(&["perf", "read", "--connect", "127.0.0.1", "--port", &port]);
    assert!(out.failure().contains("start one: ferroce perf --server"), "{}", out.stderr);
    let out = ferroce(&["perf", "read", "--connect", "no.such.host.invalid"]);
    assert!(out.failure().contains("is no host that can be found"), "{}", out.stderr);
}

#[test]
fn two_servers_do_not_share_a_port() {
    let (mut first, port) = server(&[]);
    let out = ferroce(&["perf", "--server", "--port", &port]);
    assert!(out.failure().contains("choose another port with --port"), "{}", out.stderr);
    first.child.kill().unwrap();
}

#[test]
fn an_address_that_cannot_be_had_is_named() {
    let (server, port) = server(&["--address", "192.0.2.1"]);
    let out = ferroce(&["perf", "write", "--connect", "127.0.0.1", "--port", &port]);
    let complaint = "no interface of this machine has the address 192.0.2.1";
    assert!(out.failure().contains(complaint), "{}", out.stderr);
    assert!(server.finish().failure().contains(complaint));
    let out = ferroce(&["perf", "--server", "--port", "0", "--bind", "192.0.2.1"]);
    assert!(out.failure().contains(complaint), "{}", out.stderr);
}

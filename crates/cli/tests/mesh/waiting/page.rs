//! `ferroce mesh analyzer --page`, as people use it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn analyzer(page: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(["mesh", "analyzer", "--listen=127.0.146.200:0", "--controller=127.0.146.201:1"]);
    command.arg(format!("--page={page}")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn it_says_where_the_page_is_and_serves_it() {
    let mut child = analyzer("127.0.146.200:0").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _running = Running(child);
    let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("the page: "));
    let address = line.unwrap().replace("the page: http://", "").replace('/', "");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request = format!("GET /api/state HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"windows\":[]"), "{answer}");
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let output = analyzer("0.0.0.0:8080").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("can be reached from other machines"), "{text}");
    assert!(text.contains("127.0.0.1:8080"), "{text}");
}

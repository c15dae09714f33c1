//! What the tests of the page share: questions, waiting, a simulated network, and a browser.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod browser;
pub mod mesh;
pub mod simulated;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ferroce_verbs::time::{now, park};
use serde_json::Value;

/// No step takes longer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so, and says what there was instead if that never comes.
pub fn wait_for<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "after {LIMIT:?} still waiting for: {}", what());
        park(Some(Duration::from_millis(20)));
    }
}

/// Sends these bytes and reads all that comes back: head and body.
pub fn send(address: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // A server that has heard enough may close before all is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
    (head.to_owned(), body.to_owned())
}

/// A plain GET: status and body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let (head, body) = send(address, request.as_bytes());
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{head}")), body)
}

/// A plain GET of JSON that has to be there.
pub fn ask(address: SocketAddr, path: &str) -> Value {
    let (status, body) = get(address, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

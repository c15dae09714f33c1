//! A program that takes events, and not always well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// Takes events: the first is refused for now, and of the second the answer gets lost.
pub struct Receiver {
    /// All requests that came: the id in the head, and the body.
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    pub fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let to = Arc::clone(&seen);
        // It ends with the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&stream) else { continue };
                let number = {
                    let mut seen = to.lock().unwrap();
                    seen.push(request);
                    seen.len()
                };
                let _ = match number {
                    1 => {
                        stream.write_all(b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n")
                    }
                    2 => Ok(()),
                    _ => stream.write_all(b"HTTP/1.1 204 Taken\r\n\r\n"),
                };
            }
        });
        Self { seen }
    }

    /// All requests that came.
    pub fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }

    /// Events, without doubles.
    pub fn events(&self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        for (id, event) in self.seen() {
            assert_eq!(event["id"], id.as_str());
            match events.iter().find(|known| known["id"] == event["id"]) {
                Some(known) => assert_eq!(*known, event, "a double says the same"),
                None => events.push(event),
            }
        }
        events
    }
}

fn read(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut id) = (0, String::new());
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    assert!(first.is_empty() || first == "POST /hook HTTP/1.1\r\n", "{first}");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "content-type" => assert_eq!(value, "application/json"),
            "idempotency-key" => id = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((id, serde_json::from_slice(&body).ok()?))
}

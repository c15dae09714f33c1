//! `ferroce stat --listen`: the text for Prometheus over HTTP.
//!
//! A GET is all that there is to answer, and each connection is answered once, so threads of the standard
//! library and `httparse`, the parser of hyper, are enough: no async runtime. Every connection has a
//! deadline, its request a length, and only so many are there at a time; so a client that is slow or mute
//! keeps a thread for some seconds, and none more.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ferroce::Time;
use ferroce_device::{now, until};

use super::ledger::Ledger;
use super::{Args, look, prometheus};

/// Bytes of a request, at most.
const REQUEST: usize = 8 << 10;

/// Headers of a request, at most.
const HEADERS: usize = 64;

/// Connections at a time.
const CONNECTIONS: usize = 16;

/// How long a request may take to come, and then the answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long what is left of a wrong request is read and forgotten.
const DRAIN: Duration = Duration::from_millis(500);

/// Serves until the process ends.
pub(super) fn serve(address: SocketAddr, args: &Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "; another program listens there: choose another port with --listen=ADDR:PORT"
            }
            ErrorKind::PermissionDenied => "; ports below 1024 are for root",
            ErrorKind::AddrNotAvailable => "; this machine has no such address",
            _ => "",
        };
        anyhow::Error::new(error).context(format!("cannot listen at {address}{advice}"))
    })?;
    let address = listener.local_addr().context("the address of the listener")?;
    let mut out = io::stdout().lock();
    writeln!(out, "http://{address}/metrics")?;
    out.flush()?;
    drop(out);
    let ledger = Mutex::new(Ledger::default());
    let metrics = || -> anyhow::Result<String> {
        // One look at a time, in order: sums must not go back.
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let look = look(&args.pids)?;
        ledger.enter(&look);
        Ok(prometheus::text(&ledger, &look, args.totals))
    };
    let open = AtomicUsize::new(0);
    thread::scope(|threads| {
        loop {
            let Some(stream) = accept(&listener) else { continue };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                open.fetch_sub(1, Ordering::Relaxed);
                // It has room for this, or the client is told nothing.
                let _ = stream.set_nonblocking(true);
                let _ =
                    (&stream).write_all(&response("503 Service Unavailable", "too many connections\n", true));
                continue;
            }
            let (open, metrics) = (&open, &metrics);
            let answering =
                thread::Builder::new().name("ferroce-scrape".to_owned()).spawn_scoped(threads, move || {
                    // A client that went away wants nothing any more.
                    let _ = answer(&stream, metrics);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            if answering.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// The next connection. Without descriptors it waits a moment, instead of asking again and again.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            let is_passing = matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted);
            if !is_passing {
                let _ = super::pause(Duration::from_millis(100));
            }
            None
        }
    }
}

/// Answers one request.
fn answer(stream: &TcpStream, metrics: impl Fn() -> anyhow::Result<String>) -> io::Result<()> {
    let (response, is_whole) = match read_request(stream, now() + PATIENCE)? {
        Request::Wants(path, with_body) => (respond(&path, with_body, metrics), true),
        Request::Wrong(status) => (response(status, "", true), false),
    };
    write_all(stream, &response, now() + PATIENCE)?;
    if !is_whole {
        // What was not read would make the kernel reset the connection, and take the answer along.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        drain(stream, now() + DRAIN);
    }
    Ok(())
}

fn respond(path: &str, with_body: bool, metrics: impl Fn() -> anyhow::Result<String>) -> Vec<u8> {
    match path {
        "/metrics" => match metrics() {
            Ok(text) => response("200 OK", &text, with_body),
            Err(error) => response("500 Internal Server Error", &format!("{error:#}\n"), with_body),
        },
        "/" => response("200 OK", "ferroce stat: the figures are at /metrics\n", with_body),
        _ => response("404 Not Found", "the figures are at /metrics\n", with_body),
    }
}

fn response(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let (kind, length) = (prometheus::CONTENT_TYPE, body.len());
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// This path, and whether with a body.
    Wants(String, bool),
    /// Nothing that can be done: the status that says so.
    Wrong(&'static str),
}

fn read_request(stream: &TcpStream, end: Time) -> io::Result<Request> {
    let (mut bytes, mut filled) = ([0; REQUEST], 0);
    loop {
        if let Some(request) = parse(&bytes[..filled]) {
            return Ok(request);
        }
        if filled == REQUEST {
            return Ok(Request::Wrong("431 Request Header Fields Too Large"));
        }
        match read(stream, &mut bytes[filled..], end) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                return Ok(Request::Wrong("408 Request Timeout"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// What these bytes ask for; `None` if more have to come.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let target = request.path.unwrap_or_default();
            let path = target.split('?').next().unwrap_or_default().to_owned();
            Some(match request.method {
                Some("GET") => Request::Wants(path, true),
                Some("HEAD") => Request::Wants(path, false),
                _ => Request::Wrong("405 Method Not Allowed"),
            })
        }
        Err(httparse::Error::TooManyHeaders) => Some(Request::Wrong("431 Request Header Fields Too Large")),
        Err(_) => Some(Request::Wrong("400 Bad Request")),
    }
}

/// Reads what there is, but does not wait beyond the end.
fn read(mut stream: &TcpStream, into: &mut [u8], end: Time) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(into) {
            Err(error) if is_passing(&error) => {}
            other => return other,
        }
    }
}

/// Writes all of it, or fails at the end.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], end: Time) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads and forgets, for as long as the client sends something and the end has not come.
fn drain(stream: &TcpStream, end: Time) {
    let mut bytes = [0; REQUEST];
    while matches!(read(stream, &mut bytes, end), Ok(1..)) {}
}

/// The time until the end, which is not over.
fn left(end: Time) -> io::Result<Duration> {
    let left = until(end);
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Nothing came yet, or a signal did: whether the time is over is looked at again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_heard_when_it_is_whole() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n";
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len}");
        }
        assert_eq!(parse(whole), Some(Request::Wants("/metrics".to_owned(), true)));
        assert_eq!(parse(b"HEAD / HTTP/1.0\r\n\r\n"), Some(Request::Wants("/".to_owned(), false)));
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Some(Request::Wrong("405 Method Not Allowed")));
        for wrong in [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
            assert_eq!(parse(wrong), Some(Request::Wrong("400 Bad Request")), "{wrong:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(parse(many.as_bytes()), Some(Request::Wrong("431 Request Header Fields Too Large")));
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let text = |path, body| String::from_utf8(respond(path, body, || Ok("x 1\n".to_owned()))).unwrap();
        let whole = text("/metrics", true);
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\nx 1\n"), "{whole}");
        assert!(whole.contains("Content-Type: text/plain; version=0.0.4"), "{whole}");
        let head = text("/metrics", false);
        assert!(head.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\n"), "{head}");
        assert!(text("/other", true).starts_with("HTTP/1.1 404 "));
        let failed = respond("/metrics", true, || anyhow::bail!("no list"));
        assert!(failed.starts_with(b"HTTP/1.1 500 ") && failed.ends_with(b"no list\n"));
    }
}

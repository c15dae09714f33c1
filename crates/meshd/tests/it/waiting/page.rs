//! The page over real sockets: what it answers, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::waiting::page_support::simulated::Simulated;
use crate::waiting::page_support::{LIMIT, ask, get, send, wait_for};
use ferroce_mesh::Outcomes;
use ferroce_meshd::board::{BoardConfig, SharedBoard};
use ferroce_meshd::page::{PageConfig, PageListener, PageServer};
use ferroce_meshd::{AnalyzerCounters, Histogram};
use serde_json::{Value, json};

fn serve(address: &str, board: &SharedBoard, config: PageConfig) -> PageServer {
    let met =
        || (AnalyzerCounters { malformed: 2, windows: 9, ..AnalyzerCounters::default() }, String::new());
    let listener = PageListener::bind(address.parse().unwrap()).unwrap();
    PageServer::start(listener, board.clone(), config, met).unwrap()
}

/// A board with some windows of a network of four ToRs.
fn board() -> SharedBoard {
    let board = SharedBoard::new(BoardConfig { whole: 2, ..BoardConfig::default() });
    let mut network = Simulated::new(4, 2, 2);
    for number in 0..6 {
        board.window(network.window(number, 1));
    }
    network.trace(&mut board.lock(), usize::MAX);
    board
}

#[test]
fn the_answers_are_those_of_the_board() {
    let board = board();
    board.lock().flow(
        Some("rack1"),
        Some("rack2"),
        &Outcomes { ok: 7, slow: 2, ..Outcomes::default() },
        &Histogram::default(),
    );
    let page = serve("127.0.146.1:0", &board, PageConfig::default());
    let place = page.address();
    let state = ask(place, "/api/state");
    let rows = state["windows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[5][0], &state["totals"]["probes"]), (6, &json!(6), &json!(7)));
    assert_eq!(state["refused"][0]["name"], "malformed");
    assert_eq!((&state["refused"][0]["count"], &state["counters"]["windows"]), (&json!(2), &json!(9)));
    assert_eq!(state["findings"]["opened"]["link"], 1);

    let window = ask(place, "/api/window/newest");
    assert_eq!(window, ask(place, "/api/window/6"));
    assert_eq!(window["tors"], json!(["rack1", "rack2", "rack3", "rack4"]));
    let numbers = |name: &str| -> Vec<u64> {
        window[name].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let (probes, lost) = (numbers("probes"), numbers("lost"));
    assert_eq!(probes.iter().sum::<u64>(), rows[5][3].as_u64().unwrap());
    let losses: u64 = lost.iter().skip(1).step_by(2).sum();
    assert_eq!(losses, rows[5][4].as_u64().unwrap());
    assert!(losses > 0 && numbers("p99_ns").iter().all(|nanos| *nanos > 10_000));
    assert_eq!(window["findings"], ask(place, "/api/findings")["open"]);

    for (position, count) in lost.chunks(2).map(|pair| (pair[0], pair[1])) {
        let tor = |number: u64| window["tors"][usize::try_from(number).unwrap()].as_str().unwrap().to_owned();
        let (from, to) = (tor(position / 4), tor(position % 4));
        for number in ["newest", "6", "3"] {
            let pair = ask(place, &format!("/api/pair?from={from}&to={to}&window={number}"));
            let sum = |of: fn(&Value) -> u64| pair["flows"].as_array().unwrap().iter().map(of).sum::<u64>();
            let told = sum(|flow| flow["lost"].as_u64().unwrap());
            assert_eq!(pair["lost"].as_u64().unwrap(), told, "{pair}");
            assert!(number == "3" || told == count, "{pair}");
            assert_eq!(pair["detail"], if number == "3" { "trouble" } else { "all" });
            let hops = pair["flows"][0]["there"]["hops"].as_array().unwrap();
            let names: Vec<&str> = hops.iter().map(|hop| hop["name"].as_str().unwrap()).collect();
            assert_eq!((names[0], names[1], names[2]), (from.as_str(), "agg1", to.as_str()));
        }
    }
    let topology = ask(place, "/api/topology");
    assert_eq!(topology["rnics"].as_array().unwrap().len(), 8);
    assert_eq!(get(place, "/healthz"), (200, "ok\n".to_owned()));
}

#[test]
fn a_pair_with_very_many_flows_is_told_by_its_worst() {
    let board = SharedBoard::new(BoardConfig::default());
    // One ToR, so that all flows are of one pair; one flow lost something.
    let mut network = Simulated::new(1, 40, 2);
    let mut window = network.window(0, 9);
    window.flows[1234].outcomes = Outcomes { ok: 13, time_out: 7, ..Outcomes::default() };
    let flows = window.flows.len();
    board.window(window);
    let page = serve("127.0.146.6:0", &board, PageConfig::default());
    let pair = ask(page.address(), "/api/pair?from=rack1&to=rack1");
    assert_eq!((flows, &pair["flows_kept"]), (3120, &json!(3120)));
    assert_eq!(pair["flows"].as_array().unwrap().len(), 500);
    assert_eq!((&pair["flows"][0]["lost"], &pair["lost"]), (&json!(7), &json!(7)));
    assert_eq!(pair["probes_of_other_flows"], json!((3120 - 500) * 20));
}

#[test]
fn what_is_asked_wrongly_is_refused_with_a_reason() {
    let page = serve("127.0.146.2:0", &board(), PageConfig::default());
    let place = page.address();
    for (path, status) in [
        ("/nothing", 404),
        ("/api/window/99", 404),
        ("/api/window/0", 404),
        ("/api/window/-1", 400),
        ("/api/window/99999999999999999999999", 400),
        ("/api/window/%ff", 400),
        ("/api/pair", 400),
        ("/api/pair?from=rack1", 400),
        ("/api/pair?from=rack1&to=rack2&to=rack3", 400),
        ("/api/pair?from=rack1&to=rack2&other=1", 400),
        ("/api/pair?from=rack1&to=rack9", 404),
        ("/api/pair?from=(other)&to=rack1", 404),
        ("/api/pair?from=%ff&to=%00", 404),
    ] {
        let (got, body) = get(place, path);
        assert_eq!(got, status, "{path}: {body}");
        let body: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!(body["error"]["status"], status, "{path}: {body}");
        assert!(!body["error"]["reason"].as_str().unwrap().is_empty(), "{path}");
    }
    let status = |request: &str| {
        let (head, body) = send(place, request.as_bytes());
        (head.split(' ').nth(1).unwrap_or_default().to_owned(), body)
    };
    let with = |host: &str| status(&format!("GET /api/state HTTP/1.1\r\n{host}Connection: close\r\n\r\n")).0;
    assert_eq!(with("Host: 127.0.146.2\r\n"), "200");
    assert_eq!(with("Host: localhost:80\r\n"), "200");
    for host in
        ["", "Host: evil.example\r\n", "Host: localhost\r\nHost: evil.example\r\n", "Host: 10.0.0.1\r\n"]
    {
        let got = with(host);
        assert!(got == "421" || got == "400", "{host:?}: {got}");
    }
    let post =
        "POST /api/state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    let (got, body) = status(post);
    assert!(got == "405" && body.contains("GET and HEAD only"), "{got} {body}");
    let with_body = post.replace("POST", "GET");
    assert_eq!(status(&with_body).0, "413");
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    assert!(["414", "431"].contains(&status(&long).0.as_str()));
    assert!(["400", ""].contains(&status("\0\0\0\0\r\n\r\n").0.as_str()));
    // After all that it still answers.
    assert_eq!(get(place, "/healthz").0, 200);
}

#[test]
fn answers_forbid_what_a_page_does_not_need() {
    let page = serve("127.0.146.3:0", &board(), PageConfig::default());
    for path in ["/", "/page.js", "/api/state", "/metrics", "/nothing", "/events"] {
        let version = if path == "/events" { "HEAD" } else { "GET" };
        let request = format!("{version} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (head, _) = send(page.address(), request.as_bytes());
        let head = head.to_lowercase();
        for wanted in
            ["content-security-policy: default-src 'none'; script-src 'self'", "nosniff", "same-origin"]
        {
            assert!(head.contains(wanted), "{path}: {head}");
        }
        for never in ["unsafe-inline", "unsafe-eval", "access-control-allow"] {
            assert!(!head.contains(never), "{path}: {head}");
        }
    }
}

/// A page that follows: its events, line by line.
fn follow(place: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(stream)
}

fn until(reader: &mut BufReader<TcpStream>, wanted: &str) {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        assert_ne!(reader.read_line(&mut seen).unwrap(), 0, "waiting for {wanted}: {seen}");
    }
}

#[test]
fn followers_hear_of_windows_and_are_so_many() {
    let board = board();
    let config = PageConfig { followers: 2, heartbeat: Duration::from_millis(50), ..PageConfig::default() };
    let page = serve("127.0.146.4:0", &board, config);
    let mut one = follow(page.address());
    until(&mut one, "{\"number\":6}");
    until(&mut one, "event: alive");
    let mut other = follow(page.address());
    until(&mut other, "{\"number\":6}");
    until(&mut follow(page.address()), "503");
    board.window(Simulated::new(4, 2, 2).window(6, 1));
    until(&mut one, "{\"number\":7}");
    until(&mut other, "{\"number\":7}");
    // The place of one that goes is free again.
    drop(other);
    wait_for(
        || "a place among those that follow".to_owned(),
        || {
            let mut next = follow(page.address());
            let mut line = String::new();
            next.read_line(&mut line).unwrap();
            line.contains("200").then(|| until(&mut next, "{\"number\":7}"))
        },
    );
}

#[test]
fn clients_that_are_slow_hold_nothing_for_long() {
    let config = PageConfig {
        connections: 4,
        request: Duration::from_millis(300),
        stuck: Duration::from_millis(300),
        ..PageConfig::default()
    };
    // Large enough that an answer does not fit into buffers of sockets.
    let board = SharedBoard::new(BoardConfig::default());
    let mut network = Simulated::new(200, 1, 1);
    board.window(network.window(0, 9));
    let page = serve("127.0.146.5:0", &board, config);
    let mut mute: Vec<TcpStream> = Vec::new();
    for number in 0..8 {
        let mut stream = TcpStream::connect(page.address()).unwrap();
        // Some say nothing, some begin, and some ask for much and take nothing.
        match number % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap(),
            _ => {
                let asked = "GET /api/window/newest HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
                stream.write_all(asked.as_bytes()).unwrap();
            }
        }
        mute.push(stream);
    }
    assert_eq!(get(page.address(), "/healthz").0, 200);
    for mut stream in mute {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut told = Vec::new();
        // It ends, in whichever way.
        let _ = stream.read_to_end(&mut told);
    }
}

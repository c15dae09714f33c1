//! `ferroce ping` and `ferroce probe responder`: two processes.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{self, Command};

use serde_json::Value;

use crate::run::{Out, Running, command, ferroce};

/// A responder at an address of its own.
fn responder(last: u8, options: &[&str]) -> (Running, String) {
    let address = format!("127.0.131.{last}");
    let args: Vec<&str> = ["probe", "responder", "--bind", &address].iter().chain(options).copied().collect();
    let mut responder = Running::start(command(&args));
    let line = responder.line();
    let words = format!(" at {address} answers probes until Ctrl-C; now run: ferroce ping {address}");
    assert!(line.starts_with("queue pair ") && line.contains(&words), "{line:?}");
    (responder, address)
}

/// Ends a process as Ctrl-C does.
fn interrupt(running: Running) -> Out {
    let status = Command::new("kill").args(["-INT", &running.child.id().to_string()]).status();
    assert!(status.unwrap().success());
    running.finish()
}

#[test]
fn probes_are_measured_shown_and_summed_up() {
    let (responder, address) = responder(20, &[]);
    let text = ferroce(&["ping", &address, "-c", "5", "-i", "0.01", "--timeout", "20"]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&format!("PING {address}: queue pair ")), "{text}");
    for (number, line) in (1..=5).zip(&lines[1..]) {
        assert!(line.starts_with(&format!("probe {number}: round trip ")), "{text}");
        assert!(line.contains(" us, responder ") && line.contains(" us, prober "), "{text}");
    }
    assert!(lines[6].starts_with(&format!("{address}: 5 probes in ")), "{text}");
    assert!(lines[6].ends_with(" s, 5 ok, 0 lost (0.0 %)"), "{text}");
    for (name, line) in ["in us", "round trip", "responder", "prober"].iter().zip(&lines[7..]) {
        assert!(line.starts_with(name), "{text}");
    }
    assert!(interrupt(responder).success().stdout.starts_with("5 probes answered\n"));
}

#[test]
fn json_names_all_seven_times() {
    let (responder, address) = responder(21, &[]);
    let text =
        ferroce(&["ping", &address, "-c", "20", "-i", "0.001", "--json", "--timeout", "20"]).success().stdout;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 21, "{text}");
    for (number, probe) in (1..=20).zip(&lines) {
        assert_eq!((&probe["probe"], &probe["outcome"]), (&number.into(), &"ok".into()), "{probe}");
        let at = |name: &str| probe[name].as_i64().unwrap_or_else(|| panic!("no {name}: {probe}"));
        let ours = ["t1", "t2", "t5", "t6", "t7"].map(at);
        assert!(ours.is_sorted() && at("t3") <= at("t4"), "{probe}");
        let (away, there) = (at("t5") - at("t2"), at("t4") - at("t3"));
        assert_eq!((at("round_trip_ns"), at("responder_ns")), (away - there, there), "{probe}");
        assert_eq!(at("prober_ns"), at("t6") - at("t1") - away, "{probe}");
        assert_eq!((&probe["stamps"], &probe["port"]), (&"kernel".into(), &4791.into()), "{probe}");
    }
    let summary = &lines[20]["summary"];
    assert_eq!(
        (&summary["probes"], &summary["lost"], &summary["outcomes"]["ok"]),
        (&20.into(), &0.into(), &20.into())
    );
    interrupt(responder).success();
}

#[test]
fn a_flood_ends_by_itself_and_is_drawn() {
    let (responder, address) = responder(22, &["--rate", "1000000"]);
    let file = env::temp_dir().join(format!("ferroce-ping-{}.svg", process::id()));
    let plot = file.to_str().unwrap();
    let args = ["ping", &address, "--flood", "-c", "2000", "-q", "--json", "--timeout", "20", "--plot", plot];
    let summary = ferroce(&args).success().json()["summary"].clone();
    let picture = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!((&summary["probes"], &summary["lost"]), (&2000.into(), &0.into()), "{summary}");
    let measured =
        summary["outcomes"]["ok"].as_u64().unwrap() + summary["outcomes"]["late"].as_u64().unwrap();
    assert_eq!(picture.matches("class=\"probe\"").count() as u64, measured);
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    interrupt(responder).success();
}

#[test]
fn ctrl_c_shows_the_summary_and_the_counters() {
    let (responder, address) = responder(23, &[]);
    let mut ping = Running::start(command(&["ping", &address, "-i", "0.01"]));
    let seen: Vec<String> = (0..4).map(|_| ping.line()).collect();
    assert!(seen[3].starts_with("probe 3: round trip "), "{seen:?}");
    let rest = interrupt(ping).success().stdout;
    assert!(rest.contains(&format!("{address}: ")) && rest.contains(" 0 lost (0.0 %)"), "{rest}");
    interrupt(responder).success();
}

#[test]
fn a_responder_counts_probes_by_source_and_port() {
    let address = "127.0.131.24";
    let args = ["probe", "responder", "--bind", address, "--json", "--service", "7001"];
    let mut responder = Running::start(command(&args));
    // That it is ready is said on standard error, as standard output is JSON.
    let mut ready = String::new();
    let said = responder.child.stderr.take().unwrap();
    BufReader::new(said).read_line(&mut ready).unwrap();
    assert!(ready.ends_with(" now run: ferroce ping 127.0.131.24 --service 7001\n"), "{ready:?}");
    let from = "127.0.131.25";
    ferroce(&["ping", address, "--service", "7001", "-c", "3", "-i", "0.001", "--from", from]).success();
    let json = interrupt(responder).success().json();
    assert_eq!(
        (&json["counters"]["answered"], &json["counters"]["second_acks"]),
        (&3.into(), &3.into()),
        "{json}"
    );
    let source = &json["sources"][0];
    assert_eq!(
        (&source["source"], &source["port"], &source["probes"]),
        (&"127.0.131.25".into(), &4791.into(), &3.into())
    );
}

#[test]
fn what_is_in_the_way_is_explained() {
    let (running, address) = responder(26, &[]);
    let taken = ferroce(&["probe", "responder", "--bind", &address]);
    assert!(taken.failure().contains("the responder cannot be found by probers: "), "{}", taken.stderr);
    let port = ferroce(&["ping", &address, "--port", "50000", "-c", "1"]);
    assert!(port.failure().contains("packets to this peer leave from port 4791 alone"), "{}", port.stderr);
    let paths = ferroce(&["ping", &address, "--paths", "-c", "1"]);
    assert!(paths.failure().contains("paths are told apart by ports"), "{}", paths.stderr);
    let service = ferroce(&["ping", &address, "--service", "9", "-c", "1"]);
    assert!(service.failure().contains("run: ferroce probe responder --bind"), "{}", service.stderr);
    let quick = ["-c", "3", "-i", "0.001", "--timeout", "0.02", "-q"];
    let stranger: Vec<&str> = ["ping", &address, "--qpn", "0x123456"].iter().chain(&quick).copied().collect();
    let silent = ferroce(&stranger);
    assert!(
        silent.failure().contains("none of 3 probes was answered; the responder at "),
        "{}",
        silent.stderr
    );
    assert!(silent.stdout.contains(", 0 ok, 3 lost (100.0 %)"), "{}", silent.stdout);
    assert!(silent.stdout.contains("how they ended: 3 time-out"), "{}", silent.stdout);
    interrupt(running).success();
}

/// The next line with these words.
fn line_with(running: &mut Running, words: &str) -> String {
    let mut before = String::new();
    loop {
        let line = running.line();
        assert!(!line.is_empty(), "it ended without {words:?}: {before}");
        if line.contains(words) {
            return line;
        }
        before.push_str(&line);
    }
}

#[test]
fn a_responder_that_ends_is_missed_and_found_again_as_another_queue_pair() {
    let (first, address) = responder(27, &[]);
    let mut ping = Running::start(command(&["ping", &address, "-i", "0.02", "--timeout", "0.2"]));
    line_with(&mut ping, "probe 3: round trip ");
    first.kill();
    let silent = line_with(&mut ping, "no answer since probe ");
    assert!(silent.ends_with(" s ago; asking the host for its responder again\n"), "{silent}");
    let (second, _) = responder(27, &[]);
    let moved = line_with(&mut ping, "the responder is another one now, ");
    assert!(moved.contains(": probes go to queue pair ") && moved.contains(" instead of "), "{moved}");
    line_with(&mut ping, ": round trip ");
    let rest = interrupt(ping).success().stdout;
    assert!(rest.contains(" ok, ") && !rest.contains("no answer since"), "{rest}");
    interrupt(second).success();
}

#[test]
fn silence_and_lookups_are_counted() {
    let (first, address) = responder(28, &[]);
    let mut ping = Running::start(command(&["ping", &address, "-i", "0.02", "--timeout", "0.2", "--json"]));
    let probe: Value = serde_json::from_str(&line_with(&mut ping, "\"probe\":3,")).unwrap();
    first.kill();
    let silent: Value = serde_json::from_str(&line_with(&mut ping, "{\"silent\":")).unwrap();
    let since = silent["silent"]["since_probe"].as_u64().unwrap();
    assert!(since > 3 && silent["silent"]["seconds"].as_f64().unwrap() >= 0.2, "{silent}");
    let (second, _) = responder(28, &[]);
    let moved: Value = serde_json::from_str(&line_with(&mut ping, "{\"moved\":")).unwrap();
    assert_eq!((&moved["moved"]["since_probe"], &moved["moved"]["from"]), (&since.into(), &probe["qpn"]));
    let found = format!("\"qpn\":{},", moved["moved"]["to"]);
    let again: Value = serde_json::from_str(&line_with(&mut ping, &found)).unwrap();
    assert_ne!((&again["qpn"], again["probe"].as_u64() > Some(since)), (&probe["qpn"], false), "{again}");
    // Now it vanishes for good.
    second.kill();
    line_with(&mut ping, "{\"silent\":");
    let out = interrupt(ping).success();
    let last: Value = serde_json::from_str(out.stdout.lines().last().unwrap()).unwrap();
    let summary = &last["summary"];
    assert_eq!((&summary["silences"], &summary["moves"]), (&2.into(), &1.into()), "{summary}");
    assert!(summary["lookups"].as_u64() >= Some(1) && summary["silent_s"].as_f64() >= Some(0.2), "{summary}");
    assert!(summary["silent_since_probe"].as_u64() > again["probe"].as_u64(), "{summary}");
}

#[test]
fn a_responder_named_by_its_queue_pair_is_not_asked_for() {
    let (running, address) = responder(29, &[]);
    let quick = ["--qpn", "0x123456", "-c", "5", "-i", "0.001", "--timeout", "0.05", "--json"];
    let args: Vec<&str> = ["ping", &address].iter().chain(&quick).copied().collect();
    let out = ferroce(&args);
    assert!(out.failure().contains("none of 5 probes was answered"), "{}", out.stderr);
    let last: Value = serde_json::from_str(out.stdout.lines().last().unwrap()).unwrap();
    let summary = &last["summary"];
    assert_eq!((&summary["silences"], &summary["lookups"]), (&1.into(), &0.into()), "{summary}");
    assert_eq!(summary["silent_since_probe"], 1, "{summary}");
    interrupt(running).success();
}

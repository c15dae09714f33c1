//! Probes: `ferroce ping` with a responder on the kernel's device, and a prober there with our responder.
//!
//! The other side is `interop/probe.c`, which knows the packets of docs/probing.md and nothing of us. Its T2
//! to T5 are the kernel's times of the packets as they passed the guest's interface, as ours are: so round
//! trips are positive, however late a program of either side is scheduled.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::Result;
use crate::connections::far_address;
use crate::lab::Lab;
use crate::pair::{Asks, check};
use crate::run::BRIDGE;

/// Probes of a case.
const PROBES: u64 = 300;

/// Milliseconds between two of them.
const INTERVAL: u64 = 5;

/// Seconds after which an answer is late: a guest on a busy machine may stand still for some of them.
const LATE: u32 = 5;

/// Seconds after which a program hangs.
const PATIENCE: u32 = 90;

/// The guest's interface, whose packets have times.
const INTERFACE: &str = "eth0";

/// The longest round trip that can be true, in nanoseconds: an answer that takes longer is late.
const LONGEST: u64 = LATE as u64 * 1_000_000_000;

/// The longest that the shortest round trip may take, in nanoseconds: a hundred times what it takes under
/// software emulation. The others may be those of a machine that is busy.
const SHORTEST: u64 = 20_000_000;

/// What a prober counts when all is well; everything else must be nothing. Stalls are those of this host.
const USUAL: [&str; 4] = ["probes", "first_acks", "second_acks", "stalls"];

/// Probes with both answers, whose times are in order on both clocks.
pub(crate) fn probes(lab: &mut Lab, asks: Asks) -> Result<()> {
    // Now each side knows the other's address on the wire, and no probe waits for it.
    lab.far()?.run(&format!("ping -c 1 -W {PATIENCE} {}", lab.family.near()))?;
    let said = match asks {
        Asks::We => we_probe(lab)?,
        Asks::Kernel => kernel_probes(lab)?,
    };
    let trips = round_trips(&said).map_err(|error| format!("{error}; the prober said: {}", tail(&said)))?;
    let micros = |share: usize| trips.get((trips.len() - 1) * share / 100).map_or(0, |nanos| nanos / 1000);
    eprintln!(
        "  {} round trips: {} us at least, {} us half of them, {} us at most",
        trips.len(),
        micros(0),
        micros(50),
        micros(100)
    );
    Ok(())
}

/// `ferroce ping`, answered on the kernel's device. The card there cannot be asked for the responder: the
/// answers of `rdma_cm` have no Q_Key but its own.
fn we_probe(lab: &Lab) -> Result<String> {
    let mut far = lab.far()?;
    far.start(&format!("timeout {PATIENCE} probe responder -c {PROBES} -k {INTERFACE} 2>&1"))?;
    let hello = far.line()?;
    let qpn = serde_json::from_str::<Value>(&hello).ok().and_then(|hello| hello["qpn"].as_u64());
    let qpn = qpn.ok_or_else(|| format!("the responder in the guest said {hello:?}"))?;
    let host = far_address(lab.family);
    let interval = INTERVAL as f64 / 1000.0;
    let words = format!("ping {host} --qpn {qpn} -c {PROBES} -i {interval} --timeout {LATE} --json");
    let said = good("ferroce ping", &ferroce(lab, &words)?.wait_with_output()?)?;
    match far.finish()? {
        (0, end) => {
            let end: Value = serde_json::from_str(&end)?;
            check("probes that the kernel answered", &end["counters"]["answered"], &PROBES.into())?;
            for name in ["strange", "no_room"] {
                check(name, &end["counters"][name], &0.into())?;
            }
            check("times that are not the guest's kernel's", &end["after_call"], &0.into())?;
            Ok(said)
        }
        (status, end) => {
            Err(format!("the responder ended with {status}: {end}; the prober said: {}", tail(&said)).into())
        }
    }
}

/// A prober on the kernel's device, which finds `ferroce probe responder` with `rdma_cm`.
fn kernel_probes(lab: &Lab) -> Result<String> {
    let near = lab.family.near();
    let mut responder = Responder::start(lab, &format!("probe responder --bind {near}"))?;
    let pause = INTERVAL * 1000;
    let asked = format!("timeout {PATIENCE} probe prober -c {PROBES} -i {pause} -k {INTERFACE} {near} 2>&1");
    let said = lab.far()?.run(&asked)?;
    let end = responder.end()?;
    let counted = format!("{PROBES} probes answered\n{PROBES:>10} second acks\n");
    check("at its end our responder said", end.as_str(), &counted)?;
    let found = summary(&said)?["qpn"].to_string();
    if !responder.hello.starts_with(&format!("queue pair {found} at ")) {
        return Err(format!("rdma_cm found queue pair {found}: {}", responder.hello).into());
    }
    Ok(said)
}

/// `ferroce probe responder`, until it is dropped.
struct Responder {
    process: Child,
    output: BufReader<ChildStdout>,
    hello: String,
}

impl Responder {
    /// Starts it, and waits until it answers.
    fn start(lab: &Lab, words: &str) -> Result<Self> {
        let mut process = ferroce(lab, words)?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut responder = Self { process, output: BufReader::new(output), hello: String::new() };
        responder.output.read_line(&mut responder.hello)?;
        if responder.hello.contains("answers probes") {
            return Ok(responder);
        }
        let mut complaint = String::new();
        if let Some(mut stderr) = responder.process.stderr.take() {
            stderr.read_to_string(&mut complaint)?;
        }
        Err(format!("our responder said {:?} and {:?}", responder.hello, complaint.trim()).into())
    }

    /// Ends it, as Ctrl-C does; what it said at the end.
    fn end(&mut self) -> Result<String> {
        Command::new("kill").arg(self.process.id().to_string()).status()?;
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        let status = self.process.wait()?;
        if status.success() { Ok(said) } else { Err(format!("our responder ended with {status}").into()) }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // If it has ended, there is nothing to do.
        let _ = Command::new("kill").arg(self.process.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

/// Starts our program, which ends after some time whatever happens.
fn ferroce(lab: &Lab, words: &str) -> Result<Child> {
    let program = lab.ferroce.as_deref().ok_or("the program `ferroce` was not given")?;
    let started = Command::new("timeout")
        // Else a signal would reach the program twice, and the second one ends it at once.
        .args(["--foreground", &PATIENCE.to_string()])
        .arg(program)
        .args(words.split(' '))
        .env("FERROCE_NETDEV", BRIDGE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Ok(started.map_err(|error| format!("`ferroce {words}` could not be started: {error}"))?)
}

fn good(program: &str, output: &Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} ended with {}: {} {}", output.status, complaint.trim(), tail(&said)).into())
}

/// The last lines, which are those of the end.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.trim().lines().collect();
    lines[lines.len().saturating_sub(2)..].join("\n")
}

/// What the prober sums up.
fn summary(said: &str) -> Result<Value> {
    let last = said.trim().lines().last().unwrap_or_default();
    match serde_json::from_str::<Value>(last)?["summary"].take() {
        Value::Null => Err("the prober sums up nothing".into()),
        summary => Ok(summary),
    }
}

/// The round trips that a prober found, in nanoseconds and in order. All probes were answered, the times of
/// each make sense, and what it sums up is so.
fn round_trips(said: &str) -> Result<Vec<u64>> {
    let sum = summary(said)?;
    check("probes in sum", &sum["probes"], &PROBES.into())?;
    check("probes that were lost", &sum["lost"], &0.into())?;
    check("probes without times of the kernel", &sum["after_call"], &0.into())?;
    for (name, count) in sum["outcomes"].as_object().ok_or("no outcomes")? {
        check(name, count, &if name == "ok" { PROBES.into() } else { 0.into() })?;
    }
    let counters = sum["counters"].as_object().ok_or("no counters")?;
    for name in &USUAL[..3] {
        check(name, counters.get(*name), Some(&PROBES.into()))?;
    }
    for (name, count) in counters.iter().filter(|(name, _)| !USUAL.contains(&name.as_str())) {
        check(name, count, &0.into())?;
    }
    let lines: Vec<&str> = said.trim().lines().collect();
    check("probes one by one", lines.len() as u64, PROBES + 1)?;
    let (mut numbers, mut trips) = (BTreeSet::new(), Vec::new());
    for line in &lines[..lines.len() - 1] {
        let probe: Value = serde_json::from_str(line)?;
        numbers.insert(probe["probe"].as_u64());
        trips.push(round_trip(&probe).map_err(|error| format!("{error} in {line}"))?);
    }
    check("whether each probe ended once", numbers.into_iter().eq((1..=PROBES).map(Some)), true)?;
    trips.sort_unstable();
    match trips.first() {
        Some(shortest) if *shortest < SHORTEST => Ok(trips),
        shortest => Err(format!("the shortest round trip took {shortest:?} ns").into()),
    }
}

/// The round trip of a probe whose times are in order.
fn round_trip(probe: &Value) -> Result<u64> {
    check("the outcome", &probe["outcome"], &"ok".into())?;
    let time = |number: usize| {
        let name = format!("t{number}");
        probe[&name].as_u64().filter(|time| *time > 0).ok_or_else(|| format!("no {name}"))
    };
    for clock in [&[1, 2, 5, 6, 7][..], &[3, 4]] {
        for pair in clock.windows(2) {
            if time(pair[0])? > time(pair[1])? {
                return Err(format!("t{} is after t{}", pair[0], pair[1]).into());
            }
        }
    }
    let (away, responder) = (time(5)? - time(2)?, time(4)? - time(3)?);
    let trip = away.checked_sub(responder).filter(|trip| (1..LONGEST).contains(trip));
    let trip = trip.ok_or_else(|| format!("{responder} ns of {away} ns were the responder's"))?;
    check("the round trip", &probe["round_trip_ns"], &trip.into())?;
    check("the responder's time", &probe["responder_ns"], &responder.into())?;
    check("the prober's time", &probe["prober_ns"], &(time(6)? - time(1)? - away).into())?;
    Ok(trip)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe(number: u64) -> Value {
        json!({
            "probe": number, "outcome": "ok",
            "t1": 1000, "t2": 1010, "t3": 50, "t4": 70, "t5": 1100, "t6": 1120, "t7": 1200,
            "round_trip_ns": 70, "responder_ns": 20, "prober_ns": 30,
        })
    }

    fn all_is_well() -> Vec<Value> {
        let counters = json!({
            "probes": PROBES, "first_acks": PROBES, "second_acks": PROBES, "stalls": 3, "repeated": 0,
        });
        let outcomes = json!({ "ok": PROBES, "time_out": 0 });
        let summary = json!({
            "probes": PROBES, "lost": 0, "after_call": 0, "outcomes": outcomes, "counters": counters,
        });
        (1..=PROBES).map(probe).chain([json!({ "summary": summary })]).collect()
    }

    fn judged(lines: &[Value]) -> std::result::Result<Vec<u64>, String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        round_trips(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn probes_with_both_answers_are_round_trips() {
        let trips = judged(&all_is_well()).unwrap();
        assert!(trips.len() as u64 == PROBES && trips.iter().all(|trip| *trip == 70), "{trips:?}");
    }

    #[test]
    fn what_is_not_well_is_named() {
        let last = all_is_well().len() - 1;
        for (line, place, value, complaint) in [
            (7, "/outcome", json!("ack2-lost"), "the outcome"),
            (7, "/probe", json!(9), "each probe ended once"),
            (7, "/t2", json!(1101), "t2 is after t5"),
            (7, "/t1", json!(1011), "t1 is after t2"),
            (7, "/t7", json!(1119), "t6 is after t7"),
            (7, "/t4", json!(49), "t3 is after t4"),
            (7, "/t4", json!(140), "90 ns of 90 ns were the responder's"),
            (7, "/t5", Value::Null, "no t5"),
            (7, "/round_trip_ns", json!(71), "the round trip"),
            (last, "/summary/lost", json!(1), "probes that were lost"),
            (last, "/summary/after_call", json!(1), "without times"),
            (last, "/summary/outcomes/time_out", json!(1), "time_out"),
            (last, "/summary/counters/second_acks", json!(PROBES - 1), "second_acks"),
            (last, "/summary/counters/repeated", json!(2), "repeated"),
        ] {
            let mut lines = all_is_well();
            *lines[line].pointer_mut(place).unwrap() = value;
            let error = judged(&lines).unwrap_err();
            assert!(error.contains(complaint), "{place}: {error}");
        }
        let mut one_less = all_is_well();
        one_less.remove(0);
        assert!(judged(&one_less).unwrap_err().contains("one by one"));
        assert!(judged(&[]).is_err());
    }
}

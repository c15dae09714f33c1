//! The protocol buffers of Perfetto read what we export, and count as we do.
//!
//! Perfetto's own trace processor is a program that is downloaded when it is first used; it is not asked here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_record::Event;
use ferroce_testkit::judge;
use ferroce_trace::export::{Selection, perfetto};
use serde_json::Value;

use crate::made::{Made, WALL};

/// A Python with the messages of Perfetto, which is installed once; none if that cannot be.
fn python() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto-python");
    let (python, done) = (home.join("bin/python"), home.join("done"));
    if !done.exists() {
        let quiet = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let pip = ["-m", "pip", "install", "--timeout", "15", "--retries", "4", "perfetto==0.59.1"];
        if quiet(Command::new("python3").args(["-m", "venv"]).arg(&home))
            && quiet(Command::new(&python).args(pip))
        {
            std::fs::write(&done, "").unwrap();
        }
    }
    judge::has_file(done.to_str().unwrap()).then_some(python)
}

#[test]
fn perfetto_reads_tracks_slices_and_flows() {
    let Some(python) = python() else { return };
    let mut made = Made::new("perfetto", false);
    made.traffic(4_000, 2);
    let timeline = made.timeline(2);
    let path = made.directory().join("out.perfetto-trace");
    let mut bytes = Vec::new();
    let summary = perfetto(&timeline, &Selection::default(), &mut bytes, &mut |_| {}).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_trace.py");
    let output = Command::new(python).arg(script).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |name: &str| read[name].as_array().unwrap();

    assert_eq!(read["wall"], WALL);
    let name = |track: &Value| read["tracks"][track.to_string()]["name"].as_str().unwrap().to_owned();
    let tracks: BTreeSet<String> = read["tracks"]
        .as_object()
        .unwrap()
        .values()
        .map(|track| {
            let parent = &track["parent"];
            let home = if *parent == 0 { String::new() } else { name(parent) + " / " };
            home + track["name"].as_str().unwrap()
        })
        .collect();
    for wanted in [
        "client (4000)",
        "client (4000) / queue pair 0x000011",
        "queue pair 0x000011 / packets",
        "queue pair 0x000011 / sends",
        "queue pair 0x000011 / sends: depth",
        "sends / sends 0",
        "queue pair 0x001000 / receives",
    ] {
        assert!(tracks.contains(wanted), "{wanted} of {tracks:?}");
    }

    // A slice for each work request, with its parts inside.
    let whole: Vec<&Value> = list("slices").iter().filter(|slice| slice["depth"] == 0).collect();
    let posts = || timeline.events().filter(|seen| matches!(seen.stamped.event, Event::Posted(_)));
    assert_eq!((whole.len() as u64, summary.works), (posts().count() as u64, posts().count() as u64));
    assert!(list("slices").iter().all(|slice| slice["depth"].as_u64().unwrap() <= 1), "nothing overlaps");
    assert!(list("slices").iter().any(|slice| slice["name"] == "unpolled"));

    // A packet is one flow at both ends, and leads to its work.
    let (timing, instants): (Vec<&Value>, Vec<&Value>) =
        list("instants").iter().partition(|event| event["kind"][0] == "timer" || event["kind"][0] == "wait");
    assert_eq!(instants.len() as u64, summary.packets);
    let timers = timeline.events().filter(|seen| matches!(seen.stamped.event, Event::Timer(_))).count();
    assert!(timers > 0 && timing.len() == timers, "{} of {timers}", timing.len());
    assert!(timing.iter().all(|event| event["name"] == "no acknowledgement in time"));
    assert!(timing.iter().all(|event| name(&event["track"]) == "timers and waits"));
    let mut flows: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in instants.iter().copied().chain(whole.iter().copied()) {
        for flow in event["flows"].as_array().unwrap() {
            flows.entry(flow.as_str().unwrap()).or_default().push(event);
        }
    }
    let is_work = |flow: &str| flow.parse::<u64>().unwrap() >> 63 == 1;
    let packets: Vec<&Vec<&Value>> =
        flows.iter().filter(|(flow, _)| !is_work(flow)).map(|(_, of)| of).collect();
    assert_eq!(packets.len() as u64, summary.joined + made.lone);
    let mut both = 0;
    for ends in packets.iter().filter(|ends| ends.len() == 2) {
        let [out, back] = ends[..] else { panic!() };
        assert_eq!((&out["name"], &out["told"]["psn"]), (&back["name"], &back["told"]["psn"]));
        assert_eq!(
            (&out["kind"][0], &back["kind"][0]),
            (&Value::from("packet out"), &Value::from("packet in"))
        );
        assert_eq!(out["told"]["work"], back["told"]["work"], "{out} {back}");
        both += 1;
    }
    assert_eq!(both, summary.joined);
    let sends = whole.iter().filter(|slice| slice["told"]["local path"] != 1 && slice["name"] != "RECEIVE");
    for slice in sends {
        let flow = slice["flows"][0].as_str().unwrap();
        let packets = flows[flow].iter().filter(|event| event["kind"][0] != "work").count();
        assert!(packets >= 2, "{slice}");
    }

    let last = list("counters").iter().fold(BTreeMap::new(), |mut last, counter| {
        last.insert(name(&counter["track"]), counter["value"].as_u64().unwrap());
        last
    });
    assert!(last.values().all(|depth| *depth == 0), "{last:?}");
}

//! Records as they are written and read: whole, gone round, killed, cut off, and by many threads at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ferroce_record::{
    Begun, EVENT_LEN, Event, Mode, Polled, ProgramRing, RecordConfig, Recorder, Stamped, Trace, TraceError,
};
use ferroce_sys::clock::now;
use ferroce_wire::Qpn;

/// A path of its own in a folder for tests.
fn path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

fn config(mode: Mode, bytes: u64) -> RecordConfig {
    RecordConfig { bytes, engines: 1, ..RecordConfig::new(mode, "a test") }
}

/// An event whose fields all follow from its number.
fn begun(number: u32) -> Event {
    Begun { qpn: Qpn::new(5), work: number, psn: number.wrapping_mul(3), packets: !number }.into()
}

fn polled(thread: u32, number: u64) -> Event {
    Polled {
        qpn: Qpn::new(thread),
        cq: thread,
        id: number,
        is_receive: number.is_multiple_of(2),
        is_forgotten: false,
    }
    .into()
}

fn works(events: &[Stamped]) -> Vec<u32> {
    let work = |stamped: &Stamped| match stamped.event {
        Event::Begun(begun_at) => {
            assert_eq!(Event::from(begun_at), begun(begun_at.work), "no event is half another");
            begun_at.work
        }
        other => panic!("{other:?}"),
    };
    events.iter().map(work).collect()
}

#[test]
fn a_flight_recorder_has_the_last_events_and_says_how_many_it_has_not() {
    let path = path("flight");
    let recorder = Recorder::create(&path, &config(Mode::Flight, 2 * 64 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    assert!(recorder.engine_ring().is_none(), "there is one");
    for number in 0..1000 {
        ring.push(u64::from(number), &begun(number));
    }
    let trace = Trace::open(&path).unwrap();
    assert!(!trace.header().has_ended && trace.header().program == "a test" && !trace.is_cut());
    let events: Vec<Stamped> = trace.events().collect();
    assert_eq!(works(&events), (937..1000).collect::<Vec<_>>(), "all but the place that is written next");
    assert_eq!(
        trace.rings().map(|note| (note.overwritten, note.lost)).collect::<Vec<_>>(),
        [(0, 0), (937, 0)]
    );
    assert!(events.iter().all(|event| event.ring == 1 && event.time == event.number));
    drop((ring, recorder));
    assert!(Trace::open(&path).unwrap().header().has_ended);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_whole_record_has_all_events_of_a_program_that_leaves_it_the_time() {
    let path = path("whole");
    let recorder = Recorder::create(&path, &config(Mode::Whole, 2 * 4096 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    const ALL: u32 = 50_000;
    let end = now() + Duration::from_mins(1);
    for number in 0..ALL {
        ring.push(u64::from(number), &begun(number));
        while number % 4000 == 0 && recorder.unkept() > 0 {
            assert!(now() < end, "still {} events to be kept of {number}", recorder.unkept());
            thread::yield_now();
        }
    }
    drop(ring);
    assert_eq!(recorder.trouble(), None);
    drop(recorder);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(works(&trace.events().collect::<Vec<_>>()), (0..ALL).collect::<Vec<_>>());
    assert!(trace.len() == u64::from(ALL) && trace.rings().all(|note| note.lost == 0));
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_whole_record_counts_what_there_was_no_time_for() {
    let path = path("hurry");
    let recorder = Recorder::create(&path, &config(Mode::Whole, 2 * 64 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    const ALL: u32 = 500_000;
    for number in 0..ALL {
        ring.push(u64::from(number), &begun(number));
    }
    drop((ring, recorder));
    let trace = Trace::open(&path).unwrap();
    let events: Vec<Stamped> = trace.events().collect();
    let works = works(&events);
    let lost: u64 = trace.rings().map(|note| note.lost).sum();
    assert!(works.is_sorted() && lost > 0, "{lost}");
    assert_eq!(works.len() as u64 + lost, u64::from(ALL));
    assert!(events.iter().enumerate().all(|(place, event)| event.number == place as u64));
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_reader_of_a_ring_that_goes_round_meanwhile_takes_no_event_that_is_half_another() {
    let path = path("live");
    let recorder = Recorder::create(&path, &config(Mode::Flight, 2 * 256 * EVENT_LEN as u64)).unwrap();
    let (mut ring, shared) = (recorder.engine_ring().unwrap(), recorder.program_ring());
    thread::scope(|scope| {
        // It ends by itself, also if the reader finds what it must not.
        scope.spawn(|| {
            for number in 0..5_000_000_u32 {
                ring.push(number.into(), &begun(number));
                shared.push(number.into(), &polled(1, number.into()));
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            for found in Trace::open(&path).unwrap().events() {
                seen += 1;
                match found.event {
                    Event::Begun(event) => assert_eq!(Event::from(event), begun(event.work), "{found:?}"),
                    Event::Polled(event) => assert_eq!(Event::from(event), polled(1, event.id)),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    fs::remove_file(&path).unwrap();
}

/// Events of all threads come, each thread's own in their order.
fn many_threads(mode: Mode, name: &str) {
    let path = path(name);
    let recorder = Recorder::create(&path, &config(mode, 2 * (1 << 16) * EVENT_LEN as u64)).unwrap();
    const EACH: u64 = 10_000;
    let write = |ring: ProgramRing, thread: u32| {
        (0..EACH).for_each(|number| ring.push(number, &polled(thread, number)));
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let ring = recorder.program_ring();
            scope.spawn(move || write(ring, thread));
        }
        // Whatever a reader finds meanwhile was written so.
        for _ in 0..20 {
            for found in Trace::open(&path).unwrap().events() {
                let Event::Polled(event) = found.event else { panic!("{found:?}") };
                assert_eq!(Event::from(event), polled(event.cq, event.id));
            }
        }
    });
    drop(recorder);
    let trace = Trace::open(&path).unwrap();
    let mut next = [0; 4];
    // By number: the times of one thread are not those of another.
    let mut events: Vec<Stamped> = trace.events().collect();
    events.sort_by_key(|event| event.number);
    for found in events {
        let Event::Polled(event) = found.event else { panic!("{found:?}") };
        let next = &mut next[event.cq as usize];
        assert_eq!(event.id, *next);
        *next += 1;
    }
    assert_eq!(next, [EACH; 4]);
    fs::remove_file(&path).unwrap();
}

#[test]
fn threads_of_a_program_write_at_once_into_a_flight_recorder() {
    many_threads(Mode::Flight, "threads-flight");
}

#[test]
fn threads_of_a_program_write_at_once_into_a_whole_record() {
    many_threads(Mode::Whole, "threads-whole");
}

/// The path of the record that a test in another process writes until it is killed.
const KILLED: &str = "FERROCE_TEST_KILLED";

#[test]
fn a_record_of_a_killed_program_is_whole_to_its_last_event() {
    if let Some(path) = std::env::var_os(KILLED) {
        return write_until_killed(&PathBuf::from(path));
    }
    for mode in ["flight", "whole"] {
        let path = path(&format!("killed-{mode}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_record_of_a_killed_program_is_whole_to_its_last_event", "--nocapture"])
            .env(KILLED, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut last = 0_u32;
        let mut line = String::new();
        while last < 5000 {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended after {last}");
            last = line.trim().strip_prefix("wrote ").and_then(|number| number.parse().ok()).unwrap_or(last);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let trace = Trace::open(&path).unwrap();
        assert!(!trace.header().has_ended && trace.header().pid == child.id());
        let works = works(&trace.events().collect::<Vec<_>>());
        assert_eq!(works, (0..u32::try_from(works.len()).unwrap()).collect::<Vec<_>>(), "{mode}");
        assert!(works.len() > last as usize, "{mode}: {} events, {last} were told", works.len());
        fs::remove_file(&path).unwrap();
    }
}

/// Says after each event that it was written.
fn write_until_killed(path: &std::path::Path) {
    let is_whole = path.to_str().unwrap().contains("whole");
    let mode = if is_whole { Mode::Whole } else { Mode::Flight };
    let recorder = Recorder::create(path, &config(mode, 64 << 20)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        ring.push(u64::from(number), &begun(number));
        if writeln!(out, "wrote {number}").is_err() {
            return;
        }
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_tells_what_it_has() {
    let (path, cut) = (path("to-cut"), path("cut"));
    let recorder = Recorder::create(&path, &config(Mode::Whole, 2 * 64 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    let mut number = 0;
    // Until there are chunks, and something in the ring.
    while number < 300 {
        ring.push(u64::from(number), &begun(number));
        number += 1;
    }
    drop((ring, recorder));
    let whole = fs::read(&path).unwrap();
    let all = works(&Trace::open(&path).unwrap().events().collect::<Vec<_>>());
    let mut seen = 0;
    for len in (0..whole.len()).step_by(37).chain(4090..4100).chain([whole.len() - 1, whole.len()]) {
        fs::write(&cut, &whole[..len]).unwrap();
        match Trace::open(&cut) {
            Err(TraceError::Empty(_)) => assert_eq!(len, 0),
            Err(TraceError::Cut(_)) => assert!(len < 4096),
            Err(other) => panic!("{len}: {other}"),
            Ok(trace) => {
                let mut events = trace.events();
                let found = works(&events.by_ref().collect::<Vec<_>>());
                assert!(events.trouble().is_none());
                assert!(found.iter().all(|work| all.contains(work)), "{len}");
                seen = seen.max(found.len());
            }
        }
    }
    assert_eq!(seen, all.len());
    for path in [path, cut] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn bytes_that_are_changed_anywhere_are_no_reason_to_stop() {
    let (path, changed) = (path("to-change"), path("changed"));
    let recorder = Recorder::create(&path, &config(Mode::Whole, 2 * 64 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    (0..200).for_each(|number| ring.push(u64::from(number), &begun(number)));
    drop((ring, recorder));
    let whole = fs::read(&path).unwrap();
    let single = (0..whole.len()).step_by(13).map(|at| (at, 1));
    // Whole words too: numbers of events are such.
    let words = (0..whole.len() - 7).step_by(8).filter(|at| at % 4096 < 256).map(|at| (at, 8));
    for ((at, len), value) in single.chain(words).zip([0xff, 0x00, 0x80, 0x7f, 0xff].into_iter().cycle()) {
        let mut bytes = whole.clone();
        bytes[at..at + len].fill(value);
        fs::write(&changed, &bytes).unwrap();
        if let Ok(trace) = Trace::open(&changed) {
            assert!(trace.events().count() as u64 <= trace.len());
        }
    }
    for path in [path, changed] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_is_no_record_is_said_in_one_line() {
    let path = path("no-record");
    for (bytes, text) in [
        (&b""[..], "is empty"),
        (b"FTRACE", "ends before its first event"),
        (b"#!/bin/sh\n", "is no record of a device"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = Trace::open(&path).unwrap_err().to_string();
        assert!(error.ends_with(text) && error.contains("no-record"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
    let error = Recorder::create(&path.join("below"), &config(Mode::Flight, 0)).unwrap_err().to_string();
    assert!(error.starts_with("cannot make "), "{error}");
}

/// It was: a record whose program went on writing never came to its end, and a process hung in its exit.
#[test]
fn a_record_ends_though_events_keep_coming() {
    let path = path("ends");
    let recorder = Recorder::create(&path, &config(Mode::Whole, 2 * 4096 * EVENT_LEN as u64)).unwrap();
    let mut ring = recorder.engine_ring().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let limit = now() + Duration::from_mins(1);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) && now() < limit {
                ring.push(u64::from(number), &begun(number));
                number += 1;
            }
        });
        while Trace::open(&path).unwrap().is_empty() && now() < limit {
            thread::yield_now();
        }
        recorder.end();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert!(now() < limit, "it did not end while events came");
    assert!(Trace::open(&path).unwrap().header().has_ended);
    fs::remove_file(&path).unwrap();
}

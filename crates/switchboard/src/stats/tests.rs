//! Counters on their way from the process that counts to the one that asks.

use std::os::fd::AsRawFd;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ferroce_fabric::Path;
use ferroce_transport::State;
use ferroce_wire::{Qpn, Service};

use super::*;
use crate::forward::Arrival;
use crate::inner::{Refuses, Sink};
use crate::membership::Slot;
use crate::tests::{enter, group};

fn row() -> QpStats {
    QpStats {
        qpn: Qpn::new(0x12_3456),
        engine: 3,
        service: Service::Ud,
        state: State::Sqe,
        path: Some(Path::Wire),
        peer: Some((Qpn::new(7), "fd00::7".parse().unwrap())),
        sends_posted: 1,
        sends_done: 2,
        receives_posted: 3,
        receives_done: u32::MAX,
        packets_sent: 5,
        packets_received: 6,
        direct: 7,
        retransmitted: 8,
        rnr_received: 9,
        rnr_sent: 10,
        timeouts: 11,
        errors: 12,
        waits: u64::MAX,
    }
}

#[test]
fn a_row_reads_as_it_was_written() {
    let alone = QpStats { path: None, peer: None, state: State::Reset, ..row() };
    for row in [row(), alone] {
        assert_eq!(QpStats::parse(&row.emit()), Some(row));
    }
}

#[test]
fn any_bytes_are_read_without_harm() {
    for at in 0..ROW {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = row().emit();
            bytes[at] = value;
            let _ = QpStats::parse(&bytes);
        }
    }
    for len in 0..PROCESS {
        assert_eq!(ProcessStats::parse(&vec![0xff; len], 1), None);
    }
    assert!(ProcessStats::parse(&[0xff; PROCESS], 1).is_some_and(|process| process.pid == 1));
}

#[test]
fn a_process_reads_as_it_was_written() {
    let mut refused = Refusals { violations: 1, cm_strangers: u64::MAX, ..Refusals::default() };
    refused.icrc_errors = 7;
    let here = ProcessStats {
        pid: 77,
        program: "a program".to_owned(),
        group: group(1),
        engines: 3,
        busy: 2,
        refused,
        queue_pairs: 0x0102_0304,
        time: Time::from_nanos(0x0102_0304_0506_0708),
        rows: Vec::new(),
    };
    let everywhere = Group { interface: "fifteen-letters".to_owned(), address: None };
    let longest = ProcessStats { program: "p".repeat(PROGRAM), group: everywhere, ..here.clone() };
    for told in [here, longest] {
        assert_eq!(ProcessStats::parse(&told.emit(), 77), Some(told));
    }
}

/// An engine with these queue pairs; none if it is at work all the time.
struct Engine(Option<Vec<QpStats>>);

impl Sink for Engine {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn tell(&self, into: &mut Vec<QpStats>, most: usize, refused: &mut Refusals) -> Option<usize> {
        let rows = self.0.as_ref()?;
        refused.unknown_qp += 100;
        into.extend(rows.iter().take(most.saturating_sub(into.len())));
        Some(rows.len())
    }
}

struct Manager;

impl Refuses for Manager {
    fn add_refusals(&self, to: &mut Refusals) {
        to.cm_invalid += 1000;
    }
}

fn rows(count: u32) -> Vec<QpStats> {
    (0..count).map(|number| QpStats { qpn: Qpn::new(number), sends_posted: number, ..row() }).collect()
}

/// What this process tells of one of its switchboards.
fn told(of: &Slot) -> ProcessStats {
    let pid = std::process::id();
    let all = stats(&[pid]).expect("a list of sockets");
    let of_group = all.into_iter().flatten().find(|told| told.group == of.member().inner().group);
    of_group.expect("it tells of itself")
}

#[test]
fn a_process_tells_what_all_its_engines_and_managers_know() {
    let (one, two, three) = (enter(29), enter(29), enter(29));
    let engines = [Some(rows(70)), None, Some(rows(3))].map(|rows| Arc::new(Engine(rows)));
    for (slot, engine) in [&one, &two, &three].into_iter().zip(&engines) {
        slot.attach(Arc::downgrade(engine) as Weak<dyn Sink>);
    }
    let (manager, gone) = (Arc::new(Manager), Arc::new(Manager));
    for manager in [&manager, &gone] {
        one.member().count_refusals_of(Arc::downgrade(manager) as Weak<dyn Refuses>);
    }
    drop(gone);
    let inner = one.member().inner();
    for (count, value) in [
        (&inner.counts.strays, 3),
        (&inner.counts.mads_unclaimed, 4),
        (&inner.counts.foreign, 5),
        (&inner.counts.group_icrc_errors, 6),
        (&inner.counts.group_malformed, 7),
        (&inner.refused.violations, 8),
    ] {
        count.store(value, Ordering::Relaxed);
    }
    let before = clock::now();
    let seen = told(&one);
    assert!((before..=clock::now()).contains(&seen.time));
    assert_eq!((seen.pid, seen.engines, seen.busy, seen.queue_pairs), (std::process::id(), 3, 1, 73));
    assert_eq!(seen.program, text(&program()));
    assert!(!seen.program.is_empty());
    assert!(seen.rows == [rows(70), rows(3)].concat(), "however many messages it takes");
    let counted = Refusals {
        strays: 3,
        mads_unclaimed: 4,
        foreign_source: 5,
        icrc_errors: 6,
        malformed: 7,
        violations: 8,
        unknown_qp: 200,
        cm_invalid: 1000,
        ..Refusals::default()
    };
    assert_eq!(seen.refused, counted);
    // A slot that was given back tells of nothing.
    drop(three);
    assert_eq!((told(&one).engines, told(&one).queue_pairs), (2, 70));
}

#[test]
fn of_very_many_queue_pairs_only_so_many_are_told() {
    let ours = enter(32);
    let engine = Arc::new(Engine(Some(rows(2000))));
    ours.attach(Arc::downgrade(&engine) as Weak<dyn Sink>);
    let seen = told(&ours);
    assert_eq!(seen.queue_pairs, 2000);
    assert_eq!(seen.rows.len(), MOST_TOLD);
    assert!(seen.rows == rows(2000)[..MOST_TOLD], "the first of them, in order");
}

/// A connection to a desk, as the desk has it.
fn pair(inner: &Inner) -> (std::os::fd::OwnedFd, Tracked) {
    static NAMES: Mutex<u32> = Mutex::new(0);
    let mut number = NAMES.lock().unwrap();
    *number += 1;
    let name = format!("ferroce/test/stats/{}/{number}", std::process::id());
    let listener = unix::listen(name.as_bytes()).unwrap();
    let socket = unix::socket(libc::SOCK_SEQPACKET).unwrap();
    unix::connect(socket.as_fd(), name.as_bytes()).unwrap();
    (socket, Tracked::open(inner.record, || unix::accept(listener.as_fd())).unwrap())
}

fn polled(descriptors: impl Iterator<Item = RawFd>, ready: &[RawFd]) -> Vec<libc::pollfd> {
    let entry = |fd| libc::pollfd { fd, events: 0, revents: i16::from(ready.contains(&fd)) };
    descriptors.map(entry).collect()
}

#[test]
fn a_connection_that_does_not_ask_in_time_is_cut_and_one_that_ends_is_not_to_blame() {
    let ours = enter(33);
    let inner = ours.member().inner();
    let violations = || inner.refused.violations.load(Ordering::Relaxed);
    let (past, future) = (clock::now(), clock::now() + Duration::from_secs(3600));
    let [(_late_peer, late), (_patient_peer, patient), (ended_peer, ended), (asking_peer, asking)] =
        std::array::from_fn(|_| pair(inner));
    let (stays, ends) = (patient.raw(), [ended.raw(), asking.raw()]);
    drop(ended_peer);
    unix::send(asking_peer.as_fd(), &Greeting::Stats.emit(), &[]).unwrap();
    let asking = vec![(late, past), (patient, future), (ended, past), (asking, past)];
    let mut desk = StatsDesk { listener: None, asking, exhausted: None };
    assert_eq!(desk.next_deadline(), Some(past));
    let before = violations();
    let entries = polled(desk.descriptors(), &ends);
    assert_eq!(entries.first().map(|entry| entry.fd), Some(-1), "there is no listener");
    desk.serve(inner, &entries);
    assert_eq!(violations() - before, 1, "the one that was silent for too long");
    assert_eq!(desk.descriptors().collect::<Vec<_>>(), [-1, stays]);
    assert_eq!(desk.next_deadline(), Some(future));
    let mut bytes = vec![0; PROCESS];
    let answer = unix::receive(asking_peer.as_fd(), &mut bytes, Room::None).unwrap();
    assert_eq!(Answer::parse(&bytes[..answer.len]), Some(Answer::Process));
    // What is ready and says nothing yet stays.
    let entries = polled(desk.descriptors(), &[stays]);
    desk.serve(inner, &entries);
    assert_eq!(desk.asking.len(), 1);
    assert_eq!(violations() - before, 1);
}

#[test]
fn a_desk_without_descriptors_listens_again_after_a_while() {
    let ours = enter(34);
    let inner = ours.member().inner();
    let mut desk = StatsDesk::open(inner, &mut Random::from_system().unwrap());
    let listener = desk.listener.as_ref().unwrap().as_fd().as_raw_fd();
    assert_eq!((desk.descriptors().collect::<Vec<_>>(), desk.next_deadline()), (vec![listener], None));
    let until = clock::now() + Duration::from_secs(3600);
    desk.exhausted = Some(until);
    assert_eq!((desk.descriptors().collect::<Vec<_>>(), desk.next_deadline()), (vec![-1], Some(until)));
    desk.exhausted = Some(clock::now());
    assert_eq!((desk.descriptors().collect::<Vec<_>>(), desk.next_deadline()), (vec![listener], None));
}

#[test]
fn the_connection_that_was_silent_for_longest_makes_room() {
    let ours = enter(35);
    let inner = ours.member().inner();
    let name = format!("ferroce/test/crowd/{}", std::process::id());
    let listener = Tracked::open(inner.record, || unix::listen(name.as_bytes())).unwrap();
    let at = listener.raw();
    let mut desk = StatsDesk { listener: Some(listener), asking: Vec::new(), exhausted: None };
    let full = || inner.refused.connections_full.load(Ordering::Relaxed);
    let before = full();
    let connect = || {
        let socket = unix::socket(libc::SOCK_SEQPACKET).unwrap();
        unix::connect(socket.as_fd(), name.as_bytes()).unwrap();
        socket
    };
    let crowd: Vec<_> = (0..MOST_ASKING).map(|_| connect()).collect();
    let begun = clock::now();
    let entries = polled(desk.descriptors(), &[]);
    desk.serve(inner, &entries);
    assert_eq!(desk.asking.len(), 0, "the listener said nothing");
    let entries = polled(desk.descriptors(), &[at]);
    desk.serve(inner, &entries);
    let first: Vec<_> = desk.descriptors().collect();
    assert_eq!((first.len(), full() - before), (1 + MOST_ASKING, 0));
    assert!(desk.next_deadline().is_some_and(|until| until >= begun + GREETING));
    let last = connect();
    let entries = polled(desk.descriptors(), &[at]);
    desk.serve(inner, &entries);
    assert_eq!((desk.asking.len(), full() - before), (MOST_ASKING, 1));
    assert_eq!(desk.descriptors().take(MOST_ASKING).skip(1).collect::<Vec<_>>(), first[2..]);
    assert_eq!(desk.exhausted, None, "an empty queue is no lack of descriptors");
    drop((crowd, last));
}

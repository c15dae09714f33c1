//! Counters on their way from the process that counts to the one that asks.

use std::os::fd::AsRawFd;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ferroce_fabric::Path;
use ferroce_transport::{Completions, Level, State, Status};
use ferroce_wire::{Qpn, Service};

use super::*;
use crate::forward::Arrival;
use crate::inner::{Refuses, Sink};
use crate::membership::Slot;
use crate::rows::{QpStats, QueueStats, WorkStats};
use crate::tests::{enter, group};

fn level(now: u32) -> Level {
    Level::new(now, now + 1, now + 2)
}

fn work() -> WorkStats {
    let mut completions = Completions::default();
    for (place, status) in Status::ALL.into_iter().enumerate() {
        completions.set(status, place as u64 + 1, place as u64 + 100);
    }
    WorkStats {
        sends_posted: 1,
        sends_done: 2,
        receives_posted: 3,
        packets_sent: 5,
        packets_received: 6,
        direct: 7,
        retransmitted: 8,
        rnr_received: 9,
        rnr_sent: 10,
        timeouts: 11,
        errors: 12,
        waits: u64::MAX,
        completions,
    }
}

fn row() -> QpStats {
    QpStats {
        qpn: Qpn::new(0x12_3456),
        engine: 3,
        service: Service::Ud,
        state: State::Sqe,
        path: Some(Path::Wire),
        peer: Some((Qpn::new(7), "fd00::7".parse().unwrap())),
        from: Some(("fd00::8".parse().unwrap(), 50_001)),
        completion_queues: (17, 18),
        shared_queue: Some(19),
        send_queue: level(20),
        receive_queue: level(30),
        work: work(),
    }
}

fn read(row: &QpStats) -> Option<QpStats> {
    QpRow::read_from_bytes(QpRow::from(row).as_bytes()).unwrap().read()
}

#[test]
fn a_row_reads_as_it_was_written() {
    let alone =
        QpStats { path: None, peer: None, from: None, shared_queue: None, state: State::Reset, ..row() };
    for row in [row(), alone] {
        assert_eq!(read(&row), Some(row));
    }
    for overrun in [false, true] {
        let queue = QueueStats { id: 5, level: level(6), overrun };
        assert_eq!(QueueRow::read_from_bytes(QueueRow::from(&queue).as_bytes()).unwrap().read(), queue);
    }
}

#[test]
fn very_many_failures_of_one_queue_pair_are_told_as_very_many() {
    let mut many = row();
    many.work.completions.set(Status::Flushed, u64::MAX, 1 << 32);
    many.work.completions.set(Status::Success, u64::MAX, 1 << 32);
    let told = read(&many).unwrap().work.completions;
    let most = u64::from(u32::MAX);
    assert_eq!((told.sends(Status::Flushed), told.receives(Status::Flushed)), (most, most));
    assert_eq!((told.sends(Status::Success), told.receives(Status::Success)), (u64::MAX, 1 << 32));
}

#[test]
fn any_bytes_are_read_without_harm() {
    let bytes = QpRow::from(&row());
    let bytes = bytes.as_bytes();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            if let Some(row) = QpRow::read_from_bytes(&bytes).unwrap().read() {
                let mut sum = row.work;
                sum.add(&row.work);
                let _ =
                    (sum.completions.all_sends(), sum.completions.all_receives(), sum.completions.failed());
            }
        }
    }
    assert_eq!(QpRow::read_from_bytes(&vec![0xff; bytes.len()]).unwrap().read(), None, "no such service");
    let process = LEN + size_of::<ProcessRow>();
    for len in (0..process).chain([process + 1]) {
        assert_eq!(ProcessStats::parse(&vec![0xff; len], 1), None);
    }
    assert!(ProcessStats::parse(&vec![0xff; process], 1).is_some_and(|process| process.pid == 1));
    assert!(process <= MESSAGE, "it fits where it is read");
    let rest = [&[0; LEN][..], bytes, &bytes[1..]].concat();
    assert_eq!(read_rows::<QpRow>(&rest).count(), 1, "a part of a row is none");
    assert_eq!(read_rows::<QpRow>(&rest[..LEN - 1]).count(), 0);
}

#[test]
fn a_process_reads_as_it_was_written() {
    let mut refused = Refusals { violations: 1, cm_strangers: u64::MAX, ..Refusals::default() };
    refused.icrc_errors = 7;
    let here = ProcessStats {
        pid: 77,
        program: "a program".to_owned(),
        service: "a service".to_owned(),
        group: group(1),
        since: Time::from_nanos(99),
        engines: 3,
        busy: 2,
        time: Time::from_nanos(0x0102_0304_0506_0708),
        report: Report {
            refused,
            totals: work(),
            queue_pairs: 0x0102_0304,
            queue_pairs_made: u64::MAX,
            ..Report::default()
        },
    };
    let everywhere = Group { interface: "fifteen-letters".to_owned(), address: None };
    let longest = ProcessStats {
        program: "p".repeat(PROGRAM),
        service: "s".repeat(MOST_SERVICE),
        group: everywhere,
        ..here.clone()
    };
    for told in [here, longest] {
        assert_eq!(ProcessStats::parse(&told.emit(), 77), Some(told));
    }
}

/// An engine with these queue pairs; none if it is at work all the time.
struct Engine(Option<Vec<QpStats>>);

fn queues(of: &[QpStats]) -> Vec<QueueStats> {
    of.iter().map(|row| QueueStats { id: row.qpn.get(), level: level(1), overrun: false }).collect()
}

impl Sink for Engine {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn tell(&self, into: &mut Report, most: usize) -> bool {
        let Some(rows) = &self.0 else { return false };
        let mut report = Report {
            rows: rows.clone(),
            queue_pairs: u32::try_from(rows.len()).unwrap(),
            queue_pairs_made: 10 * rows.len() as u64,
            completion_queues: queues(rows),
            shared_queues: queues(rows),
            ..Report::default()
        };
        report.refused.unknown_qp += 100;
        rows.iter().for_each(|row| report.totals.add(&row.work));
        into.add(report, most);
        true
    }
}

struct Manager;

impl Refuses for Manager {
    fn add_refusals(&self, to: &mut Refusals) {
        to.cm_invalid += 1000;
    }
}

fn rows(count: u32) -> Vec<QpStats> {
    (0..count).map(|number| QpStats { qpn: Qpn::new(number), shared_queue: Some(number), ..row() }).collect()
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
    assert!(seen.since < before);
    assert_eq!((seen.pid, seen.engines, seen.busy), (std::process::id(), 3, 1));
    let Report { rows: told_rows, totals, .. } = &seen.report;
    assert_eq!((seen.report.queue_pairs, seen.report.queue_pairs_made), (73, 730));
    assert_eq!(
        (totals.sends_posted, totals.waits),
        (73, u64::MAX),
        "of all engines, and no more than there is room"
    );
    assert_eq!(totals.completions.sends(Status::LocalLength), 2 * 73);
    assert_eq!(seen.program, text(&program()));
    assert!(!seen.program.is_empty());
    let file = std::env::current_exe().expect("a file");
    assert_eq!(seen.service, file.file_name().and_then(|name| name.to_str()).expect("a name"), "by its file");
    assert!(*told_rows == [rows(70), rows(3)].concat(), "however many messages it takes");
    for queues_told in [&seen.report.completion_queues, &seen.report.shared_queues] {
        assert_eq!(*queues_told, queues(&[rows(70), rows(3)].concat()));
    }
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
    assert_eq!(seen.report.refused, counted);
    // A slot that was given back tells of nothing.
    drop(three);
    assert_eq!((told(&one).engines, told(&one).report.queue_pairs), (2, 70));
}

#[test]
fn of_very_many_queue_pairs_only_so_many_are_told() {
    let ours = enter(32);
    let engine = Arc::new(Engine(Some(rows(2000))));
    ours.attach(Arc::downgrade(&engine) as Weak<dyn Sink>);
    let seen = told(&ours);
    assert_eq!(seen.report.queue_pairs, 2000);
    assert_eq!(seen.report.totals.sends_posted, 2000, "sums are of all of them");
    assert_eq!(seen.report.rows.len(), MOST_TOLD);
    assert!(seen.report.rows == rows(2000)[..MOST_TOLD], "the first of them, in order");
    assert_eq!(seen.report.completion_queues.len(), MOST_TOLD);
}

/// A connection to a desk, as the desk has it.
fn pair(inner: &Inner) -> (OwnedFd, Tracked) {
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
    let mut desk =
        StatsDesk { listener: None, asking, exhausted: None, since: clock::now(), service: "s".to_owned() };
    assert_eq!(desk.next_deadline(), Some(past));
    let before = violations();
    let entries = polled(desk.descriptors(), &ends);
    assert_eq!(entries.first().map(|entry| entry.fd), Some(-1), "there is no listener");
    desk.serve(inner, &entries);
    assert_eq!(violations() - before, 1, "the one that was silent for too long");
    assert_eq!(desk.descriptors().collect::<Vec<_>>(), [-1, stays]);
    assert_eq!(desk.next_deadline(), Some(future));
    let mut bytes = vec![0; MESSAGE];
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
    let mut desk = StatsDesk {
        listener: Some(listener),
        asking: Vec::new(),
        exhausted: None,
        since: clock::now(),
        service: "s".to_owned(),
    };
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

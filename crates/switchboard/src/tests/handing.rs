//! Packets that are handed to the owner of a slot, and what is counted on the way.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use ferroce_fabric::{PORT, Received};
use ferroce_sys::clock;
use ferroce_sys::unix;

use super::{enter, eventually, group};
use crate::forward::{self, Arrival, Kind};
use crate::inner::Sink;
use crate::rows::Report;
use crate::{Refusals, SLOTS, Traffic, names, survey};

/// Keeps the bytes that arrive.
#[derive(Default)]
struct Kept(Mutex<Vec<Vec<u8>>>);

impl Sink for Kept {
    fn arrived(&self, arrival: &Arrival<'_>) {
        self.0.lock().expect("no panic").push(arrival.bytes.to_vec());
    }

    fn tell(&self, _: &mut Report, _: usize) -> bool {
        true
    }
}

/// Packets of so many bytes each but for the last.
fn arrival(bytes: &[u8], segment: usize) -> Arrival<'_> {
    let received = Received {
        len: bytes.len(),
        segment,
        source: ([127, 0, 0, 2].into(), PORT),
        local: [127, 0, 0, 1].into(),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        stamp: 0,
    };
    Arrival { received, place: 0, bytes }
}

#[test]
fn packets_are_handed_to_the_owner_of_their_slot_and_counted() {
    let (ours, second) = (enter(41), enter(41));
    let member = ours.member();
    let kept = Arc::new(Kept::default());
    let traffic = || (member.traffic().forwarded, member.traffic().forwarded_in);
    let five = arrival(b"packets", 2);
    assert_eq!(five.packets(), 4);
    assert!(!member.forward(ours.number(), &five), "nothing takes them yet");
    ours.attach(Arc::downgrade(&kept) as Weak<dyn Sink>);
    assert_eq!(traffic(), (0, 0));
    assert!(member.forward(ours.number(), &five) && member.forward(ours.number(), &arrival(b"one", 9)));
    assert_eq!(traffic(), (5, 5));
    assert_eq!(*kept.0.lock().expect("no panic"), [&b"packets"[..], b"one"]);
    let last = u8::try_from(SLOTS).expect("128");
    let free = (1..last).find(|slot| ![ours.number(), second.number()].contains(slot)).expect("one");
    for slot in [0, free, last, u8::MAX, second.number()] {
        assert!(!member.forward(slot, &five), "slot {slot}");
    }
    assert_eq!(traffic(), (5, 5), "nothing else was counted");
    // An engine that is gone takes nothing more.
    drop(kept);
    assert!(!member.forward(ours.number(), &five));
}

#[test]
fn letters_for_no_slot_of_ours_are_strays_and_those_that_are_none_are_violations() {
    let ours = enter(42);
    let inner = ours.member().inner();
    let kept = Arc::new(Kept::default());
    ours.attach(Arc::downgrade(&kept) as Weak<dyn Sink>);
    let post = unix::socket(libc::SOCK_DGRAM).expect("a socket");
    let connect = std::os::fd::AsFd::as_fd(&post);
    unix::connect(connect, &names::of_letters(inner.token())).expect("its socket");
    let send = |kind, slot, packets: &[u8]| {
        let mut letter = forward::head(kind, slot, &arrival(packets, 100)).to_vec();
        letter[forward::SECRET..].copy_from_slice(&inner.table.secret().to_ne_bytes());
        letter.extend(packets);
        unix::send(connect, &letter, &[]).expect("it is sent");
    };
    let free = if ours.number() == 1 { 2 } else { 1 };
    let counts = || {
        let Traffic { forwarded_in, strays, refused, .. } = ours.member().traffic();
        (forwarded_in, strays, refused.violations)
    };
    send(Kind::Packets, ours.number(), b"ours");
    eventually("it is delivered", || counts() == (1, 0, 0));
    send(Kind::Packets, free, b"of another");
    eventually("it is a stray", || counts() == (1, 1, 0));
    send(Kind::Management, ours.number(), b"no message");
    eventually("it is one too", || counts() == (1, 2, 0));
    send(Kind::Packets, ours.number(), b"");
    eventually("there is nothing in it", || counts() == (1, 2, 1));
    assert_eq!(*kept.0.lock().expect("no panic"), [&b"ours"[..]]);
}

#[test]
fn each_thing_is_told_under_its_own_name() {
    let ours = enter(43);
    let inner = ours.member().inner();
    let counts = &inner.counts;
    let all = [
        &counts.group_packets,
        &counts.group_icrc_errors,
        &counts.group_malformed,
        &counts.forwarded,
        &counts.forwarded_in,
        &counts.strays,
        &counts.mads_unclaimed,
        &counts.foreign,
        &inner.refused.connections_full,
    ];
    for (count, value) in all.into_iter().zip(1..) {
        count.store(value, Ordering::Relaxed);
    }
    let refused = Refusals { connections_full: 9, ..Refusals::default() };
    let told = Traffic {
        group_packets: 1,
        group_icrc_errors: 2,
        group_malformed: 3,
        forwarded: 4,
        forwarded_in: 5,
        strays: 6,
        mads_unclaimed: 7,
        mads_dropped: 0,
        foreign_source: 8,
        refused,
    };
    assert_eq!(ours.member().traffic(), told);
}

#[test]
fn a_survey_tells_all_that_is_known_of_a_slot() {
    let before = clock::wall_millis();
    let first = enter(44);
    let number = first.number();
    let member = Arc::clone(first.member());
    drop(first);
    let all: Vec<_> = (1..SLOTS).map(|_| member.take().expect("a slot")).collect();
    let after = clock::wall_millis();
    let seen = survey(Some("lo")).expect("an answer");
    let seen = seen.iter().flatten().find(|seen| seen.group == group(44)).expect("our group");
    assert_eq!((seen.leader, seen.rows.len()), (std::process::id(), SLOTS - 1));
    let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
    for (row, slot) in seen.rows.iter().zip(1..) {
        assert_eq!((row.slot, row.pid, row.alive, row.leads), (slot, std::process::id(), true, true));
        assert_eq!(row.program, name.trim_end());
        assert_eq!(row.incarnation, if slot == number { 2 } else { 1 }, "how often it was taken");
        assert!((before..=after).contains(&row.since_millis));
    }
    assert!(survey(Some("none")).expect("an answer").is_empty(), "of that interface only");
    drop(all);
}

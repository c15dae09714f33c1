//! Packets from a program that means no good, sent by a plain socket to a device with live queue pairs: every
//! one of them is counted by name, no byte outside of a region changes, and what was attacked still works.
#![allow(unsafe_code, reason = "no safe call tells the kernel to cut a run of packets")]

#[path = "../common/mod.rs"]
mod common;

mod attacker;
mod peer;
mod victim;

use std::net::SocketAddr;

use attacker::{Attacker, TAIL, every_opcode};
use common::Side;
use ferroce_device::fabric::PORT;
use ferroce_device::{CompletionQueue, Config, Nic, PathPolicy, now};
use ferroce_testkit::samples::Numbers;
use ferroce_wire::{Body, Packet, Psn, Qpn};
use rand_core::Rng;
use victim::Victim;

/// Addresses are 127.0.NET.x; each test has its own.
const NET: u8 = 95;

/// What the device counted since before, by name.
fn counted(victim: &Victim, name: &str) -> u64 {
    victim.counted().into_iter().filter(|(known, _)| known == name).map(|(_, value)| value).sum()
}

#[test]
fn random_bytes_of_every_length_are_counted_and_dropped() {
    let victim = Victim::new([127, 0, NET, 1], [127, 0, NET, 2]);
    let mut attacker = Attacker::new([127, 0, NET, 3], &victim, 1);
    for len in 1..=4300 {
        let bytes = attacker.random_bytes(len);
        attacker.send(&bytes);
    }
    for len in [9_000, 20_000, 40_000, 65_000, 65_507] {
        let bytes = attacker.random_bytes(len);
        attacker.send(&bytes);
    }
    attacker.settle();
    let dropped = ["malformed", "unknown_opcode", "icrc_errors", "unknown_qp", "strays"];
    let dropped: u64 = dropped.iter().map(|name| counted(&victim, name)).sum();
    assert_eq!(dropped, attacker.sent(), "{:?}", victim.counted());
    assert!(counted(&victim, "unknown_opcode") > 1000 && counted(&victim, "malformed") > 100);
    victim.still_works();
}

#[test]
fn a_datagram_without_bytes_is_counted() {
    let victim = Victim::new([127, 0, NET, 4], [127, 0, NET, 5]);
    let mut attacker = Attacker::new([127, 0, NET, 6], &victim, 2);
    attacker.send(&[]);
    attacker.send(&[1]);
    attacker.send(&[]);
    attacker.settle();
    assert_eq!(counted(&victim, "strays"), 3);
    victim.still_works();
}

#[test]
fn one_wrong_bit_is_a_wrong_icrc() {
    let victim = Victim::new([127, 0, NET, 7], [127, 0, NET, 8]);
    let mut attacker = Attacker::new([127, 0, NET, 9], &victim, 3);
    for packet in every_opcode(&mut attacker, victim.rc()) {
        for _ in 0..20 {
            let mut bytes = attacker.sealed(&packet);
            // Addresses, keys, bytes and the ICRC itself: what is neither opcode nor length nor slot.
            let bit = 48 + attacker.below(bytes.len() * 8 - 48);
            bytes[bit / 8] ^= 1 << (bit % 8);
            attacker.send(&bytes);
        }
    }
    attacker.settle();
    assert_eq!(counted(&victim, "icrc_errors"), attacker.sent(), "{:?}", victim.counted());
    victim.still_works();
}

#[test]
fn cut_packets_are_counted_and_dropped() {
    let victim = Victim::new([127, 0, NET, 10], [127, 0, NET, 11]);
    let mut attacker = Attacker::new([127, 0, NET, 12], &victim, 4);
    for packet in every_opcode(&mut attacker, victim.rc()) {
        let bytes = attacker.sealed(&packet);
        for len in (1..bytes.len()).filter(|len| *len < 80 || len % 97 == 0) {
            attacker.send(&bytes[..len]);
        }
    }
    attacker.settle();
    let dropped =
        ["malformed", "icrc_errors", "strays"].map(|name| counted(&victim, name)).iter().sum::<u64>();
    // A socket does not show the IPv4 identification that the ICRC covers. One wrong ICRC in 65,536 is
    // explained by some identification, and the first of a source may be any: that packet gets as far as its
    // queue pair.
    let by_chance = counted(&victim, "wrong_peer");
    assert!(by_chance <= 2, "{:?}", victim.counted());
    assert_eq!(dropped + by_chance, attacker.sent(), "{:?}", victim.counted());
    victim.still_works();
}

/// Every opcode, many times, to queue pairs of every service: all in order, but from the wrong host.
#[test]
fn a_stranger_changes_nothing() {
    let victim = Victim::new([127, 0, NET, 13], [127, 0, NET, 14]);
    let mut attacker = Attacker::new([127, 0, NET, 15], &victim, 5);
    for qpn in [victim.rc(), victim.uc(), victim.ud()] {
        for _ in 0..15 {
            for packet in every_opcode(&mut attacker, qpn) {
                let bytes = attacker.sealed(&packet);
                attacker.send(&bytes);
            }
        }
    }
    attacker.settle();
    let strangers = counted(&victim, "wrong_peer");
    // Datagrams may come from any sender, and congestion notifications come from the network.
    let notified = counted(&victim, "congestion_notifications");
    let refused =
        counted(&victim, "wrong_service") + counted(&victim, "wrong_pkey") + counted(&victim, "wrong_qkey");
    assert_eq!(strangers + notified + refused, attacker.sent(), "{:?}", victim.counted());
    assert!(strangers > attacker.sent() / 2 && notified > 0 && counted(&victim, "wrong_qkey") > 0);
    victim.still_works();
}

#[test]
fn queue_pairs_that_are_not_there_are_counted() {
    let victim = Victim::new([127, 0, NET, 16], [127, 0, NET, 17]);
    let mut attacker = Attacker::new([127, 0, NET, 18], &victim, 6);
    let ours = [victim.rc(), victim.uc(), victim.ud()];
    let mut numbers = vec![0, 1, 2, 0xff_ffff, 0x00_ffff, 0x80_0000];
    // The same index in a slot that no process can own is for no queue pair.
    numbers.extend(ours.iter().flat_map(|qpn| [qpn.get() & 0xffff, (qpn.get() & 0xffff) | 0xfe_0000]));
    let slot = ours[0].get() & 0xff_0000;
    numbers.extend((0..300).map(|_| slot | attacker.random.next_u32() & 0xffff));
    for qpn in numbers.into_iter().map(Qpn::new).filter(|qpn| !ours.contains(qpn)) {
        let packets = every_opcode(&mut attacker, qpn);
        let packet = &packets[attacker.below(packets.len())];
        let bytes = attacker.sealed(packet);
        attacker.send(&bytes);
    }
    attacker.settle();
    assert!(counted(&victim, "unknown_qp") > 290, "{:?}", victim.counted());
    let all =
        ["unknown_qp", "strays", "mads_unclaimed"].map(|name| counted(&victim, name)).iter().sum::<u64>();
    assert_eq!(all, attacker.sent(), "{:?}", victim.counted());
    victim.still_works();
}

/// Runs of packets that arrive as one datagram: each is judged by itself.
#[test]
fn runs_are_taken_apart() {
    let victim = Victim::new([127, 0, NET, 19], [127, 0, NET, 20]);
    let mut attacker = Attacker::new([127, 0, NET, 21], &victim, 7);
    let ack = Packet::congestion(victim.rc()).map_payload(|_: &[u8]| &[][..]);
    let len = ack.len();
    // Forty good notifications, then every third one for no queue pair, or with a wrong ICRC.
    for bad in 0..3 {
        let mut run = Vec::new();
        for place in 0..40_u16 {
            let spoil = place % 3 == 1;
            let qpn = if spoil && bad == 1 { Qpn::GSI } else { victim.rc() };
            let mut bytes = attacker.sealed_at(&Packet { dest_qp: qpn, ..ack }, place);
            if spoil && bad == 2 {
                bytes[len - 1] ^= 1;
            }
            run.extend(bytes);
        }
        attacker.send_run(&run, len);
    }
    attacker.settle();
    assert_eq!(counted(&victim, "wrong_peer"), 120 - 26, "a connection hears its peer only");
    assert_eq!((counted(&victim, "unknown_qp"), counted(&victim, "icrc_errors")), (13, 13));
    // Cuts of every length, in the wrong places.
    for segment in (1..200).step_by(3) {
        let bytes = attacker.random_bytes(segment * 20 + segment / 2);
        attacker.send_run(&bytes, segment);
    }
    attacker.settle();
    let names = ["malformed", "unknown_opcode", "icrc_errors", "unknown_qp", "wrong_peer"];
    let all: u64 = names.iter().map(|name| counted(&victim, name)).sum();
    assert_eq!(all, attacker.sent(), "{:?}", victim.counted());
    victim.still_works();
}

/// Congestion notifications of strangers in great number slow nothing down, and end nothing.
#[test]
fn a_flood_of_notifications_ends_nothing() {
    let victim = Victim::new([127, 0, NET, 22], [127, 0, NET, 23]);
    let mut attacker = Attacker::new([127, 0, NET, 24], &victim, 8);
    let packet: Packet<&[u8]> =
        Packet { dest_qp: victim.rc(), ..Packet::new(Qpn::GSI, Psn::new(0), Body::Congestion) };
    for _ in 0..3000 {
        let bytes = attacker.sealed(&packet);
        attacker.send(&bytes);
    }
    attacker.settle();
    assert_eq!(counted(&victim, "wrong_peer"), 3000);
    victim.still_works();
}

/// The kernel steers a run of packets by the first of them. Those for another engine are handed on to it, and
/// what is for no engine at all is counted.
#[test]
fn a_run_for_two_engines_reaches_both() {
    let address = [127, 0, NET, 60];
    let config = Config { address: Some(address.into()), engines: 2, ..Config::new("lo") };
    let nic = Nic::open(config).expect("a device on lo");
    let sides = [0, 1].map(|engine| {
        let cq = CompletionQueue::new(&nic, 64, None).expect("a completion queue");
        Side::into_queue(&nic, address, PathPolicy::Forbid, (16, Some(engine)), &cq)
    });
    let source = SocketAddr::new([127, 0, NET, 61].into(), PORT);
    let mut attacker = Attacker::at(source, &nic, address.into(), 9);
    // Queue pairs without a peer take no packet from any sender, and that is counted where they live.
    let [first, second] = sides.each_ref().map(|side| side.qp.qpn());
    let unknown = Qpn::new(5);
    let mut run = Vec::new();
    for (place, qpn) in (0..).zip([first, second, unknown, first, second]) {
        let packet: Packet<&[u8]> =
            Packet { dest_qp: qpn, ..Packet::new(Qpn::GSI, Psn::new(0), Body::Congestion) };
        run.extend(attacker.sealed_at(&packet, place));
    }
    let segment = run.len() / 5;
    attacker.send_run(&run, segment);
    let end = now() + common::PATIENCE;
    while nic.counters().wrong_peer < 4 {
        assert!(now() < end, "{:?}", nic.counters());
        std::thread::yield_now();
    }
    let counters = nic.counters();
    assert_eq!((counters.forwarded, counters.unknown_qp, counters.packets_received), (2, 1, 5));
    // A packet on its own comes to the right engine at once.
    let packet: Packet<&[u8]> =
        Packet { dest_qp: second, ..Packet::new(Qpn::GSI, Psn::new(0), Body::Congestion) };
    let bytes = attacker.sealed(&packet);
    attacker.send(&bytes);
    attacker.settle();
    assert_eq!((nic.counters().forwarded, nic.counters().wrong_peer), (2, 5));
}

/// The sample numbers with the queue pair, so that nothing but the sender is wrong.
fn numbers_for(attacker: &mut Attacker, qpn: Qpn) -> Numbers {
    let mut numbers = Numbers { pkey: 0xffff, flags: 0, ..Numbers::DISTINCT };
    numbers.words = [qpn.get(), attacker.random.next_u32() % 64 + TAIL, 0, 0, 0, 0];
    numbers
}

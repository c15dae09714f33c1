//! What happens to queue pairs is counted, each thing once and under its own name.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Completion, Status};
use ferroce_wire::{Body, Datagram, Deth, Packet, Psn, QKey, Qpn, Request, Segment};

/// The counters of a side that are not zero.
fn books(pair: &Pair, side: Side) -> Vec<(&'static str, u64)> {
    pair.counters(side).iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn only_work_that_was_done_is_a_success() {
    for status in Status::ALL {
        let completion = Completion { status, ..Completion::EMPTY };
        assert_eq!(completion.is_success(), status == Status::Success, "{status:?}");
        assert_eq!(completion.result().is_ok(), completion.is_success());
    }
}

#[test]
fn work_without_trouble() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0x8000, 3000);
    post_write(&mut pair, 1, 2500);
    post_message(&mut pair, 2, 10);
    post_read(&mut pair, 3, 2500);
    post_add(&mut pair, 4, (0x100, 0x200), 1);
    pair.run();
    assert_eq!(books(&pair, Side::A), [("requests_sent", 6), ("responses_received", 6)]);
    assert_eq!(books(&pair, Side::B), [("responses_sent", 4), ("acks_sent", 2), ("requests_received", 6)]);
}

#[test]
fn a_packet_that_is_lost_in_the_middle() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, 4096);
    lose(&mut pair, Side::A, &[1]);
    pair.run();
    assert_eq!(
        books(&pair, Side::A),
        [
            ("requests_sent", 7),
            ("responses_received", 2),
            ("retransmitted", 3),
            ("rewinds", 1),
            ("nak_sequence_received", 1)
        ]
    );
    assert_eq!(
        books(&pair, Side::B),
        [("acks_sent", 1), ("requests_received", 4), ("nak_sequence_sent", 1), ("out_of_sequence", 2)]
    );
}

/// The probe repeats the first packet; its acknowledgement shows that the second is missing.
#[test]
fn the_last_packet_is_lost() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, 2048);
    lose(&mut pair, Side::A, &[1]);
    pair.run();
    assert_eq!(
        books(&pair, Side::A),
        [
            ("requests_sent", 4),
            ("responses_received", 2),
            ("retransmitted", 2),
            ("rewinds", 1),
            ("probes", 1),
            ("probe_recoveries", 1)
        ]
    );
    assert_eq!(
        books(&pair, Side::B),
        [("acks_sent", 2), ("requests_received", 2), ("duplicate_requests", 1)]
    );
}

/// The third packet of the answer to the READ shows that the second is missing; the atomic is asked for again behind it.
#[test]
fn an_answer_that_is_lost() {
    let mut pair = pair(|_| {});
    post_read(&mut pair, 1, 3000);
    post_add(&mut pair, 2, (0x100, 0x200), 1);
    lose(&mut pair, Side::B, &[1, 3]);
    pair.run();
    assert_eq!(
        books(&pair, Side::A),
        [
            ("requests_sent", 4),
            ("responses_received", 5),
            ("retransmitted", 2),
            ("rewinds", 1),
            ("implied_naks", 1)
        ]
    );
    assert_eq!(
        books(&pair, Side::B),
        [
            ("responses_sent", 7),
            ("requests_received", 2),
            ("duplicate_requests", 2),
            ("duplicate_reads", 1),
            ("duplicate_atomics", 1)
        ]
    );
}

#[test]
fn a_message_without_a_receive() {
    let mut pair = pair(|_| {});
    post_message(&mut pair, 1, 10);
    pair.run_for(Duration::from_micros(10));
    post_receive(&mut pair, Side::B, 50, 0x8000, 10);
    pair.run();
    assert_eq!(
        books(&pair, Side::A),
        [
            ("requests_sent", 2),
            ("responses_received", 2),
            ("retransmitted", 1),
            ("rewinds", 1),
            ("rnr_received", 1)
        ]
    );
    assert_eq!(books(&pair, Side::B), [("acks_sent", 1), ("requests_received", 1), ("rnr_sent", 1)]);
}

#[test]
fn a_question_without_work() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, 8);
    pair.run();
    assert!(pair.ask(Side::A));
    pair.run();
    assert_eq!(
        books(&pair, Side::A),
        [("requests_sent", 1), ("responses_received", 1), ("questions_sent", 1), ("duplicate_responses", 1)]
    );
    assert_eq!(
        books(&pair, Side::B),
        [("acks_sent", 2), ("requests_received", 1), ("duplicate_requests", 1)]
    );
}

#[test]
fn a_full_window() {
    let mut pair = pair(|_| {});
    for id in 0..8 {
        post_write(&mut pair, id, 60_000);
    }
    pair.run();
    let (sender, receiver) = (pair.counters(Side::A), pair.counters(Side::B));
    assert_eq!((sender.requests_sent, receiver.requests_received), (8 * 59, 8 * 59));
    assert!(sender.window_waits > 0 && sender.retransmitted == 0);
    assert_eq!(sender.responses_received, receiver.acks_sent);
}

/// Another partition, another service, a notice of congestion, one from far ahead, two behind a gap, and an old one.
#[test]
fn packets_that_are_not_for_it() {
    let mut pair = pair(|_| {});
    let mut wrong = Packet::new(Pair::qpn(Side::B), Psn::new(START), Body::RcRequest(send_only(&[1])));
    wrong.pkey = ferroce_wire::PKey(0x1234);
    pair.inject(Side::B, &wrong);
    let deth = Deth { qkey: QKey(1), source_qp: Qpn::new(5) };
    let datagram = Body::Ud(Datagram { deth, imm: None, payload: &[1; 4][..] });
    let mut datagram = Packet::new(Pair::qpn(Side::B), Psn::new(0), datagram);
    datagram.fecn = true;
    pair.inject(Side::B, &datagram);
    pair.inject(Side::B, &Packet::new(Pair::qpn(Side::B), Psn::new(0), Body::Congestion));
    inject_request(&mut pair, START + 0x40_0000, send_only(&[1]));
    inject_request(&mut pair, START + 2, send_only(&[1]));
    inject_request(&mut pair, START + 3, send_only(&[1]));
    let repeated = Request::Write(Segment::Only(reth(&pair, 0, 0), None), &[][..]);
    inject_request(&mut pair, START - 1, repeated);
    assert_eq!(books(&pair, Side::A), []);
    assert_eq!(
        books(&pair, Side::B),
        [
            ("acks_sent", 1),
            ("nak_sequence_sent", 1),
            ("out_of_sequence", 2),
            ("implausible", 1),
            ("duplicate_requests", 1),
            ("wrong_service", 1),
            ("wrong_pkey", 1),
            ("congestion_marks", 1),
            ("congestion_notifications", 1)
        ]
    );
}

//! End-to-end credits: a responder says how many receives it has, a requester does not send more messages
//! than that, but for one packet that asks for news (IBA 9.7.7.2).

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{SendOp, Status};
use ferroce_wire::{Aeth, Body, CreditCode, Imm, Msn, Packet, Psn, Response, Syndrome};

fn ack_with(credits: CreditCode, msn: u32) -> Response<&'static [u8]> {
    Response::Acknowledge(Aeth { syndrome: Syndrome::Ack(credits), msn: Msn::new(msn) })
}

/// A pair whose A has learned from an ACK of its first message, a WRITE, that B has this many receives.
fn taught(credits: CreditCode) -> Pair {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    post_write(&mut pair, 0, 1);
    pair.step();
    inject_response(&mut pair, START, ack_with(credits, 1));
    assert_sends(&mut pair, Side::A, &[(0, Status::Success, 1)]);
    pair.sent.clear();
    pair
}

fn post_messages(pair: &mut Pair, count: u64) {
    for id in 1..=count {
        post_message(pair, id, 10);
    }
}

#[test]
fn a_peer_that_counts_nothing_holds_nothing_back() {
    let mut pair = taught(CreditCode::UNCOUNTED);
    post_messages(&mut pair, 20);
    pair.step();
    assert_eq!(wire_of(&pair, Side::A).len(), 20);
    assert_eq!(pair.counters(Side::A).credit_waits, 0);
}

/// With n credits n messages leave; the next goes alone, when nothing else is under way, and asks.
#[test]
fn messages_beyond_the_credits_wait() {
    for credits in [1, 2, 3, 4, 8] {
        let mut pair = taught(CreditCode::at_most(credits));
        post_messages(&mut pair, 12);
        pair.run_for(Duration::from_micros(1));
        assert_eq!(wire_of(&pair, Side::A).len(), credits as usize, "{credits} credits");
        assert!(pair.counters(Side::A).credit_waits > 0);

        // All arrived, and B has nothing new: one more is tried.
        inject_response(&mut pair, START + credits, ack_with(CreditCode::at_most(0), 1 + credits));
        let lines = wire_of(&pair, Side::A);
        assert_eq!(lines.len(), credits as usize + 1);
        assert_eq!(lines.last().unwrap(), &format!("A SEND Only {:x} ask", START + credits + 1));
    }
}

/// Without any credit a long message goes packet by packet, each of which asks.
#[test]
fn a_message_without_credit_goes_packet_by_packet() {
    let mut pair = taught(CreditCode::at_most(0));
    post_message(&mut pair, 1, 3000);
    for packet in 1..=3 {
        pair.run_for(Duration::from_micros(1));
        let lines = wire_of(&pair, Side::A);
        assert_eq!(lines.len(), packet as usize);
        assert!(lines.last().unwrap().ends_with(" ask"), "{lines:?}");
        inject_response(&mut pair, START + packet, ack_with(CreditCode::at_most(0), 1 + packet / 3));
    }
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
    assert_at_peace(&mut pair);
}

/// WRITEs, READs and atomics take no receive and need no credit, not even behind a message that has one.
#[test]
fn work_that_takes_no_receive_needs_no_credit() {
    let mut pair = taught(CreditCode::at_most(0));
    for id in 1..4 {
        post_write(&mut pair, id, 10);
    }
    post_read(&mut pair, 4, 10);
    post_add(&mut pair, 5, (64, 64), 1);
    pair.step();
    assert_eq!(wire_of(&pair, Side::A).len(), 5);
    assert_eq!(pair.counters(Side::A).credit_waits, 0);
}

/// A WRITE with immediate takes a receive.
#[test]
fn a_write_with_immediate_needs_a_credit() {
    let mut pair = taught(CreditCode::at_most(1));
    let sge = [pair.sge(Side::A, 0, 10)];
    for id in 1..4 {
        let op = SendOp::WriteImm(pair.remote(Side::B, 0), Imm(1));
        post(&mut pair, id, op, &sge);
    }
    pair.step();
    assert_eq!(wire_of(&pair, Side::A).len(), 1);
}

/// News of credits comes with any ACK, also with one that acknowledges nothing new.
#[test]
fn an_ack_without_progress_brings_credits() {
    let mut pair = taught(CreditCode::at_most(1));
    post_messages(&mut pair, 12);
    pair.run_for(Duration::from_micros(1));
    assert_eq!(wire_of(&pair, Side::A).len(), 1);
    inject_response(&mut pair, START, ack_with(CreditCode::at_most(8), 1));
    assert_eq!(wire_of(&pair, Side::A).len(), 8);
}

/// Our own responder counts, and an ACK carries the count.
#[test]
fn our_responder_tells_how_many_receives_wait() {
    let mut pair = pair(|_| {});
    let credits = |pair: &Pair| match pair.sent.last().unwrap().packet().body {
        Body::RcResponse(Response::Acknowledge(aeth)) => aeth.syndrome,
        ref other => panic!("{other:?}"),
    };
    for receives in 0..6 {
        post_write(&mut pair, 1, 1);
        pair.run();
        assert_eq!(credits(&pair), Syndrome::Ack(CreditCode::at_most(receives)), "{receives} receives");
        post_receive(&mut pair, Side::B, 50, 0, 10);
    }
}

/// B keeps few receives and posts a new one whenever one is used; A has heard how many there are.
fn stream(receives: u64, messages: u64, length: u32) -> Pair {
    let mut pair = pair(|_| {});
    for id in 0..receives {
        post_receive(&mut pair, Side::B, id, 0x1000 * id, length);
    }
    post_write(&mut pair, 0, 1);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(0, Status::Success, 1)]);
    for id in 1..=messages {
        post_message(&mut pair, id, length);
    }
    let (mut used, start) = (receives, pair.now());
    while pair.step() {
        for done in pair.take_receives(Side::B) {
            assert_eq!((done.id, done.status), (used - receives, Status::Success));
            post_receive(&mut pair, Side::B, used, 0x1000 * (used % 16), length);
            used += 1;
        }
        assert!(pair.now().since(start) < Duration::from_secs(1), "stuck");
    }
    let done: Vec<_> = pair.take_sends(Side::A).iter().map(|one| (one.id, one.status)).collect();
    assert_eq!(done, (1..=messages).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    assert_eq!(used, receives + messages);
    pair
}

/// Where credits are honoured and receives are posted again, no message ever meets an empty queue.
#[test]
fn honoured_credits_leave_no_rnr_nak() {
    for (receives, length) in [(1, 10), (2, 10), (4, 10), (1, 3000), (4, 3000)] {
        let mut pair = stream(receives, 40, length);
        assert_eq!(pair.counters(Side::B).rnr_sent, 0, "{receives} receives of {length}");
        assert!(pair.counters(Side::A).credit_waits > 0);
        assert_at_peace(&mut pair);
    }
}

/// A responder that has nothing and gets something later: nothing is stuck.
#[test]
fn no_credit_is_no_deadlock() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 0, 1);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(0, Status::Success, 1)]);
    post_messages(&mut pair, 5);
    pair.run_for(Duration::from_millis(5));
    assert_sends(&mut pair, Side::A, &[]);
    for id in 1..=5 {
        post_receive(&mut pair, Side::B, id, 0, 10);
    }
    pair.run();
    let ends: Vec<_> = (1..=5).map(|id| (id, Status::Success, 10)).collect();
    assert_sends(&mut pair, Side::A, &ends);
    assert_receives(&mut pair, Side::B, &ends);
    assert_at_peace(&mut pair);
}

/// The peer ran out of receives while a message was half sent, and no packet of it has asked for an
/// answer yet: its next packet must, or both would wait for each other (until a probe).
#[test]
fn a_credit_that_ends_in_the_middle_of_a_message_is_asked_for() {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    post_write(&mut pair, 0, 1);
    post_message(&mut pair, 1, 8192);
    for _ in 0..3 {
        assert!(pair.send_one(Side::A));
    }
    pair.sent.clear();
    let ack = Body::RcResponse(ack_with(CreditCode::at_most(0), 1));
    pair.inject(Side::A, &Packet::new(Pair::qpn(Side::A), Psn::new(START), ack));
    assert!(pair.receive_one());
    pair.run_for(Duration::from_micros(1));
    let lines = wire_of(&pair, Side::A);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("A SEND Middle") && lines[0].ends_with("ask"), "{lines:?}");
}

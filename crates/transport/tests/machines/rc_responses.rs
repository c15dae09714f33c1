//! Answers that do not answer: the requester's side of a peer that breaks the protocol.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{SendOp, State, Status};
use ferroce_wire::{Aeth, AtomicAckEth, Msn, NakCode, ReadSegment, Response, Syndrome};

/// A pair whose packets are all lost, with this work under way on A and more behind it.
fn asking(ask: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    ask(&mut pair);
    post_write(&mut pair, 2, 10);
    pair.step();
    pair
}

fn read(segment: fn(Aeth) -> ReadSegment, payload: &[u8]) -> Response<&[u8]> {
    Response::Read(segment(aeth(1)), payload)
}

fn middle(_: Aeth) -> ReadSegment {
    ReadSegment::Middle
}

#[track_caller]
fn assert_bad_response(mut pair: Pair, case: &str) {
    assert_eq!(pair.queue_pair(Side::A).state(), State::Err, "{case}");
    assert_sends(&mut pair, Side::A, &[(1, Status::BadResponse, 0), (2, Status::Flushed, 0)]);
    assert_states(&pair, State::Err, State::Rts);
    assert_events(&mut pair, &[], &[]);
    assert_eq!(pair.queue_pair(Side::A).poll_timeout(), None, "{case}");
}

/// IBA 9.7.5.2.3: response packets have the path MTU, the last one what is left.
#[test]
fn a_read_response_of_the_wrong_length_is_a_bad_response() {
    const FULL: &[u8] = &[7; 1024];
    let cases: [(&str, u32, Response<&[u8]>); 7] = [
        ("Only, too short", 100, read(ReadSegment::Only, &FULL[..99])),
        ("Only, too long", 100, read(ReadSegment::Only, &FULL[..101])),
        ("Only, empty", 100, read(ReadSegment::Only, &[])),
        ("First, short", 3000, read(ReadSegment::First, &FULL[..512])),
        ("First, longer than the MTU", 3000, read(ReadSegment::First, &[7; 2048])),
        ("Only, with bytes that were not asked for", 0, read(ReadSegment::Only, &FULL[..1])),
        ("Only, with the whole of a longer READ", 2048, read(ReadSegment::Only, &[7; 2048])),
    ];
    for (case, length, response) in cases {
        let mut pair = asking(|pair| post_read(pair, 1, length));
        inject_response(&mut pair, START, response);
        assert_untouched(&mut pair, Side::A, 0, 4096);
        assert_bad_response(pair, case);
    }
}

#[test]
fn a_last_read_response_of_the_wrong_length_is_a_bad_response() {
    for len in [1, 951, 953, 1024] {
        let mut pair = asking(|pair| post_read(pair, 1, 3000));
        inject_response(&mut pair, START, read(ReadSegment::First, &[7; 1024]));
        inject_response(&mut pair, START + 1, read(middle, &[7; 1024]));
        inject_response(&mut pair, START + 2, read(ReadSegment::Last, &vec![7; len]));
        assert_untouched(&mut pair, Side::A, 2048, 1024);
        assert_bad_response(pair, &format!("Last with {len} bytes"));
    }
}

/// An answer that says it is the last when more is to come, or that more comes when it is the last.
#[test]
fn a_read_response_that_ends_in_the_wrong_place_is_a_bad_response() {
    let cases: [(&str, u32, Response<&[u8]>); 4] = [
        ("Only, and more to come", 2048, read(ReadSegment::Only, &[7; 1024])),
        ("Last, and more to come", 2048, read(ReadSegment::Last, &[7; 1024])),
        ("First, and nothing to come", 1024, read(ReadSegment::First, &[7; 1024])),
        ("Middle, and nothing to come", 1024, read(middle, &[7; 1024])),
    ];
    for (case, length, response) in cases {
        let mut pair = asking(|pair| post_read(pair, 1, length));
        inject_response(&mut pair, START, response);
        assert_bad_response(pair, case);
    }
}

/// A kind of answer that the request cannot have (IBA 9.7.5.2).
#[test]
fn an_answer_of_another_kind_is_a_bad_response() {
    type Ask = fn(&mut Pair);
    let atomic = Response::AtomicAcknowledge(aeth(1), AtomicAckEth { original: 1 });
    let data: Response<&[u8]> = read(ReadSegment::Only, &[7; 8]);
    let write: Ask = |pair| post_write(pair, 1, 8);
    let send: Ask = |pair| post_message(pair, 1, 8);
    let fetch: Ask = |pair| post_add(pair, 1, (0, 0), 1);
    let get: Ask = |pair| post_read(pair, 1, 8);
    let store: Ask = |pair| {
        let (op, sge) = (SendOp::AtomicWrite(pair.remote(Side::B, 0)), pair.sge(Side::A, 0, 8));
        post(pair, 1, op, &[sge]);
    };
    let cases: [(&str, Ask, Response<&[u8]>); 8] = [
        ("data for a WRITE", write, data),
        ("data for a SEND", send, data),
        ("data for an atomic", fetch, data),
        ("data for an ATOMIC WRITE", store, data),
        ("a value for a WRITE", write, atomic),
        ("a value for a SEND", send, atomic),
        ("a value for a READ", get, atomic),
        ("a value for an ATOMIC WRITE", store, atomic),
    ];
    for (case, ask, response) in cases {
        let mut pair = asking(ask);
        inject_response(&mut pair, START, response);
        assert_untouched(&mut pair, Side::A, 0, 4096);
        assert_bad_response(pair, case);
    }
}

/// A plain ACK in place of data is no error: the data was lost on its way, or so it seems.
#[test]
fn a_plain_ack_for_a_read_is_an_implied_nak() {
    let mut pair = asking(|pair| post_read(pair, 1, 8));
    inject_response(&mut pair, START, ack(1));
    assert_eq!(pair.counters(Side::A).implied_naks, 1);
    assert_sends(&mut pair, Side::A, &[]);
    assert_states(&pair, State::Rts, State::Rts);
}

/// Every NAK that is not about sequence ends the work that it names, after what lies before it.
#[test]
fn a_fatal_nak_gives_its_status() {
    let cases = [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccess, Status::RemoteAccess),
        (NakCode::RemoteOperation, Status::RemoteOperation),
        (NakCode::InvalidRdRequest, Status::RemoteInvalidRequest),
    ];
    for (code, status) in cases {
        let mut pair = asking(|pair| post_write(pair, 1, 2048));
        post_write(&mut pair, 3, 10);
        pair.step();
        inject_response(&mut pair, START + 2, nak(code, 1));
        let wanted = [(1, Status::Success, 2048), (2, status, 0), (3, Status::Flushed, 0)];
        assert_sends(&mut pair, Side::A, &wanted);
        assert_states(&pair, State::Err, State::Rts);
        assert_events(&mut pair, &[], &[]);
        assert_eq!(pair.counters(Side::A).nak_fatal_received, 1);
    }
}

/// A syndrome that the IBA reserves is counted and otherwise not there.
#[test]
fn a_reserved_syndrome_is_dropped() {
    let mut pair = asking(|pair| post_write(pair, 1, 10));
    for syndrome in [0x40, 0x65, 0x80, 0xff] {
        let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(1) };
        inject_response(&mut pair, START, Response::Acknowledge(aeth));
    }
    assert_eq!(pair.counters(Side::A).bad_syndromes, 4);
    assert_sends(&mut pair, Side::A, &[]);
    inject_response(&mut pair, START + 1, ack(2));
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10), (2, Status::Success, 10)]);
    assert_at_peace(&mut pair);
}

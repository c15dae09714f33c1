//! Packets that are lost, repeated or never were: PSNs on a reliable connection (IBA 9.7.4.1.2, 9.7.5.1).

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side, Verdict};
use ferroce_transport::{SendOp, Status};
use ferroce_wire::{NakCode, PathMtu, Psn};

/// NAK sequence error: one for a gap, and sending goes back to the PSN that it names.
#[test]
fn a_gap_gives_one_nak_and_sending_goes_back_to_it() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 6144, 1);
    post_write(&mut pair, 7, 6144);
    lose(&mut pair, Side::A, &[2]);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A WRITE First 10",
            "A WRITE Middle 11",
            "A WRITE Middle 12",
            "A WRITE Middle 13",
            "A WRITE Middle 14",
            "A WRITE Last 15 ask",
            "B NAK PSN Sequence Error 12 msn=0",
            "A WRITE Middle 12",
            "A WRITE Middle 13",
            "A WRITE Middle 14",
            "A WRITE Last 15 ask",
            "B ACK 15 msn=1",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(7, Status::Success, 6144)]);
    assert_filled(&mut pair, Side::B, 0, 6144, 1);
    assert_eq!(pair.counters(Side::A).nak_sequence_received, 1);
    assert_eq!(pair.counters(Side::A).rewinds, 1);
    assert_eq!(pair.counters(Side::A).retransmitted, 4);
    assert_eq!(pair.counters(Side::A).timeouts, 0);
    assert_eq!(pair.counters(Side::B).nak_sequence_sent, 1);
    assert_eq!(pair.counters(Side::B).out_of_sequence, 3);
    assert_at_peace(&mut pair);
}

/// What no peer can have under way is a forgery: answering it would have the peer send everything again.
#[test]
fn a_request_from_the_far_future_is_dropped_without_a_word() {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    for ahead in [1 << 20, (1 << 20) + 1, (1 << 23) - 1] {
        inject_request(&mut pair, START + ahead, send_only(&[1; 64]));
    }
    assert_eq!((pair.counters(Side::B).implausible, pair.counters(Side::B).out_of_sequence), (3, 0));
    pair.step();
    assert_eq!(wire_of(&pair, Side::B), [""; 0], "no peer is told");
    inject_request(&mut pair, START + (1 << 20) - 1, send_only(&[1; 64]));
    pair.step();
    assert_eq!((pair.counters(Side::B).implausible, pair.counters(Side::B).out_of_sequence), (3, 1));
    assert_eq!(wire_of(&pair, Side::B), ["B NAK PSN Sequence Error 10 msn=0"]);
    assert_at_peace(&mut pair);
}

/// A second gap in what was sent again is named by a NAK of its own.
#[test]
fn each_gap_has_its_own_nak() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 4096, 2);
    post_write(&mut pair, 1, 4096);
    // 0x11 is lost, then 0x12 of the second round.
    lose(&mut pair, Side::A, &[1, 5]);
    pair.run();
    let naks: Vec<_> = wire_of(&pair, Side::B).into_iter().filter(|line| line.contains("NAK")).collect();
    assert_eq!(naks, ["B NAK PSN Sequence Error 11 msn=0", "B NAK PSN Sequence Error 12 msn=0"]);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4096)]);
    assert_filled(&mut pair, Side::B, 0, 4096, 2);
    assert_eq!(pair.counters(Side::A).rewinds, 2);
    assert_at_peace(&mut pair);
}

/// The same NAK twice within a round trip is the same news.
#[test]
fn a_nak_that_arrives_twice_goes_back_once() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, 4096);
    pair.filter(|sent| match (sent.from, sent.number) {
        (Side::A, 1) => Verdict::Drop,
        (Side::B, 0) => Verdict::Duplicate,
        _ => Verdict::Deliver,
    });
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4096)]);
    assert_eq!(pair.counters(Side::A).rewinds, 1);
    assert_eq!(pair.counters(Side::A).nak_repeats_ignored, 1);
    assert_at_peace(&mut pair);
}

/// Ghost ACK (IBA 9.7.5.1.1): what acknowledges PSNs that were never sent is dropped and counted.
#[test]
fn a_ghost_ack_acknowledges_nothing() {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    inject_response(&mut pair, START, ack(1));
    post_write(&mut pair, 1, 2048);
    pair.step();
    inject_response(&mut pair, START + 2, ack(1));
    inject_response(&mut pair, START + 1000, ack(1));
    assert_eq!(pair.counters(Side::A).ghost_acks, 3);
    assert_eq!(pair.counters(Side::A).responses_received, 0);
    assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 1);

    inject_response(&mut pair, START + 1, ack(1));
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 2048)]);
    assert_at_peace(&mut pair);
}

/// An ACK from before the first packet, or for one that is done, is old news.
#[test]
fn an_old_ack_is_counted_and_changes_nothing() {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    post_write(&mut pair, 1, 10);
    pair.step();
    inject_response(&mut pair, START - 1, ack(0));
    assert_eq!(pair.counters(Side::A).duplicate_responses, 1);
    assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 1);
    inject_response(&mut pair, START, ack(1));
    inject_response(&mut pair, START, ack(1));
    assert_eq!(pair.counters(Side::A).duplicate_responses, 2);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10)]);
    assert_at_peace(&mut pair);
}

/// Implied NAK (IBA 9.7.5.1.2): an ACK for something later shows that a READ response is lost.
#[test]
fn an_ack_that_skips_a_read_response_asks_for_it_again() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::B, 0, 512, 3);
    post_read(&mut pair, 1, 512);
    let (sge, op) = (pair.sge(Side::A, 4096, 10), SendOp::Write(pair.remote(Side::B, 4096)));
    post(&mut pair, 2, op, &[sge]);
    lose(&mut pair, Side::B, &[0]);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A READ Request 10 ask at=0 len=512",
            "A WRITE Only 11 ask",
            "B READ Response Only 10 msn=1",
            "B ACK 11 msn=2",
            "A READ Request 10 ask at=0 len=512",
            "A WRITE Only 11 ask",
            "B READ Response Only 10 msn=1",
            "B ACK 11 msn=2",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 512), (2, Status::Success, 10)]);
    assert_filled(&mut pair, Side::A, 0, 512, 3);
    assert_eq!(pair.counters(Side::A).implied_naks, 1);
    assert_eq!(pair.counters(Side::A).rewinds, 1);
    assert_eq!(pair.counters(Side::B).duplicate_reads, 1);
    assert_eq!(pair.counters(Side::B).duplicate_requests, 2);
    assert_at_peace(&mut pair);
}

/// The same for the answer of an atomic, which must not be executed again.
#[test]
fn an_ack_that_skips_an_atomic_answer_gets_it_from_the_replay_store() {
    let mut pair = pair(|_| {});
    set_word(&mut pair, Side::B, 64, 40);
    post_add(&mut pair, 1, (64, 0), 2);
    let (sge, op) = (pair.sge(Side::A, 4096, 10), SendOp::Write(pair.remote(Side::B, 4096)));
    post(&mut pair, 2, op, &[sge]);
    lose(&mut pair, Side::B, &[0]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8), (2, Status::Success, 10)]);
    assert_eq!(word(&mut pair, Side::A, 0), 40);
    assert_eq!(word(&mut pair, Side::B, 64), 42);
    assert_eq!(pair.counters(Side::A).implied_naks, 1);
    assert_eq!(pair.counters(Side::B).duplicate_atomics, 1);
    assert_at_peace(&mut pair);
}

/// A SEND that comes again is acknowledged again and delivered once (IBA 9.7.5.1.4).
#[test]
fn a_repeated_send_is_acknowledged_again_and_delivered_once() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    post_receive(&mut pair, Side::B, 50, 0, 100);
    post_receive(&mut pair, Side::B, 51, 1000, 100);
    inject_request(&mut pair, START, send_only(b"once"));
    inject_request(&mut pair, START, send_only(b"once"));
    assert_wire(&pair, &["B ACK 10 msn=1", "B ACK 10 msn=1"]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 4)]);
    assert_eq!(pair.counters(Side::B).duplicate_requests, 1);
    assert_untouched(&mut pair, Side::B, 1000, 100);
}

/// The ACK to an old packet speaks for everything that has arrived since.
#[test]
fn a_repeated_write_is_acknowledged_up_to_the_newest_and_not_written_again() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    let write = |pair: &Pair, byte: &'static [u8]| {
        let segment = ferroce_wire::Segment::Only(reth(pair, 0, 1), None);
        ferroce_wire::Request::Write(segment, byte)
    };
    let (old, new) = (write(&pair, b"o"), write(&pair, b"n"));
    inject_request(&mut pair, START, old);
    inject_request(&mut pair, START + 1, new);
    inject_request(&mut pair, START, old);
    assert_wire(&pair, &["B ACK 10 msn=1", "B ACK 11 msn=2", "B ACK 11 msn=2"]);
    assert_eq!(pair.memory(Side::B)[0], b'n');
    assert_eq!(pair.counters(Side::B).duplicate_requests, 1);
}

fn post_one_of_each(pair: &mut Pair) {
    post_receive(pair, Side::B, 50, 0x8000, 4000);
    fill(pair, Side::A, 0, 4000, 4);
    fill(pair, Side::B, 0x4000, 4000, 5);
    set_word(pair, Side::B, 0xff00, 9);
    let (write, send) = (SendOp::Write(pair.remote(Side::B, 0)), SendOp::Send);
    let read = SendOp::Read(pair.remote(Side::B, 0x4000));
    let (out, back) = (pair.sge(Side::A, 0, 4000), pair.sge(Side::A, 0x4000, 4000));
    post(pair, 1, write, &[out]);
    post(pair, 2, send, &[out]);
    post(pair, 3, read, &[back]);
    post_add(pair, 4, (0xff00, 0xff00), 1);
}

fn assert_one_of_each(pair: &mut Pair) {
    let done = [4000, 4000, 4000, 8];
    let done: Vec<End> = (1..).zip(done).map(|(id, len)| (id, Status::Success, len)).collect();
    assert_sends(pair, Side::A, &done);
    assert_receives(pair, Side::B, &[(50, Status::Success, 4000)]);
    assert_filled(pair, Side::B, 0, 4000, 4);
    assert_filled(pair, Side::B, 0x8000, 4000, 4);
    assert_filled(pair, Side::A, 0x4000, 4000, 5);
    assert_eq!((word(pair, Side::A, 0xff00), word(pair, Side::B, 0xff00)), (9, 10));
    assert_at_peace(pair);
}

/// A peer that repeats packets although nothing was lost costs nothing: no rewind at all.
#[test]
fn spurious_duplicates_of_every_packet_cause_no_rewind() {
    let mut pair = pair(|_| {});
    pair.filter(|_| Verdict::Duplicate);
    post_one_of_each(&mut pair);
    pair.run();
    assert_one_of_each(&mut pair);
    assert_eq!(pair.counters(Side::A).rewinds, 0);
    assert_eq!(pair.counters(Side::A).retransmitted, 0);
    assert_eq!(pair.counters(Side::B).duplicate_requests, 4 + 4 + 1 + 1);
}

/// The same with answers only.
#[test]
fn spurious_duplicates_of_every_answer_cause_no_rewind() {
    let mut pair = pair(|_| {});
    pair.filter(|sent| if sent.from == Side::B { Verdict::Duplicate } else { Verdict::Deliver });
    post_one_of_each(&mut pair);
    pair.run();
    assert_one_of_each(&mut pair);
    assert_eq!(pair.counters(Side::A).rewinds, 0);
    // Two acknowledgements, four packets of the READ response, one atomic answer.
    assert_eq!(pair.counters(Side::A).duplicate_responses, 2 + 4 + 1);
}

/// PSNs wrap around after 0xffffff, in the middle of a message.
#[test]
fn psns_wrap_within_a_write() {
    let mut pair = pair(|setup| setup.psns[0] = 0xff_fffe);
    fill(&mut pair, Side::A, 0, 4096, 6);
    post_write(&mut pair, 1, 4096);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A WRITE First fffffe",
            "A WRITE Middle ffffff",
            "A WRITE Middle 0",
            "A WRITE Last 1 ask",
            "B ACK 1 msn=1",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4096)]);
    assert_filled(&mut pair, Side::B, 0, 4096, 6);
    assert_at_peace(&mut pair);
}

/// Whichever packet of either side is lost around the wrap, the message arrives once and whole.
#[test]
fn psns_wrap_under_loss_of_any_packet() {
    const LEN: u32 = 6 * 256;
    for (name, work) in [("WRITE", 0), ("SEND", 1), ("READ", 2)] {
        for lost in 0..6 {
            for loser in [Side::A, Side::B] {
                let mut pair = pair(|setup| {
                    setup.psns[0] = 0xff_fffd;
                    setup.mtu = PathMtu::B256;
                });
                let source = if work == 2 { Side::B } else { Side::A };
                fill(&mut pair, source, 0, LEN as usize, 7);
                post_receive(&mut pair, Side::B, 50, 0, LEN);
                match work {
                    0 => post_write(&mut pair, 1, LEN),
                    1 => post_message(&mut pair, 1, LEN),
                    _ => post_read(&mut pair, 1, LEN),
                }
                post_add(&mut pair, 2, (0x4000, 0x4000), 1);
                lose(&mut pair, loser, &[lost]);
                pair.run();
                let case = format!("{name}, {loser:?} loses {lost}:\n{}", wire(&pair).join("\n"));
                let ends: Vec<_> = pair.take_sends(Side::A).iter().map(|one| (one.id, one.status)).collect();
                assert_eq!(ends, [(1, Status::Success), (2, Status::Success)], "{case}");
                assert_eq!(pair.take_receives(Side::B).len(), usize::from(work == 1), "{case}");
                assert_eq!(word(&mut pair, Side::B, 0x4000), 1, "{case}");
                assert_filled(&mut pair, source.other(), 0, LEN as usize, 7);
                assert!(pair.sent.iter().any(|sent| sent.packet().psn == Psn::new(0)), "{case}");
                assert_at_peace(&mut pair);
            }
        }
    }
}

/// A packet that is missing once more after everything was sent again is not helped by sending
/// everything again: one packet at a time, until there is progress. Otherwise two busy hosts with small
/// buffers drown each other in repeats and nothing ever gets through.
#[test]
fn a_packet_that_is_missing_twice_is_sent_alone() {
    let mut pair = pair(|setup| setup.retry_count = 7);
    cut_both(&mut pair);
    post_write(&mut pair, 1, 8192);
    pair.step();
    for _ in 0..2 {
        pair.sent.clear();
        inject_response(&mut pair, START, nak(NakCode::SequenceError, 0));
        pair.skip(Duration::from_millis(2));
    }
    let lines = wire_of(&pair, Side::A);
    assert!(lines.iter().all(|line| line == "A WRITE First 10 ask"), "{lines:?}");
    // One answer, and everything flows again.
    pair.sent.clear();
    inject_response(&mut pair, START, ack(0));
    let lines = wire_of(&pair, Side::A);
    assert_eq!(lines.last().map(String::as_str), Some("A WRITE Last 17 ask"), "{lines:?}");
}

//! Receiver not ready: no receive is posted for a message (IBA 9.7.5.2.8, 9.7.6.1.4).

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{SendOp, State, Status};
use ferroce_wire::{Imm, RnrTimer};

/// There and back.
const ROUND_TRIP: Duration = Duration::from_micros(10);

fn rnr_count(pair: &Pair) -> (u64, u64) {
    (pair.counters(Side::B).rnr_sent, pair.counters(Side::A).rnr_received)
}

/// When A sent each of its packets, from the first on.
fn sending_times(pair: &Pair) -> Vec<Duration> {
    let times: Vec<_> = pair.sent.iter().filter(|sent| sent.from == Side::A).map(|sent| sent.at).collect();
    times.iter().map(|at| at.since(times[0])).collect()
}

#[test]
fn rnr_retries_are_counted_up_to_six() {
    for rnr_retry in 0..7 {
        let mut pair = pair(|setup| setup.rnr_retry = rnr_retry);
        post_message(&mut pair, 1, 10);
        post_write(&mut pair, 2, 10);
        pair.run();
        let tries = u64::from(rnr_retry) + 1;
        assert_eq!(rnr_count(&pair), (tries, tries), "rnr_retry {rnr_retry}");
        assert_sends(&mut pair, Side::A, &[(1, Status::RnrRetryExceeded, 0), (2, Status::Flushed, 0)]);
        assert_states(&pair, State::Err, State::Rts);
        assert_events(&mut pair, &[], &[]);
        assert_eq!(pair.counters(Side::A).timeouts, 0);
    }
}

/// The wire of one RNR retry: the NAK names the message, which is sent again from its first packet.
#[test]
fn an_rnr_nak_holds_the_message_back_and_sends_it_again() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 2048, 1);
    post_message(&mut pair, 1, 2048);
    pair.run_for(Duration::from_micros(12));
    post_receive(&mut pair, Side::B, 50, 0, 2048);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A SEND First 10",
            "A SEND Last 11 ask",
            "B RNR NAK 10 msn=0",
            "A SEND First 10",
            "A SEND Last 11 ask",
            "B ACK 11 msn=1",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 2048)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 2048)]);
    assert_filled(&mut pair, Side::B, 0, 2048, 1);
    assert_at_peace(&mut pair);
}

#[test]
fn rnr_retry_7_is_for_ever() {
    let mut pair = pair(|setup| setup.retry_count = 0);
    post_message(&mut pair, 1, 10);
    pair.run_for(Duration::from_millis(40));
    assert_eq!(rnr_count(&pair).0, 2000, "it tries every 20 us");
    assert_sends(&mut pair, Side::A, &[]);
    assert_states(&pair, State::Rts, State::Rts);

    post_receive(&mut pair, Side::B, 50, 0, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 10)]);
    assert_eq!(pair.counters(Side::A).timeouts, 0);
    assert_at_peace(&mut pair);
}

/// All 32 codes: the requester waits exactly as long as the responder asks, however long that is.
#[test]
fn the_wait_is_that_of_the_timer_table() {
    for code in 0..32 {
        let mut pair = pair(|setup| {
            setup.min_rnr_timer = code;
            setup.rnr_retry = 2;
            setup.retry_count = 0;
        });
        post_message(&mut pair, 1, 10);
        pair.run();
        let wait = RnrTimer::new(code).duration() + ROUND_TRIP;
        assert_eq!(sending_times(&pair), [Duration::ZERO, wait, wait * 2], "code {code}");
        assert_eq!(pair.counters(Side::A).probes, 0);
        assert_sends(&mut pair, Side::A, &[(1, Status::RnrRetryExceeded, 0)]);
    }
}

/// The receive of a WRITE with immediate is wanted by its last packet: what lies before it is in place and
/// is not sent again.
#[test]
fn rnr_in_the_middle_of_a_write_with_immediate() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 3000, 1);
    let op = SendOp::WriteImm(pair.remote(Side::B, 0), Imm(0xcafe));
    let sge = pair.sge(Side::A, 0, 3000);
    post(&mut pair, 1, op, &[sge]);
    pair.run_for(Duration::from_micros(12));
    assert_filled(&mut pair, Side::B, 0, 2048, 1);
    assert_untouched(&mut pair, Side::B, 2048, 2048);
    post_receive(&mut pair, Side::B, 50, 0, 0);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A WRITE First 10",
            "A WRITE Middle 11",
            "A WRITE Last with Immediate 12 ask",
            "B RNR NAK 12 msn=0",
            "A WRITE Last with Immediate 12 ask",
            "B ACK 12 msn=1",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
    let received = pair.take_receives(Side::B);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].id, received[0].imm, received[0].byte_len), (50, Some(0xcafe), 3000));
    assert_filled(&mut pair, Side::B, 0, 3000, 1);
    assert_at_peace(&mut pair);
}

/// Work behind the message waits with it; work before it is done.
#[test]
fn work_around_an_rnr_keeps_its_order() {
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, 10);
    post_message(&mut pair, 2, 20);
    post_add(&mut pair, 3, (0x4000, 0x4000), 5);
    post_read(&mut pair, 4, 40);
    pair.run_for(Duration::from_micros(50));
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10)]);
    assert_eq!(word(&mut pair, Side::B, 0x4000), 0, "nothing overtakes the message");
    post_receive(&mut pair, Side::B, 50, 0x8000, 20);
    pair.run();
    let wanted = [(2, Status::Success, 20), (3, Status::Success, 8), (4, Status::Success, 40)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_eq!(word(&mut pair, Side::B, 0x4000), 5);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 20)]);
    assert_at_peace(&mut pair);
}

/// A lost RNR NAK costs a probe or a time-out, and no message.
#[test]
fn a_lost_rnr_nak_is_recovered() {
    let mut pair = pair(|setup| setup.rnr_retry = 3);
    post_message(&mut pair, 1, 10);
    lose(&mut pair, Side::B, &[0]);
    pair.run_for(Duration::from_micros(500));
    post_receive(&mut pair, Side::B, 50, 0, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 10)]);
    assert_at_peace(&mut pair);
}

/// The count is for one message: each has its own.
#[test]
fn progress_renews_the_rnr_retries() {
    let mut pair = pair(|setup| setup.rnr_retry = 1);
    for id in 1..5 {
        post_message(&mut pair, id, 10);
        pair.run_for(Duration::from_micros(12));
        post_receive(&mut pair, Side::B, 50 + id, 0, 10);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(id, Status::Success, 10)]);
        assert_receives(&mut pair, Side::B, &[(50 + id, Status::Success, 10)]);
    }
    assert_eq!(rnr_count(&pair), (4, 4));
    assert_at_peace(&mut pair);
}

/// An RNR NAK for the PSN that is waited for already does not count twice.
#[test]
fn a_repeated_rnr_nak_is_one() {
    let mut pair = pair(|setup| setup.rnr_retry = 1);
    cut_both(&mut pair);
    post_message(&mut pair, 1, 10);
    pair.step();
    for _ in 0..5 {
        inject_response(&mut pair, START, rnr(14, 0));
    }
    assert_sends(&mut pair, Side::A, &[]);
    assert_states(&pair, State::Rts, State::Rts);
    assert_eq!(wire_of(&pair, Side::A).len(), 1, "it waits");
}

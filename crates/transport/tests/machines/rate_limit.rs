//! Per-queue-pair rate limits: packets leave as fast as allowed and no faster, and waiting is not
//! taken for loss.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side};
use ferroce_transport::{Attributes, Data, SendFlags, SendOp, State, Status};
use ferroce_wire::Service;

fn limit(pair: &mut Pair, rate: u32) {
    pair.modify(Side::A, &Attributes::to(State::Rts).with_rate_limit(rate)).expect("RTS to RTS");
}

/// Bytes that A has sent.
fn bytes_of_a(pair: &Pair) -> u64 {
    pair.sent.iter().filter(|sent| sent.from == Side::A).map(|sent| sent.bytes.len() as u64).sum()
}

#[test]
fn a_message_takes_as_long_as_its_bytes_at_the_rate() {
    for rate in [1000, 50_000, 1_000_000] {
        let mut pair = pair(|_| {});
        limit(&mut pair, rate);
        fill(&mut pair, Side::A, 0, 200_000, 1);
        post_write(&mut pair, 1, 200_000);
        let start = pair.now();
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 200_000)]);
        assert_filled(&mut pair, Side::B, 0, 200_000, 1);
        let took = pair.now().since(start);
        let ideal = Duration::from_nanos(bytes_of_a(&pair) * 8_000_000 / u64::from(rate));
        let slack = Duration::from_millis(3).max(ideal / 20);
        assert!(took + slack >= ideal && took <= ideal + slack, "{rate}: {took:?}, ideal {ideal:?}");
        let counters = pair.counters(Side::A);
        assert_eq!((counters.timeouts, counters.retransmitted, counters.probes), (0, 0, 0), "{rate}");
        assert!(counters.rate_waits > 0);
        assert_at_peace(&mut pair);
    }
}

#[test]
fn losses_are_repeated_within_the_rate() {
    let mut pair = pair(|_| {});
    limit(&mut pair, 50_000);
    fill(&mut pair, Side::A, 0, 100_000, 1);
    lose(&mut pair, Side::A, &[0, 5, 50, 51, 97]);
    post_write(&mut pair, 1, 100_000);
    let start = pair.now();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 100_000)]);
    assert_filled(&mut pair, Side::B, 0, 100_000, 1);
    let ideal = Duration::from_nanos(bytes_of_a(&pair) * 8_000_000 / 50_000);
    assert!(pair.now().since(start) + Duration::from_millis(3) >= ideal);
    assert_eq!(pair.counters(Side::A).timeouts, 0);
}

/// Without anything to send a queue pair asks for no time; a limit that is taken away wakes what waits.
#[test]
fn a_limit_that_is_gone_holds_nothing_back() {
    let mut pair = pair(|_| {});
    limit(&mut pair, 1);
    post_write(&mut pair, 1, 1000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 1000)]);
    assert_eq!(pair.queue_pair(Side::A).poll_timeout(), None, "nothing waits");
    post_write(&mut pair, 2, 1000);
    pair.run_for(Duration::from_millis(10));
    assert_sends(&mut pair, Side::A, &[]);
    assert!(pair.queue_pair(Side::A).poll_timeout().is_some());
    limit(&mut pair, 0);
    pair.run_for(Duration::from_millis(1));
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 1000)]);
    assert_eq!(pair.queue_pair(Side::A).attributes().rate_limit, 0);
}

#[test]
fn a_reset_takes_the_limit_away() {
    let mut pair = pair(|_| {});
    limit(&mut pair, 77);
    assert_eq!(pair.queue_pair(Side::A).attributes().rate_limit, 77);
    pair.modify(Side::A, &Attributes::to(State::Reset)).unwrap();
    assert_eq!(pair.queue_pair(Side::A).attributes().rate_limit, 0);
}

#[test]
fn unreliable_messages_are_paced_too() {
    let mut pair = Pair::connect(&Setup { service: Service::Uc, ..Setup::default() });
    limit(&mut pair, 8000);
    fill(&mut pair, Side::A, 0, 100_000, 1);
    let (op, sge) = (SendOp::Write(pair.remote(Side::B, 0)), [pair.sge(Side::A, 0, 100_000)]);
    post_with(&mut pair, Side::A, 1, op, Data::Gather(&sge), SendFlags::SIGNALED);
    let start = pair.now();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 100_000)]);
    assert_filled(&mut pair, Side::B, 0, 100_000, 1);
    assert!(pair.now().since(start) >= Duration::from_millis(97));
    assert!(pair.counters(Side::A).rate_waits > 0);
}

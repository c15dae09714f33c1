//! Probes to a peer that does not answer.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::Side;
use ferroce_transport::Status;

/// Each that is not answered doubles the wait for the next, up to 64 times the first.
#[test]
fn probes_to_a_silent_peer_come_ever_more_seldom() {
    let mut pair = pair(|setup| setup.timeout = 20);
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 100);
    pair.run_for(Duration::from_millis(500));
    let times: Vec<_> = pair.sent.iter().map(|sent| sent.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64]);
    assert_eq!(pair.counters(Side::A).probes, 12);
}

/// A peer that takes its time is asked after a long answer, and does not have to give it twice.
#[test]
fn a_read_that_takes_long_is_asked_after_and_not_sent_again() {
    let mut pair = pair(|setup| setup.latency = Duration::from_millis(3));
    fill(&mut pair, Side::B, 0, 4000, 1);
    post_read(&mut pair, 1, 4000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4000)]);
    assert_filled(&mut pair, Side::A, 0, 4000, 1);
    let (asks, answers) = (pair.counters(Side::A), pair.counters(Side::B));
    assert!(asks.probes > 0 && asks.probes == asks.questions_sent, "{asks:?}");
    assert_eq!((asks.retransmitted, asks.rewinds, answers.duplicate_reads), (0, 0, 0), "{asks:?}");
    assert_at_peace(&mut pair);
}

/// The READ, its answer or the question itself is lost: asked after three times, it is sent again.
#[test]
fn a_read_that_was_asked_after_in_vain_is_sent_again() {
    for (loser, lost) in [(Side::A, 0..1), (Side::A, 0..4), (Side::B, 0..4), (Side::B, 0..6), (Side::B, 3..6)]
    {
        let mut pair = pair(|setup| setup.retry_count = 0);
        fill(&mut pair, Side::B, 0, 4000, 1);
        post_read(&mut pair, 1, 4000);
        lose(&mut pair, loser, &lost.clone().collect::<Vec<_>>());
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4000)]);
        assert_filled(&mut pair, Side::A, 0, 4000, 1);
        let counters = pair.counters(Side::A);
        assert_eq!(counters.timeouts, 0, "{loser:?} loses {lost:?}: {counters:?}");
        assert_at_peace(&mut pair);
    }
}

//! A queue pair asks whether its peer is there: every live peer answers, and nothing changes for either of them.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side};
use ferroce_transport::Status;

/// Asks, and lets everything come to rest; how many signs of life there were.
fn ask(pair: &mut Pair) -> u64 {
    let before = pair.counters(Side::A).signs_of_life();
    assert!(pair.ask(Side::A));
    pair.run();
    pair.counters(Side::A).signs_of_life() - before
}

#[test]
fn a_peer_that_has_heard_nothing_yet_answers() {
    let mut pair = pair(|_| ());
    assert_eq!(ask(&mut pair), 1);
    assert_wire(&pair, &["A WRITE Only f ask", "B ACK f msn=0"]);
    assert_sends(&mut pair, Side::A, &[]);
    assert_at_peace(&mut pair);
}

#[test]
fn a_peer_that_waits_for_the_next_message_answers_and_takes_it() {
    let mut pair = pair(|_| ());
    for id in 0..3 {
        fill(&mut pair, Side::A, 0, 64, u8::try_from(id).expect("small"));
        post_write(&mut pair, id, 64);
        pair.run();
        assert_eq!(ask(&mut pair), 1);
        assert_sends(&mut pair, Side::A, &[(id, Status::Success, 64)]);
        assert_filled(&mut pair, Side::B, 0, 64, u8::try_from(id).expect("small"));
    }
    assert_at_peace(&mut pair);
}

/// Whatever is under way, before, between and behind it: the question is about what was acknowledged long ago.
#[test]
fn a_question_among_work_changes_nothing() {
    for lost in 0..12 {
        let mut pair = pair(|setup| setup.timeout = 14);
        fill(&mut pair, Side::A, 0, 8192, 9);
        post_write(&mut pair, 1, 8192);
        assert!(pair.ask(Side::A));
        post_read(&mut pair, 2, 100);
        lose(&mut pair, Side::A, &[lost]);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8192), (2, Status::Success, 100)]);
        assert_filled(&mut pair, Side::B, 0, 8192, 9);
        assert_at_peace(&mut pair);
    }
}

#[test]
fn a_peer_that_is_gone_gives_no_sign_and_no_work_fails() {
    let mut pair = pair(|_| ());
    assert!(pair.ask(Side::A));
    lose(&mut pair, Side::A, &[0]);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.counters(Side::A).signs_of_life(), 0);
    assert_sends(&mut pair, Side::A, &[]);
}

#[test]
fn a_queue_pair_that_cannot_ask_says_so() {
    let mut pair = Pair::unconnected(&Setup::default());
    assert!(!pair.ask(Side::A));
}

//! A message that is alone leaves in the call that posts it, and leaves what the long way leaves: random programs are run with
//! and without that way, and every packet, completion, byte and field of the queue pairs is compared.

#[path = "alone/world.rs"]
#[allow(dead_code, reason = "the test of acknowledgements uses the rest")]
mod world;

use ferroce_transport::SendFlags;
use proptest::prelude::*;
use world::rig::Setup;
use world::{How, Short, Step, What};

/// Runs the same program both ways; how many messages were alone.
fn compare(setup: &Setup, steps: &[Step]) -> usize {
    world::compare(setup, Short { posts: true, ..Short::default() }, steps).posts
}

/// Receives of both sides, so that a peer may count on some before it hears of more.
fn receives() -> Vec<Step> {
    [0, 1]
        .repeat(6)
        .into_iter()
        .map(|side| Step::Receive { side, length: 4096, how: How::OnePiece })
        .collect()
}

/// A message and the answer, again and again, with the acknowledgement of each behind the next.
fn conversation(rounds: usize, what: What, how: How, length: u32) -> Vec<Step> {
    let flags = (SendFlags::SIGNALED | SendFlags::SOLICITED).bits();
    let mut steps = receives();
    for round in 0..rounds {
        let side = round % 2;
        steps.push(Step::Receive { side: 1 - side, length: 4096, how: How::OnePiece });
        steps.push(Step::Post { side, what, how, length, flags });
        steps.push(Step::Wait { micros: 3 });
        steps.extend([false; 2].map(|is_lost| Step::Arrive { side: 1 - side, is_lost }));
    }
    steps
}

#[test]
fn every_message_of_a_conversation_is_alone() {
    for what in [What::Send, What::Write] {
        for (how, length) in [(How::OnePiece, 64), (How::OnePiece, 1024), (How::Inline, 64), (How::Inline, 0)]
        {
            assert_eq!(
                compare(&Setup::default(), &conversation(40, what, how, length)),
                40,
                "{what:?} {how:?}"
            );
        }
    }
}

#[test]
fn what_is_out_of_the_ordinary_is_not_alone() {
    let setup = Setup::default();
    let of = |what, how, length| compare(&setup, &conversation(8, what, how, length));
    assert_eq!(of(What::SendImm, How::OnePiece, 64), 0);
    assert_eq!(of(What::Read, How::OnePiece, 64), 0);
    assert_eq!(of(What::Send, How::TwoPieces, 64), 0);
    assert_eq!(of(What::Send, How::BadKey, 64), 0);
    assert_eq!(of(What::Write, How::OnePiece, 1025), 0, "two packets");
    assert_eq!(of(What::Send, How::Inline, 65), 0, "more than may be inline");
    let paced = Setup { rate: 1000, ..setup };
    assert_eq!(compare(&paced, &conversation(8, What::Send, How::OnePiece, 64)), 0);
    // The first is, and those that find it under way are not.
    let post = Step::Post { side: 0, what: What::Write, how: How::OnePiece, length: 64, flags: 2 };
    assert_eq!(compare(&setup, &[post.clone(), post.clone(), post]), 1);
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    let what = prop_oneof![
        6 => Just(What::Send),
        6 => Just(What::Write),
        1 => Just(What::SendImm),
        1 => Just(What::Read),
    ];
    let how = prop_oneof![
        8 => Just(How::OnePiece),
        1 => Just(How::TwoPieces),
        4 => Just(How::Inline),
    ];
    let length = prop_oneof![4 => Just(64_u32), 1 => Just(0), 2 => 0..70_u32, 1 => 1000..2100_u32];
    prop_oneof![
        4 => (side.clone(), what, how, length, 0..8_u8).prop_map(|(side, what, how, length, flags)| Step::Post {
            side, what, how, length, flags
        }),
        3 => (side.clone(), prop_oneof![9 => Just(4096_u32), 1 => 0..64_u32])
            .prop_map(|(side, length)| Step::Receive { side, length, how: How::OnePiece }),
        24 => (side.clone(), prop::bool::weighted(0.04))
            .prop_map(|(side, is_lost)| Step::Arrive { side, is_lost }),
        8 => side.prop_map(|side| Step::Send { side }),
        4 => prop_oneof![5 => 1..50_u64, 1 => 1000..100_000_u64].prop_map(|micros| Step::Wait { micros }),
    ]
}

proptest! {
    #[test]
    fn random_programs_do_the_same_both_ways(steps in prop::collection::vec(step(), 1..200)) {
        compare(&Setup::default(), &[receives(), steps].concat());
    }
}

/// The test above says something only if its programs have such messages.
#[test]
fn random_programs_have_messages_that_are_alone() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let programs = prop::collection::vec(step(), 100..200);
    let mut alone = 0;
    for _ in 0..20 {
        let steps = programs.new_tree(&mut runner).expect("a program").current();
        alone += compare(&Setup::default(), &[receives(), steps].concat());
    }
    assert!(alone > 60, "{alone} messages of 20 programs");
}

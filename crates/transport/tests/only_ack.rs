//! The acknowledgement of the only message leaves the same on its shorter way as on the long one: random programs, with losses,
//! lies, probes, stops and work that fails, are run with and without that way, and every packet, completion, byte and field of
//! the queue pairs is compared after each step.

#[path = "alone/world.rs"]
#[allow(dead_code, reason = "the test of messages that are alone uses the rest")]
mod world;

use ferroce_transport::SendFlags;
use proptest::prelude::*;
use world::rig::Setup;
use world::{How, Short, Step, What};

/// Runs the same program both ways; how many acknowledgements went the shorter one. `posts` says whether messages that are alone go
/// theirs.
fn compare(posts: bool, steps: &[Step]) -> usize {
    let gone = world::compare(&Setup::default(), Short { posts, acks: true, requests: false }, steps);
    assert!(posts || gone.posts == 0);
    gone.acks
}

/// Receives of both sides, so that a peer may count on some before it hears of more.
fn receives() -> Vec<Step> {
    [0, 1]
        .repeat(6)
        .into_iter()
        .map(|side| Step::Receive { side, length: 4096, how: How::OnePiece })
        .collect()
}

fn post(what: What, how: How, length: u32) -> Step {
    let flags = (SendFlags::SIGNALED | SendFlags::SOLICITED).bits();
    Step::Post { side: 0, what, how, length, flags }
}

/// The oldest packet arrives at a side.
const fn arrive(side: usize) -> Step {
    Step::Arrive { side, is_lost: false }
}

/// Posts this, lets it arrive and be acknowledged by itself.
fn trip(what: What, how: How, length: u32) -> Vec<Step> {
    let wait = Step::Wait { micros: 3 };
    vec![post(what, how, length), wait.clone(), arrive(1), Step::Send { side: 1 }, wait, arrive(0)]
}

/// How many acknowledgements of a program go the shorter way, after one by which side 0 has heard of its peer.
fn count(steps: &[Step]) -> usize {
    let all = [&receives(), &trip(What::Write, How::OnePiece, 64)[..], steps].concat();
    let acks = compare(false, &all);
    assert_eq!(compare(true, &all), acks);
    acks
}

#[test]
fn the_acknowledgement_of_a_message_of_one_packet_goes_the_shorter_way() {
    for what in [What::Send, What::Write, What::SendImm] {
        for (how, length) in
            [(How::OnePiece, 64), (How::TwoPieces, 64), (How::Inline, 0), (How::OnePiece, 1024)]
        {
            let trips = [(); 3].map(|()| trip(what, how, length)).concat();
            assert_eq!(count(&trips), 3, "{what:?} {how:?} {length}");
        }
    }
}

#[test]
fn what_is_out_of_the_ordinary_goes_the_long_way() {
    let write = || post(What::Write, How::OnePiece, 64);
    let answer = |count| [vec![arrive(1); count], vec![Step::Send { side: 1 }, arrive(0)]].concat();
    assert_eq!(count(&trip(What::Read, How::OnePiece, 64)), 0, "a READ has an answer of its own");
    assert_eq!(count(&[vec![post(What::Write, How::OnePiece, 1025)], answer(2)].concat()), 0, "two packets");
    assert_eq!(count(&[vec![write(), write()], answer(2)].concat()), 0, "one for two messages");
    assert_eq!(count(&[vec![write(), write()], answer(1)].concat()), 0, "another is under way");
    let bind = |is_good| vec![write(), Step::Bind { side: 0, is_good }];
    assert_eq!(count(&[bind(true), answer(1)].concat()), 0, "other work is behind it");
    assert_eq!(count(&[bind(false), answer(1)].concat()), 0, "work has failed behind it");
    assert_eq!(
        count(&[vec![write(), Step::Drain { side: 0, begins: true }], answer(1)].concat()),
        0,
        "it stops"
    );
    let probed = vec![write(), Step::Wait { micros: 50_000 }, Step::Send { side: 0 }];
    assert_eq!(count(&[probed, answer(1)].concat()), 0, "it was asked after");
    for after in [-2, 0, 1] {
        let lie = Step::Lie { side: 0, after, syndrome: 5, msn: 1 };
        assert_eq!(count(&[write(), lie]), 0, "of {after} after the one that is under way");
    }
    for syndrome in [0x20, 0x40, 0x60, 0x62, 0x7f, 0xff] {
        let lie = Step::Lie { side: 0, after: -1, syndrome, msn: 1 };
        assert_eq!(count(&[write(), lie]), 0, "syndrome {syndrome:#x}");
    }
    let lie = Step::Lie { side: 0, after: -1, syndrome: 5, msn: 1 };
    assert_eq!(count(&[write(), lie.clone()]), 1, "and this could not be told from the truth");
    assert_eq!(count(&[write(), lie.clone(), lie]), 1, "but once");
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    let what = prop_oneof![
        6 => Just(What::Send),
        6 => Just(What::Write),
        2 => Just(What::SendImm),
        2 => Just(What::Read),
    ];
    let how = prop_oneof![
        16 => Just(How::OnePiece),
        2 => Just(How::TwoPieces),
        8 => Just(How::Inline),
    ];
    let length = prop_oneof![4 => Just(64_u32), 1 => Just(0), 2 => 0..70_u32, 1 => 1000..2100_u32];
    let after = prop_oneof![4 => Just(-1), 2 => -4..3, 1 => any::<i32>()];
    let syndrome = prop_oneof![4 => 0..0x20_u8, 1 => any::<u8>()];
    prop_oneof![
        60 => (side.clone(), what, how, length, 0..8_u8).prop_map(|(side, what, how, length, flags)| Step::Post {
            side, what, how, length, flags
        }),
        45 => (side.clone(), prop_oneof![9 => Just(4096_u32), 1 => 0..64_u32])
            .prop_map(|(side, length)| Step::Receive { side, length, how: How::OnePiece }),
        360 => (side.clone(), prop::bool::weighted(0.04))
            .prop_map(|(side, is_lost)| Step::Arrive { side, is_lost }),
        200 => side.clone().prop_map(|side| Step::Send { side }),
        60 => prop_oneof![5 => 1..50_u64, 1 => 1000..100_000_u64].prop_map(|micros| Step::Wait { micros }),
        20 => (side.clone(), after, syndrome, 0..20_u32)
            .prop_map(|(side, after, syndrome, msn)| Step::Lie { side, after, syndrome, msn }),
        10 => (side.clone(), any::<bool>()).prop_map(|(side, begins)| Step::Drain { side, begins }),
        10 => (side, prop::bool::weighted(0.9)).prop_map(|(side, is_good)| Step::Bind { side, is_good }),
    ]
}

proptest! {
    #[test]
    fn random_programs_do_the_same_both_ways(
        posts in any::<bool>(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        compare(posts, &[receives(), steps].concat());
    }
}

/// The test above says something only if its programs have such acknowledgements.
#[test]
fn random_programs_have_acknowledgements_of_the_only_message() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let programs = prop::collection::vec(step(), 100..200);
    let mut acks = 0;
    for _ in 0..20 {
        let steps = programs.new_tree(&mut runner).expect("a program").current();
        acks += compare(false, &[receives(), steps].concat());
    }
    assert!(acks > 20, "{acks} acknowledgements of 20 programs");
}

//! A SEND of one packet leaves the same on its shorter way as on the ladder: random programs, with losses, lies, receives of all
//! kinds and a shared queue, are run with and without that way, and every packet, completion, byte and field of the queue pairs is
//! compared after each step.

#[path = "alone/world.rs"]
#[allow(dead_code, reason = "the test of messages that are alone uses the rest")]
mod world;

use ferroce_transport::SendFlags;
use proptest::prelude::*;
use world::rig::Setup;
use world::{How, Short, Step, What};

/// Runs the same program both ways; how many requests went the shorter one.
fn compare(setup: &Setup, steps: &[Step]) -> usize {
    world::compare(setup, Short { requests: true, ..Short::default() }, steps).requests
}

fn post(what: What, length: u32) -> Step {
    let flags = (SendFlags::SIGNALED | SendFlags::SOLICITED).bits();
    Step::Post { side: 0, what, how: How::OnePiece, length, flags }
}

const fn receive(length: u32, how: How) -> Step {
    Step::Receive { side: 1, length, how }
}

/// The oldest packet arrives at side 1, and what it says to that leaves and arrives.
fn arrive() -> Vec<Step> {
    let arrive = |side| Step::Arrive { side, is_lost: false };
    vec![arrive(1), Step::Send { side: 1 }, arrive(0)]
}

/// How many requests of a program go the shorter way, after one by which side 1 has heard of its peer.
fn count(steps: &[Vec<Step>]) -> usize {
    let first = [vec![post(What::Write, 1)], arrive()].concat();
    compare(&Setup::default(), &[first, steps.concat()].concat())
}

#[test]
fn a_send_of_one_packet_goes_the_shorter_way_if_nothing_is_out_of_the_ordinary() {
    let send = |length, room, how| [vec![receive(room, how), post(What::Send, length)], arrive()].concat();
    for (length, room) in [(0, 0), (0, 64), (64, 64), (1, 4096), (1024, 1024)] {
        assert_eq!(count(&[send(length, room, How::OnePiece)]), 1, "{length} into {room}");
    }
    assert_eq!(count(&[send(64, 64, How::TwoPieces), send(64, 64, How::OnePiece)]), 2);
    assert_eq!(count(&[send(65, 64, How::OnePiece)]), 0, "the receive is too short");
    assert_eq!(count(&[send(65, 59, How::TwoPieces)]), 0, "so are two pieces");
    assert_eq!(count(&[send(64, 64, How::BadKey)]), 0, "it may not be written");
    assert_eq!(count(&[[vec![post(What::Send, 64)], arrive()].concat()]), 0, "there is none");
    let shared = Setup { shared: true, ..Setup::default() };
    let steps = [vec![post(What::Write, 1)], arrive(), send(64, 64, How::OnePiece)].concat();
    assert_eq!(compare(&shared, &steps), 1, "from a shared queue");
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    let what = prop_oneof![
        12 => Just(What::Send),
        3 => Just(What::Write),
        2 => Just(What::SendImm),
        1 => Just(What::Read),
    ];
    let how = || {
        prop_oneof![
            160 => Just(How::OnePiece),
            20 => Just(How::TwoPieces),
            40 => Just(How::Inline),
            1 => Just(How::BadKey),
        ]
    };
    let length = || prop_oneof![4 => Just(64_u32), 1 => Just(0), 2 => 0..70_u32, 1 => 1000..2100_u32];
    let room = prop_oneof![8 => Just(4096_u32), 1 => Just(64), 1 => 0..70_u32];
    prop_oneof![
        6 => (side.clone(), what, how(), length(), 0..8_u8).prop_map(|(side, what, how, length, flags)| Step::Post {
            side, what, how, length, flags
        }),
        6 => (side.clone(), room, how()).prop_map(|(side, length, how)| Step::Receive { side, length, how }),
        30 => (side.clone(), prop::bool::weighted(0.04))
            .prop_map(|(side, is_lost)| Step::Arrive { side, is_lost }),
        12 => side.clone().prop_map(|side| Step::Send { side }),
        4 => prop_oneof![5 => 1..50_u64, 1 => 1000..100_000_u64].prop_map(|micros| Step::Wait { micros }),
        1 => (side, any::<bool>()).prop_map(|(side, begins)| Step::Drain { side, begins }),
    ]
}

proptest! {
    #[test]
    fn random_programs_do_the_same_both_ways(
        shared in prop::bool::weighted(0.2),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        compare(&Setup { shared, ..Setup::default() }, &steps);
    }
}

/// The test above says something only if its programs have such messages.
#[test]
fn random_programs_have_sends_that_go_the_shorter_way() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let programs = prop::collection::vec(step(), 100..200);
    let mut requests = 0;
    for _ in 0..20 {
        let steps = programs.new_tree(&mut runner).expect("a program").current();
        requests += compare(&Setup::default(), &steps);
    }
    assert!(requests > 60, "{requests} requests of 20 programs");
}

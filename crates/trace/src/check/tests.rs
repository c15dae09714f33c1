use ferroce_record::{Begun, WorkOp};
use ferroce_transport::Status;
use proptest::prelude::*;

use super::*;
use crate::scene::Scene;

fn check_all(events: &[Stamped], is_complete: bool) -> Check {
    let mut checker = Checker::new(is_complete);
    events.iter().for_each(|event| checker.take(event));
    checker.finish()
}

fn found(scene: &Scene) -> Vec<Violation> {
    check_all(&scene.events, true).violations.into_iter().map(|(_, violation)| violation).collect()
}

/// A record in which all is well: work of one packet and of several, receives, an error, and a queue pair that goes.
fn clean() -> Scene {
    let mut scene = Scene::new(0x11, 0x22);
    scene.connected().post(0, WorkOp::Receive, 64);
    for work in 0..4 {
        scene.good(work, WorkOp::Write, (0xff_fffe + work) & 0xff_ffff);
    }
    let qpn = scene.qpn;
    scene.post(4, WorkOp::Send, 2_000).then(Begun { qpn, work: 4, psn: 2, packets: 2 });
    scene.out(4, WorkOp::Send, 2, PacketFlags::empty()).out(4, WorkOp::Send, 3, PacketFlags::empty());
    scene.out(4, WorkOp::Send, 3, PacketFlags::REPEAT).end(4, WorkOp::Send, Status::RetryExceeded);
    scene.end(0, WorkOp::Receive, Status::Flushed);
    scene
}

#[test]
fn a_record_in_which_all_is_well_is_clean() {
    let check = check_all(&clean().events, true);
    assert!(check.is_clean(), "{check}");
    assert_eq!((check.posted, check.ended, check.polled, check.packets, check.outstanding), (6, 6, 6, 7, 0));
}

#[test]
fn a_packet_outside_of_its_request_is_found() {
    let mut scene = clean();
    let qpn = scene.qpn;
    scene.post(5, WorkOp::Send, 64).out(5, WorkOp::Send, 4, PacketFlags::empty());
    scene.out(5, WorkOp::Send, 5, PacketFlags::REPEAT).end(5, WorkOp::Send, Status::Success);
    assert_eq!(found(&scene), [Violation::Outside(qpn, 5, Psn::new(5))]);
}

#[test]
fn a_request_that_begins_within_another_is_found() {
    let mut scene = clean();
    let qpn = scene.qpn;
    scene.good(5, WorkOp::Send, 3);
    assert_eq!(found(&scene), [Violation::Overlap(qpn, 5, Psn::new(3))]);
    // A connection that is made anew has new numbers.
    let mut scene = clean();
    scene.state(State::Rts, State::Reset, true).state(State::Reset, State::Rts, true).good(
        5,
        WorkOp::Send,
        3,
    );
    assert_eq!(found(&scene), []);
}

#[test]
fn a_packet_of_nobody_is_found_but_for_a_question() {
    let mut scene = clean();
    let (qpn, peer) = (scene.qpn, scene.peer);
    scene.raw(PacketFlags::OUT, 0, 0, &crate::scene::request(peer, WorkOp::Write, 9));
    assert_eq!(found(&scene), []);
    scene.raw(PacketFlags::OUT, 0, 64, &crate::scene::request(peer, WorkOp::Write, 9));
    assert_eq!(found(&scene), [Violation::Unowned(qpn, Psn::new(9))]);
}

#[test]
fn work_without_a_fate_is_found_when_its_queue_pair_is_gone() {
    let mut scene = clean();
    let qpn = scene.qpn;
    scene.post(5, WorkOp::Send, 64);
    let outstanding = check_all(&scene.events, true);
    assert!(outstanding.is_clean() && outstanding.outstanding == 1, "{outstanding}");
    let Event::QueuePair(made) = scene.events[0].event else { panic!() };
    scene.then(QueuePair { step: Step::Gone, ..made });
    assert_eq!(found(&scene), [Violation::NoFate(Queue::Send(qpn), 5)]);
}

#[test]
fn what_ends_before_it_began_is_found() {
    let mut scene = clean();
    let qpn = scene.qpn;
    scene.good(5, WorkOp::Send, 4);
    let last = scene.events.len() - 1;
    scene.events[last].time -= 15_000;
    assert_eq!(found(&scene), [Violation::BackInTime(Queue::Send(qpn), 5)]);
}

#[test]
fn work_that_was_posted_before_the_record_began_may_be_half_done() {
    let mut scene = Scene::new(0x11, 0x22);
    let posted = scene.posted(7, WorkOp::Write, 4_000);
    scene.then(ferroce_record::Posted { flags: PostedFlags::EARLIER, ..posted });
    scene.out(7, WorkOp::Write, 12, PacketFlags::empty()).out(7, WorkOp::Write, 13, PacketFlags::empty());
    scene.end(7, WorkOp::Write, Status::Success);
    let check = check_all(&scene.events, true);
    assert!(check.is_clean() && check.earlier == 1, "{check}");
}

#[test]
fn violations_are_bounded() {
    let mut scene = Scene::new(0x11, 0x22);
    for _ in 0..HELD + 5 {
        scene.end(1, WorkOp::Send, Status::Success);
    }
    let check = check_all(&scene.events, true);
    assert_eq!((check.violations.len(), check.more), (HELD, HELD as u64 + 10));
    assert!(check.to_string().ends_with("and 1010 more\n"), "{check}");
    assert!(check_all(&scene.events, false).is_clean(), "what is missing at the beginning is no violation");
}

proptest! {
    /// An event that is told twice, or is missing, is found: but for those that say nothing which other events do not.
    #[test]
    fn planted_mistakes_are_found(place in any::<proptest::sample::Index>(), is_twice in any::<bool>()) {
        let mut scene = clean();
        let Event::QueuePair(made) = scene.events[0].event else { panic!() };
        scene.then(QueuePair { step: Step::Gone, ..made });
        let place = place.index(scene.events.len());
        let event = scene.events[place];
        if is_twice {
            scene.events.insert(place, event);
        } else {
            scene.events.remove(place);
        }
        let says_little = match event.event {
            Event::Posted(_) | Event::Completed(_) => false,
            // Two packets of one number are a repeat, and a completion need not be taken.
            Event::Polled(_) => !is_twice,
            Event::Begun(_) => is_twice,
            _ => true,
        };
        let check = check_all(&scene.events, true);
        prop_assert!(!check.is_clean() || says_little, "{:?}", event);
    }
}

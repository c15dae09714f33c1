//! Peers that ask for more than their share.

use std::time::Duration;

use ferroce_transport::Time;
use ferroce_transport::cm::{Ends, Event, Failure, Limits, Manager};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{CmMad, CmMessage, CommId, RejectReason, Req};

use crate::common::{SERVICE, Two, acceptance, ends, manager, rej, requested, wish};

const LIMITS: Limits =
    Limits { connections: 64, half_open: 16, half_open_of_one: 8, time_wait: 10, backlog: 100, queries: 4 };

/// A request under any name, from any queue pair.
fn request(now: Time, ends: Ends, number: u32) -> CmMad {
    let wish = wish(now, ends, 0x100 + number);
    let req = Req { local_comm_id: CommId(0x7700_0000 + number), service_id: SERVICE, ..wish.req };
    CmMad::new(number.into(), req)
}

fn ask(bob: &mut Manager, now: Time, from: u8, number: u32) {
    bob.handle_message(now, ends(2, from), &request(now, ends(from, 2), number));
}

#[test]
fn a_full_backlog_says_so_and_keeps_nothing() {
    let mut two = Two::new();
    for number in 0..4 {
        ask(&mut two.bob, two.now, 9, number);
        requested(&mut two.bob);
    }
    ask(&mut two.bob, two.now, 9, 4);
    let answer = two.bob.poll_transmit().expect("an answer").mad;
    assert_eq!(rej(&answer).reason, RejectReason::NO_RESOURCES);
    assert_eq!((two.bob.half_open(), two.bob.counters().backlog_full), (4, 1));
    assert_eq!(two.bob.poll_event(), None);
}

/// It was: a peer that filled the backlog kept all others out.
#[test]
fn a_source_that_floods_takes_its_own_share_of_the_backlog() {
    let mut two = Two::new();
    for number in 0..1000 {
        ask(&mut two.bob, two.now, 9, number);
    }
    while two.bob.poll_event().is_some() {}
    while two.bob.poll_transmit().is_some() {}
    let mut next = |from: u8, number: u32| {
        ask(&mut two.bob, two.now, from, number);
        let mut told = Vec::new();
        while let Some((_, event)) = two.bob.poll_event() {
            told.push(match event {
                Event::Requested(request) => u8::from(request.ends.remote == ends(2, from).remote),
                Event::Failed(Failure::Withdrawn) => 2,
                other => panic!("{other:?}"),
            });
        }
        let answers: Vec<_> = std::iter::from_fn(|| two.bob.poll_transmit()).collect();
        assert!(answers.iter().all(|answer| rej(&answer.mad).reason == RejectReason::NO_RESOURCES));
        assert!(two.bob.half_open() <= 4);
        (told, answers.len())
    };
    // The newest of the flood makes room; it is told so, and the program as well.
    assert_eq!(next(7, 1), (vec![2, 1], 1));
    assert_eq!(next(8, 1), (vec![2, 1], 1));
    // The flood has as many as it may have beside the others, and they have no right to more than that either.
    assert_eq!(next(9, 5000), (vec![], 1));
    assert_eq!(next(7, 2), (vec![], 1));
    assert_eq!(next(6, 1), (vec![2, 1], 1));
    assert_eq!(next(5, 1), (vec![], 1), "each of four has one");
    assert_eq!(two.bob.counters().crowded_out, 3);
}

#[test]
fn one_address_cannot_take_the_place_of_all() {
    let now = Time::from_nanos(1);
    let mut bob = manager(2, LIMITS);
    bob.listen(SERVICE, 1000).unwrap();
    for number in 0..100_000 {
        ask(&mut bob, now, 9, number);
        while bob.poll_transmit().is_some() {}
    }
    assert_eq!((bob.half_open(), bob.open()), (8, 8));
    assert_eq!(bob.counters().source_full, 100_000 - 8);
    while bob.poll_event().is_some() {}
    // Another one comes through.
    ask(&mut bob, now, 7, 1);
    let id = requested(&mut bob);
    bob.accept(now, id, &acceptance(now, 5)).unwrap();
}

#[test]
fn many_addresses_fill_what_there_is_and_no_more() {
    let mut now = Time::from_nanos(1);
    let mut bob = manager(2, LIMITS);
    bob.listen(SERVICE, 1000).unwrap();
    for number in 0..10_000_u32 {
        ask(&mut bob, now, u8::try_from(10 + number % 200).unwrap(), number);
        while bob.poll_transmit().is_some() {}
        while bob.poll_event().is_some() {}
        assert!(bob.half_open() <= 16 && bob.open() <= 16);
    }
    assert_eq!(bob.counters().half_open_full, 10_000 - 16);
    // They fall silent, and are forgotten.
    now = now + Duration::from_secs(130);
    bob.handle_timeout(now);
    assert_eq!((bob.half_open(), bob.remembered()), (0, 10));
    assert_eq!(bob.counters().forgotten, 6);
    bob.handle_timeout(now + Duration::from_secs(10));
    assert_eq!((bob.remembered(), bob.poll_timeout()), (0, None));
}

#[test]
fn accepted_and_never_confirmed_counts_too() {
    let now = Time::from_nanos(1);
    let mut bob = manager(2, LIMITS);
    bob.listen(SERVICE, 1000).unwrap();
    for number in 0..100 {
        ask(&mut bob, now, 9, number);
        while let Some((id, event)) = bob.poll_event() {
            if matches!(event, Event::Requested(_)) {
                bob.accept(now, id, &acceptance(now, 0x500 + number)).unwrap();
            }
        }
        while bob.poll_transmit().is_some() {}
    }
    assert_eq!((bob.half_open(), bob.counters().source_full), (8, 92));
}

#[test]
fn any_message_in_any_state_does_no_harm() {
    let mut dice = ferroce_sim::Dice::new(5);
    let now = Time::from_nanos(1);
    let mut bob = manager(2, LIMITS);
    bob.listen(SERVICE, 1000).unwrap();
    let mut names = vec![CommId(0), CommId(0x7700_0001), CommId(u32::MAX)];
    for step in 0..200_000_u32 {
        let mut body = [0_u8; ferroce_wire::mad::BODY_LEN];
        for byte in body.iter_mut().filter(|_| step % 3 == 0) {
            *byte = dice.word().to_be_bytes()[0];
        }
        let attribute = u16::try_from(dice.between(0x10, 0x18)).unwrap();
        if let Ok(mut message) = CmMessage::parse(attribute, &body) {
            let (ours, theirs) = (dice.pick(&names), dice.pick(&names));
            match &mut message {
                CmMessage::Req(req) => {
                    let fresh = wish(now, ends(9, 2), 1 + dice.between_u32(0, 20)).req;
                    *req = Req { local_comm_id: theirs, service_id: SERVICE, ..fresh };
                }
                CmMessage::Mra(mra) => (mra.remote_comm_id, mra.local_comm_id) = (ours, theirs),
                CmMessage::Rej(rej) => (rej.remote_comm_id, rej.local_comm_id) = (ours, theirs),
                CmMessage::Rep(rep) => (rep.remote_comm_id, rep.local_comm_id) = (ours, theirs),
                CmMessage::Rtu(rtu) => (rtu.remote_comm_id, rtu.local_comm_id) = (ours, theirs),
                CmMessage::Dreq(dreq) => {
                    (dreq.remote_comm_id, dreq.local_comm_id) = (ours, theirs);
                    dreq.remote_qpn = Qpn::new(5);
                }
                CmMessage::Drep(drep) => (drep.remote_comm_id, drep.local_comm_id) = (ours, theirs),
                CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => {}
            }
            let then = now + Duration::from_millis(u64::from(step));
            bob.handle_message(then, ends(2, 9), &CmMad::new(1, message));
            bob.handle_timeout(then);
            if dice.one_in(20) {
                let connect = wish(then, ends(2, 9), 5);
                names.extend(bob.connect(then, &connect).ok());
            }
            while let Some((id, event)) = bob.poll_event() {
                match (event, dice.below(4)) {
                    (Event::Requested(_), 0 | 1) => bob.accept(then, id, &acceptance(then, 5)).unwrap(),
                    (Event::Replied(_), 0 | 1) => bob.ready(id).unwrap_or_default(),
                    (Event::Established, 0) => bob.disconnect(then, id, b"").unwrap_or_default(),
                    (_, 3) => bob.abandon(then, id),
                    _ => {}
                }
                names.push(id);
            }
            while bob.poll_transmit().is_some() {}
            if names.len() > 40 {
                names.drain(3..20);
            }
        }
        assert!(bob.half_open() <= 16 && bob.open() <= 64 && bob.remembered() <= 10);
    }
    assert!(bob.counters().established > 100, "{:?}", bob.counters());
}

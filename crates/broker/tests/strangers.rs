//! Programs that are no members, or not the members that they say they are.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use std::net::IpAddr;
use std::time::Duration;

use ferroce_broker::*;
use ferroce_verbs::cm::{CmError, ConnectRequest};
use ferroce_verbs::time::{Time, now};
use rig::stranger::{End, Greeting, HELLO, NO_PROOF, PROOF, READY, Stranger};
use rig::{SOON, builder, eventually, members};

/// Says all that member 1 would say to member 0, from this address; why it was not heard.
fn pretend_to_be_one(members: &Members, from: IpAddr) -> Result<End, CmError> {
    let end = Stranger::at(from).ask(members.get(0).unwrap(), &Greeting::new(1, 0).bytes())?;
    end.say(&[&[PROOF], &NO_PROOF[..]].concat());
    if end.hear().is_some() {
        end.say(&end.hello(READY, members, &NO_PROOF));
    }
    Ok(end)
}

#[test]
fn a_broker_without_a_secret_refuses_a_member_from_a_foreign_address() {
    let members = members(200, 2);
    let zero = builder(&members, 0).launch().unwrap();
    let foreign: IpAddr = [127, 0, 200, 66].into();
    let Err(CmError::Refused { private_data, .. }) = pretend_to_be_one(&members, foreign) else {
        zero.wait_for_all(SOON).unwrap();
        panic!("a stranger is member 1: {:?}", zero.status());
    };
    assert_eq!(private_data[..12], *b"fbrk\x00\x02\x06\x00\x00\x00\x00\x00", "it is told why");
    assert_eq!(private_data[12..28], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\x00\xc8\x42", "and what was seen");
    let (member, from) = (members.get(1).unwrap(), foreign);
    assert_eq!(zero.status()[0].refusal, Some(MemberRefusal::ForeignAddress { member, from }));
    assert_eq!(zero.refusals(), Refusals { foreign_address: 1, ..Refusals::default() });
    assert!(!zero.is_connected(1));
    // The member itself is let in, and not thrown out again.
    let one = builder(&members, 1).start().unwrap();
    zero.wait_for_all(SOON).unwrap();
    assert!(pretend_to_be_one(&members, foreign).is_err());
    assert_eq!(zero.refusals().foreign_address, 2);
    assert!(zero.is_connected(1) && one.is_connected(0));
}

#[test]
fn a_stranger_in_the_name_of_a_member_does_not_stop_a_start() {
    let members = members(202, 2);
    let one = builder(&members, 1).launch().unwrap();
    // Member 1 asks member 0, so nothing that asks member 1 is believed: neither from a foreign address,
    for (last, count) in [(66, 1), (1, 2)] {
        // nor from that of the member, with a lane that would not do.
        let greeting = Greeting { lane: 9, ..Greeting::new(0, 1) };
        let asked = Stranger::at([127, 0, 202, last].into()).ask(members.get(1).unwrap(), &greeting.bytes());
        assert!(matches!(asked, Err(CmError::Refused { .. })));
        assert_eq!(one.refusals().foreign_address + one.refusals().lane, count);
    }
    let zero = builder(&members, 0).launch().unwrap();
    one.wait_for_all(SOON).unwrap();
    zero.wait_for_all(SOON).unwrap();
}

/// Plays member 0 until member 1 has taken a connection up, and ends it then; nothing if member 1 gave up
/// before.
fn evict(stranger: &Stranger, request: ConnectRequest, members: &Members) -> Option<Time> {
    let end = stranger.accept(request, &Greeting::new(0, 1).bytes()).ok()?;
    assert_eq!(end.hear()?[0], PROOF);
    end.say(&end.hello(HELLO, members, &NO_PROOF));
    assert_eq!(end.hear()?[0], READY);
    Some(now())
}

#[test]
fn an_evicted_member_comes_back_with_a_growing_pause() {
    const EVICTIONS: usize = 8;
    let members = members(201, 2);
    let zero = members.get(0).unwrap();
    let stranger = Stranger::at(zero.address.ip());
    let listener = stranger.listen(zero.address.port());
    let _one = builder(&members, 1).launch().unwrap();
    let (mut evictions, mut last) = (0, None);
    let mut pauses = Vec::new();
    while evictions < EVICTIONS {
        let request = listener.accept(SOON).unwrap();
        pauses.extend(last.take().map(|last| (evictions, now().since(last))));
        last = evict(&stranger, request, &members);
        evictions += usize::from(last.is_some());
    }
    // A busy machine makes pauses longer, never shorter: each is at least half of 20 ms, 40 ms, 80 ms, ...
    let least = |evictions: usize| Duration::from_millis(10 << (evictions - 1));
    assert!(pauses.iter().all(|(evictions, pause)| *pause >= least(*evictions)), "{pauses:?}");
    assert!(!pauses.is_empty());
}

#[test]
fn what_fills_the_places_of_one_member_keeps_no_other_out() {
    let members = members(205, 3);
    let zero = builder(&members, 0).launch().unwrap();
    // It asks as member 1, from the address of member 1, and never goes on.
    let stranger = Stranger::at(members.get(1).unwrap().address.ip());
    let ask = || stranger.ask(members.get(0).unwrap(), &Greeting::new(1, 0).bytes());
    let mut silent = Vec::new();
    let error = loop {
        match ask() {
            Ok(end) => silent.push(end),
            Err(error) => break error,
        }
        assert!(silent.len() < 500, "there is no limit");
    };
    assert!(matches!(error, CmError::Busy { .. }), "{error}");
    assert!(zero.refusals().too_many > 0);
    let two = builder(&members, 2).launch().unwrap();
    eventually(&two, |two| two.is_connected(0));
    // A member has 8 places, and all together have 64.
    assert!((8..64).contains(&silent.len()), "{} places", silent.len());
}

//! Programs that are no members, or not the members that they say they are.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

#[path = "../rig/mod.rs"]
mod rig;
mod stranger;

use std::net::IpAddr;
use std::time::Duration;

use ferroce_broker::*;
use ferroce_device::now;
use ferroce_transport::Time;
use ferroce_verbs::cm::CmError;
use rig::{SOON, builder, members};
use stranger::{Greeting, HELLO, READY, Stranger};

const NO_PROOF: [u8; 32] = [0; 32];

/// The first words of member 0 to member 1, which has asked.
fn answer() -> Vec<u8> {
    [&Greeting::new(0, 1).bytes()[..], &NO_PROOF].concat()
}

/// All that member 1 would say to member 0, from this address; whether it was let in.
fn pretend_to_be_one(members: &Members, from: IpAddr) -> Result<stranger::End, CmError> {
    let end = Stranger::at(from).ask(members.get(0).unwrap(), &Greeting::new(1, 0).bytes())?;
    end.say(&[&[HELLO], &end.hello(members)[..], &NO_PROOF].concat());
    if end.hear().is_some() {
        end.say(&[READY]);
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
    assert_eq!(private_data[..12], *b"fbrk\x00\x01\x06\x00\x00\x00\x00\x00", "it is told why");
    assert_eq!(private_data[12..28], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\x00\xc8\x42", "and what was seen");
    let (member, from) = (members.get(1).unwrap(), foreign);
    assert_eq!(zero.status()[0].refusal, Some(Refusal::ForeignAddress { member, from }));
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

#[test]
fn an_evicted_member_comes_back_with_a_growing_pause() {
    const ATTEMPTS: usize = 8;
    let members = members(201, 2);
    let zero = members.get(0).unwrap();
    // It plays member 0, and ends each connection as soon as member 1 has taken it up.
    let stranger = Stranger::at(zero.address.ip());
    let listener = stranger.listen(zero.address.port());
    let _one = builder(&members, 1).launch().unwrap();
    let mut ended: Option<Time> = None;
    let mut pauses = Vec::new();
    while pauses.len() + 1 < ATTEMPTS {
        let request = listener.accept(SOON).unwrap();
        pauses.extend(ended.map(|ended| now().since(ended)));
        let end = stranger.accept(request, &answer()).unwrap();
        end.hear().unwrap();
        end.say(&[&[HELLO], &end.hello(&members)[..], &NO_PROOF].concat());
        assert_eq!(end.hear().unwrap(), [READY]);
        ended = Some(now());
    }
    // A busy machine makes pauses longer, never shorter: each is at least half of 20 ms, 40 ms, 80 ms and so on.
    let least = (0..).map(|doubled| Duration::from_millis(10 << doubled));
    assert!(pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
}

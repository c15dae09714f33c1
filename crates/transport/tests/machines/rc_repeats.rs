//! Requests that come again in another form than the first time: they end nothing, and take nothing from the
//! answer that is owed.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Access, DomainId, State};
use ferroce_wire::{Body, Packet, Psn, Request, Reth, Rkey};

/// A second key for the front of B's memory, and what a READ of `length` bytes with it asks for.
fn second_key(pair: &mut Pair, length: u32) -> Reth {
    let place = reth(pair, 0, length);
    let memory = &mut pair.node(Side::B).device.memory;
    let key = memory.register(DomainId(1), place.address, u64::from(length), Access::REMOTE_READ);
    Reth { rkey: Rkey(key), ..place }
}

/// Takes a key of B out of use.
fn revoke(pair: &mut Pair, Reth { rkey, .. }: Reth) {
    assert!(pair.node(Side::B).device.memory.deregister(rkey.0), "the key was there");
}

/// Lets a READ of A's arrive at B, which is too busy to answer at once.
fn arrive_unanswered(pair: &mut Pair, psn: u32, place: Reth) {
    let request = Body::RcRequest(Request::Read(place));
    pair.inject(Side::B, &Packet::new(Pair::qpn(Side::B), Psn::new(psn), request));
    assert!(pair.receive_one());
}

/// A key that is gone says nothing against a peer whose READ was in order when it first came: the repeat is
/// dropped, whether or not the first answer has left, and the first answer is not replaced by it.
#[test]
fn a_repeated_read_whose_key_was_revoked_is_not_answered_and_ends_nothing() {
    for sent_before in 0..=3 {
        let mut pair = pair(|_| {});
        cut(&mut pair, Side::A);
        fill(&mut pair, Side::B, 0, 3072, 1);
        let good = reth(&pair, 0, 3072);
        let gone = second_key(&mut pair, 3072);
        arrive_unanswered(&mut pair, START, good);
        for _ in 0..sent_before {
            assert!(pair.send_one(Side::B));
        }
        revoke(&mut pair, gone);
        arrive_unanswered(&mut pair, START, gone);
        pair.run();
        let answer =
            ["B READ Response First 10 msn=1", "B READ Response Middle 11", "B READ Response Last 12 msn=1"];
        assert_wire(&pair, &answer);
        let counters = pair.counters(Side::B);
        assert_eq!(counters.nak_remote_access_sent, 0, "{sent_before} packets had left");
        assert_eq!((counters.stale_duplicates, counters.duplicate_reads), (1, 0));
        assert_states(&pair, State::Rts, State::Rts);
        assert_events(&mut pair, &[], &[]);
        inject_request(&mut pair, START + 3, Request::Read(good));
        assert_eq!(wire_of(&pair, Side::B).len(), 6, "the connection lives");
    }
}

/// The same of a repeat that asks for more than its key opens.
#[test]
fn a_repeated_read_past_the_end_of_its_region_is_not_answered_and_ends_nothing() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    let good = reth(&pair, 0, 2048);
    arrive_unanswered(&mut pair, START, good);
    let past = second_key(&mut pair, 2047);
    arrive_unanswered(&mut pair, START, Reth { length: 2048, ..past });
    pair.run();
    assert_wire(&pair, &["B READ Response First 10 msn=1", "B READ Response Last 11 msn=1"]);
    assert_eq!(pair.counters(Side::B).stale_duplicates, 1);
    assert_states(&pair, State::Rts, State::Rts);
    assert_events(&mut pair, &[], &[]);
}

//! Memory that a peer may not touch, and memory that goes away: the exact status on both sides,
//! and not one byte written (IBA 9.7.4.1.5, 9.9.3).

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Access, DomainId, Event, MaskedAdd, MaskedSwap, Remote, SendOp, State, Status};
use ferroce_wire::Rkey;

type Make = fn(Remote) -> SendOp;

const EVERYTHING: MaskedSwap =
    MaskedSwap { compare: 0, compare_mask: u64::MAX, swap: 1, swap_mask: u64::MAX };

/// Everything that reaches for remote memory, and the access that it needs.
const REACHES: [(&str, Make, Access); 7] = [
    ("WRITE", SendOp::Write, Access::REMOTE_WRITE),
    ("READ", SendOp::Read, Access::REMOTE_READ),
    ("compare and swap", |remote| SendOp::CompareSwap { remote, compare: 0, swap: 1 }, Access::REMOTE_ATOMIC),
    ("fetch and add", |remote| SendOp::FetchAdd { remote, add: 1 }, Access::REMOTE_ATOMIC),
    (
        "masked compare and swap",
        |remote| SendOp::MaskedCompareSwap { remote, swap: EVERYTHING },
        Access::REMOTE_ATOMIC,
    ),
    (
        "masked fetch and add",
        |remote| SendOp::MaskedFetchAdd { remote, add: MaskedAdd { add: 1, boundaries: 0 } },
        Access::REMOTE_ATOMIC,
    ),
    ("ATOMIC WRITE", SendOp::AtomicWrite, Access::REMOTE_WRITE),
];

/// The start of the region that these tests reach for, and its length.
const REGION: (u64, u64) = (0x1000, 0x1000);

/// Registers a region of B for these tests, and says how A would name its first byte.
fn region(pair: &mut Pair, domain: u32, access: Access) -> Remote {
    let address = pair.remote(Side::B, REGION.0).address;
    let memory = &mut pair.node(Side::B).device.memory;
    Remote { address, rkey: Rkey(memory.register(DomainId(domain), address, REGION.1, access)) }
}

/// A does this with eight bytes; B refuses it with `code`; nothing has changed in either memory.
#[track_caller]
fn assert_denied(mut pair: Pair, op: SendOp, (code, status, event): (&str, Status, Event), case: &str) {
    post_receive(&mut pair, Side::B, 50, 0x8000, 64);
    fill(&mut pair, Side::A, 0, 8, 1);
    let sge = pair.sge(Side::A, 0, 8);
    post_write(&mut pair, 1, 0);
    post(&mut pair, 2, op, &[sge]);
    post_write(&mut pair, 3, 8);
    pair.run();
    let answers = wire_of(&pair, Side::B);
    assert_eq!(answers, ["B ACK 10 msn=1".to_owned(), format!("B {code} 11 msn=1")], "{case}");
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 0), (2, status, 0), (3, Status::Flushed, 0)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Flushed, 0)]);
    assert_states(&pair, State::Err, State::Err);
    assert_events(&mut pair, &[], &[event]);
    assert_eq!(pair.counters(Side::A).nak_fatal_received, 1, "{case}");
    assert_filled(&mut pair, Side::A, 0, 8, 1);
    assert_untouched(&mut pair, Side::B, 0, 0x10000);
}

const DENIED: (&str, Status, Event) = ("NAK Remote Access Error", Status::RemoteAccess, Event::AccessError);
const INVALID: (&str, Status, Event) =
    ("NAK Invalid Request", Status::RemoteInvalidRequest, Event::RequestError);

#[test]
fn a_key_that_opens_nothing_is_a_remote_access_error() {
    for (name, op, _) in REACHES {
        let pair = pair(|_| {});
        let remote = Remote { rkey: Rkey(0xdead_be00), ..pair.remote(Side::B, 0x1000) };
        assert_denied(pair, op(remote), DENIED, name);
    }
}

#[test]
fn a_range_outside_the_region_is_a_remote_access_error() {
    for (name, op, _) in REACHES {
        for offset in [-8_i64, -0x1000, 0x1000, 0x10_0000, i64::MAX - 7] {
            let mut pair = pair(|_| {});
            let Remote { address, rkey } = region(&mut pair, 1, Access::all());
            let remote = Remote { address: address.wrapping_add_signed(offset), rkey };
            assert_denied(pair, op(remote), DENIED, &format!("{name} at {offset}"));
        }
    }
}

/// One byte too many, and a range that would wrap around the end of all addresses.
#[test]
fn a_range_that_only_begins_inside_the_region_is_a_remote_access_error() {
    for (name, op, _) in &REACHES[..2] {
        let mut pair = pair(|_| {});
        let Remote { address, rkey } = region(&mut pair, 1, Access::all());
        let remote = Remote { address: address + REGION.1 - 7, rkey };
        assert_denied(pair, op(remote), DENIED, name);

        let pair = crate::common::pair(|_| {});
        let remote = Remote { address: u64::MAX - 3, ..pair.remote(Side::B, 0) };
        assert_denied(pair, op(remote), DENIED, name);
    }
}

#[test]
fn a_region_without_this_permission_is_a_remote_access_error() {
    for (name, op, needed) in REACHES {
        let mut pair = pair(|_| {});
        let remote = region(&mut pair, 1, Access::all().difference(needed));
        assert_denied(pair, op(remote), DENIED, name);
    }
}

#[test]
fn a_region_of_another_protection_domain_is_a_remote_access_error() {
    for (name, op, _) in REACHES {
        let mut pair = pair(|_| {});
        let remote = region(&mut pair, 2, Access::all());
        assert_denied(pair, op(remote), DENIED, name);
    }
}

/// IBA 9.7.4.1.4: a queue pair that was not opened for this kind of request has no such request.
#[test]
fn a_queue_pair_without_this_permission_gives_an_invalid_request() {
    for (name, op, needed) in &REACHES[1..6] {
        let mut pair = pair(|setup| setup.access = Access::all().difference(*needed));
        let remote = region(&mut pair, 1, Access::all());
        assert_denied(pair, op(remote), INVALID, name);
    }
}

/// A WRITE of nothing that comes before the refused one would be refused too, so this one stands alone.
#[test]
fn a_queue_pair_closed_to_writes_gives_an_invalid_request() {
    for op in [REACHES[0].1, REACHES[6].1] {
        let mut pair = pair(|setup| setup.access = Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        let (op, sge) = (op(pair.remote(Side::B, 0)), pair.sge(Side::A, 0, 8));
        fill(&mut pair, Side::A, 0, 8, 1);
        post(&mut pair, 1, op, &[sge]);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::RemoteInvalidRequest, 0)]);
        assert_events(&mut pair, &[], &[Event::RequestError]);
        assert_untouched(&mut pair, Side::B, 0, 64);
    }
}

#[test]
fn an_atomic_at_an_address_that_is_no_multiple_of_8_is_an_invalid_request() {
    for (name, op, _) in &REACHES[2..] {
        for offset in [1, 4, 7] {
            let mut pair = pair(|_| {});
            let Remote { address, rkey } = region(&mut pair, 1, Access::all());
            let remote = Remote { address: address + offset, rkey };
            assert_denied(pair, op(remote), INVALID, &format!("{name} at {offset}"));
        }
    }
}

/// Nothing to touch needs no key (IBA 9.7.4.1.5).
#[test]
fn no_bytes_need_no_key() {
    let mut pair = pair(|_| {});
    let nowhere = Remote { address: 1, rkey: Rkey(0xdead_be00) };
    post(&mut pair, 1, SendOp::Write(nowhere), &[]);
    post(&mut pair, 2, SendOp::Read(nowhere), &[]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 0), (2, Status::Success, 0)]);
    assert_at_peace(&mut pair);
}

/// A receive shorter than its message: the bytes that fit may be there, none beyond.
#[test]
fn a_receive_too_small_fails_on_both_sides() {
    for (room, length) in [(99, 100), (0, 1), (1024, 1025), (1500, 3000)] {
        let mut pair = pair(|_| {});
        post_receive(&mut pair, Side::B, 50, 0, room);
        post_receive(&mut pair, Side::B, 51, 0x8000, 4096);
        fill(&mut pair, Side::A, 0, length as usize, 1);
        post_message(&mut pair, 1, length);
        pair.run();
        let psn = START + room / 1024;
        let answer = format!("B NAK Invalid Request {psn:x} msn=0");
        assert_eq!(wire_of(&pair, Side::B), [answer], "{length} into {room}");
        assert_sends(&mut pair, Side::A, &[(1, Status::RemoteInvalidRequest, 0)]);
        assert_receives(&mut pair, Side::B, &[(50, Status::LocalLength, 0), (51, Status::Flushed, 0)]);
        assert_states(&pair, State::Err, State::Err);
        assert_events(&mut pair, &[], &[Event::RequestError]);
        assert_untouched(&mut pair, Side::B, room as usize, 0x10000);
    }
}

/// A receive may be larger than its message.
#[test]
fn a_receive_larger_than_its_message_keeps_the_rest_untouched() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 5000);
    fill(&mut pair, Side::A, 0, 2500, 1);
    post_message(&mut pair, 1, 2500);
    pair.run();
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 2500)]);
    assert_filled(&mut pair, Side::B, 0, 2500, 1);
    assert_untouched(&mut pair, Side::B, 2500, 5000);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 2500)]);
    assert_at_peace(&mut pair);
}

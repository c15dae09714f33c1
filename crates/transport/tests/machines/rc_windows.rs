//! Memory windows and invalidation as work requests, and ATOMIC WRITE.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{
    Access, Bind, Data, DomainId, Event, Remote, SendFlags, SendOp, State, Status, WorkKind,
};
use ferroce_wire::{Rkey, SendTail};

/// The bytes of B that the window opens.
const OPEN: (u64, u64) = (0x1000, 0x100);

/// Makes a window on B; says what binds it, and how A names its first byte then.
fn window(pair: &mut Pair) -> (Bind, Remote) {
    let window = pair.node(Side::B).device.memory.make_window(DomainId(1));
    let sge = pair.sge(Side::B, OPEN.0, 0);
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (address, new_key) = (sge.address, Rkey(window + 1));
    let bind = Bind { window: Rkey(window), new_key, region: sge.lkey, address, length: OPEN.1, access };
    (bind, Remote { address, rkey: new_key })
}

fn post_local(pair: &mut Pair, id: u64, op: SendOp) {
    post_with(pair, Side::B, id, op, Data::Gather(&[]), SendFlags::SIGNALED);
}

/// A posts a WRITE of ten bytes.
fn write_to(pair: &mut Pair, id: u64, remote: Remote) {
    let sge = pair.sge(Side::A, 0, 10);
    post(pair, id, SendOp::Write(remote), &[sge]);
}

#[test]
fn a_bound_window_opens_its_range_and_no_more() {
    let mut pair = pair(|_| {});
    let (bind, remote) = window(&mut pair);
    post_local(&mut pair, 1, SendOp::BindWindow(bind));
    pair.run();
    let done = pair.take_sends(Side::B);
    assert_eq!((done[0].id, done[0].status, done[0].kind), (1, Status::Success, WorkKind::BindWindow));
    assert_eq!(pair.sent.len(), 0, "a bind needs no packet");

    fill(&mut pair, Side::A, 0, 10, 1);
    write_to(&mut pair, 2, remote);
    write_to(&mut pair, 3, Remote { address: remote.address + OPEN.1 - 9, ..remote });
    pair.run();
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 10), (3, Status::RemoteAccess, 0)]);
    assert_filled(&mut pair, Side::B, 0x1000, 10, 1);
    assert_untouched(&mut pair, Side::B, 0x1010, 0x1000);
    assert_events(&mut pair, &[], &[Event::AccessError]);
}

/// Local work takes its turn among the rest: it completes in the order of posting, and packets pass it.
#[test]
fn local_work_completes_in_order_with_the_rest() {
    let mut pair = pair(|_| {});
    let (bind, remote) = window(&mut pair);
    let write = SendOp::Write(pair.remote(Side::A, 0));
    let sge = [pair.sge(Side::B, 0, 10)];
    let read = SendOp::Read(pair.remote(Side::A, 0x8000));
    let back = [pair.sge(Side::B, 0x8000, 2000)];
    post_with(&mut pair, Side::B, 1, write, Data::Gather(&sge), SendFlags::SIGNALED);
    post_local(&mut pair, 2, SendOp::BindWindow(bind));
    post_with(&mut pair, Side::B, 3, read, Data::Gather(&back), SendFlags::SIGNALED);
    post_local(&mut pair, 4, SendOp::LocalInvalidate(remote.rkey));
    post_with(&mut pair, Side::B, 5, write, Data::Gather(&sge), SendFlags::SIGNALED);
    // Whatever is lost, the order stays.
    lose(&mut pair, Side::B, &[0]);
    pair.run();
    let wanted = [
        (1, Status::Success, 10),
        (2, Status::Success, 0),
        (3, Status::Success, 2000),
        (4, Status::Success, 0),
        (5, Status::Success, 10),
    ];
    assert_sends(&mut pair, Side::B, &wanted);
    assert_at_peace(&mut pair);

    write_to(&mut pair, 6, remote);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(6, Status::RemoteAccess, 0)]);
}

/// A SEND with invalidate closes the window before the receiver hears of the message.
#[test]
fn a_send_with_invalidate_closes_the_window() {
    let mut pair = pair(|_| {});
    let (bind, remote) = window(&mut pair);
    post_local(&mut pair, 1, SendOp::BindWindow(bind));
    pair.run();
    assert_sends(&mut pair, Side::B, &[(1, Status::Success, 0)]);

    for (id, offset) in [(50, 0x8000), (51, 0x9000)] {
        post_receive(&mut pair, Side::B, id, offset, 2000);
    }
    let sge = [pair.sge(Side::A, 0, 2000)];
    write_to(&mut pair, 2, remote);
    post(&mut pair, 3, SendOp::SendInvalidate(remote.rkey), &sge);
    // The last packet is lost once: the key must be invalidated once only.
    lose(&mut pair, Side::B, &[1]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 10), (3, Status::Success, 2000)]);
    let received = pair.take_receives(Side::B);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].id, received[0].invalidated), (50, Some(remote.rkey)));
    assert_states(&pair, State::Rts, State::Rts);

    write_to(&mut pair, 4, remote);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(4, Status::RemoteAccess, 0)]);
    assert_receives(&mut pair, Side::B, &[(51, Status::Flushed, 0)]);
}

/// A key that cannot be invalidated: both sides fail, and the receive does not end in success.
#[test]
fn a_send_that_invalidates_what_it_may_not_fails() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 10);
    let region = pair.remote(Side::B, 0).rkey;
    let sge = [pair.sge(Side::A, 0, 10)];
    post(&mut pair, 1, SendOp::SendInvalidate(region), &sge);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::LocalAccess, 0)]);
    assert_states(&pair, State::Err, State::Err);
    assert_events(&mut pair, &[], &[Event::AccessError]);
    assert!(pair.node(Side::B).device.memory.deregister(region.0), "the region is still there");
}

/// A bind that is refused ends the queue pair, after everything before it has completed.
#[test]
fn a_refused_bind_fails_in_order() {
    let mut pair = pair(|setup| setup.region_access = Access::all().difference(Access::BIND_WINDOW));
    let (bind, _) = window(&mut pair);
    let write = SendOp::Write(pair.remote(Side::A, 0));
    let sge = [pair.sge(Side::B, 0, 10)];
    post_with(&mut pair, Side::B, 1, write, Data::Gather(&sge), SendFlags::SIGNALED);
    post_local(&mut pair, 2, SendOp::BindWindow(bind));
    post_with(&mut pair, Side::B, 3, write, Data::Gather(&sge), SendFlags::SIGNALED);
    pair.run();
    let wanted = [(1, Status::Success, 10), (2, Status::WindowBind, 0), (3, Status::Flushed, 0)];
    assert_sends(&mut pair, Side::B, &wanted);
    assert_states(&pair, State::Rts, State::Err);
    assert_eq!(wire_of(&pair, Side::B).len(), 1);
}

/// The same for a key that cannot be invalidated here.
#[test]
fn a_refused_local_invalidation_fails_in_order() {
    let mut pair = pair(|_| {});
    post_local(&mut pair, 1, SendOp::LocalInvalidate(Rkey(0xdead_be00)));
    post_local(&mut pair, 2, SendOp::LocalInvalidate(Rkey(0xdead_be00)));
    pair.run();
    assert_sends(&mut pair, Side::B, &[(1, Status::LocalQpOperation, 0), (2, Status::Flushed, 0)]);
    assert_states(&pair, State::Rts, State::Err);
}

/// A window belongs to the queue pair that bound it.
#[test]
fn a_window_of_another_queue_pair_is_a_remote_access_error() {
    let mut pair = pair(|_| {});
    let (bind, remote) = window(&mut pair);
    let other = ferroce_wire::Qpn::new(0x999);
    pair.node(Side::B).device.memory.bind(DomainId(1), other, &bind).unwrap();
    write_to(&mut pair, 1, remote);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0)]);
    assert_untouched(&mut pair, Side::B, 0, 0x4000);
}

/// ATOMIC WRITE (annex A19): eight bytes at once, answered by an empty READ response.
#[test]
fn an_atomic_write_stores_eight_bytes() {
    let mut pair = pair(|_| {});
    let op = SendOp::AtomicWrite(pair.remote(Side::B, 0x100));
    post_with(&mut pair, Side::A, 1, op, Data::Inline(b"inlined!"), SendFlags::SIGNALED);
    pair.memory(Side::A)[..8].copy_from_slice(b"gathered");
    let pieces = [pair.sge(Side::A, 0, 3), pair.sge(Side::A, 3, 5)];
    let op = SendOp::AtomicWrite(pair.remote(Side::B, 0x200));
    post(&mut pair, 2, op, &pieces);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A ATOMIC WRITE 10 ask",
            "A ATOMIC WRITE 11 ask",
            "B READ Response Only 10 msn=1",
            "B READ Response Only 11 msn=2",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8), (2, Status::Success, 8)]);
    assert_eq!(&pair.memory(Side::B)[0x100..0x108], b"inlined!");
    assert_eq!(&pair.memory(Side::B)[0x200..0x208], b"gathered");
    assert_at_peace(&mut pair);
}

/// The answer of an ATOMIC WRITE is lost and a later one has overwritten the place: no second store.
#[test]
fn a_repeated_atomic_write_is_not_executed_again() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    let store = |pair: &Pair, operand| ferroce_wire::Request::AtomicWrite(reth(pair, 0, 8), operand);
    let (old, new) = (store(&pair, *b"old old "), store(&pair, *b"new new "));
    inject_request(&mut pair, START, old);
    inject_request(&mut pair, START + 1, new);
    inject_request(&mut pair, START, old);
    assert_eq!(&pair.memory(Side::B)[..8], b"new new ");
    assert_eq!(wire_of(&pair, Side::B).last().unwrap(), "B READ Response Only 10 msn=1");
    assert_eq!(pair.counters(Side::B).duplicate_atomics, 1);
}

/// A message that is invalidated twice by two SENDs: the second finds nothing to invalidate.
#[test]
fn a_window_is_invalidated_once() {
    let mut pair = pair(|_| {});
    let (bind, remote) = window(&mut pair);
    pair.node(Side::B).device.memory.bind(DomainId(1), Pair::qpn(Side::B), &bind).unwrap();
    cut(&mut pair, Side::A);
    post_receive(&mut pair, Side::B, 50, 0, 10);
    post_receive(&mut pair, Side::B, 51, 0, 10);
    let tail = SendTail::Invalidate(remote.rkey);
    let send = ferroce_wire::Request::Send(ferroce_wire::Segment::Only((), tail), &b"x"[..]);
    inject_request(&mut pair, START, send);
    inject_request(&mut pair, START, send);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 1)]);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Rts, "a duplicate invalidates nothing");
    inject_request(&mut pair, START + 1, send);
    assert_receives(&mut pair, Side::B, &[(51, Status::LocalAccess, 0)]);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Err);
}

//! Queue pairs that go away: what their peers and their completion queues are left with.
#![allow(missing_docs, reason = "a test")]

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use common::{PATIENCE, Side, device, signaled};
use ferroce_device::fabric::faults::FaultPlan;
use ferroce_device::memory::Allocation;
use ferroce_device::{CompletionQueue, Config, Nic, PathPolicy, now};
use ferroce_transport::{
    Access, Attributes, Completion, ReceiveRequest, SendFlags, SendOp, SendRequest, Sge, State, Status,
};

/// Two connected ends on the wire.
fn ends(first: [u8; 4], second: [u8; 4]) -> (Side, Side) {
    let ends = [first, second].map(|address| Side::new(&device(address), address, PathPolicy::Forbid));
    let [a, b] = ends;
    a.connect(&b.address());
    b.connect(&a.address());
    (a, b)
}

/// An acknowledgement waits for a packet to ride behind. A program that ends after its last receive must not
/// take it along: its peer would try again until it gives up.
#[test]
fn what_is_owed_is_sent_before_a_queue_pair_goes() {
    for round in 0..20 {
        let (a, b) = ends([127, 0, 87, 1], [127, 0, 87, 2]);
        // A thread that polls receives by itself; for one that sleeps the driver does. Both have learnt that
        // answers come, behind which an acknowledgement can ride.
        let next = |side: &Side| if round % 2 == 0 { side.polled_completion() } else { side.completion() };
        for side in [&a, &b] {
            side.qp.post_receive(&[ReceiveRequest { id: 1, sges: &[side.sge(0, 64)] }; ROUNDS]).unwrap();
        }
        for _ in 1..ROUNDS {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let (flags, sges) = (SendFlags::empty(), [from.sge(0, 64)]);
                from.qp.post_send(&[SendRequest { flags, ..signaled(2, SendOp::Send, &sges) }]).unwrap();
                assert_eq!(next(to).status, Status::Success);
            }
        }
        a.qp.post_send(&[signaled(3, SendOp::Send, &[a.sge(0, 64)])]).unwrap();
        assert_eq!(next(&b).status, Status::Success);
        drop(b);
        let ended = a.completion();
        assert_eq!((ended.id, ended.status), (3, Status::Success), "round {round}");
    }
}

/// It was: an acknowledgement that could ride behind an answer was kept back, though the connection was about to end and no answer
/// could come. The peer asked again until it gave up (`fi_pingpong` did, where packets are lost).
#[test]
fn what_is_owed_is_sent_before_a_connection_is_ended() {
    for _ in 0..5 {
        let (a, b) = ends([127, 0, 87, 9], [127, 0, 87, 10]);
        for side in [&a, &b] {
            side.qp.post_receive(&[ReceiveRequest { id: 1, sges: &[side.sge(0, 64)] }; ROUNDS]).unwrap();
        }
        for _ in 1..ROUNDS {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let (flags, sges) = (SendFlags::empty(), [from.sge(0, 64)]);
                from.qp.post_send(&[SendRequest { flags, ..signaled(2, SendOp::Send, &sges) }]).unwrap();
                assert_eq!(to.polled_completion().status, Status::Success);
            }
        }
        a.qp.post_send(&[signaled(3, SendOp::Send, &[a.sge(0, 64)])]).unwrap();
        assert_eq!(b.polled_completion().status, Status::Success);
        b.qp.settle();
        b.qp.modify(&Attributes::to(State::Err), None).unwrap();
        let ended = a.completion();
        assert_eq!((ended.id, ended.status), (3, Status::Success));
    }
}

/// Messages each way.
const ROUNDS: usize = 16;

/// Acknowledgements are lost with their queue pair gone: a peer that asks again is answered all the same.
#[test]
fn a_peer_that_asks_again_is_answered_when_the_queue_pair_is_gone() {
    const MOST: usize = 1000;
    let (here, there) = ([127, 0, 87, 5], [127, 0, 87, 6]);
    let config = Config { address: Some(IpAddr::from(there)), ..Config::new("lo") };
    let lossy =
        Nic::open(Config { faults: Some(FaultPlan::parse("loss=0.3,seed=1").unwrap()), ..config }).unwrap();
    let fair = device(here);
    let mut rounds = 0..MOST;
    // Its last acknowledgement goes twice, so both have to be lost for this.
    while lossy.counters().answered_for_departed < 3 {
        let round = rounds.next().expect("some acknowledgements are lost");
        let (a, b) =
            (Side::new(&fair, here, PathPolicy::Forbid), Side::new(&lossy, there, PathPolicy::Forbid));
        a.connect_with(&b.address(), 12, 7);
        b.connect_with(&a.address(), 12, 7);
        b.qp.post_receive(&[ReceiveRequest { id: 1, sges: &[b.sge(0, 64)] }]).unwrap();
        a.qp.post_send(&[signaled(2, SendOp::Send, &[a.sge(0, 64)])]).unwrap();
        assert_eq!(b.completion().status, Status::Success);
        drop(b);
        let ended = a.completion();
        assert_eq!((ended.id, ended.status), (2, Status::Success), "round {round}");
    }
}

#[test]
fn completions_of_a_reset_queue_pair_can_be_forgotten_and_those_of_others_stay() {
    let (a, b) = ends([127, 0, 87, 3], [127, 0, 87, 4]);
    let other = Side::into_queue(&a.nic, [127, 0, 87, 3], PathPolicy::Prefer, (4, None), &a.cq);
    other.connect(&b.address());
    let flushed = |side: &Side| {
        side.qp.modify(&Attributes::to(State::Err), None).unwrap();
    };
    for (side, id) in [(&a, 1), (&other, 2), (&a, 3)] {
        side.qp.post_receive(&[ReceiveRequest { id, sges: &[] }]).unwrap();
    }
    flushed(&a);
    flushed(&other);
    a.cq.forget(a.qp.qpn());
    let mut found = [Completion::EMPTY; 8];
    assert_eq!(a.cq.poll(&mut found), 1);
    assert_eq!((found[0].id, found[0].qpn), (2, other.qp.qpn()));
    // What completes later comes as ever.
    a.qp.post_receive(&[ReceiveRequest { id: 4, sges: &[] }]).unwrap();
    assert_eq!(a.completion().id, 4);
}

/// A region that the program has given up stays for the work that names it, in whichever engine, and goes
/// with the last.
#[test]
fn regions_that_work_still_names_are_released_at_its_end() {
    let (here, there) = ([127, 0, 87, 7], [127, 0, 87, 8]);
    let config = Config { address: Some(IpAddr::from(here)), engines: 2, ..Config::new("lo") };
    let nic = Nic::open(config).unwrap();
    let far = device(there);
    let queue = || CompletionQueue::new(&nic, 16, None).unwrap();
    let receiver = Side::into_queue(&nic, here, PathPolicy::Forbid, (4, Some(0)), &queue());
    let sender = receiver.companion(1, &queue());
    let peers = [&receiver, &sender].map(|side| {
        let peer = Side::new(&far, there, PathPolicy::Forbid);
        side.connect(&peer.address());
        peer.connect(&side.address());
        peer
    });

    let memory = Allocation::zeroed(4096).unwrap();
    let (lkey, _) = nic.register(receiver.domain, &memory, (0, 4096), 0, Access::LOCAL_WRITE).unwrap();
    let part = |address| [Sge { address, length: 64, lkey }];
    // One waits for a message, the other for its peer to have room for one.
    receiver.qp.post_receive(&[ReceiveRequest { id: 1, sges: &part(0) }]).unwrap();
    sender.qp.post_send(&[signaled(2, SendOp::Send, &part(64))]).unwrap();
    let left = Arc::downgrade(&memory);
    drop(memory);
    nic.release(receiver.domain, lkey);
    assert!(left.upgrade().is_some(), "work of both engines names it");

    peers[0].memory.write(0, b"arrived").unwrap();
    peers[0].qp.post_send(&[signaled(3, SendOp::Send, &[peers[0].sge(0, 64)])]).unwrap();
    assert_eq!(receiver.completion().status, Status::Success);
    let mut arrived = [0; 7];
    left.upgrade().expect("work of the other engine names it").read(0, &mut arrived).unwrap();
    assert_eq!(&arrived, b"arrived");

    peers[1].qp.post_receive(&[ReceiveRequest { id: 4, sges: &[peers[1].sge(0, 64)] }]).unwrap();
    assert_eq!(sender.completion().status, Status::Success);
    // Some thread has left that engine, or is about to; no call of ours is needed.
    let end = now() + PATIENCE;
    while left.strong_count() > 0 {
        assert!(now() < end, "its last work is done, and the memory is still there");
        std::thread::yield_now();
    }
}

//! Two queue pairs on one device, over both paths: the shortest program that uses everything once.

mod common;

use common::{Side, device, signaled};
use ferroce_device::{AsyncEvent, Config, Nic, Path, PathPolicy};
use ferroce_transport::{Event, ReceiveRequest, SendOp, Status};
use ferroce_wire::Imm;

/// Two queue pairs of a device, connected to each other.
fn connected(path: PathPolicy, address: [u8; 4]) -> (Nic, Side, Side) {
    let shared = path == PathPolicy::Shared;
    let config = Config { address: Some(address.into()), shared, ..Config::new("lo") };
    let nic = Nic::open(config).expect("a device on lo");
    let (a, b) = (Side::new(&nic, address, path), Side::new(&nic, address, path));
    a.connect(&b.address());
    b.connect(&a.address());
    (nic, a, b)
}

fn exchange(path: PathPolicy, address: [u8; 4]) {
    let (nic, a, b) = connected(path, address);
    let peer = b.address();
    let before = nic.counters();
    let bytes: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    a.memory.write(0, &bytes).expect("inside");
    let mut seen = vec![0; bytes.len()];

    a.qp.post_send(&[signaled(1, SendOp::Write(peer.at(5)), &[a.sge(0, 100_000)])]).expect("room");
    let done = a.completion();
    assert_eq!((done.id, done.status), (1, Status::Success));
    b.memory.read(5, &mut seen).expect("inside");
    assert_eq!(seen, bytes);

    b.qp.post_receive(&[ReceiveRequest { id: 9, sges: &[b.sge(500_000, 100_000)] }]).expect("room");
    a.qp.post_send(&[signaled(2, SendOp::SendImm(Imm(7)), &[a.sge(0, 100_000)])]).expect("room");
    assert_eq!(a.completion().status, Status::Success);
    let got = b.completion();
    assert_eq!((got.id, got.byte_len, got.imm), (9, 100_000, Some(7)));
    b.memory.read(500_000, &mut seen).expect("inside");
    assert_eq!(seen, bytes);

    a.qp.post_send(&[signaled(3, SendOp::Read(peer.at(5)), &[a.sge(500_000, 100_000)])]).expect("room");
    assert_eq!(a.completion().status, Status::Success);
    a.memory.read(500_000, &mut seen).expect("inside");
    assert_eq!(seen, bytes);

    let after = nic.counters();
    let chosen = a.qp.query().expect("it is there").path.expect("it is connected").path;
    match path {
        PathPolicy::Forbid => {
            assert_eq!(chosen, Path::Wire);
            assert!(after.packets_received - before.packets_received >= 75, "{after:?}");
            assert_eq!(after.local_messages, before.local_messages);
        }
        PathPolicy::Prefer | PathPolicy::Require => {
            assert_eq!(chosen, Path::Local);
            assert_eq!(after.packets_sent, before.packets_sent);
            assert_eq!(after.local_messages - before.local_messages, 3);
        }
        PathPolicy::Shared => {
            assert_eq!(chosen, Path::Shared);
            assert_eq!(after.packets_sent, before.packets_sent);
            assert_eq!(after.local_messages, before.local_messages);
            assert!(after.lane_packets_received - before.lane_packets_received >= 75, "{after:?}");
        }
    }
}

#[test]
fn work_is_done_over_the_wire() {
    exchange(PathPolicy::Forbid, [127, 0, 20, 1]);
}

#[test]
fn work_is_done_in_the_process() {
    exchange(PathPolicy::Require, [127, 0, 20, 2]);
}

#[test]
fn work_is_done_through_memory() {
    exchange(PathPolicy::Shared, [127, 0, 20, 5]);
}

/// Lists of which the middle has to wait, or is refused: what is before it may be done at once, what is
/// behind it must not be, or never.
fn list_that_waits(path: PathPolicy, address: [u8; 4]) {
    let (_nic, a, b) = connected(path, address);
    let peer = b.address();
    a.memory.write(0, &[1, 2, 3, 4]).expect("inside");
    let (one, two, four) = ([a.sge(0, 1)], [a.sge(1, 1)], [a.sge(3, 1)]);
    let byte_at = |offset| {
        let mut byte = [0];
        b.memory.read(offset, &mut byte).expect("inside");
        byte[0]
    };
    let write = |id, sge, offset| signaled(id, SendOp::Write(peer.at(offset)), sge);
    let send = signaled(2, SendOp::Send, &two);
    a.qp.post_send(&[write(1, &one, 0), send, write(3, &four, 1)]).expect("room");
    assert_eq!((a.completion().id, byte_at(0)), (1, 1));
    // It has no receive, and asks for one again and again.
    assert_eq!(byte_at(1), 0, "nothing overtakes it");
    b.qp.post_receive(&[ReceiveRequest { id: 9, sges: &[b.sge(100, 1)] }]).expect("room");
    assert_eq!((a.completion().id, b.completion().id, byte_at(100)), (2, 9, 2));
    assert_eq!((a.completion().id, byte_at(1)), (3, 4));

    let too_many = vec![one[0]; 100];
    let refused = signaled(5, SendOp::Write(peer.at(3)), &too_many);
    let refused =
        a.qp.post_send(&[write(4, &two, 2), refused, write(6, &one, 4)]).expect_err("too many pieces");
    assert_eq!((refused.taken, a.completion().id, byte_at(2)), (1, 4, 2));
    a.qp.post_send(&[write(7, &one, 5)]).expect("room");
    assert_eq!((a.completion().id, byte_at(5), byte_at(4)), (7, 1, 0), "the last of the list is gone");
}

#[test]
fn nothing_in_a_list_overtakes_what_waits_over_the_wire() {
    list_that_waits(PathPolicy::Forbid, [127, 0, 20, 3]);
}

#[test]
fn nothing_in_a_list_overtakes_what_waits_in_the_process() {
    list_that_waits(PathPolicy::Require, [127, 0, 20, 4]);
}

/// A list of nothing, and one whose first is refused: neither is a message that a waiting side could hear of.
#[test]
fn a_list_that_posts_nothing_is_not_heard_in_the_process() {
    let address = [127, 0, 20, 5];
    let nic = device(address);
    let (a, b) =
        (Side::new(&nic, address, PathPolicy::Require), Side::new(&nic, address, PathPolicy::Require));
    a.connect(&b.address());
    b.get_ready(&a.address());
    let (peer, one) = (b.address(), [a.sge(0, 1)]);
    a.qp.post_send(&[]).expect("there is nothing to refuse");
    let too_many = vec![one[0]; 100];
    a.qp.post_send(&[signaled(1, SendOp::Write(peer.at(0)), &too_many)]).expect_err("too many pieces");
    assert_eq!(nic.next_event(), None);
    a.qp.post_send(&[signaled(2, SendOp::Write(peer.at(0)), &one)]).expect("room");
    assert_eq!(a.completion().id, 2);
    assert_eq!(nic.next_event(), Some(AsyncEvent::QueuePair(b.qp.qpn(), Event::Established)));
}

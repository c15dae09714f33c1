//! Two queue pairs on the local path drop packets from the network, whatever their source.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_testkit::shared_port::beside_a_device;
use ferroce_verbs::*;
use ferroce_wire::{Body, Flow, Packet, Request, Segment, SendTail};

const SOON: Duration = Duration::from_secs(20);

struct End {
    qp: QueuePair,
    completions: CompletionQueue,
    region: MemoryRegion,
}

fn end(context: &Context, path: PathPolicy) -> End {
    let pd = context.protection_domain().unwrap();
    let completions = context.completion_queue(64).unwrap();
    let qp = pd
        .queue_pair(Service::Rc)
        .send_queue(&completions, 16)
        .receive_queue(&completions, 16)
        .signal_all(true)
        .path(path)
        .build()
        .unwrap();
    let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    End { qp, completions, region }
}

fn connected(context: &Context, paths: [PathPolicy; 2]) -> (End, End) {
    let (a, b) = (end(context, paths[0]), end(context, paths[1]));
    a.qp.connect(&b.qp.local_address()).unwrap();
    b.qp.connect(&a.qp.local_address()).unwrap();
    (a, b)
}

/// A SEND that looks as if the peer of `target` had sent it, over the network.
fn forge(from: Ipv4Addr, target: &QueuePair) {
    let socket = beside_a_device((from, 4791).into());
    let psn = target.query().unwrap().attributes.rq_psn;
    let request = Request::Send(Segment::Only((), SendTail::Plain), &b"forged"[..]);
    let packet = Packet::new(target.qpn(), psn, Body::RcRequest(request));
    let mut bytes = vec![0; packet.len()];
    packet.emit(&Flow::v4((from, 4791), (from, 4791), true), 0, &mut bytes).unwrap();
    socket.send_to(&bytes, (from, 4791)).unwrap();
}

#[test]
fn a_local_pair_takes_nothing_from_the_network() {
    let address = Ipv4Addr::new(127, 0, 58, 1);
    let context = Context::builder("ferroce_lo").address(address).open().unwrap();
    let (a, b) = connected(&context, [PathPolicy::Require; 2]);
    b.qp.receive(&b.region).id(7).post().unwrap();
    forge(address, &b.qp);
    let mut found = [Completion::EMPTY];
    let end = context.clock_now() + SOON;
    while context.counters().wrong_path == 0 {
        assert_eq!(b.completions.poll(&mut found), 0, "{found:?}");
        assert!(context.clock_now() < end, "{:?}", context.counters());
    }
    // What the peer sends is taken.
    a.qp.send_inline(b"honest").post().unwrap();
    assert_eq!(b.completions.wait(SOON).unwrap().id, 7);
    assert_eq!(b.region.to_vec(..6).unwrap(), b"honest");
    assert_eq!(context.counters().wrong_path, 1);
}

#[test]
fn a_peer_that_must_use_the_network_is_heard() {
    let address = Ipv4Addr::new(127, 0, 58, 2);
    let context = Context::builder("ferroce_lo").address(address).open().unwrap();
    let (a, b) = connected(&context, [PathPolicy::Prefer, PathPolicy::Forbid]);
    assert_eq!(a.qp.path().unwrap().path, Path::Local);
    assert_eq!(b.qp.path().unwrap().path, Path::Wire);
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.qp.write_inline(b"mixed", to.region.remote()).post().unwrap();
        assert!(from.completions.wait(SOON).unwrap().is_success());
        assert_eq!(to.region.to_vec(..5).unwrap(), b"mixed");
    }
    assert_eq!(context.counters().wrong_path, 0);
}

//! Packets from this machine that no device has sent: right in every field, from the address of the peer, but
//! from a port that any user could bind. None of them reaches anything, over IPv4 and over IPv6; the same
//! packets from the port of the peer's device do.
#![allow(clippy::disallowed_methods, reason = "a test may wait")]

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use common::{OPEN, PATIENCE, Side, signaled};
use ferroce_device::fabric::PORT;
use ferroce_device::{Config, Nic, PathPolicy, now};
use ferroce_testkit::shared_port::beside_a_device;
use ferroce_transport::{SendOp, Status};
use ferroce_wire::{Body, Flow, Packet, Psn, Request, Reth, Segment};

/// Where the first request of a connection stands in these tests.
const FIRST: Psn = Psn::new(0xff_fff0);

const LIES: u64 = 200;

fn side(address: IpAddr) -> Side {
    let nic = Nic::open(Config { address: Some(address), ..Config::new("lo") }).expect("a device on lo");
    let cq = ferroce_device::CompletionQueue::new(&nic, 64, None).expect("a completion queue");
    let domain = nic.create_domain().expect("a protection domain");
    let memory = ferroce_device::memory::Allocation::zeroed(1 << 16).expect("memory");
    let keys = nic.register(domain, &memory, (0, memory.len()), memory.address(), OPEN).expect("a region");
    let spec = ferroce_device::QpSpec {
        service: ferroce_wire::Service::Rc,
        domain,
        send_cq: &cq,
        receive_cq: &cq,
        shared_queue: None,
        caps: ferroce_transport::Caps {
            max_send: 16,
            max_receive: 16,
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: 0,
        },
        signal_all: false,
        path: Some(PathPolicy::Forbid),
        engine: None,
        stamps: false,
    };
    let qp = ferroce_device::Qp::new(&nic, &spec).expect("a queue pair");
    let gid = nic.gid_index(address).expect("a GID");
    Side { nic, domain, qp, cq, memory, keys, gid }
}

/// A WRITE that is right in every field for what `target` expects next of its peer.
fn forge(socket: &UdpSocket, from: IpAddr, target: &Side, psn: Psn) {
    let to = SocketAddr::new(target.nic.gid(target.gid).expect("a GID").ip(), PORT);
    let source = SocketAddr::new(from, socket.local_addr().expect("a name").port());
    let flow = Flow::new(source, to).expect("one family");
    let reth = Reth { address: target.memory.address(), rkey: target.keys.1, length: 8 };
    let request = Request::Write(Segment::Only(reth, None), &[0xbd; 8][..]);
    let packet = Packet { ack_request: true, ..Packet::new(target.qp.qpn(), psn, Body::RcRequest(request)) };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&flow, 0, &mut bytes).expect("room");
    socket.send_to(&bytes, to).expect("sent");
}

fn first_byte(side: &Side) -> u8 {
    let mut byte = [0];
    side.memory.read(0, &mut byte).expect("inside");
    byte[0]
}

fn nothing_from_another_port(victim: IpAddr, peer: IpAddr) {
    let (victim, honest) = (side(victim), side(peer));
    victim.connect(&honest.address());
    honest.connect(&victim.address());
    let stranger = UdpSocket::bind(SocketAddr::new(peer, 0)).expect("any user can");
    let before = victim.nic.counters().foreign_source;
    for _ in 0..LIES {
        forge(&stranger, peer, &victim, FIRST);
    }
    let end = now() + PATIENCE;
    while victim.nic.counters().foreign_source < before + LIES {
        assert!(now() < end, "{:?}", victim.nic.counters());
        std::thread::yield_now();
    }
    assert_eq!(first_byte(&victim), 0, "a stranger wrote");
    // The connection is as it was: its first message has the PSN that the stranger had.
    honest.memory.fill(0, 8, 7).expect("inside");
    let to = victim.address().at(0);
    let write = SendOp::Write(to);
    honest.qp.post_send(&[signaled(1, write, &[honest.sge(0, 8)])]).expect("posted");
    assert_eq!(honest.completion().status, Status::Success);
    assert_eq!(first_byte(&victim), 7);
    // What makes the difference is the port: a process of the same user may have it too.
    let twin = beside_a_device(SocketAddr::new(peer, PORT));
    forge(&twin, peer, &victim, FIRST.next());
    let end = now() + PATIENCE;
    while first_byte(&victim) != 0xbd {
        assert!(now() < end, "{:?}", victim.nic.counters());
        std::thread::yield_now();
    }
    assert_eq!(victim.nic.counters().foreign_source, before + LIES);
}

#[test]
fn packets_from_a_port_of_no_device_reach_nothing() {
    nothing_from_another_port([127, 0, 99, 1].into(), [127, 0, 99, 2].into());
}

#[test]
fn packets_from_a_port_of_no_device_reach_nothing_over_ipv6() {
    let address = std::net::Ipv6Addr::LOCALHOST.into();
    nothing_from_another_port(address, address);
}

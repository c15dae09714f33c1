//! Payloads that are copied and folded in one pass: the packets are those of two passes.
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use common::{PATIENCE, Peer, Side, signaled};
use ferroce_device::memory::Passes;
use ferroce_device::{Config, Nic, PathPolicy};
use ferroce_transport::SendOp;
use ferroce_wire::{DataPacket, Flow, Qpn, Rkey};

/// Bytes of the messages, at odd addresses: around what is worth folding and what is folded at a time, the longest packet,
/// and several of them.
const LENGTHS: [u32; 13] = [1, 1023, 1024, 1025, 1027, 1151, 1152, 1153, 3071, 4095, 4096, 4097, 12_291];

/// What the packets of such messages hold, as a socket without any help gets them; their ICRC is right.
fn payloads(last: u8, passes: Passes) -> Vec<Vec<u8>> {
    let (near, far) = (IpAddr::from([127, 0, 85, last]), IpAddr::from([127, 0, 85, last + 1]));
    let socket = UdpSocket::bind((far, 4791)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = Config { address: Some(near), passes, ..Config::new("lo") };
    let side = Side::with(&Nic::open(config).unwrap(), [127, 0, 85, last], PathPolicy::Forbid, 64);
    let bytes: Vec<u8> = (0..16_384_u32).map(|at| (at % 253) as u8).collect();
    side.memory.write(0, &bytes).unwrap();
    let peer = Peer { qpn: Qpn::new(0x77), gid: far.into(), memory: 0, rkey: Rkey(0) };
    side.connect_with(&peer, 31, 7);
    let (mut came, mut seen) = (Vec::new(), BTreeSet::new());
    for (number, length) in (1_u32..).zip(LENGTHS) {
        let (offset, half) = (u64::from(number), length / 2);
        // One in three is in two pieces.
        let sges = [side.sge(offset, length - half), side.sge(offset + u64::from(length - half), half)];
        let whole = [side.sge(offset, length)];
        let sges = if number % 3 == 0 && half > 0 { &sges[..] } else { &whole[..] };
        side.qp.post_send(&[signaled(1, SendOp::Send, sges)]).unwrap();
        let mut message = Vec::new();
        while message.len() < length as usize {
            let mut packet = [0; 8192];
            let (length, from) = socket.recv_from(&mut packet).unwrap();
            let packet = &packet[..length];
            let flow = Flow::new(from, SocketAddr::new(far, 4791)).unwrap();
            let place = flow.solve_ip_id(packet);
            assert!(place.is_some_and(|place| place < 16), "the ICRC fits {place:?}, {} bytes", packet.len());
            let (data, payload) = DataPacket::parse(packet).unwrap();
            // Nothing is acknowledged, so that some packets come again.
            if seen.insert(data.psn.get()) {
                message.extend_from_slice(payload);
            }
        }
        let expected = &bytes[number as usize..][..length as usize];
        assert!(message == expected, "a message of {length} bytes is another one");
        came.push(message);
    }
    came
}

#[test]
fn packets_are_the_same_in_one_pass_and_in_two() {
    assert_eq!(payloads(1, Passes::one()), payloads(3, Passes::TWO));
}

//! Frames that we emit: every message of connection management, with and without IP addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_wire::mad::{
    BODY_LEN, CmMad, CmMessage, Drep, Dreq, IpCmHeader, IpPair, Mra, PortSpace, Rej, Rep, Req, Rtu,
    ServiceId, SidrRep, SidrReq,
};
use ferroce_wire::{Body, Datagram, Deth, Packet, Psn, QKey, Qpn};

use super::compare::Sample;
use super::frames::{over_ipv4, over_ipv6};

const KINDS: [u16; 9] = [
    Req::ATTRIBUTE_ID,
    Mra::ATTRIBUTE_ID,
    Rej::ATTRIBUTE_ID,
    Rep::ATTRIBUTE_ID,
    Rtu::ATTRIBUTE_ID,
    Dreq::ATTRIBUTE_ID,
    Drep::ATTRIBUTE_ID,
    SidrReq::ATTRIBUTE_ID,
    SidrRep::ATTRIBUTE_ID,
];

/// Every message with every kind of content, as a datagram to queue pair 1.
pub(crate) fn messages() -> Vec<Sample> {
    let mut samples = Vec::new();
    for body in bodies() {
        for kind in KINDS {
            let message = CmMessage::parse(kind, &body).expect("a known message");
            both(&mut samples, message);
            for with_ip in with_ip_addresses(message) {
                both(&mut samples, with_ip);
            }
        }
    }
    samples
}

/// What the fields are filled from: zeros, ones, bytes that are all different, and
/// some that are not so regular. Reserved bits are lost on the way into a message.
fn bodies() -> Vec<[u8; BODY_LEN]> {
    let mut bodies = vec![[0; BODY_LEN], [0xff; BODY_LEN]];
    let mut counted = [0; BODY_LEN];
    counted.iter_mut().zip(0x0b_u8..).for_each(|(byte, number)| *byte = number);
    bodies.push(counted);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..8 {
        // Xorshift: any numbers will do, as long as they are always the same.
        bodies.push(std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[3]
        }));
    }
    bodies
}

/// The same request for an IP port, with addresses of both families.
fn with_ip_addresses(message: CmMessage) -> Vec<CmMessage> {
    let v4 = [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9))];
    let v6 =
        [0x77, 0x99].map(|low| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x11, 0x22, 0x33, 0x44, 0x55, low)));
    let mut messages = Vec::new();
    for (space, [source, destination]) in [(PortSpace::Tcp, v4), (PortSpace::Udp, v6)] {
        let addresses = IpPair::new(source, destination).expect("one family");
        let ip = IpCmHeader { minor_version: 5, ..IpCmHeader::new(0xbb06, addresses) };
        let service_id = ServiceId::rdma_ip(space, 7174);
        match message {
            CmMessage::Req(req) => {
                let private_data =
                    ip.private_data(&req.private_data.0[36..]).expect("as many bytes as before");
                messages.push(Req { service_id, private_data, ..req }.into());
            }
            CmMessage::SidrReq(req) => {
                let private_data =
                    ip.private_data(&req.private_data.0[36..]).expect("as many bytes as before");
                messages.push(SidrReq { service_id, private_data, ..req }.into());
            }
            _ => {}
        }
    }
    messages
}

fn both(samples: &mut Vec<Sample>, message: CmMessage) {
    let mad = CmMad {
        transaction_id: 0x0102_0304_0506_0708,
        status: 0x1112,
        class_specific: 0x1314,
        attribute_modifier: 0x2122_2324,
        message,
    };
    let mut payload = [0xaa; CmMad::LEN];
    mad.emit(&mut payload);
    // A frame describes its payload by reading it: it must find what was meant.
    assert_eq!(CmMad::parse(&payload), Ok(mad));
    let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
    let datagram = Datagram { deth, imm: None, payload: payload.as_slice() };
    let packet = Packet::new(Qpn::GSI, Psn::new(0x31_3233), Body::Ud(datagram));
    samples.push(over_ipv4(message.name(), packet));
    samples.push(over_ipv6(message.name(), packet));
}

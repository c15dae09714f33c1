//! A peer that breaks the protocol: a plain socket on the port of RoCEv2, with packets that are made by hand.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ferroce_device::fabric::PORT;
use ferroce_verbs::{PathMtu, Psn, QpAddress, Qpn};
use ferroce_wire::{
    Aeth, AtomicAckEth, Body, Flow, Msn, Packet, ReadSegment, Request, Response, Segment, SendTail, Syndrome,
};

use crate::common::SOON;

/// The number of its queue pair.
const QPN: Qpn = Qpn::new(0x00_4711);

/// A peer at an address where no device is.
pub(crate) struct Liar {
    socket: UdpSocket,
    own: SocketAddr,
}

impl Liar {
    pub(crate) fn new(address: [u8; 4]) -> Self {
        let own = SocketAddr::from((address, PORT));
        let socket = UdpSocket::bind(own).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self { socket, own }
    }

    /// What an honest program needs to connect to it.
    pub(crate) fn address(&self) -> QpAddress {
        QpAddress { qpn: QPN, psn: Psn::new(0), mtu: PathMtu::B1024, gid: self.own.ip().into() }
    }

    /// Sends a packet of a SEND, of this many bytes.
    pub(crate) fn send(&self, to: &QpAddress, psn: u32, segment: Segment<(), SendTail>, len: usize) {
        let payload = vec![0xbd; len];
        let body = Body::RcRequest(Request::Send(segment, &payload[..]));
        self.emit(&Packet::new(to.qpn, Psn::new(psn), body), to.gid.ip());
    }

    /// Waits for a READ, and answers it as if it were an atomic.
    pub(crate) fn answer_as_atomic(&self, to: Qpn) {
        let mut bytes = [0; 2048];
        let (received, asks) = self.socket.recv_from(&mut bytes).expect("a READ within the limit");
        let packet = Packet::parse(&bytes[..received]).unwrap();
        let aeth = Aeth { syndrome: Syndrome::from_byte(0x1f), msn: Msn::new(1) };
        let response = Response::AtomicAcknowledge(aeth, AtomicAckEth { original: 7 });
        self.emit(&Packet::new(to, packet.psn, Body::RcResponse(response)), asks.ip());
    }

    /// To where the device listens, whatever port it sends from.
    fn emit(&self, packet: &Packet<&[u8]>, to: IpAddr) {
        let there = SocketAddr::new(to, PORT);
        let mut bytes = vec![0; packet.len()];
        packet.emit(&Flow::new(self.own, there).unwrap(), 0, &mut bytes).unwrap();
        assert_eq!(self.socket.send_to(&bytes, there).unwrap(), bytes.len());
    }

    /// Waits for a READ, and answers it with this many bytes instead of what it asked for.
    pub(crate) fn answer_read(&self, to: Qpn, len: usize) {
        let mut bytes = [0; 2048];
        let (received, asks) = self.socket.recv_from(&mut bytes).expect("a READ within the limit");
        let packet = Packet::parse(&bytes[..received]).unwrap();
        let Body::RcRequest(Request::Read(asked)) = packet.body else { panic!("no READ: {packet}") };
        assert_ne!(asked.length as usize, len, "that would be the truth");
        let payload = vec![0xbd; len];
        let aeth = Aeth { syndrome: Syndrome::from_byte(0x1f), msn: Msn::new(1) };
        let body = Body::RcResponse(Response::Read(ReadSegment::Only(aeth), &payload[..]));
        self.emit(&Packet::new(to, packet.psn, body), asks.ip());
    }
}

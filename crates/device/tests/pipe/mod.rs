//! A fabric in memory: it keeps what was sent, and brings what it was told to bring.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ferroce_device::fabric::{Fabric, Inbox, Outbox, PORT, Received, Route, Sent, Toward};
use ferroce_wire::{Body, Flow, Packet, Psn, Qpn, Request, Segment, SendTail};

/// What was sent, and what will arrive.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Every packet with its route and its place in its run, in order.
    pub(crate) sent: Vec<(Route, usize, Vec<u8>)>,
    /// Datagrams that wait.
    pub(crate) arriving: VecDeque<(Received, Vec<u8>)>,
    /// The only source port that there is; any if none is said.
    pub(crate) only_port: Option<u16>,
}

impl Fabric for Pipe {
    fn coalesces(&self) -> bool {
        true
    }

    fn run_limits(&self) -> (usize, usize) {
        (64, 65_000)
    }

    fn source_port(&mut self, wanted: u16, _: IpAddr) -> u16 {
        self.only_port.unwrap_or(wanted)
    }

    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        let before = self.sent.len();
        for run in outbox.runs() {
            let packets = outbox.packets(run).enumerate();
            self.sent.extend(packets.map(|(place, packet)| (run.route, place, packet.to_vec())));
        }
        outbox.clear();
        Sent { packets: (self.sent.len() - before) as u64, calls: 1, ..Sent::default() }
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.clear();
        let count = self.arriving.len().min(inbox.capacity());
        for (slot, (_, bytes)) in inbox.slots().zip(&self.arriving) {
            slot[..bytes.len()].copy_from_slice(bytes);
        }
        self.arriving.drain(..count).for_each(|(received, _)| inbox.push(received));
        inbox.set_full(count == inbox.capacity());
        Ok(())
    }

    fn show_marks(&mut self) {}

    fn descriptors(&self) -> &[RawFd] {
        &[]
    }
}

/// A route between two addresses.
pub(crate) fn route(local: &str, remote: &str) -> Route {
    let (local, remote) = (local.parse().expect("an address"), remote.parse().expect("an address"));
    Route { local, remote, source_port: 50_123, traffic_class: 0x6a, hop_limit: 63, flow_label: 0 }
}

/// What the ICRC needs to know of a route.
pub(crate) fn flow(route: &Route) -> Flow {
    let source = SocketAddr::new(route.local, route.source_port);
    Flow::new(source, SocketAddr::new(route.remote, PORT)).expect("one family")
}

/// A SEND of `len` bytes with this PSN, sealed for this identification.
pub(crate) fn sealed(route: &Route, psn: u32, len: usize, ip_id: u16) -> Vec<u8> {
    let payload: Vec<u8> = (0..=u8::MAX).cycle().skip(0x41).step_by(7).take(len).collect();
    let send = Request::Send(Segment::Only((), SendTail::Plain), payload.as_slice());
    let packet = Packet::new(Qpn::new(0x77), Psn::new(psn), Body::RcRequest(send));
    let mut bytes = vec![0; packet.len()];
    packet.emit(&flow(route), ip_id, &mut bytes).expect("a legal packet");
    bytes
}

/// Puts a packet into the outbox, behind others of its run if it may.
pub(crate) fn push(outbox: &mut Outbox, route: &Route, psn: u32, len: usize, limits: (usize, usize)) {
    let packet_len = sealed(route, psn, len, 0).len();
    let to = Toward { route, slot: 0, is_known: false };
    let place = outbox.place(to, packet_len, false, limits);
    let packet = sealed(route, psn, len, u16::try_from(place).expect("a short run"));
    outbox.room(packet.len()).expect("room in the outbox").copy_from_slice(&packet);
    outbox.commit(to, packet.len(), place);
}

/// The PSN of a packet.
pub(crate) fn psn(packet: &[u8]) -> u32 {
    Packet::parse(packet).expect("a packet").psn.get()
}

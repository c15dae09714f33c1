//! Queue pair 1: messages of connection management, on their way to the process that they are for.
//!
//! The queue pair is one for the whole group, and its packets come to slot 0. The leader reads them. A
//! request goes to the process that has claimed its service; everything else carries the communication
//! id that its receiver once chose, whose top byte is a slot of that receiver.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use ferroce_fabric::udp::{Control, Messages, Name, Receiving};
use ferroce_fabric::{Ends, Verifier};
use ferroce_fabric::{Inbox, PORT, Received, Route};
use ferroce_sys::clock;
use ferroce_transport::cm::answer_unknown;
use ferroce_wire::header::Deth;
use ferroce_wire::mad::{CmMad, CmMessage, MAD_LEN};
use ferroce_wire::{Body, Datagram, Flow, Packet, Psn, QKey, Qpn};

use super::Distant;
use super::forward::{Arrival, Kind};
use super::inner::Inner;
use super::mad_queue::{PACKET, Sealed, general_service};
use super::slot_of as slot_of_qp;

/// Looks at the socket before the leader does something else.
const LOOKS: usize = 4;

/// Datagrams that one look takes in.
const INBOX: usize = 8;

/// Hops of a message that is sent.
const HOPS: u8 = 64;

/// How messages between these two go.
#[must_use]
pub const fn route(local: IpAddr, remote: IpAddr) -> Route {
    Route { local, remote, source_port: PORT, traffic_class: 0, hop_limit: HOPS }
}

/// A packet from our queue pair 1 to that of a peer.
pub fn seal(local: IpAddr, remote: IpAddr, mad: &[u8; MAD_LEN]) -> io::Result<Sealed> {
    let families = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    let flow = Flow::new(SocketAddr::new(local, PORT), SocketAddr::new(remote, PORT));
    let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
    let body = Body::Ud(Datagram { deth, imm: None, payload: &mad[..] });
    let packet = Packet::new(Qpn::GSI, Psn::new(0), body);
    let mut bytes = [0; PACKET];
    let len = packet.len();
    let room = bytes.get_mut(..len).ok_or_else(families)?;
    packet.emit(&flow.ok_or_else(families)?, 0, room).map_err(|_| families())?;
    Ok(Sealed { bytes, len })
}

/// A communication id of a connection: the answers to it come to the process that owns the slot.
#[must_use]
pub const fn communication_id(slot: u8, number: u32) -> u32 {
    (slot as u32) << 24 | number & 0x00ff_ffff
}

/// The slot of a communication id.
const fn slot_of(communication_id: u32) -> u8 {
    (communication_id >> 24) as u8
}

impl Inner {
    pub(super) fn post_mad(&self, (local, remote): (IpAddr, IpAddr), packet: &Sealed) -> io::Result<()> {
        let socket = self.socket_of_nobody();
        let families = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
        let name = Name::new(socket.family(), remote, PORT).ok_or_else(families)?;
        let mut messages = Messages::new();
        let control: &mut Control = messages.control(0);
        control.describe(&route(local, remote), None, None);
        messages.outgoing(0, packet.bytes(), name);
        // SAFETY: entry 0 was set just now, and the bytes of the packet live until the end of this function.
        unsafe { messages.send(socket.raw(), 0..1) }.map(drop)
    }
}

/// What the leader needs to read slot 0.
pub(super) struct Desk {
    inbox: Inbox,
    receiving: Receiving,
    verifier: Verifier,
    distant: Distant,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::new(INBOX),
            receiving: Receiving::new(None),
            verifier: Verifier::new(),
            distant: Distant::default(),
        }
    }

    /// Reads what has come to slot 0, and hands it on.
    pub(super) fn look(&mut self, inner: &Inner) {
        for _ in 0..LOOKS {
            if self.receiving.receive(inner.socket_of_nobody(), &mut self.inbox).is_err() {
                return;
            }
            for (received, bytes) in self.inbox.iter() {
                if bytes.is_empty() {
                    inner.counts.strays.fetch_add(1, Ordering::Relaxed);
                }
                // Our own messages leave from our port.
                if inner.locals.is_foreign(received.source, &mut self.distant) {
                    inner.counts.foreign.fetch_add(received.packets(), Ordering::Relaxed);
                    continue;
                }
                for (place, packet) in bytes.chunks(received.segment.max(1)).enumerate() {
                    sort(&mut self.verifier, inner, received, place, packet);
                }
            }
            if !self.inbox.is_full() {
                return;
            }
        }
    }
}

/// Hands one packet to the process that it is for, if it arrived as it was sent.
fn sort(verifier: &mut Verifier, inner: &Inner, received: &Received, place: usize, bytes: &[u8]) {
    let ends = Ends { source: received.source, local: received.local };
    let packet = Packet::parse(bytes).ok();
    let checked =
        packet.and_then(|packet| Some((packet, verifier.check(&ends, bytes, place, clock::now())?)));
    let Some((packet, identification)) = checked else {
        inner.counts.strays.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let received = Received { len: bytes.len(), segment: bytes.len().max(1), ..*received };
    let arrival = Arrival { received, place: identification.into(), bytes };
    let Some(datagram) = general_service(&packet) else {
        // If it is for a slot, it was part of a run that began with one for none.
        if !inner.forward(Kind::Packets, slot_of_qp(packet.dest_qp), &arrival) {
            inner.counts.strays.fetch_add(1, Ordering::Relaxed);
        }
        return;
    };
    let taken = match CmMad::parse(datagram.payload).map(|mad| (addressee(inner, &mad.message), mad)) {
        Ok((Addressee::Slot(slot), _)) => inner.forward(Kind::Management, slot, &arrival),
        Ok((Addressee::Listeners, _)) => {
            let mut listeners = inner.claimants().into_iter();
            // To each of them, and not only until one has it.
            listeners.by_ref().filter(|slot| inner.forward(Kind::Management, *slot, &arrival)).count() > 0
        }
        Ok((Addressee::Nobody, mad)) => {
            if datagram.deth.source_qp == Qpn::GSI {
                answer_for_nobody(inner, &arrival.received, &mad);
            }
            false
        }
        Err(_) => false,
    };
    if !taken {
        inner.counts.mads_unclaimed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells a peer at once that what it asks for is not there, or was there in a process that is gone.
fn answer_for_nobody(inner: &Inner, received: &Received, mad: &CmMad) {
    if let Some(answer) = answer_unknown(mad) {
        let mut bytes = [0; MAD_LEN];
        answer.emit(&mut bytes);
        let between = (received.local, received.source.0);
        // As any datagram it may be lost; then the question comes again.
        let _ = seal(between.0, between.1, &bytes).and_then(|packet| inner.post_mad(between, &packet));
    }
}

/// The processes that a message is for.
enum Addressee {
    /// The process with this slot.
    Slot(u8),
    /// Every process that listens for something: the sender never learned a name.
    Listeners,
    /// A service that no process listens for, or a process that is gone.
    Nobody,
}

fn addressee(inner: &Inner, message: &CmMessage) -> Addressee {
    let name = match message {
        CmMessage::Req(req) => return listener(inner, req.service_id.0),
        CmMessage::SidrReq(req) => return listener(inner, req.service_id.0),
        CmMessage::Rej(rej) if rej.remote_comm_id.0 == 0 => return Addressee::Listeners,
        CmMessage::SidrRep(rep) => rep.request_id,
        CmMessage::Mra(mra) => mra.remote_comm_id.0,
        CmMessage::Rej(rej) => rej.remote_comm_id.0,
        CmMessage::Rep(rep) => rep.remote_comm_id.0,
        CmMessage::Rtu(rtu) => rtu.remote_comm_id.0,
        CmMessage::Dreq(dreq) => dreq.remote_comm_id.0,
        CmMessage::Drep(drep) => drep.remote_comm_id.0,
    };
    let slot = slot_of(name);
    if inner.has_owner(slot) { Addressee::Slot(slot) } else { Addressee::Nobody }
}

fn listener(inner: &Inner, service: u64) -> Addressee {
    inner.claimant(service).map_or(Addressee::Nobody, Addressee::Slot)
}

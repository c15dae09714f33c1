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
use super::late::Late;
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
    Route { local, remote, source_port: PORT, traffic_class: 0, hop_limit: HOPS, flow_label: 0 }
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
        let socket = self.common_socket();
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
    /// What other processes have no room for.
    pub(super) late: Late,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::new(INBOX),
            receiving: Receiving::new(None),
            verifier: Verifier::new(),
            distant: Distant::default(),
            late: Late::default(),
        }
    }

    /// Reads what has come to slot 0, and hands it on.
    pub(super) fn look(&mut self, inner: &Inner) {
        for _ in 0..LOOKS {
            if self.receiving.receive(inner.common_socket(), &mut self.inbox).is_err() {
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
                    sort((&mut self.verifier, &mut self.late), inner, received, place, packet);
                }
            }
            if !self.inbox.is_full() {
                return;
            }
        }
    }
}

/// Hands one packet to the process that it is for, if it arrived as it was sent.
fn sort(
    (verifier, late): (&mut Verifier, &mut Late),
    inner: &Inner,
    received: &Received,
    place: usize,
    bytes: &[u8],
) {
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
    let taken = match CmMad::parse(datagram.payload)
        .map(|mad| (addressee(inner, &mad.message, received.local), mad))
    {
        Ok((Addressee::Slot(slot), _)) => late.hand(inner, slot, &arrival),
        Ok((Addressee::Listeners, _)) => {
            let mut listeners = inner.claimants().into_iter();
            // To each of them, and not only until one has it.
            listeners.by_ref().filter(|slot| late.hand(inner, *slot, &arrival)).count() > 0
        }
        Ok((Addressee::Missing, mad)) => {
            if datagram.deth.source_qp == Qpn::GSI {
                answer_for_missing(inner, &arrival.received, &mad);
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
fn answer_for_missing(inner: &Inner, received: &Received, mad: &CmMad) {
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
    Missing,
}

fn addressee(inner: &Inner, message: &CmMessage, local: IpAddr) -> Addressee {
    let name = match message {
        CmMessage::Req(req) => return listener(inner, req.service_id.0, local),
        CmMessage::SidrReq(req) => return listener(inner, req.service_id.0, local),
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
    if inner.has_owner(slot) { Addressee::Slot(slot) } else { Addressee::Missing }
}

fn listener(inner: &Inner, service: u64, local: IpAddr) -> Addressee {
    inner.claimant(service, local).map_or(Addressee::Missing, Addressee::Slot)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::inner::Sink;
    use crate::mad_queue::{MadQueue, QUEUE};
    use crate::rows::Report;
    use ferroce_wire::PKey;
    use ferroce_wire::mad::Rej;

    /// A message as it comes from the socket.
    fn arrival(packet: &[u8]) -> Arrival<'_> {
        let received = Received {
            len: packet.len(),
            segment: packet.len(),
            source: ([127, 0, 0, 2].into(), PORT),
            local: [127, 0, 0, 1].into(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            stamp: 0,
        };
        Arrival { received, place: 0, bytes: packet }
    }

    fn sealed(number: u8) -> Sealed {
        seal([127, 0, 0, 2].into(), [127, 0, 0, 1].into(), &[number; MAD_LEN]).unwrap()
    }

    #[test]
    fn messages_wait_in_order_and_no_more_than_there_is_room_for() {
        let queue = MadQueue::new().unwrap();
        let is_readable = || queue.readable.wait(Some(Duration::ZERO)).unwrap();
        assert!(queue.pop().is_none() && !is_readable());
        let numbers = || (0..=u8::MAX).cycle().take(QUEUE);
        for number in numbers() {
            assert!(queue.push(&arrival(sealed(number).bytes())));
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 0);
        assert!(queue.push(&arrival(sealed(0).bytes())), "it is one, and there is no room");
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 1);
        for number in numbers() {
            assert!(is_readable());
            let mad = queue.pop().unwrap();
            assert_eq!((mad.bytes, mad.packet), ([number; MAD_LEN], sealed(number)));
            assert_eq!((mad.source_qp, mad.pkey), (Qpn::GSI, PKey::DEFAULT));
            assert_eq!((mad.remote, mad.local), ([127, 0, 0, 2].into(), [127, 0, 0, 1].into()));
        }
        assert!(!is_readable() && queue.pop().is_none());
    }

    /// A packet like one of queue pair 1, but for what is changed about it.
    fn packet_with(change: impl FnOnce(&mut Packet<&[u8]>), payload: &[u8]) -> Vec<u8> {
        let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
        let body = Body::Ud(Datagram { deth, imm: None, payload });
        let mut packet = Packet::new(Qpn::GSI, Psn::new(0), body);
        change(&mut packet);
        let flow = Flow::new(([127, 0, 0, 2], PORT).into(), ([127, 0, 0, 1], PORT).into()).unwrap();
        let mut bytes = vec![0; packet.len()];
        packet.emit(&flow, 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn only_what_is_for_queue_pair_1_is_taken_as_a_message() {
        let queue = MadQueue::new().unwrap();
        let payload = [1; MAD_LEN];
        let other_key = |packet: &mut Packet<&[u8]>| {
            if let Body::Ud(datagram) = &mut packet.body {
                datagram.deth.qkey = QKey(5);
            }
        };
        assert!(queue.push(&arrival(&packet_with(|_| {}, &payload))));
        for other in [
            packet_with(|packet| packet.dest_qp = Qpn::new(2), &payload),
            packet_with(other_key, &payload),
            packet_with(|_| {}, &payload[4..]),
            packet_with(|_| {}, &[1; MAD_LEN + 4]),
            vec![0; 40],
            Vec::new(),
        ] {
            assert!(!queue.push(&arrival(&other)), "{} bytes", other.len());
        }
        assert!(queue.pop().is_some() && queue.pop().is_none());
    }

    #[test]
    fn the_longest_packet_with_a_message_has_room() {
        let imm = |packet: &mut Packet<&[u8]>| {
            if let Body::Ud(datagram) = &mut packet.body {
                datagram.imm = Some(ferroce_wire::Imm(1));
            }
        };
        let longest = packet_with(imm, &[1; MAD_LEN]);
        assert_eq!(longest.len(), PACKET);
        assert_eq!(Sealed::copy_of(&longest).unwrap().bytes(), longest);
        assert_eq!(Sealed::copy_of(&longest[..20]).unwrap().bytes(), &longest[..20]);
        assert!(Sealed::copy_of(&vec![0; PACKET + 1]).is_none());
    }

    #[test]
    fn a_name_of_a_connection_leads_to_its_slot() {
        for slot in [0, 1, 77, u8::MAX] {
            for number in [0, 1, 0x00ff_ffff, u32::MAX] {
                let id = communication_id(slot, number);
                assert_eq!((slot_of(id), id & 0x00ff_ffff), (slot, number & 0x00ff_ffff));
            }
        }
    }

    /// The slot that a message goes to; `Err` with whether it goes to all that listen.
    fn goes_to(inner: &Inner, message: impl Into<CmMessage>) -> Result<u8, bool> {
        match addressee(inner, &message.into(), [127, 0, 0, 1].into()) {
            Addressee::Slot(slot) => Ok(slot),
            Addressee::Listeners => Err(true),
            Addressee::Missing => Err(false),
        }
    }

    #[test]
    fn each_message_goes_to_the_process_whose_name_for_the_connection_it_bears() {
        use ferroce_wire::mad::{CommId, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq};

        let ours = crate::tests::enter(38);
        let inner = ours.member().inner();
        let free = if ours.number() == 1 { 2 } else { 1 };
        for (slot, to) in [(ours.number(), Ok(ours.number())), (free, Err(false)), (0, Err(false))] {
            let name = communication_id(slot, 5);
            let remote_comm_id = CommId(name);
            let seen = [
                goes_to(inner, Rep { remote_comm_id, ..Rep::default() }),
                goes_to(inner, Rtu { remote_comm_id, ..Rtu::default() }),
                goes_to(inner, Rej { remote_comm_id, ..Rej::default() }),
                goes_to(inner, Mra { remote_comm_id, ..Mra::default() }),
                goes_to(inner, Dreq { remote_comm_id, ..Dreq::default() }),
                goes_to(inner, Drep { remote_comm_id, ..Drep::default() }),
                goes_to(inner, SidrRep { request_id: name, ..SidrRep::default() }),
            ];
            assert_eq!(seen, [to; 7], "slot {slot}");
        }
        assert_eq!(goes_to(inner, Rej::default()), Err(true), "its sender never learned a name");
        let (service_id, other) = (ServiceId(99), ServiceId(98));
        let claim = ours.claim(99).unwrap();
        assert_eq!(goes_to(inner, Req { service_id, ..Req::default() }), Ok(ours.number()));
        assert_eq!(goes_to(inner, SidrReq { service_id, ..SidrReq::default() }), Ok(ours.number()));
        assert_eq!(goes_to(inner, Req { service_id: other, ..Req::default() }), Err(false));
        assert_eq!(goes_to(inner, SidrReq { service_id: other, ..SidrReq::default() }), Err(false));
        drop(claim);
        assert_eq!(goes_to(inner, Req { service_id, ..Req::default() }), Err(false));
    }

    /// Takes what comes, and keeps nothing.
    struct Taken;

    impl Sink for Taken {
        fn arrived(&self, _: &Arrival<'_>) {}

        fn tell(&self, _: &mut Report, _: usize) -> bool {
            true
        }
    }

    #[test]
    fn a_packet_that_is_no_message_goes_to_the_slot_that_it_is_for_or_is_a_stray() {
        let ours = crate::tests::enter(44);
        let inner = ours.member().inner();
        let sink: Arc<dyn Sink> = Arc::new(Taken);
        ours.attach(Arc::downgrade(&sink));
        let free = if ours.number() == 1 { 2 } else { 1 };
        for (slot, strays) in [(ours.number(), 0), (free, 1)] {
            let dest_qp = Qpn::new(u32::from(slot) << 16 | 0x1234);
            let packet = packet_with(|packet| packet.dest_qp = dest_qp, &[1; MAD_LEN]);
            sort((&mut Verifier::new(), &mut Late::default()), inner, &arrival(&packet).received, 0, &packet);
            assert_eq!(ours.member().traffic().strays, strays, "slot {slot}");
        }
    }

    #[test]
    fn a_refusal_of_a_connection_that_no_process_listens_for_is_counted_as_unclaimed() {
        let ours = crate::tests::enter(46);
        let inner = ours.member().inner();
        let mut mad = [0; MAD_LEN];
        CmMad::new(7, Rej::default()).emit(&mut mad);
        let packet = packet_with(|_| {}, &mad);
        sort((&mut Verifier::new(), &mut Late::default()), inner, &arrival(&packet).received, 0, &packet);
        let traffic = ours.member().traffic();
        assert_eq!((traffic.mads_unclaimed, traffic.strays), (1, 0));
    }
}

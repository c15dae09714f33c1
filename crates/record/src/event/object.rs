//! Events of queue pairs, memory and connections.

use std::net::{IpAddr, Ipv6Addr};

use ferroce_transport::{Access, State};
use ferroce_wire::{Lkey, Qpn, Rkey, Service};

use super::work::numbered;
use super::{Head, Kind};
use crate::packing::{Body, Packer, Unpacker};

/// A queue pair is in another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The queue pair.
    pub qpn: Qpn,
    /// From this.
    pub from: State,
    /// To this.
    pub to: State,
    /// Whether the program asked for it; else something went wrong.
    pub is_asked: bool,
}

fn state(code: u8) -> Option<State> {
    State::ALL.get(usize::from(code)).copied()
}

impl Kind for StateChange {
    const KIND: u8 = 32;

    fn head(&self) -> Head {
        Head { flags: u16::from(self.is_asked), number: self.qpn.get() }
    }

    fn body(&self) -> Body {
        Packer::default().u8(self.from as u8).u8(self.to as u8).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (before, after) = (state(from.u8())?, state(from.u8())?);
        Some(Self { qpn: head.qpn()?, from: before, to: after, is_asked: head.flags & 1 == 1 })
    }
}

numbered! {
    /// What happened to an object.
    Step {
        /// It was made.
        Made = 1 "made",
        /// It is gone.
        Gone = 2 "gone",
        /// It was there when the record began.
        Earlier = 3 "there before the record began",
    }
}

/// A queue pair was made, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// The queue pair.
    pub qpn: Qpn,
    /// What happened.
    pub step: Step,
    /// Its kind.
    pub service: Service,
    /// The state that it is in.
    pub state: State,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub receive_cq: u32,
    /// The shared receive queue that it takes from, if so.
    pub shared: Option<u32>,
    /// Sends that its queue holds.
    pub sends: u32,
    /// Receives that its queue holds.
    pub receives: u32,
}

/// The kind of queue pair with this number.
fn service(code: u8) -> Option<Service> {
    [Service::Rc, Service::Uc, Service::Ud].get(usize::from(code)).copied()
}

const fn service_code(service: Service) -> u8 {
    match service {
        Service::Rc => 0,
        Service::Uc => 1,
        _ => 2,
    }
}

impl Kind for QueuePair {
    const KIND: u8 = 33;

    fn head(&self) -> Head {
        Head { flags: u16::from(self.shared.is_some()), number: self.qpn.get() }
    }

    fn body(&self) -> Body {
        let body = Packer::default().u8(self.step.code()).u8(service_code(self.service)).u8(self.state as u8);
        let body = body.u32(self.shared.unwrap_or(0)).u32(self.send_cq).u32(self.receive_cq);
        body.u32(self.sends).u32(self.receives).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (step, service) = (Step::from_code(from.u8())?, service(from.u8())?);
        let (state, shared) = (state(from.u8())?, from.u32());
        Some(Self {
            qpn: head.qpn()?,
            step,
            service,
            state,
            shared: (head.flags & 1 == 1).then_some(shared),
            send_cq: from.u32(),
            receive_cq: from.u32(),
            sends: from.u32(),
            receives: from.u32(),
        })
    }
}

/// A queue pair knows its peer and the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The queue pair.
    pub qpn: Qpn,
    /// The queue pair of the peer.
    pub peer: Qpn,
    /// Our address.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
    /// The UDP port that packets leave from, or 0.
    pub port: u16,
    /// Bytes of payload in a packet at most.
    pub mtu: u16,
    /// Whether the peer is in this process, so that no packet is made for most work.
    pub is_local: bool,
}

/// An address as 16 bytes, in two words.
fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    [(bits >> 64) as u64, bits as u64]
}

fn address(from: &mut Unpacker<'_>) -> IpAddr {
    let (high, low) = (from.u64(), from.u64());
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
}

impl Kind for Way {
    const KIND: u8 = 34;

    fn head(&self) -> Head {
        Head { flags: u16::from(self.is_local), number: self.qpn.get() }
    }

    fn body(&self) -> Body {
        let ([a, b], [c, d]) = (address_words(self.local), address_words(self.remote));
        let body = Packer::default().u32(self.peer.get()).u16(self.port).u16(self.mtu);
        body.u64(a).u64(b).u64(c).u64(d).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (peer, port, mtu) = (super::qpn(from.u32())?, from.u16(), from.u16());
        let (local, remote) = (address(&mut from), address(&mut from));
        Some(Self { qpn: head.qpn()?, peer, local, remote, port, mtu, is_local: head.flags & 1 == 1 })
    }
}

/// The addresses of the datagram before: those of a connection are in [`Way`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The queue pair of the datagram.
    pub qpn: Qpn,
    /// Our address.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
    /// The UDP port that it left from.
    pub port: u16,
}

impl Kind for Ends {
    const KIND: u8 = 18;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    fn body(&self) -> Body {
        let ([a, b], [c, d]) = (address_words(self.local), address_words(self.remote));
        Packer::default().u16(self.port).u64(a).u64(b).u64(c).u64(d).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let port = from.u16();
        let (local, remote) = (address(&mut from), address(&mut from));
        Some(Self { qpn: head.qpn()?, local, remote, port })
    }
}

numbered! {
    /// What memory is.
    RegionKind {
        /// A region.
        Region = 1 "region",
        /// A memory window, which opens a part of a region.
        Window = 2 "window",
    }
}

/// Memory was registered, or is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What happened.
    pub step: Step,
    /// What it is.
    pub kind: RegionKind,
    /// The key for our own work.
    pub lkey: Lkey,
    /// The key for peers.
    pub rkey: Rkey,
    /// The first byte, as work names it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What may be done with them.
    pub access: Access,
    /// The protection domain.
    pub domain: u32,
}

impl Kind for Region {
    const KIND: u8 = 35;

    fn head(&self) -> Head {
        Head { flags: 0, number: self.domain }
    }

    fn body(&self) -> Body {
        let body = Packer::default().u8(self.step.code()).u8(self.kind.code()).u32(self.access.bits());
        body.u32(self.lkey.0).u32(self.rkey.0).u64(self.address).u64(self.length).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (step, kind) = (Step::from_code(from.u8())?, RegionKind::from_code(from.u8())?);
        Some(Self {
            step,
            kind,
            access: Access::from_bits(from.u32())?,
            lkey: Lkey(from.u32()),
            rkey: Rkey(from.u32()),
            address: from.u64(),
            length: from.u64(),
            domain: head.number,
        })
    }
}

numbered! {
    /// What happened to a connection.
    ConnectionStep {
        /// A request left.
        Asked = 1 "a request left",
        /// A request came.
        Wanted = 2 "a request came",
        /// The peer accepted, or we did.
        Accepted = 3 "accepted",
        /// Both ends know that it stands.
        Established = 4 "established",
        /// One of the ends refused.
        Refused = 5 "refused",
        /// No answer came.
        Unanswered = 6 "no answer came",
        /// The peer ended it.
        Ended = 7 "ended by the peer",
        /// We ended it.
        Left = 8 "ended by this end",
    }
}

/// A connection came, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What happened.
    pub step: ConnectionStep,
    /// Its number at this end.
    pub number: u32,
    /// Its queue pair, or 0 if that is not known yet.
    pub qpn: u32,
    /// The service that was asked for.
    pub service: u64,
    /// The peer.
    pub remote: IpAddr,
    /// Why it was refused, as a number of the message; else 0.
    pub reason: u16,
}

impl Kind for Connection {
    const KIND: u8 = 36;

    fn head(&self) -> Head {
        Head { flags: self.reason, number: self.qpn }
    }

    fn body(&self) -> Body {
        let [a, b] = address_words(self.remote);
        let body = Packer::default().u8(self.step.code()).u32(self.number).u64(self.service);
        body.u64(a).u64(b).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (step, number, service) = (ConnectionStep::from_code(from.u8())?, from.u32(), from.u64());
        let remote = address(&mut from);
        Some(Self { step, number, qpn: head.number, service, remote, reason: head.flags })
    }
}

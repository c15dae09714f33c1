//! Fabrics: how packets leave the device and reach it.
//!
//! The engine fills a [`Outbox`] with sealed packets and hands it to a [`Fabric`]; a fabric fills
//! an [`Inbox`] with datagrams as they came. Middleware ([`faults`], [`capture`]) wraps any fabric
//! and is one itself.
#![allow(unsafe_code, reason = "a home of unsafe code: the system calls of sockets")]

pub mod capture;
pub mod faults;
mod inbox;
mod outbox;
mod path;
mod port_refusal;
mod tiding;
pub mod udp;
mod verify;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ferroce_wire::Flow;

pub use inbox::{Inbox, Received};
pub use outbox::{Outbox, Run, Toward};
pub use path::{NotShared, Path, PathChoice, PathPolicy, PathReason, UnknownPolicy};
pub use port_refusal::PortRefusal;
pub use tiding::{PathError, PathErrorKind, Tiding};
pub use verify::{Ends, Verifier};

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;

/// The way from one of our addresses to a peer: made once per connection or address handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address, of the same family.
    pub remote: IpAddr,
    /// The UDP source port: it decides between equal ways through a network. The fabric has
    /// confirmed it ([`Fabric::source_port`]): packets are sealed for it.
    pub source_port: u16,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that a packet may take.
    pub hop_limit: u8,
    /// The flow label in the IPv6 header, 20 bits; 0 over IPv4.
    pub flow_label: u32,
}

impl Route {
    /// What the ICRC of its packets covers of it; `None` if one end is IPv4 and the other IPv6.
    #[must_use]
    pub fn flow(&self) -> Option<Flow> {
        Flow::new(SocketAddr::new(self.local, self.source_port), SocketAddr::new(self.remote, PORT))
    }
}

/// What became of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets that the network took.
    pub packets: u64,
    /// Packets that had no room on this machine: lost, like any other loss.
    pub no_room: u64,
    /// Packets longer than the interface carries.
    pub too_long: u64,
    /// Packets that could not be sent for another reason, such as no route.
    pub unreachable: u64,
    /// System calls made.
    pub calls: u64,
}

impl Sent {
    /// Adds what became of others.
    const fn add(&mut self, other: Self) {
        let Self { packets, no_room, too_long, unreachable, calls } = other;
        self.packets += packets;
        self.no_room += no_room;
        self.too_long += too_long;
        self.unreachable += unreachable;
        self.calls += calls;
    }
}

/// What was done to a packet on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// It was thrown away.
    pub lost: bool,
    /// It was sent twice.
    pub twice: bool,
    /// It was held back while others went on.
    pub held: bool,
    /// A bit of it was flipped.
    pub damaged: bool,
}

/// A network that carries RoCEv2 packets.
pub trait Fabric: Send {
    /// Whether several packets may leave in one run, cut apart by the network stack.
    fn coalesces(&self) -> bool;

    /// Packets that a run may have, and bytes.
    fn run_limits(&self) -> (usize, usize);

    /// The source port that packets will really leave from if this one is wanted. The answer stays
    /// true until the next call of [`send`](Self::send) has returned.
    fn source_port(&mut self, wanted: u16, local: IpAddr) -> u16;

    /// Whether packets can leave from this source port and no other, until the next call of
    /// [`send`](Self::send) has returned.
    ///
    /// # Errors
    /// Why they cannot.
    fn require_port(&mut self, wanted: u16, local: IpAddr) -> Result<(), PortRefusal> {
        let port = self.source_port(wanted, local);
        if port == wanted { Ok(()) } else { Err(PortRefusal::Fixed { port }) }
    }

    /// Sends everything in the outbox and empties it. What cannot be sent is lost and counted.
    fn send(&mut self, outbox: &mut Outbox) -> Sent;

    /// Sends so many packets that are one run by themselves, without an outbox: the first of them has `segment` bytes. Whether the
    /// network took them, in one call; `None` if this is not done so. Unless it took them, nothing was sent, and
    /// [`send`](Self::send) has to find out why.
    fn send_alone(
        &mut self,
        _route: &Route,
        _bytes: &[u8],
        _segment: usize,
        _packets: usize,
    ) -> Option<bool> {
        None
    }

    /// Replaces what is in the inbox by what has arrived, as much as fits, without waiting.
    /// An inbox that was not filled to the brim means that nothing more is there.
    ///
    /// # Errors
    /// The socket is beyond use.
    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()>;

    /// As [`receive`](Self::receive), for a caller that looks again and again: it may stop at the first
    /// datagram, and then says that more may be waiting.
    ///
    /// # Errors
    /// As above.
    fn receive_next(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.receive(inbox)
    }

    /// From now on datagrams come with traffic class, hop limit and flow label. Before, they may be 0: to be
    /// told costs time with every one of them.
    fn show_marks(&mut self);

    /// From now on datagrams come with the time of their arrival, the times at which stamped runs leave are told, and
    /// so is what routers and hosts send back.
    ///
    /// # Errors
    /// The network tells no such things.
    fn follow(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Tells what became of packets that have left, if they are [followed](Self::follow).
    fn tidings(&mut self, _tell: &mut dyn FnMut(Tiding<'_>)) {}

    /// Keeps in mind what is done to packets on purpose, until it is [told](Self::harm); or no longer.
    fn watch_harm(&mut self, _on: bool) {}

    /// Tells what was done to packets on purpose, with the first bytes of each, and how long it is.
    fn harm(&mut self, _tell: &mut dyn FnMut(Harm, &[u8], usize)) {}

    /// Datagrams that arrived and could not be taken in: cut short, or for no address of ours.
    fn dropped(&self) -> u64 {
        0
    }

    /// Datagrams that were lost here because the receive buffer had no room for them, counted by the kernel. A run
    /// that arrives in one piece is one datagram.
    fn overflowed(&self) -> u64 {
        0
    }

    /// Whether packets are kept back that leave only with later calls.
    fn holds_packets(&self) -> bool {
        false
    }

    /// A source port that packets can always leave from, without being asked for it first.
    fn own_port(&self) -> Option<u16> {
        None
    }

    /// Whether every packet leaves with the call that is given it, and nothing is done to it or written down of it.
    fn is_plain(&self) -> bool {
        false
    }

    /// What becomes readable when something arrives.
    fn descriptors(&self) -> &[RawFd];
}

impl<F: Fabric + ?Sized> Fabric for Box<F> {
    fn coalesces(&self) -> bool {
        (**self).coalesces()
    }

    fn run_limits(&self) -> (usize, usize) {
        (**self).run_limits()
    }

    fn source_port(&mut self, wanted: u16, local: IpAddr) -> u16 {
        (**self).source_port(wanted, local)
    }

    fn require_port(&mut self, wanted: u16, local: IpAddr) -> Result<(), PortRefusal> {
        (**self).require_port(wanted, local)
    }

    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        (**self).send(outbox)
    }

    fn send_alone(&mut self, route: &Route, bytes: &[u8], segment: usize, packets: usize) -> Option<bool> {
        (**self).send_alone(route, bytes, segment, packets)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        (**self).receive(inbox)
    }

    fn receive_next(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        (**self).receive_next(inbox)
    }

    fn show_marks(&mut self) {
        (**self).show_marks();
    }

    fn follow(&mut self) -> io::Result<()> {
        (**self).follow()
    }

    fn tidings(&mut self, tell: &mut dyn FnMut(Tiding<'_>)) {
        (**self).tidings(tell);
    }

    fn watch_harm(&mut self, on: bool) {
        (**self).watch_harm(on);
    }

    fn harm(&mut self, tell: &mut dyn FnMut(Harm, &[u8], usize)) {
        (**self).harm(tell);
    }

    fn dropped(&self) -> u64 {
        (**self).dropped()
    }

    fn overflowed(&self) -> u64 {
        (**self).overflowed()
    }

    fn holds_packets(&self) -> bool {
        (**self).holds_packets()
    }

    fn own_port(&self) -> Option<u16> {
        (**self).own_port()
    }

    fn is_plain(&self) -> bool {
        (**self).is_plain()
    }

    fn descriptors(&self) -> &[RawFd] {
        (**self).descriptors()
    }
}

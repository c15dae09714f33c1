//! Datagram sockets.
//!
//! A socket has one UDP socket of the kernel, which has the port, and a queue pair for each device that its peers are behind.
//! The first message to a peer goes over the UDP socket and tells of the sender's queue pair; the peer answers with its
//! own, and from then on messages go from queue pair to queue pair. What is known of a peer is asked for again after a
//! second of silence, and may be forgotten at any time. One thread of the process reads all UDP sockets ([`service`]);
//! anyone may send to them, and gets one answer at most, which is no longer than the question.

mod headers;
mod peers;
mod port;
mod service;
mod transfer;
mod udp;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_device::{AddressHandle, AddressVector, Channel, now};
use ferroce_wire::Gid;
use libc::{POLLHUP, POLLIN, POLLOUT, POLLRDHUP, SHUT_RD, SHUT_RDWR, SHUT_WR};

use self::headers::{Envelope, any, key, longest};
use self::peers::{Peer, Peers};
use self::port::{Arrival, Port};
use self::udp::Udp;
use super::buffer::Parts;
use super::options::{Options, Sizes};
use super::socket::{Phase, Socket};
use super::table;
use crate::cm::address::scope_of;
use crate::cm::devices::{self, CmDevice};
use crate::cm::resolve::{device_of, home, is_any, routed};
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// Messages of the UDP socket that wait to be read: further ones are lost.
const MOST_COPIES: usize = 256;

/// What a datagram socket has.
pub(super) struct Datagrams {
    udp: Udp,
    /// Queue pairs, one for each device.
    ports: Vec<Port>,
    /// Where all of them tell that something has completed.
    channel: Arc<Channel>,
    peers: Peers,
    connected: Option<SocketAddr>,
    messages: VecDeque<Message>,
    copies: usize,
    /// Whether the program may still receive, and send.
    reads: bool,
    writes: bool,
}

/// A message that waits to be read.
enum Message {
    /// It lies where a port has received it.
    Placed { port: usize, arrival: Arrival },
    /// It came over the UDP socket.
    Copied { from: SocketAddr, bytes: Box<[u8]> },
}

/// A message that was read.
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) copied: usize,
    /// As long as it was sent.
    pub(super) whole: usize,
}

/// Makes a datagram socket.
pub(super) fn make(domain: c_int, options: Options) -> Answer<Arc<Socket>> {
    let channel = Channel::new().map_err(|error| Refused::new(libc::EMFILE, error))?;
    let datagrams = Datagrams {
        udp: Udp::new(domain)?,
        ports: Vec::new(),
        channel,
        peers: Peers::default(),
        connected: None,
        messages: VecDeque::new(),
        copies: 0,
        reads: true,
        writes: true,
    };
    let heard = datagrams.udp.descriptor();
    let socket = Socket::new(domain, Phase::New, None, options)?;
    lock(&socket.inner).datagrams = Some(Box::new(datagrams));
    table::show(&socket);
    service::hear(heard, socket.descriptor()).inspect_err(|_| {
        table::hide(&socket);
    })?;
    Ok(socket)
}

impl Datagrams {
    /// Gives the socket its own address.
    pub(super) fn bind(&mut self, address: SocketAddr, options: &Options) -> Answer<()> {
        if self.udp.bound.is_some() {
            return Err(Refused::invalid("the socket has an address already"));
        }
        self.check_family(address)?;
        let mut claimed = address;
        if is_any(address.ip()) {
            claimed.set_ip(any(self.udp.is_v4));
        } else {
            self.port_of(device_of(address)?, options.sizes)?;
        }
        self.udp.bind(claimed, options.reuse)
    }

    fn check_family(&self, address: SocketAddr) -> Answer<()> {
        if address.is_ipv4() == self.udp.is_v4 {
            return Ok(());
        }
        Err(Refused::new(libc::EAFNOSUPPORT, format_args!("{address} is of another family than the socket")))
    }

    /// Which port is on a device. It is made if there is none.
    fn port_of(&mut self, device: &'static CmDevice, sizes: Sizes) -> Answer<usize> {
        if let Some(known) = self.ports.iter().position(|port| std::ptr::eq(port.device, device)) {
            return Ok(known);
        }
        self.ports.push(Port::new(device, &self.channel, sizes)?);
        Ok(self.ports.len() - 1)
    }

    /// The address of ours that it was bound to, if it is a certain one.
    fn own(&self) -> Option<IpAddr> {
        self.udp.bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified())
    }

    /// The device that leads to a peer, and the address that packets come from.
    fn route(&self, to: SocketAddr) -> Answer<(IpAddr, &'static CmDevice)> {
        let unreachable = || Refused::new(libc::ENETUNREACH, format_args!("no device leads to {to}"));
        let from = match self.own() {
            Some(own) => own,
            None => routed(to)?,
        };
        let device = devices::with_address(from, scope_of(to)).map_err(|_| unreachable())?;
        Ok((device.source(from).ok_or_else(unreachable)?, device))
    }

    /// The peer that an address means, as it is known by.
    fn named(&mut self, to: SocketAddr) -> Answer<SocketAddr> {
        self.check_family(to)?;
        if to.port() == 0 {
            return Err(Refused::invalid(format_args!("{to} has no port")));
        }
        let to = key(to);
        Ok(if self.peers.get(&to).is_some() { to } else { key(home(self.udp.bound, to)) })
    }

    /// Finds the way to a peer, if it is not known.
    fn find(&mut self, to: SocketAddr, sizes: Sizes) -> Answer<()> {
        if self.peers.get(&to).is_none() {
            let (local, device) = self.route(to)?;
            let port = self.port_of(device, sizes)?;
            self.peers.insert(to, Peer::new(local, port));
        }
        Ok(())
    }

    /// From now on there is one peer.
    pub(super) fn connect(&mut self, to: SocketAddr, options: &Options) -> Answer<()> {
        let to = self.named(to)?;
        if self.udp.bound.is_none() {
            let (local, _) = self.route(to)?;
            let mut own = SocketAddr::new(local, 0);
            if let (SocketAddr::V6(own), SocketAddr::V6(to)) = (&mut own, to) {
                own.set_scope_id(to.scope_id());
            }
            self.udp.bind(own, options.reuse)?;
        }
        self.find(to, options.sizes)?;
        self.connected = Some(to);
        Ok(())
    }

    /// Sends a message; its length, or nothing if there is no room yet.
    fn send(
        &mut self,
        to: Option<SocketAddr>,
        parts: &mut Parts<'_>,
        options: &Options,
    ) -> Answer<Option<usize>> {
        if !self.writes {
            return Err(Refused::new(libc::EPIPE, "the socket is shut"));
        }
        let to = match to {
            Some(to) => self.named(to)?,
            None => self.connected.ok_or_else(|| Refused::new(libc::EDESTADDRREQ, "no peer is named"))?,
        };
        let len = parts.left();
        if len > longest(self.udp.is_v4) {
            return Err(Refused::new(libc::EMSGSIZE, format_args!("{len} bytes are too long for a message")));
        }
        if self.udp.bound.is_none() {
            self.udp.bind(SocketAddr::new(any(self.udp.is_v4), 0), options.reuse)?;
        }
        self.find(to, options.sizes)?;
        let own = self.udp.bound.map_or(0, |bound| bound.port());
        let Some(peer) = self.peers.get(&to) else { return Ok(None) };
        let Some(port) = self.ports.get_mut(peer.port) else { return Ok(None) };
        if !port.has_room() {
            return Ok(None);
        }
        let mut bytes = [0; longest(true)];
        // SAFETY: there is room for the longest message, and it is no longer.
        unsafe { parts.take(bytes.as_mut_ptr(), len) };
        let message = &bytes[..len];
        if let Some(qpn) = peer.fresh(now())
            && len <= port.longest(self.udp.is_v4)
        {
            if peer.handle.is_none() {
                peer.handle = handle(port.device, peer.local, to.ip(), options.tos);
            }
            let from = SocketAddr::new(peer.local, own);
            if let Some(handle) = &peer.handle
                && port.send(from, handle, qpn, message)
            {
                return Ok(Some(len));
            }
        }
        let envelope = Envelope { is_answer: false, qpn: port.qpn(), to: to.ip() };
        let (header, used) = envelope.emit();
        self.udp.send(peer.local, to, [&header[..used], message])?;
        Ok(Some(len))
    }

    /// Reads the UDP socket; whether there was anything. What comes is from anyone.
    fn hear(&mut self, sizes: Sizes) -> bool {
        let mut any = false;
        for _ in 0..service::BATCH {
            // One more than the longest, to see what is too long.
            let mut bytes = [0; headers::ENVELOPE + longest(true) + 1];
            let Some((len, from)) = self.udp.receive(&mut bytes) else { break };
            self.comes(from, &bytes[..len], sizes);
            any = true;
        }
        any
    }

    fn comes(&mut self, from: SocketAddr, bytes: &[u8], sizes: Sizes) {
        let Some((envelope, message)) = Envelope::parse(bytes) else { return };
        let is_v4 = from.is_ipv4();
        let is_stranger = self.connected.is_some_and(|peer| peer != from);
        if is_stranger || envelope.to.is_ipv4() != is_v4 || message.len() > longest(is_v4) {
            return;
        }
        if envelope.is_answer {
            // Only a peer that was asked may answer.
            if let Some(peer) = self.peers.get(&from) {
                peer.tells(envelope.qpn, now());
            }
            return;
        }
        if self.peers.get(&from).is_none() {
            let Ok((local, port)) = self.called_as(from, envelope.to, sizes) else { return };
            self.peers.insert(from, Peer::new(local, port));
        }
        let Some(peer) = self.peers.get(&from) else { return };
        peer.tells(envelope.qpn, now());
        let local = peer.local;
        let Some(port) = self.ports.get(peer.port) else { return };
        if self.reads && self.copies < MOST_COPIES {
            self.copies += 1;
            self.messages.push_back(Message::Copied { from, bytes: message.into() });
        }
        let (answer, used) = Envelope { is_answer: true, qpn: port.qpn(), to: from.ip() }.emit();
        // If it is lost, the peer's next message asks again.
        let _ = self.udp.send(local, from, [&answer[..used], &[]]);
    }

    /// The address of ours that a peer has sent to, by what it says, and the port of its device.
    fn called_as(&mut self, from: SocketAddr, said: IpAddr, sizes: Sizes) -> Answer<(IpAddr, usize)> {
        let local = self.own().unwrap_or(said);
        if let Some(port) = self.ports.iter().position(|port| port.device.has(local)) {
            return Ok((local, port));
        }
        let device = devices::with_address(local, scope_of(from)).ok().filter(|device| device.has(local));
        let (local, device) = match device {
            Some(device) => (local, device),
            // Some peers of IPv6 say something else.
            None => self.route(from)?,
        };
        Ok((local, self.port_of(device, sizes)?))
    }

    /// Sees what has completed; whether anything had.
    pub(super) fn progress(&mut self) -> bool {
        let Self { ports, peers, messages, connected, reads, .. } = self;
        let mut any = false;
        for (index, port) in ports.iter_mut().enumerate() {
            any |= port.progress(|arrival| {
                if !*reads || connected.is_some_and(|peer| peer != arrival.from) {
                    return false;
                }
                if let Some(peer) = peers.get(&arrival.from) {
                    peer.speaks(arrival.qpn, now());
                }
                messages.push_back(Message::Placed { port: index, arrival });
                true
            });
        }
        any
    }

    /// Copies the oldest message to the program, as far as there is room. One that is only looked at stays.
    fn receive(&mut self, parts: &mut Parts<'_>, peek: bool) -> Option<Received> {
        let received = match self.messages.front()? {
            Message::Placed { port, arrival } => {
                let copied = self.ports.get(*port)?.copy(arrival, parts);
                Received { from: arrival.from, copied, whole: arrival.len }
            }
            Message::Copied { from, bytes } => {
                let copied = parts.left().min(bytes.len());
                // SAFETY: the message is at least so long.
                unsafe { parts.fill(bytes.as_ptr(), copied) };
                Received { from: *from, copied, whole: bytes.len() }
            }
        };
        if !peek {
            match self.messages.pop_front() {
                Some(Message::Placed { port, arrival }) => self.ports.get(port)?.give_back(arrival.place),
                _ => self.copies -= 1,
            }
        }
        Some(received)
    }

    /// The descriptor that is readable when something has completed since it was armed.
    pub(super) fn descriptor(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    pub(super) fn arm(&self) {
        while self.channel.pop().is_some() {}
        for port in &self.ports {
            port.arm();
        }
    }

    pub(super) fn readiness(&self) -> i16 {
        let mut events = 0;
        if !self.messages.is_empty() || !self.reads {
            events |= POLLIN;
        }
        if !self.writes || self.ports.iter().all(Port::has_room) {
            events |= POLLOUT;
        }
        if !self.reads {
            events |= POLLRDHUP;
        }
        if !self.reads && !self.writes {
            events |= POLLHUP;
        }
        events
    }

    /// Its own address, or that of its peer.
    pub(super) fn name(&self, peer: bool) -> Option<SocketAddr> {
        if !peer {
            return self.udp.bound;
        }
        self.connected
    }

    pub(super) fn shut(&mut self, how: c_int) -> Answer<()> {
        let (reads, writes) = match how {
            SHUT_RD => (false, self.writes),
            SHUT_WR => (self.reads, false),
            SHUT_RDWR => (false, false),
            _ => return Err(Refused::invalid(format_args!("shutdown {how}"))),
        };
        if self.connected.is_none() {
            return Err(Refused::new(libc::ENOTCONN, "the socket is not connected"));
        }
        (self.reads, self.writes) = (reads, writes);
        Ok(())
    }
}

/// A handle for an address, if it leads anywhere.
fn handle(device: &CmDevice, local: IpAddr, to: IpAddr, traffic_class: u8) -> Option<Arc<AddressHandle>> {
    let nic = &device.context.nic;
    let index = nic.gid_index(local)?;
    let vector = AddressVector { traffic_class, ..AddressVector::new(Gid::from(to), index) };
    AddressHandle::new(nic, vector).ok()
}

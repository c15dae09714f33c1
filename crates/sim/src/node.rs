//! One simulated host: a device, its queue pairs, and the packets that go in and out as bytes.

use std::net::Ipv4Addr;

use ferroce_transport::{
    Access, Accessor, Acks, Attributes, Destination, Envelope, ModifyError, PayloadSource, PostError,
    QpConfig, QueuePair, ReceiveRequest, SendRequest, Time, Transmit, Window,
};
use ferroce_wire::header::DatagramPrefix;
use ferroce_wire::net::Ipv4;
use ferroce_wire::{DataPacket, Flow, Packet, ParseError, Qpn};

use crate::host::Device;
use crate::link::Fault;
use crate::rings::WINDOW;

const UDP_HEADER: usize = 8;

/// A host with queue pairs. Hosts know each other by index.
#[derive(Debug)]
pub struct Node {
    /// Which host this is.
    pub index: usize,
    /// Memory and log.
    pub device: Device,
    slots: Vec<Slot>,
    /// One window per receiving host: the queue pairs towards it share its socket buffer.
    windows: Vec<Window>,
    /// For datagrams, which no window holds back.
    open_window: Window,
    /// Calls for a packet so far.
    calls: u64,
    arrivals: u64,
}

#[derive(Debug)]
struct Slot {
    pair: QueuePair,
    peer: Option<usize>,
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sending host.
    pub from: usize,
    /// Index of the sending queue pair there.
    pub slot: usize,
    /// Receiving host.
    pub to: usize,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
    /// What the network did to its bytes.
    pub fault: Option<Fault>,
}

/// What became of a datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The ICRC or the form of the packet is wrong.
    Refused(ParseError),
    /// No queue pair has this number.
    NoQueuePair(Qpn),
    /// The queue pair with this index took it.
    By(usize),
}

impl Node {
    /// Host `index` of `hosts`.
    #[must_use]
    pub fn new(index: usize, hosts: usize, device: Device) -> Self {
        let windows = (0..hosts).map(|_| Window::new()).collect();
        Self { index, device, slots: Vec::new(), windows, open_window: Window::new(), calls: 0, arrivals: 0 }
    }

    /// The same host, but what it sends to others goes through rings in memory.
    #[must_use]
    pub(crate) fn through_memory(mut self) -> Self {
        self.windows.fill(Window::ring(WINDOW));
        self
    }

    /// The ring to a host is lost: what is sent there from now on shares the buffer of a socket.
    pub(crate) fn lose_ring(&mut self, to: usize) {
        let mut socket = Window::new();
        for slot in self.slots.iter_mut().filter(|slot| slot.peer == Some(to)) {
            slot.pair.move_to_window(&mut self.windows[to], &mut socket);
        }
        assert_eq!(self.windows[to].in_flight(), 0, "all that was under way has moved");
        self.windows[to] = socket;
    }

    /// Adds a queue pair whose peer lives on host `peer` (`None`: datagrams to anywhere), and returns its index.
    pub fn add(&mut self, config: QpConfig, peer: Option<usize>) -> usize {
        self.slots.push(Slot { pair: QueuePair::new(config), peer });
        self.slots.len() - 1
    }

    /// A queue pair of this host.
    #[must_use]
    pub fn queue_pair(&self, index: usize) -> &QueuePair {
        &self.slots[index].pair
    }

    /// The host that the peer of a queue pair lives on; none if it sends datagrams.
    #[must_use]
    pub fn peer(&self, index: usize) -> Option<usize> {
        self.slots[index].peer
    }

    /// Has one of its queue pairs ask whether its peer is there; false if it cannot.
    pub fn ask(&mut self, index: usize) -> bool {
        self.slots[index].pair.ask()
    }

    /// How many queue pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no queue pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The window towards a host.
    #[must_use]
    pub fn window(&self, host: usize) -> &Window {
        &self.windows[host]
    }

    /// Changes a queue pair.
    ///
    /// # Errors
    /// What [`QueuePair::modify`] says.
    pub fn modify(&mut self, index: usize, attributes: &Attributes) -> Result<(), ModifyError> {
        let (pair, window, device) = self.parts(index);
        pair.modify(attributes, window, device)
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// What [`QueuePair::post_send`] says.
    pub fn post_send(&mut self, index: usize, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.slots[index].pair.post_send(request, &mut self.device)
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// What [`QueuePair::post_receive`] says.
    pub fn post_receive(&mut self, index: usize, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.slots[index].pair.post_receive(request, &mut self.device)
    }

    /// Lets a queue pair look at the clock.
    pub fn handle_timeout(&mut self, now: Time, index: usize) {
        let (pair, window, device) = self.parts(index);
        pair.handle_timeout(now, window, device);
    }

    /// The next packet that a queue pair wants sent.
    ///
    /// # Panics
    /// The machine named payload that is not there: it must have checked in the same call.
    pub fn transmit(&mut self, now: Time, index: usize, acks: Acks) -> Option<Datagram> {
        let Self { device, slots, windows, open_window, index: from, calls, .. } = self;
        let Slot { pair, peer } = &mut slots[index];
        let window = peer.map_or(open_window, |peer| &mut windows[peer]);
        // Both ways to send data are used in turn.
        *calls = calls.wrapping_add(1);
        if let Some(to) = *peer
            && calls.is_multiple_of(2)
        {
            let mut bytes = None;
            let by = Accessor { domain: pair.domain(), qpn: pair.qpn() };
            let sink = |device: &mut Device, data: &DataPacket, payload: &PayloadSource<'_>| {
                let (packet, dest) = (data.to_packet(), Destination::Peer);
                let transmit = Transmit { packet, payload: *payload, dest };
                bytes = may_be_read(&transmit.payload, by, device)
                    .then(|| bytes_of(&transmit, device, &flow(*from, to)));
                bytes.is_some()
            };
            pair.poll_data(now, 1, Some(acks), window, device, sink);
            if let Some(bytes) = bytes {
                return Some(Datagram { from: *from, slot: index, to, bytes, fault: None });
            }
        }
        let transmit = pair.poll_transmit(now, acks, window, device)?;
        let to = match (transmit.dest, *peer) {
            (Destination::Peer, Some(peer)) => peer,
            (Destination::Datagram(handle), None) => handle as usize,
            (dest, peer) => panic!("a packet for {dest:?} from a queue pair whose peer is {peer:?}"),
        };
        let bytes = bytes_of(&transmit, device, &flow(*from, to));
        Some(Datagram { from: *from, slot: index, to, bytes, fault: None })
    }

    /// Takes a datagram from the socket: checks its ICRC strictly, finds its queue pair, hands it over.
    pub fn receive(&mut self, now: Time, datagram: &Datagram) -> Received {
        let packet = flow(datagram.from, self.index)
            .verify(&datagram.bytes, 0)
            .and_then(|()| Packet::parse(&datagram.bytes));
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => return Received::Refused(error),
        };
        let found = self.slots.iter().position(|slot| slot.pair.qpn() == packet.dest_qp);
        let Some(index) = found else { return Received::NoQueuePair(packet.dest_qp) };
        let header = prefix(datagram.from, self.index, datagram.bytes.len());
        let envelope = Envelope { header, source_port: port(datagram.from), came: None };
        // Both ways to take in data are used in turn.
        self.arrivals = self.arrivals.wrapping_add(1);
        let in_a_hurry = self.arrivals.is_multiple_of(2);
        let (pair, window, device) = self.parts(index);
        if in_a_hurry
            && let Some((data, payload)) = DataPacket::parse(&datagram.bytes)
            && (pair.passes_over(&data) || pair.take_data(now, &data, payload, window, device))
        {
            return Received::By(index);
        }
        pair.handle_packet(now, &packet, Some(&envelope), window, device);
        Received::By(index)
    }

    fn parts(&mut self, index: usize) -> (&mut QueuePair, &mut Window, &mut Device) {
        let Slot { pair, peer } = &mut self.slots[index];
        let window = peer.map_or(&mut self.open_window, |peer| &mut self.windows[peer]);
        (pair, window, &mut self.device)
    }
}

/// The IP address of a host.
#[must_use]
pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
}

/// Packets from one host to another.
#[must_use]
pub(crate) fn flow(from: usize, to: usize) -> Flow {
    Flow::v4((address(from), port(from)), (address(to), 4791), true)
}

/// The UDP port that the packets of a host leave from.
#[must_use]
pub(crate) fn port(host: usize) -> u16 {
    0xc000 | u16::try_from(host).unwrap_or(0)
}

/// The forty bytes that a datagram of `len` bytes (BTH to ICRC) is delivered with.
#[must_use]
pub(crate) fn prefix(from: usize, to: usize, len: usize) -> [u8; 40] {
    let ip = Ipv4 { tos: 0, id: 0, dont_fragment: true, ttl: 64, source: address(from), dest: address(to) };
    let mut prefix = [0; 40];
    let udp_len = u16::try_from(len + UDP_HEADER).unwrap_or(u16::MAX);
    DatagramPrefix::V4(ip, udp_len).emit(&mut prefix);
    prefix
}

/// Whether a queue pair of this domain may read what it wants to send.
fn may_be_read(payload: &PayloadSource<'_>, by: Accessor, device: &mut Device) -> bool {
    use ferroce_transport::Host;
    match payload {
        PayloadSource::Gather(pieces) => {
            let mut pieces = *pieces;
            pieces.all(|piece| device.check_local(by.domain, piece, false).is_ok())
        }
        PayloadSource::Remote { rkey, address, len } => {
            device.check_remote(by, *rkey, *address, *len, Access::REMOTE_READ).is_ok()
        }
        PayloadSource::Nothing | PayloadSource::Inline(_) => true,
    }
}

/// The bytes of a packet that a machine wants sent.
fn bytes_of(transmit: &Transmit<'_>, device: &mut Device, flow: &Flow) -> Vec<u8> {
    use ferroce_transport::Host;
    let packet = &transmit.packet;
    let mut bytes = vec![0; packet.len()];
    let headers = packet.emit_headers(&mut bytes).expect("the buffer has the length of the packet");
    let payload_len = packet.payload_len();
    let end = headers + payload_len;
    match transmit.payload {
        PayloadSource::Nothing => assert_eq!(payload_len, 0, "{packet:?} names no payload"),
        PayloadSource::Inline(payload) => bytes[headers..end].copy_from_slice(payload),
        PayloadSource::Gather(pieces) => {
            let mut at = headers;
            for piece in pieces {
                let next = at + piece.length as usize;
                let read = device.read_local(piece.lkey, piece.address, &mut bytes[at..next]);
                read.unwrap_or_else(|denied| panic!("{packet:?} gathers {piece:?}: {denied}"));
                at = next;
            }
            assert_eq!(at, end, "{packet:?} gathers another length");
        }
        PayloadSource::Remote { address, len, .. } => {
            assert_eq!(len as usize, payload_len, "{packet:?} reads another length");
            let read = device.memory.read(address, &mut bytes[headers..end]);
            read.unwrap_or_else(|denied| panic!("{packet:?} reads 0x{address:x}: {denied}"));
        }
    }
    flow.seal(&mut bytes, 0).expect("a packet has room for its ICRC");
    bytes
}

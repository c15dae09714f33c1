//! RoCEv2 over UDP sockets.
//!
//! One unconnected socket on the port of RoCEv2 receives everything that comes to an interface, over
//! IPv4 and IPv6; a few more, one per source port, send. No socket is ever connected or fragments:
//! so the IPv4 identification, which the ICRC covers, is 0 or the place in the run.

mod control;
mod drops;
mod ears;
mod error;
mod error_queue;
mod messages;
mod name;
mod news;
mod outgoing;
mod receiving;
mod segments;
mod senders;
mod sending;
mod socket;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

pub use control::Control;
pub use drops::Drops;
use ears::Ears;
pub use error::SocketError;
pub use messages::Messages;
pub use name::Name;
use news::{MAIN, News};
use outgoing::Outgoing;
pub use receiving::Receiving;
use segments::Segments;
use senders::{Need, Senders};
use sending::Sending;
pub use socket::{Binding, Sharing, Socket};

use super::{Fabric, Inbox, Outbox, PORT, PortRefusal, Route, Run, Sent, Tiding};
use ferroce_sys::fork::Record;

/// How to open a [`UdpFabric`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The interface to bind to, such as `lo`.
    pub interface: String,
    /// Only this address, instead of all of the interface.
    pub address: Option<IpAddr>,
    /// The port to receive on; 0 lets the system choose, which only tests can use.
    pub port: u16,
    /// The port that packets are sent to.
    pub peer_port: u16,
    /// Bytes of receive buffer to ask for. The system may grant less, and counts its own overhead.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask for.
    pub send_buffer: usize,
    /// Whether runs of packets may leave in one piece (`UDP_SEGMENT`), if the system can.
    pub segmentation: bool,
    /// Whether packets of one sender may arrive in one piece (`UDP_GRO`), if the system can.
    pub coalescing: bool,
}

impl UdpConfig {
    /// All addresses of this interface on the port of RoCEv2, with everything that makes it fast.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            address: None,
            port: PORT,
            peer_port: PORT,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            segmentation: true,
            coalescing: true,
        }
    }
}

/// Packets over UDP sockets.
pub struct UdpFabric {
    binding: Binding,
    main: Outgoing,
    descriptors: [RawFd; 2],
    port: u16,
    receive_buffer: usize,
    coalescing: bool,
    senders: Senders<Outgoing>,
    ears: Ears,
    news: News,
    /// What keeps the sockets for sending from forked children.
    record: Option<&'static Record>,
    sending: Sending,
    receiving: Receiving,
    drops: Cell<Drops>,
}

impl UdpFabric {
    /// Opens the sockets.
    ///
    /// # Errors
    /// The port is taken, the interface or the address does not exist, or the system refuses.
    pub fn open(config: &UdpConfig) -> Result<Self, SocketError> {
        let main = Socket::open(&binding(config), config.port, Sharing::Alone)?;
        Self::over(main, config)
    }

    /// Receives from a socket that is open already, and opens others for sending as they are needed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn over(main: Socket, config: &UdpConfig) -> Result<Self, SocketError> {
        let refused = |step, source| {
            let interface = config.interface.clone();
            SocketError::System { step, interface, port: config.port, source }
        };
        main.prepare_to_receive(config.receive_buffer, config.address.is_none())
            .map_err(|error| refused("set the options for receiving", error))?;
        let granted = main
            .get(libc::SOL_SOCKET, libc::SO_RCVBUF)
            .map_err(|error| refused("read the size of the receive buffer", error))?;
        let port = main.local_port().map_err(|error| refused("read the port", error))?;
        // It may be on from an earlier owner of the socket.
        let wish = libc::c_int::from(config.coalescing);
        let coalescing = main.set(libc::SOL_UDP, libc::UDP_GRO, wish).is_ok() && config.coalescing;
        let news = News::new().map_err(|error| refused("open a set of descriptors", error))?;
        let segments = if config.segmentation { Segments::of(&main) } else { Segments::SINGLE };
        let drops = Cell::new(Drops::from_now(&main));
        Ok(Self {
            binding: binding(config),
            descriptors: [main.raw(), news.descriptor()],
            main: Outgoing::new(main),
            port,
            receive_buffer: usize::try_from(granted).unwrap_or(0),
            coalescing,
            senders: Senders::new(),
            ears: Ears::default(),
            news,
            record: None,
            sending: Sending::new(segments, config.peer_port, config.address),
            receiving: Receiving::new(config.address),
            drops,
        })
    }

    /// From now on no forked child keeps the sockets that are opened for sending.
    pub const fn hide_from_children(&mut self, record: &'static Record) {
        self.record = Some(record);
    }

    /// The port that it receives on.
    #[must_use]
    pub const fn local_port(&self) -> u16 {
        self.port
    }

    /// Bytes of receive buffer that the system has granted, its overhead included.
    #[must_use]
    pub const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Whether runs of packets leave in one piece. An interface that refuses ends this for good.
    #[must_use]
    pub const fn uses_segmentation(&self) -> bool {
        self.sending.segments().allowed()
    }

    /// Whether packets may arrive in one piece.
    #[must_use]
    pub const fn uses_coalescing(&self) -> bool {
        self.coalescing
    }
}

impl UdpFabric {
    /// Promises that packets can leave from this port until the next call of [`send`](Fabric::send) has returned. Other
    /// processes of this user may use it too: such a socket only sends.
    fn promise(&mut self, wanted: u16, need: Need) -> Result<(), PortRefusal> {
        let (binding, record, news) = (&self.binding, self.record, &self.news);
        let open = || {
            let socket = Socket::open_for(record, binding, wanted, Sharing::Shared);
            let socket = socket.map_err(|error| PortRefusal::from_errno(error.errno()))?;
            let ignoring = socket.prepare_to_ignore();
            ignoring.map_err(|error| PortRefusal::from_errno(error.raw_os_error().unwrap_or(0)))?;
            let mut outgoing = Outgoing::new(socket);
            // Without it packets leave all the same, and what becomes of them is not told.
            let _ = news.follow(&mut outgoing, wanted);
            Ok(outgoing)
        };
        self.senders.promise(wanted, need, open)
    }
}

fn binding(config: &UdpConfig) -> Binding {
    Binding { interface: config.interface.clone(), address: config.address, send_buffer: config.send_buffer }
}

impl Fabric for UdpFabric {
    fn dropped(&self) -> u64 {
        self.receiving.dropped()
    }

    fn overflowed(&self) -> u64 {
        let mut drops = self.drops.get();
        let sum = drops.look(self.main.socket());
        self.drops.set(drops);
        sum
    }

    fn coalesces(&self) -> bool {
        self.uses_segmentation()
    }

    fn run_limits(&self) -> (usize, usize) {
        (self.sending.segments().most(), segments::LONGEST)
    }

    /// A port that another program has, and a seventeenth port between two calls of
    /// [`send`](Fabric::send), become the port that packets are received on.
    fn source_port(&mut self, wanted: u16, _local: IpAddr) -> u16 {
        if wanted == 0 || wanted == self.port || self.promise(wanted, Need::Wish).is_err() {
            return self.port;
        }
        wanted
    }

    fn require_port(&mut self, wanted: u16, local: IpAddr) -> Result<(), PortRefusal> {
        if wanted == self.port {
            return Ok(());
        }
        self.promise(wanted, Need::Must)?;
        self.ears.listen(&self.binding, self.record, &self.news, wanted, local);
        Ok(())
    }

    /// A run from a port that was not promised since the last call is lost, and counted as
    /// unreachable: from another port its ICRC would be wrong.
    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        let mut sent = Sent::default();
        let mut is_refused = false;
        // Most go alone, from the port that packets are received on.
        if let [run] = outbox.runs()
            && run.route.source_port == self.port
        {
            if self.sending.send_alone(&self.main, outbox, run, &mut sent) {
                self.senders.kept();
                outbox.clear();
                return sent;
            }
            is_refused = true;
        }
        for runs in outbox.runs().chunk_by(|one, next| one.route.source_port == next.route.source_port) {
            let port = runs[0].route.source_port;
            let outgoing = if port == self.port { Some(&mut self.main) } else { self.senders.get_mut(port) };
            match outgoing {
                Some(outgoing) => self.sending.send(outgoing, outbox, (runs, is_refused), &mut sent),
                None => sent.unreachable += runs.iter().map(|run: &Run| run.packets as u64).sum::<u64>(),
            }
        }
        self.senders.kept();
        outbox.clear();
        sent
    }

    fn send_alone(&mut self, route: &Route, bytes: &[u8], segment: usize, packets: usize) -> Option<bool> {
        if route.source_port != self.port {
            return None;
        }
        let is_sent = self.sending.send_bytes(&self.main, (route, bytes), segment, packets)?;
        if is_sent {
            self.senders.kept();
        }
        Some(is_sent)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.receiving.receive(self.main.socket(), inbox)
    }

    fn receive_next(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.receiving.receive_next(self.main.socket(), inbox)
    }

    fn show_marks(&mut self) {
        self.main.socket().show_marks();
    }

    fn follow(&mut self) -> io::Result<()> {
        let Self { news, main, senders, .. } = self;
        if news.begin() {
            main.socket().stamp_arrivals()?;
            news.follow(main, MAIN)?;
            senders.each(|port, outgoing| news.follow(outgoing, port))?;
        }
        Ok(())
    }

    fn tidings(&mut self, tell: &mut dyn FnMut(Tiding<'_>)) {
        let Self { news, main, senders, ears, port, .. } = self;
        news.tell(main, *port, senders, ears, tell);
    }

    fn own_port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }
}

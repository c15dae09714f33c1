//! How a connection behaves: each has options of its own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_verbs::{ConnectOptions, Context, Limits, PathPolicy, ProtectionDomain};

use crate::error::SetupError;
use crate::frame::{Exposure, Header, Kind};
use crate::hub::CompletionHub;
use crate::physical::PhysicalWindow;

/// How a call that waits passes its time. A task of an async program lets others go first between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// It looks again and again: the lowest latency, for a whole processor.
    Busy,
    /// It sleeps until something happens.
    Event,
    /// It looks for this long, then sleeps. A task looks for four times as long after anything happened on its
    /// connection, but only while that pays: it sleeps at once if its looks were in vain.
    Adaptive(Duration),
}

/// Which connections of one [`Reactor`](crate::Reactor) go first.
///
/// The higher class is strictly first, but for one tenth of the time of the reactor's thread, which the lower one gets for sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// When no connection of the higher class has something to do, and in its tenth. This is the default.
    #[default]
    Normal,
    /// Before the others.
    High,
}

/// How much an end may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    Unlimited,
    /// Kilobits per second.
    Limited(u32),
}

/// How a connection behaves. The default suits most programs; every connection has options of its own.
///
/// # Memory
///
/// A connection never holds more than [`most_memory`](Self::most_memory) says, whatever its peer does and
/// however slow its program is. Most of it is touched only when it is needed.
#[derive(Clone)]
#[must_use = "options do nothing until a connection is made with them"]
pub struct Options {
    pub(crate) context: Option<Context>,
    pub(crate) domain: Option<ProtectionDomain>,
    pub(crate) hub: Option<CompletionHub>,
    pub(crate) backlog: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) connect_retries: u8,
    pub(crate) name_timeout: Duration,
    pub(crate) rate: Rate,
    pub(crate) priority: Priority,
    pub(crate) qp: ConnectOptions,
    pub(crate) path: Option<PathPolicy>,
    pub(crate) inline: u32,
    pub(crate) send_depth: u32,
    pub(crate) receive_depth: u16,
    pub(crate) eager: u32,
    pub(crate) max_message: u64,
    pub(crate) send_buffer: u64,
    pub(crate) read_ahead: u64,
    pub(crate) signal_every: u32,
    pub(crate) polling: Polling,
    pub(crate) linger: Duration,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) window: Option<(PhysicalWindow, Allow)>,
    pub(crate) admit: Option<Allow>,
}

/// Bytes of a header, which has a constant length of sixteen.
const HEADER: u32 = 16;
const _: () = assert!(HEADER as usize == Header::LEN);

/// A judgement of a peer.
pub(crate) type Allow = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            context: None,
            domain: None,
            hub: None,
            backlog: 128,
            connect_timeout: Duration::from_secs(10),
            connect_retries: 15,
            name_timeout: Duration::from_secs(10),
            rate: Rate::Unlimited,
            priority: Priority::Normal,
            qp: ConnectOptions::default(),
            path: None,
            inline: 256,
            send_depth: 64,
            receive_depth: 64,
            eager: 16 * 1024,
            max_message: 64 << 20,
            send_buffer: 8 << 20,
            read_ahead: 8 << 20,
            signal_every: 16,
            polling: Polling::Adaptive(Duration::from_micros(50)),
            linger: Duration::from_secs(5),
            keepalive: Some(Duration::from_secs(5)),
            window: None,
            admit: None,
        }
    }
}

impl Options {
    /// Work that the library itself may have under way, beside the program's.
    pub(crate) const OWN_WORK: u32 = 24;

    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device to use; without it, the one that has the address.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// A protection domain to share with other connections: buffers can then be used with all of them, and what one
    /// of them exposes is open to the peers of all. Without it, each connection has one of its own.
    pub fn protection_domain(mut self, domain: &ProtectionDomain) -> Self {
        self.domain = Some(domain.clone());
        self
    }

    /// A completion queue to share with other connections; without it, each has one of its own.
    pub fn completion_hub(mut self, hub: &CompletionHub) -> Self {
        self.hub = Some(hub.clone());
        self
    }

    /// Connections that may wait to be accepted. A listener's option.
    pub const fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections;
        self
    }

    /// How long connecting may take, with all that is tried again on the way.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How often a message of the connection set-up is sent again.
    pub const fn connect_retries(mut self, retries: u8) -> Self {
        self.connect_retries = retries;
        self
    }

    /// How long [`Connection::remote`](crate::Connection::remote) waits for a name.
    pub const fn name_timeout(mut self, limit: Duration) -> Self {
        self.name_timeout = limit;
        self
    }

    /// How much this end sends at most, in kilobits per second: the rate limit of its queue pair. 0 is refused when
    /// the connection is made; for no limit there is [`no_rate_limit`](Self::no_rate_limit).
    ///
    /// It counts the packets that leave from here: messages, and one-sided writes. What the peer reads from this end is
    /// answered at once.
    pub const fn rate_limit(mut self, kilobits_per_second: u32) -> Self {
        self.rate = Rate::Limited(kilobits_per_second);
        self
    }

    /// Sends as fast as it can, which is the default.
    pub const fn no_rate_limit(mut self) -> Self {
        self.rate = Rate::Unlimited;
        self
    }

    /// Which connections of a [`Reactor`](crate::Reactor) go first.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// How long the device waits for an acknowledgement: 4.096 us * 2^`exponent`.
    pub const fn ack_timeout(mut self, exponent: u8) -> Self {
        self.qp.timeout = exponent;
        self
    }

    /// How often the device tries again after silence, up to 7.
    pub const fn retries(mut self, count: u8) -> Self {
        self.qp.retry_count = count;
        self
    }

    /// How often the device tries again when the peer has no receive posted; 7 is for ever. Ends that keep
    /// to the rules never need it.
    pub const fn rnr_retries(mut self, count: u8) -> Self {
        self.qp.rnr_retry = count;
        self
    }

    /// READs and atomics that may be under way in each direction.
    pub const fn max_reads(mut self, count: u8) -> Self {
        self.qp.max_rd_atomic = count;
        self.qp.max_dest_rd_atomic = count;
        self
    }

    /// IPv4 type of service or IPv6 traffic class of its packets.
    pub const fn traffic_class(mut self, class: u8) -> Self {
        self.qp.traffic_class = class;
        self
    }

    /// Whether it may meet a peer in this process directly.
    pub const fn path(mut self, policy: PathPolicy) -> Self {
        self.path = Some(policy);
        self
    }

    /// Messages of up to this many bytes are handed to the device with the request.
    pub const fn inline(mut self, bytes: u32) -> Self {
        self.inline = bytes;
        self
    }

    /// Requests that may be under way.
    pub const fn send_depth(mut self, requests: u32) -> Self {
        self.send_depth = requests;
        self
    }

    /// Messages that the peer may send before this end has taken them in.
    pub const fn receive_depth(mut self, messages: u16) -> Self {
        self.receive_depth = messages;
        self
    }

    /// Messages of up to this many bytes are sent at once by copy; the peer reads longer ones when it wants them. Each
    /// place of the rings has room for such a message and a header of 16 bytes, rounded up to 64.
    pub const fn eager(mut self, bytes: u32) -> Self {
        self.eager = bytes;
        self
    }

    /// Bytes of the longest message that this end takes. Those that fit into a place of the ring
    /// ([`eager`](Self::eager)) it takes in any case.
    pub const fn max_message(mut self, bytes: u64) -> Self {
        self.max_message = bytes;
        self
    }

    /// Bytes of long messages that may wait here, copied, for the peer to read them. One message is always possible.
    pub const fn send_buffer(mut self, bytes: u64) -> Self {
        self.send_buffer = bytes;
        self
    }

    /// Bytes of long messages that are read from the peer before the program asks for them. One message is always
    /// possible.
    pub const fn read_ahead(mut self, bytes: u64) -> Self {
        self.read_ahead = bytes;
        self
    }

    /// One of how many small messages asks the device to report it (selective signalling).
    pub const fn signal_every(mut self, messages: u32) -> Self {
        self.signal_every = messages;
        self
    }

    /// How calls that wait pass their time.
    pub const fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// How long a connection that was dropped may take to deliver what it was given.
    pub const fn linger(mut self, limit: Duration) -> Self {
        self.linger = limit;
        self
    }

    /// How long a peer may be silent before it is asked whether it is still there; `None` never asks.
    pub const fn keepalive(mut self, interval: Option<Duration>) -> Self {
        self.keepalive = interval;
        self
    }

    /// Which peers may connect; without it, all. A listener's option.
    pub fn admit(mut self, admit: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        self.admit = Some(Arc::new(admit));
        self
    }

    /// Opens memory to access by address, for peers that `allow` lets: see [`PhysicalWindow`].
    pub fn physical_window(
        mut self,
        window: PhysicalWindow,
        allow: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.window = Some((window, Arc::new(allow)));
        self
    }

    /// The most bytes that one connection holds for messages: the rings; long messages on their way out and in; and
    /// buffers that are kept for the next ones. Buffers have sizes that are powers of two. Messages and buffers
    /// that the program itself keeps come on top.
    #[must_use]
    pub fn most_memory(&self) -> u64 {
        let rings = u64::from(self.slot())
            * u64::from(u32::from(self.receive_depth) + u32::from(Kind::FREE) + self.send_depth);
        let most = self.max_message.next_power_of_two();
        let one_way = |budget: u64| budget.max(most) + budget;
        rings + one_way(self.send_buffer) + one_way(self.read_ahead)
    }

    /// Bytes of a place in the rings.
    pub(crate) const fn slot(&self) -> u32 {
        (self.eager + HEADER).next_multiple_of(64)
    }

    /// How its queue pair is to be connected.
    pub(crate) const fn connect_options(&self) -> ConnectOptions {
        let rate_limit = match self.rate {
            Rate::Unlimited => 0,
            Rate::Limited(kilobits_per_second) => kilobits_per_second,
        };
        ConnectOptions { rate_limit, ..self.qp }
    }

    /// Whether all of it can be done.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let eager = Exposure::MOST.max(256) as u64;
        let checks: [(&'static str, u64, u64, u64); 8] = [
            ("backlog", self.backlog as u64, 1, 65_536),
            ("inline", self.inline.into(), 0, Limits::INLINE.into()),
            ("send_depth", self.send_depth.into(), 4, 16_384),
            ("receive_depth", self.receive_depth.into(), 2, 1 << 14),
            ("eager", self.eager.into(), eager, (1 << 24) - 64),
            ("max_message", self.max_message, 0, 1 << 30),
            ("signal_every", self.signal_every.into(), 1, u64::from(self.send_depth) / 2),
            ("max_reads", self.qp.max_rd_atomic.into(), 1, Limits::READ_DEPTH.into()),
        ];
        if self.rate == Rate::Limited(0) {
            return Err(SetupError::NoRate);
        }
        for (option, given, least, most) in checks {
            if !(least..=most).contains(&given) {
                return Err(SetupError::Option { option, given, least, most });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("send_depth", &self.send_depth)
            .field("receive_depth", &self.receive_depth)
            .field("eager", &self.eager)
            .field("max_message", &self.max_message)
            .field("polling", &self.polling)
            .finish_non_exhaustive()
    }
}

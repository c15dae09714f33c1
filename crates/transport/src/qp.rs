//! A queue pair: state, attributes, and the machines of its service.

mod alone;
mod direct;
mod dispatch;
mod inspect;
mod modify;
mod posting;

pub use self::inspect::{Alarm, Due, Obstacle, PostedSend, Waiting};

use ferroce_wire::{PKey, PKeyTable, PathMtu, QKey, Qpn, RnrTimer, Service};

use crate::completion::Event;
use crate::connection::{Connection, Context};
use crate::counters::Counters;
use crate::host::{DomainId, Host, SharedQueueId};
use crate::inbound::{Inbound, ReceiveMark};
use crate::pacing::Pacer;
use crate::queue::{ReceiveQueue, SendQueue};
use crate::rc::requester::Requester;
use crate::rc::resources::MAX_RESOURCES;
use crate::rc::responder::Responder;
use crate::state::{Limits, State};
use crate::time::Time;
use crate::unreliable::{Sender, UcReceiver};
use crate::window::Window;
use crate::work::Access;

/// How large the queues of a queue pair are. All their memory is taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Send requests that may wait.
    pub max_send: u32,
    /// Receive requests that may wait.
    pub max_receive: u32,
    /// Pieces of a send request, at most 255.
    pub max_send_sge: u32,
    /// Pieces of a receive request, at most 255. With a shared queue: of its requests.
    pub max_receive_sge: u32,
    /// Bytes of an inline request.
    pub max_inline: u32,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Its number.
    pub qpn: Qpn,
    /// RC, UC or UD.
    pub service: Service,
    /// The protection domain of its memory.
    pub domain: DomainId,
    /// How large its queues are.
    pub caps: Caps,
    /// Whether every send request gives a completion.
    pub signal_all: bool,
    /// Where receives come from, if not from its own queue.
    pub shared_queue: Option<SharedQueueId>,
}

/// How far the queues of a queue pair have to go until a piece of memory is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The last send request that names it.
    send: Option<u32>,
    /// The last receive requests that name it.
    receive: Option<ReceiveMark>,
}

/// A queue pair.
///
/// See the [crate](crate) for the contract between a queue pair and its device.
#[derive(Debug)]
pub struct QueuePair {
    connection: Connection,
    service: Service,
    caps: Caps,
    state: State,
    counters: Counters,
    pacer: Pacer,
    /// Whether a packet has arrived since RTR.
    established: bool,
    machine: Machine,
    pkeys: PKeyTable,
    pkey_index: u16,
}

/// What a queue pair does when it first hears of its peer.
pub(crate) struct Introduction<'a> {
    established: &'a mut bool,
    state: State,
    qpn: Qpn,
}

impl Introduction<'_> {
    /// Whether it has not heard of it yet.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        !*self.established
    }

    /// IBA 10.3.1.3: the first message tells a passive side that its peer is ready.
    #[inline]
    pub(crate) fn make<H: Host>(&mut self, host: &mut H) {
        if self.is_due() {
            *self.established = true;
            if self.state == State::Rtr {
                host.event(self.qpn, Event::Established);
            }
        }
    }
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a queue pair is made once and never moved about")]
enum Machine {
    Rc { requester: Requester, responder: Responder },
    Uc { sender: Sender, receiver: UcReceiver },
    Ud { sender: Sender, inbound: Inbound },
}

impl QueuePair {
    /// The READ and atomic depths that a queue pair can have on each side.
    pub const LIMITS: Limits = Limits { max_rd_atomic: MAX_RESOURCES, max_dest_rd_atomic: MAX_RESOURCES };

    /// A queue pair in RESET.
    ///
    /// # Panics
    /// If the service is none of RC, UC and UD.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        let caps = config.caps;
        let sends = SendQueue::new(caps.max_send, caps.max_send_sge as usize, caps.max_inline as usize);
        let own = if config.shared_queue.is_some() { 0 } else { caps.max_receive };
        let receives = ReceiveQueue::new(own, caps.max_receive_sge as usize);
        let inbound = Inbound::new(receives, caps.max_receive_sge as usize);
        let machine = match config.service {
            Service::Rc => {
                Machine::Rc { requester: Requester::new(sends), responder: Responder::new(inbound) }
            }
            Service::Uc => Machine::Uc { sender: Sender::new(sends), receiver: UcReceiver::new(inbound) },
            Service::Ud => Machine::Ud { sender: Sender::new(sends), inbound },
            other => panic!("{} is no service of a queue pair", other.name()),
        };
        let connection = Connection {
            qpn: config.qpn,
            domain: config.domain,
            shared_queue: config.shared_queue,
            signal_all: config.signal_all,
            dest_qpn: Qpn::default(),
            pkey: PKey::DEFAULT,
            qkey: QKey::default(),
            mtu: PathMtu::B4096,
            access: Access::empty(),
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: RnrTimer::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        };
        let (service, state) = (config.service, State::Reset);
        Self {
            connection,
            service,
            caps,
            state,
            counters: Counters::default(),
            pacer: Pacer::default(),
            established: false,
            machine,
            pkeys: PKeyTable::DEFAULT,
            pkey_index: 0,
        }
    }

    /// Gives it another number, before it is known by the first.
    pub const fn set_number(&mut self, qpn: Qpn) {
        self.connection.qpn = qpn;
    }

    /// Sets how long a datagram may be: those have no path MTU of their own, only their port's.
    pub const fn limit_datagrams(&mut self, mtu: PathMtu) {
        if matches!(self.service, Service::Ud) {
            self.connection.mtu = mtu;
        }
    }

    /// Sets the P_Keys that it may have one of, before it leaves RESET: those of its port.
    pub const fn set_pkeys(&mut self, table: PKeyTable) {
        self.pkeys = table;
    }

    /// Whether packets with this P_Key are of its partition.
    #[must_use]
    pub const fn is_of_partition(&self, key: PKey) -> bool {
        key.admits(self.connection.pkey)
    }

    /// Its number.
    #[must_use]
    pub const fn qpn(&self) -> Qpn {
        self.connection.qpn
    }

    /// Its service.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What has happened to it.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How large its queues are.
    #[must_use]
    pub const fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The machines, and the world for one call of them.
    #[inline(always)]
    fn split<'a, H>(
        &'a mut self,
        now: Time,
        window: &'a mut Window,
        host: &'a mut H,
    ) -> (&'a mut Machine, Context<'a, H>) {
        let Self { connection, counters, pacer, machine, .. } = self;
        (machine, Context { now, connection, counters, pacer, window, host })
    }
}

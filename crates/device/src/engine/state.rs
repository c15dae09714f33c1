//! What an engine is made of, and why it is turned.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_fabric::{Fabric, Inbox, Verifier};
use ferroce_memory::MemoryTable;
use ferroce_progress::Gather;
use ferroce_switchboard::Distant;
use ferroce_sys::Random;
use ferroce_sys::sync::{Calls, Share};
use ferroce_transport::{QpTotals, Time};
use ferroce_wire::Qpn;
use slab::Slab;

use super::departed::Departed;
use super::follow::Follow;
use super::freight::Load;
use super::handles::Handle;
use super::host::Tables;
use super::incoming::Familiar;
use super::leaving::Leaving;
use super::port::Port;
use super::qps::QpTable;
use super::timers::Timers;
use super::windows::Windows;
use crate::counters::DeviceCounters;
use crate::event::EventQueue;
use crate::mail::{MAIL, Parcel};

/// Queue pairs that lists of them have room for before they grow.
const LIST: usize = 64;

/// Datagrams that one look at the socket takes in.
pub(super) const INBOX: usize = 16;

/// Everything that one thread at a time works with.
pub(crate) struct Engine {
    pub(crate) qps: QpTable,
    pub(crate) tables: Tables,
    pub(crate) windows: Windows,
    pub(crate) handles: Slab<Handle>,
    pub(crate) handles_made: u32,
    pub(crate) random: Random,
    pub(crate) counters: DeviceCounters,
    /// What queue pairs have done that are gone.
    pub(crate) gone: QpTotals,
    /// Queue pairs that were made.
    pub(crate) qps_made: u64,
    pub(crate) port: Port,
    pub(super) inbox: Inbox,
    pub(super) verifier: Verifier,
    pub(super) distant: Distant,
    pub(super) timers: Timers,
    pub(super) follow: Follow,
    /// Queue pairs that may have something to send.
    pub(super) ready: Vec<u16>,
    /// The room of the list of queue pairs to send for while that is worked through, so that none is made
    /// anew.
    pub(super) spare: Vec<u16>,
    /// Work that waits for company: its queue pairs are ready.
    pub(crate) gather: Gather,
    /// Whether work may do so.
    pub(crate) gathers: bool,
    /// The turn was called for: work was posted while the engine was busy, or the alarm has gone off.
    pub(crate) called: bool,
    /// Queue pairs that owe an acknowledgement.
    pub(super) owing: Vec<u16>,
    /// Bytes taken in since no peer was owed an acknowledgement.
    pub(super) held: usize,
    /// The driver is at work, and may keep acknowledgements back for programs that answer.
    pub(super) patient: bool,
    /// Until when the driver keeps the first acknowledgement back.
    pub(super) kept_until: Option<Time>,
    pub(super) mail: VecDeque<Parcel>,
    /// A packet on the local path.
    pub(super) scratch: Box<[u8]>,
    /// The members of a group, while a datagram goes to each of them.
    pub(super) members: Vec<Qpn>,
    /// The packets of other engines that were taken out last.
    pub(super) load: Load,
    /// Connections whose queue pair is gone, and whose peers may ask again.
    pub(super) departed: Departed,
    pub(super) leaving: Vec<Leaving>,
    /// How often regions had lost their last window when the list was last looked at.
    pub(super) unbindings: u64,
    /// The place of this engine among those of its device.
    pub(super) index: usize,
    /// Engines that were left something, a bit each: the thread that leaves this one calls on them.
    pub(crate) errands: u32,
    /// Another engine was here and has left something to do.
    pub(super) called_upon: bool,
    /// The thread that leaves this one has to see whether leaving regions can go.
    pub(crate) let_go: bool,
    /// A thread is in a turn. If it is so when a turn begins, the last one panicked.
    pub(super) turning: bool,
    /// The socket failed.
    pub(super) broken: bool,
    /// A turn would find nothing to do but what was just posted, as far as that does not change from call to call.
    is_plain: bool,
    /// The queue pair that packets are mostly for.
    pub(super) familiar: Option<Familiar>,
    /// Lets the next turn panic.
    #[cfg(test)]
    pub(crate) panics: bool,
}

/// Why the engine is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A queue pair is about to go: no acknowledgement can wait for a ride any more.
    Leaving,
    /// Work was posted.
    Posted,
    /// A thread looked for completions and found none.
    Polled,
    /// A thread looked for completions and found none, and will look again at once: the driver leaves the
    /// sockets to it.
    Watched,
    /// A thread looked for completions and found none, then at the socket: the inbox holds what has come.
    InboxFilled,
    /// A thread looked for completions and found none, and left the socket alone: the peers of all queue pairs
    /// here are in this process.
    SocketSkipped,
    /// No other thread turns the engine: the driver does, or a thread that does the work of the driver.
    Driver,
}

impl Reason {
    /// Whether a thread looks for completions.
    pub(crate) const fn is_poll(self) -> bool {
        matches!(self, Self::Polled | Self::Watched | Self::InboxFilled | Self::SocketSkipped)
    }

    /// The reason of a thread that hears these calls, which must not be lost, and those that it cannot see
    /// to.
    #[inline]
    pub(crate) fn on_hearing(self, calls: Calls) -> (Self, Calls) {
        if !calls.contains(Calls::ARRIVED) {
            return (self, Calls::empty());
        }
        match self {
            Self::Posted => (Self::Driver, Calls::empty()),
            Self::SocketSkipped => (Self::Polled, Calls::empty()),
            // What is in the inbox may have been taken from the socket before that packet came.
            Self::Leaving | Self::InboxFilled => (self, Calls::ARRIVED),
            Self::Polled | Self::Watched | Self::Driver => (self, Calls::empty()),
        }
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turned {
    /// Packets that arrived.
    pub(crate) received: usize,
    /// More may be waiting in the socket.
    pub(crate) more: bool,
    /// Queue pairs have more to send than one turn lets them.
    pub(crate) unsent: bool,
}

impl Turned {
    /// Adds what else the turn did.
    pub(super) const fn add(&mut self, other: Self) {
        self.received += other.received;
        self.more |= other.more;
        self.unsent |= other.unsent;
    }
}

impl Engine {
    pub(crate) fn new(
        index: usize,
        (slot, fabric): (u8, Box<dyn Fabric>),
        memory: Share<MemoryTable>,
        random: Random,
        events: Arc<EventQueue>,
    ) -> Self {
        Self {
            qps: QpTable::new(slot),
            tables: Tables::new(memory, events),
            windows: Windows::new(),
            handles: Slab::new(),
            handles_made: 0,
            random,
            counters: DeviceCounters::default(),
            gone: QpTotals::default(),
            qps_made: 0,
            port: Port::new(slot, fabric),
            inbox: Inbox::new(INBOX),
            verifier: Verifier::new(),
            distant: Distant::default(),
            timers: Timers::default(),
            follow: Follow::default(),
            ready: Vec::with_capacity(LIST),
            spare: Vec::with_capacity(LIST),
            gather: Gather::new(),
            gathers: true,
            called: false,
            owing: Vec::with_capacity(LIST),
            held: 0,
            patient: false,
            kept_until: None,
            mail: VecDeque::with_capacity(MAIL),
            scratch: vec![0; ferroce_wire::MAX_PACKET_LEN].into(),
            members: Vec::with_capacity(64),
            load: Load::new(),
            leaving: Vec::new(),
            departed: Departed::new(),
            unbindings: 0,
            index,
            errands: 0,
            called_upon: false,
            let_go: false,
            turning: false,
            broken: false,
            is_plain: false,
            familiar: None,
            #[cfg(test)]
            panics: false,
        }
    }

    /// Whether a turn would find nothing to do but what has just come, or was just posted, as far as that does not change from
    /// call to call.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Takes note whether it is so. Each whole turn does; what changes it is done before one, or says that it is not so any more.
    #[inline]
    pub(super) fn note_plain(&mut self) {
        self.port.ask_fabric();
        self.is_plain = self.port.fabric.is_plain()
            && !self.broken
            && !self.tables.is_recorded()
            && !self.follow.is_on()
            && !self.port.lanes.has_any()
            && self.leaving.is_empty();
    }

    /// Something may change in here beside what packets and posted work do: the next turn has to be a whole one.
    pub(crate) const fn not_plain(&mut self) {
        self.is_plain = false;
        self.familiar = None;
    }

    /// The place of this engine among those of its device.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// What all queue pairs of the engine have done, also those that are gone.
    pub(crate) fn totals(&self) -> QpTotals {
        let mut sum = self.gone;
        self.qps.iter().for_each(|entry| sum.add(&entry.totals()));
        sum
    }
}

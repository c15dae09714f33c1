//! All connections of a device, and the books about them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ferroce_wire::mad::{CmMad, CmMessage, CommId, ServiceId};
use ferroce_wire::{PKeyTable, PathMtu, Qpn};
use thiserror::Error;

use super::connection::{Connection, Ends, State};
use super::counters::CmCounters;
use super::event::Event;
use super::ids::{Chance, Ids};
use super::limits::Limits;
use super::sidr::{DatagramService, Question};
use super::waiting::Waiting;
use crate::time::Time;

/// What a [`Manager`] is told in the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How much it keeps.
    pub limits: Limits,
    /// The top byte of its communication ids.
    pub slot: u8,
    /// The largest packets that the device takes.
    pub path_mtu: PathMtu,
    /// The partitions of the device.
    pub pkeys: PKeyTable,
}

/// A message to be sent from queue pair 1 to that of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The connection or question that it belongs to, if there is one.
    pub id: Option<CommId>,
    /// Our address and the peer's.
    pub ends: Ends,
    /// The message.
    pub mad: CmMad,
}

/// Why a program's wish was not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The service has a listener already.
    #[error("service {0} is listened for already; stop the other one, or choose another port")]
    Listening(ServiceId),
    /// There are too many connections or questions.
    #[error("{given} connections are open, more are not allowed; close some first")]
    TooMany {
        /// How many there are.
        given: usize,
    },
    /// The connection is not in a state in which this can be done: its peer has gone on.
    #[error("the peer has given up, or the connection is over")]
    NotPending,
}

/// All connections of a device: see [the module](super).
#[derive(Debug)]
pub struct Manager {
    pub(super) config: Config,
    pub(super) ids: Ids,
    /// The upper half of all transaction ids; the lower is a communication id.
    transactions: u32,
    pub(super) connections: BTreeMap<CommId, Connection>,
    /// Requests that came from outside, by address and by the peer's name for them.
    pub(super) requests: BTreeMap<(IpAddr, CommId), CommId>,
    /// Queue pairs of peers, each of which has one connection.
    pub(super) peers: BTreeMap<(IpAddr, Qpn), CommId>,
    pub(super) listeners: BTreeMap<ServiceId, Listening>,
    pub(super) datagrams: BTreeMap<ServiceId, DatagramService>,
    pub(super) questions: BTreeMap<CommId, Question>,
    half_open: usize,
    half_open_of: BTreeMap<IpAddr, usize>,
    timers: BTreeSet<(Time, CommId)>,
    /// What is over, oldest first.
    over: BTreeMap<u64, CommId>,
    overs: u64,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<(CommId, Event)>,
    pub(super) counters: CmCounters,
}

/// A service that the program listens for.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    pub(super) backlog: usize,
    pub(super) waiting: Waiting,
}

impl Manager {
    /// One without connections. Its communication and transaction ids come from `chance`.
    #[must_use]
    pub fn new(config: Config, mut chance: Chance) -> Self {
        Self {
            config,
            transactions: chance.draw(),
            ids: Ids::new(config.slot, chance),
            connections: BTreeMap::new(),
            requests: BTreeMap::new(),
            peers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            datagrams: BTreeMap::new(),
            questions: BTreeMap::new(),
            half_open: 0,
            half_open_of: BTreeMap::new(),
            timers: BTreeSet::new(),
            over: BTreeMap::new(),
            overs: 0,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            counters: CmCounters::default(),
        }
    }

    /// Lets requests for a service come in. So many may wait for an answer of the program.
    ///
    /// # Errors
    /// The service has a listener already.
    pub fn listen(&mut self, service: ServiceId, backlog: usize) -> Result<(), Refused> {
        if self.listeners.contains_key(&service) {
            return Err(Refused::Listening(service));
        }
        let backlog = backlog.clamp(1, self.config.limits.backlog);
        self.listeners.insert(service, Listening { backlog, waiting: Waiting::default() });
        Ok(())
    }

    /// Takes no more requests for a service. Those that wait for an answer still do.
    pub fn stop_listening(&mut self, service: ServiceId) {
        self.listeners.remove(&service);
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// What has happened, and to which connection.
    pub fn poll_event(&mut self) -> Option<(CommId, Event)> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Connections that are neither over nor forgotten.
    #[must_use]
    pub fn open(&self) -> usize {
        self.connections.len() - self.over.len()
    }

    /// Connections that others have begun and not shown to mean.
    #[must_use]
    pub const fn half_open(&self) -> usize {
        self.half_open
    }

    /// Connections that are over and remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.over.len()
    }

    /// Whether the peer's answer to our acceptance is still to come.
    #[must_use]
    pub fn awaits_ready(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.state == State::RepSent)
    }

    /// Whether we asked, for a connection or a service, and have not been answered.
    #[must_use]
    pub fn is_asking(&self, id: CommId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|it| it.state == State::ReqSent) || self.questions.contains_key(&id)
    }

    /// Whether a connection is over, or was never there.
    #[must_use]
    pub fn is_over(&self, id: CommId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.state == State::TimeWait)
    }

    /// Whether a request still waits for our decision.
    #[must_use]
    pub fn is_pending(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.state == State::Requested)
    }

    /// Whether the program will be told when a connection whose end it has heard of is forgotten.
    #[must_use]
    pub fn tells_end(&self, id: CommId) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|it| it.patience.tell_end && (it.stood || it.state.is_standing()))
    }

    /// Whether a connection stands.
    #[must_use]
    pub fn is_established(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.state == State::Established)
    }

    /// Forgets a request without a word, as if it had not come: the peer asks again.
    pub fn forget(&mut self, id: CommId) {
        if self.is_pending(id) {
            self.remove(id);
        }
    }

    pub(super) fn half_open_of(&self, address: IpAddr) -> usize {
        self.half_open_of.get(&address).copied().unwrap_or(0)
    }

    pub(super) fn transaction(&self, id: CommId) -> u64 {
        u64::from(self.transactions) << 32 | u64::from(id.0)
    }

    /// A name for a new connection or question.
    pub(super) fn deal(&mut self) -> Option<CommId> {
        let Self { ids, connections, questions, .. } = self;
        ids.deal(|id| connections.contains_key(&id) || questions.contains_key(&id))
    }

    /// Begins to keep a connection.
    pub(super) fn insert(&mut self, id: CommId, connection: Connection) {
        let (state, timer) = (connection.state, connection.timer);
        if let Some(key) = connection.request_key() {
            self.requests.insert(key, id);
        }
        if let Some(key) = connection.peer_key() {
            self.peers.insert(key, id);
        }
        self.count(id, (connection.ends.remote, connection.service), state, true);
        self.connections.insert(id, Connection { timer: None, ..connection });
        self.set_timer(id, timer);
    }

    /// Forgets a connection that is over, and tells it where that was asked for.
    pub(super) fn remove_over(&mut self, id: CommId) {
        if self.tells_end(id) {
            self.tell(id, Event::Forgotten);
        }
        self.remove(id);
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: CommId) {
        self.set_timer(id, None);
        let Some(connection) = self.connections.remove(&id) else { return };
        self.count(id, (connection.ends.remote, connection.service), connection.state, false);
        // Another one may have come to the same name meanwhile.
        if let Some(key) = connection.request_key()
            && self.requests.get(&key) == Some(&id)
        {
            self.requests.remove(&key);
        }
        if let Some(key) = connection.peer_key() {
            self.release_peer(id, key);
        }
        if let Some(place) = connection.over {
            self.over.remove(&place);
        }
    }

    /// The peer's queue pair is free for another connection.
    fn release_peer(&mut self, id: CommId, key: (IpAddr, Qpn)) {
        if self.peers.get(&key) == Some(&id) {
            self.peers.remove(&key);
        }
    }

    /// Keeps the books when a connection enters or leaves a state.
    fn count(&mut self, id: CommId, (remote, service): (IpAddr, ServiceId), state: State, enters: bool) {
        let step = |count: &mut usize| *count = if enters { *count + 1 } else { count.saturating_sub(1) };
        if state.is_half_open() {
            step(&mut self.half_open);
            let of_one = self.half_open_of.entry(remote).or_default();
            step(of_one);
            if *of_one == 0 {
                self.half_open_of.remove(&remote);
            }
        }
        if state == State::Requested
            && let Some(listening) = self.listeners.get_mut(&service)
        {
            listening.waiting.note(remote, id, enters);
        }
    }

    pub(super) fn set_state(&mut self, id: CommId, state: State) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let before = std::mem::replace(&mut connection.state, state);
        let of = (connection.ends.remote, connection.service);
        self.count(id, of, before, false);
        self.count(id, of, state, true);
    }

    pub(super) fn set_timer(&mut self, id: CommId, timer: Option<Time>) {
        let place = match self.connections.get_mut(&id) {
            Some(connection) => &mut connection.timer,
            None => match self.questions.get_mut(&id) {
                Some(question) => &mut question.timer,
                None => return,
            },
        };
        if let Some(before) = std::mem::replace(place, timer) {
            self.timers.remove(&(before, id));
        }
        if let Some(timer) = timer {
            self.timers.insert((timer, id));
        }
    }

    /// The next one whose time has come; its timer is off then.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<CommId> {
        let (time, id) = *self.timers.first()?;
        if time > now {
            return None;
        }
        self.set_timer(id, None);
        // Also if nothing has it any more.
        self.timers.remove(&(time, id));
        Some(id)
    }

    /// A connection is over: it is remembered for a while, with the answer to what may still come.
    pub(super) fn finish(&mut self, now: Time, id: CommId, answer: Option<CmMessage>, event: Option<Event>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(answer) = answer {
            connection.last = answer;
        }
        let event = event.filter(|_| !connection.told);
        connection.told = true;
        connection.questions = 0;
        let (end, key) = (now + connection.patience.time_wait, connection.peer_key());
        // No packet of it is under way if it never stood: its queue pair may ask for another at once.
        let stood = connection.state.is_standing();
        connection.stood = stood;
        self.overs += 1;
        connection.over = Some(self.overs);
        self.over.insert(self.overs, id);
        if let Some(key) = key.filter(|_| !stood) {
            self.release_peer(id, key);
        }
        self.set_state(id, State::TimeWait);
        self.set_timer(id, Some(end));
        if let Some(event) = event {
            self.tell(id, event);
        }
        if self.over.len() > self.config.limits.time_wait
            && let Some(oldest) = self.over.first_key_value().map(|(_, oldest)| *oldest)
        {
            self.counters.forgotten += 1;
            self.remove_over(oldest);
        }
    }

    pub(super) fn tell(&mut self, id: CommId, event: Event) {
        self.events.push_back((id, event));
    }

    /// Sends what a connection sent last, for the first time or again.
    pub(super) fn send_last(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let mad = CmMad::new(connection.transaction, connection.last);
        self.send(Some(id), connection.ends, mad);
    }

    pub(super) fn send(&mut self, id: Option<CommId>, ends: Ends, mad: CmMad) {
        self.counters.sent += 1;
        self.outgoing.push_back(Outgoing { id, ends, mad });
    }
}

//! Hosts, the network between them, and the event loop in virtual time.
//!
//! A host works in turns, as a device does: it takes datagrams from its socket, looks at its timers
//! once the socket is empty, and then lets its queue pairs send. Each datagram costs it time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferroce_transport::{Acks, Time, true_size};
use ferroce_wire::Service;

use crate::dice::Dice;
use crate::host::Action;
use crate::liar::{Act, Liar, Lie, When};
use crate::link::{Fault, Link, LinkPlan, Way};
use crate::node::{Datagram, Node, Received};
use crate::rings::{LOOK, Rings};

/// What a host is able to do.
#[derive(Clone, Copy, Debug)]
pub struct HostPlan {
    /// Bytes of socket buffer, in true size.
    pub buffer: u32,
    /// Nanoseconds to take a datagram.
    pub receive_cost: u64,
    /// Nanoseconds to send one.
    pub send_cost: u64,
    /// Datagrams taken in one turn.
    pub batch: usize,
    /// How long an owed acknowledgement may wait for company, in nanoseconds.
    pub hold_acks: u64,
}

/// A host in the event loop.
#[derive(Debug)]
pub struct HostState {
    /// Memory and queue pairs.
    pub node: Node,
    plan: HostPlan,
    socket: VecDeque<Datagram>,
    socket_bytes: u32,
    turn_at: Option<Time>,
    busy_until: Time,
    away_until: Time,
    down_until: Time,
    acks_due: Option<Time>,
    first: usize,
}

impl HostState {
    /// Whether the host is away or cut off.
    #[must_use]
    pub fn is_silent(&self, now: Time) -> bool {
        now < self.away_until || now < self.down_until
    }
}

/// Told about everything at the instant when it happens.
pub(crate) trait Observer {
    /// What a check says if it fails.
    type Error;

    /// A queue pair did something to its host.
    ///
    /// # Errors
    /// A checker objects.
    fn acted(&mut self, now: Time, hosts: &[HostState], at: At, action: &Action) -> Result<(), Self::Error>;

    /// A machine has been called and has returned.
    ///
    /// # Errors
    /// A checker objects.
    fn returned(&mut self, now: Time, hosts: &[HostState], at: At) -> Result<(), Self::Error>;

    /// A packet left, as it was before the network touched it.
    ///
    /// # Errors
    /// A checker objects.
    fn sent(
        &mut self,
        now: Time,
        hosts: &[HostState],
        at: At,
        datagram: &Datagram,
    ) -> Result<(), Self::Error>;

    /// Something went wrong with a packet on its way.
    fn fault(&mut self, now: Time, fault: Fault, datagram: &Datagram);

    /// A packet was taken from the socket.
    ///
    /// # Errors
    /// A checker objects.
    fn received(&mut self, now: Time, datagram: &Datagram, outcome: Received) -> Result<(), Self::Error>;

    /// A queue pair looked at its timers.
    fn timer(&mut self, now: Time, at: At);
}

/// A queue pair: host and index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At {
    /// Host.
    pub host: usize,
    /// Index of the queue pair on it.
    pub slot: usize,
}

#[derive(Debug)]
enum Event {
    Arrive(Datagram),
    Turn(usize),
    /// There is something for this host in a ring.
    Called(usize),
    Wake(u64),
    /// This host takes this key out of use.
    Revoke(usize, u32),
}

/// All hosts and what is going to happen.
#[derive(Debug)]
pub(crate) struct World {
    /// The hosts.
    pub hosts: Vec<HostState>,
    link: Link,
    rings: Rings,
    liar: Option<Liar>,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next: u64,
    log: Vec<Action>,
    /// Packets that left.
    pub packets: u64,
}

/// What one step of the world was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its own business.
    Internal,
    /// A wake-up that was asked for.
    Wake(u64),
    /// Nothing will happen any more.
    Rest,
}

/// How much a host may have waiting at its port before it stops sending, in nanoseconds.
const BACKLOG: u64 = 100_000;

/// How long it takes until a host notices what is new in a ring.
const CALL: Duration = Duration::from_nanos(150);

/// Packets that a queue pair may send before the next one's turn, and that a host may in one turn.
const BURST: usize = 8;
const TURN: usize = 64;

impl World {
    /// These hosts on this network.
    #[must_use]
    pub(crate) fn new(
        nodes: Vec<(Node, HostPlan)>,
        (link, rings): (LinkPlan, Rings),
        dice: Dice,
        liar: Option<Liar>,
    ) -> Self {
        let count = nodes.len();
        let hosts = nodes.into_iter().map(|(node, plan)| HostState {
            node,
            plan,
            socket: VecDeque::new(),
            socket_bytes: 0,
            turn_at: None,
            busy_until: Time::ZERO,
            away_until: Time::ZERO,
            down_until: Time::ZERO,
            acks_due: None,
            first: 0,
        });
        Self {
            hosts: hosts.collect(),
            link: Link::new(link, count, dice),
            rings,
            liar,
            now: Time::from_nanos(1000),
            events: BTreeMap::new(),
            next: 0,
            log: Vec::new(),
            packets: 0,
        }
    }

    /// The time.
    #[must_use]
    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// Asks for a [`Step::Wake`] with this token.
    pub(crate) fn wake_after(&mut self, delay: Duration, token: u64) {
        self.put(self.now + delay, Event::Wake(token));
    }

    /// The host does nothing for a while.
    pub(crate) fn send_away(&mut self, host: usize, duration: Duration) {
        self.hosts[host].away_until = self.now + duration;
    }

    /// Nothing reaches the host, and nothing of it reaches others, for a while. Memory that it shares is given up for good, with
    /// the packets in it.
    pub(crate) fn cut_off<O: Observer>(&mut self, host: usize, duration: Duration, observer: &mut O) {
        self.hosts[host].down_until = self.now + duration;
        for (from, to) in self.rings.of(host) {
            self.hosts[from].node.lose_ring(to);
        }
        for lost in self.rings.give_up(host) {
            observer.fault(self.now, Fault::Down, &lost);
        }
    }

    /// Calls a machine and tells the observer what it did.
    ///
    /// # Errors
    /// A checker objects.
    pub(crate) fn call<O: Observer, R>(
        &mut self,
        at: At,
        observer: &mut O,
        call: impl FnOnce(&mut Node, usize) -> R,
    ) -> Result<R, O::Error> {
        let result = call(&mut self.hosts[at.host].node, at.slot);
        self.report(at, observer)?;
        self.turn_soon(at.host);
        Ok(result)
    }

    /// Lets the next thing happen.
    ///
    /// # Errors
    /// A checker objects.
    pub(crate) fn step<O: Observer>(&mut self, observer: &mut O) -> Result<Step, O::Error> {
        let Some(((at, _), event)) = self.events.pop_first() else { return Ok(Step::Rest) };
        self.now = self.now.max(at);
        match event {
            Event::Wake(token) => return Ok(Step::Wake(token)),
            Event::Arrive(datagram) => self.arrive(datagram, observer),
            Event::Called(host) => self.turn_soon(host),
            Event::Revoke(host, key) => {
                self.hosts[host].node.device.memory.deregister(key);
            }
            Event::Turn(host) => {
                if self.hosts[host].turn_at == Some(at) {
                    self.hosts[host].turn_at = None;
                    self.turn(host, observer)?;
                }
            }
        }
        Ok(Step::Internal)
    }

    fn put(&mut self, at: Time, event: Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    fn turn_soon(&mut self, host: usize) {
        self.turn_by(host, self.now);
    }

    fn turn_by(&mut self, host: usize, at: Time) {
        let state = &mut self.hosts[host];
        let at = at.max(state.busy_until).max(state.away_until).max(self.now);
        if state.turn_at.is_none_or(|known| at < known) {
            state.turn_at = Some(at);
            self.put(at, Event::Turn(host));
        }
    }

    fn arrive<O: Observer>(&mut self, datagram: Datagram, observer: &mut O) {
        let state = &mut self.hosts[datagram.to];
        if self.now < state.down_until {
            observer.fault(self.now, Fault::Down, &datagram);
            return;
        }
        let cost = true_size(datagram.bytes.len());
        if state.socket_bytes + cost > state.plan.buffer {
            observer.fault(self.now, Fault::TailDrop, &datagram);
            return;
        }
        let to = datagram.to;
        state.socket_bytes += cost;
        state.socket.push_back(datagram);
        self.turn_soon(to);
    }

    fn turn<O: Observer>(&mut self, host: usize, observer: &mut O) -> Result<(), O::Error> {
        if self.now < self.hosts[host].away_until {
            self.turn_by(host, self.now);
            return Ok(());
        }
        let mut cost = 0;
        let mut taken = 0;
        while taken < self.hosts[host].plan.batch && self.take_one(host, observer)? {
            taken += 1;
            cost += self.hosts[host].plan.receive_cost;
        }
        self.rings.release(host);
        if self.has_taken_all(host) {
            self.run_timers(host, observer)?;
        }
        let acks = self.may_acknowledge(host, taken > 0);
        let (sent, more) = self.send(host, acks, observer)?;
        for to in self.rings.show(host) {
            self.put(self.now + CALL, Event::Called(to));
        }
        let has_taken_all = self.has_taken_all(host);
        let state = &mut self.hosts[host];
        cost += sent as u64 * state.plan.send_cost;
        state.busy_until = self.now + Duration::from_nanos(cost);
        if !has_taken_all || more {
            let ready = self.link.free_at(host).nanos().saturating_sub(BACKLOG / 2);
            let at = if has_taken_all { Time::from_nanos(ready) } else { self.now };
            self.turn_by(host, at);
        }
        let timers = (0..self.hosts[host].node.len())
            .filter_map(|slot| self.hosts[host].node.queue_pair(slot).poll_timeout());
        if let Some(at) = timers.chain(self.hosts[host].acks_due).min() {
            self.turn_by(host, at);
        }
        Ok(())
    }

    fn take_one<O: Observer>(&mut self, host: usize, observer: &mut O) -> Result<bool, O::Error> {
        let state = &mut self.hosts[host];
        let datagram = match state.socket.pop_front() {
            Some(datagram) => {
                state.socket_bytes -= true_size(datagram.bytes.len());
                datagram
            }
            None => match self.rings.take(host) {
                Some(datagram) => datagram,
                None => return Ok(false),
            },
        };
        let outcome = state.node.receive(self.now, &datagram);
        observer.received(self.now, &datagram, outcome)?;
        if let Received::By(slot) = outcome {
            self.report(At { host, slot }, observer)?;
        }
        Ok(true)
    }

    fn has_taken_all(&self, host: usize) -> bool {
        self.hosts[host].socket.is_empty() && !self.rings.hold(host)
    }

    fn run_timers<O: Observer>(&mut self, host: usize, observer: &mut O) -> Result<(), O::Error> {
        for slot in 0..self.hosts[host].node.len() {
            let node = &mut self.hosts[host].node;
            if node.queue_pair(slot).poll_timeout().is_some_and(|at| at <= self.now) {
                observer.timer(self.now, At { host, slot });
                node.handle_timeout(self.now, slot);
                self.report(At { host, slot }, observer)?;
            }
        }
        Ok(())
    }

    /// Whether owed acknowledgements may leave in this turn, or wait for company.
    fn may_acknowledge(&mut self, host: usize, received: bool) -> Acks {
        let now = self.now;
        let state = &mut self.hosts[host];
        let due = match state.acks_due {
            Some(due) => due,
            None if received => now + Duration::from_nanos(state.plan.hold_acks),
            None => now,
        };
        if due <= now {
            state.acks_due = None;
            return Acks::Send;
        }
        state.acks_due = Some(due);
        Acks::Hold
    }

    /// Lets queue pairs send in turns; how many packets left, and whether more might.
    fn send<O: Observer>(
        &mut self,
        host: usize,
        acks: Acks,
        observer: &mut O,
    ) -> Result<(usize, bool), O::Error> {
        let count = self.hosts[host].node.len();
        let (mut sent, mut idle) = (0, 0);
        let mut slot = self.hosts[host].first;
        while idle < count {
            slot = (slot + 1) % count;
            idle += 1;
            for _ in 0..BURST {
                if sent >= TURN || self.link.free_at(host) > self.now + Duration::from_nanos(BACKLOG) {
                    self.hosts[host].first = slot;
                    return Ok((sent, true));
                }
                let at = At { host, slot };
                if !self.finds_room(at, acks) {
                    self.turn_by(host, self.now + LOOK);
                    break;
                }
                let datagram = self.hosts[host].node.transmit(self.now, slot, acks);
                self.report(at, observer)?;
                let Some(datagram) = datagram else { break };
                self.leave(at, datagram, observer)?;
                sent += 1;
                idle = 0;
            }
        }
        self.hosts[host].first = slot;
        Ok((sent, false))
    }

    /// Whether a packet of a queue pair finds room in a ring, if it goes there.
    fn finds_room(&mut self, at: At, acks: Acks) -> bool {
        let node = &self.hosts[at.host].node;
        let Some(to) = node.peer(at.slot) else { return true };
        let pair = node.queue_pair(at.slot);
        let has_window = pair.service() == Service::Rc;
        !pair.may_transmit(acks) || self.rings.let_through(at.host, to, has_window, self.now)
    }

    fn leave<O: Observer>(
        &mut self,
        at: At,
        mut datagram: Datagram,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        self.packets += 1;
        observer.sent(self.now, &self.hosts, at, &datagram)?;
        let lies = self.liar.as_mut().map_or(Vec::new(), |liar| liar.hear(&datagram));
        if self.now < self.hosts[at.host].down_until {
            observer.fault(self.now, Fault::Down, &datagram);
            return Ok(());
        }
        let by_ring = self.hosts[at.host].node.peer(at.slot).is_some_and(|to| self.rings.lead(at.host, to));
        let way = if by_ring {
            let is_in = self.rings.put(&datagram);
            let faults = [(!is_in).then_some(Fault::TailDrop), None, None];
            Way { arrivals: [is_in.then_some(self.now + CALL), None], faults }
        } else {
            self.link.take(self.now, at.host, datagram.to, &mut datagram.bytes)
        };
        for fault in way.faults.into_iter().flatten() {
            observer.fault(self.now, fault, &datagram);
        }
        datagram.fault = way.faults[1];
        let [first, second] = way.arrivals;
        for Lie { act, when } in lies {
            if let Act::Say(datagram) = &act {
                observer.fault(self.now, Fault::Lie, datagram);
            }
            let arrives = match when {
                When::Left(nanos) => self.now + Duration::from_nanos(nanos),
                When::Arrived(nanos) => first.unwrap_or(self.now) + Duration::from_nanos(nanos),
            };
            let event = match act {
                Act::Say(datagram) => Event::Arrive(datagram),
                Act::Revoke(host, key) => Event::Revoke(host, key),
            };
            self.put(arrives, event);
        }
        if let Some(again) = second {
            self.put(again, Event::Arrive(datagram.clone()));
        }
        if let Some(arrives) = first.filter(|_| !by_ring) {
            self.put(arrives, Event::Arrive(datagram));
        }
        Ok(())
    }

    /// Tells the observer what a machine has done.
    fn report<O: Observer>(&mut self, at: At, observer: &mut O) -> Result<(), O::Error> {
        let mut log = std::mem::take(&mut self.log);
        self.hosts[at.host].node.device.take_log(&mut log);
        for action in log.drain(..) {
            observer.acted(self.now, &self.hosts, at, &action)?;
        }
        self.log = log;
        observer.returned(self.now, &self.hosts, at)
    }
}

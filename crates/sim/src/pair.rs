//! Two hosts with one queue pair each, and a link that a test controls packet by packet.
//!
//! ```
//! use ferroce_sim::{Pair, Setup, Side, Verdict};
//! use ferroce_transport::{Data, SendFlags, SendOp, SendRequest, Status};
//!
//! let mut pair = Pair::connect(&Setup::default());
//! pair.memory(Side::A)[..5].copy_from_slice(b"hello");
//! let op = SendOp::Write(pair.remote(Side::B, 100));
//! let sge = [pair.sge(Side::A, 0, 5)];
//! let request = SendRequest { id: 1, op, data: Data::Gather(&sge), flags: SendFlags::SIGNALED, dest: None };
//! pair.post_send(Side::A, &request).unwrap();
//!
//! let mut first = true;
//! pair.filter(move |_| if std::mem::take(&mut first) { Verdict::Drop } else { Verdict::Deliver });
//! pair.run();
//! assert_eq!(pair.take_sends(Side::A)[0].status, Status::Success);
//! assert_eq!(&pair.memory(Side::B)[100..105], b"hello");
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ferroce_transport::{
    Access, Acks, AttributeMask, Attributes, Caps, Completion, Counters, DomainId, Event, ModifyError,
    PostError, QpConfig, QueuePair, ReceiveRequest, Remote, SendRequest, Sge, State, Time,
};
use ferroce_wire::{Lkey, Packet, PathMtu, Psn, QKey, Qpn, Rkey, Service};

use crate::host::{Action, Device};
use crate::memory::Memory;
use crate::node::{Datagram, Node, Received, flow};

/// One end of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Host 0.
    A = 0,
    /// Host 1.
    B = 1,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// How both ends of a [`Pair`] are set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The service.
    pub service: Service,
    /// Path MTU.
    pub mtu: PathMtu,
    /// First PSN that A sends, and that B sends.
    pub psns: [u32; 2],
    /// Code of the transport time-out.
    pub timeout: u8,
    /// How often to try again.
    pub retry_count: u8,
    /// How often to try again after RNR; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the RNR timer that both ends ask for.
    pub min_rnr_timer: u8,
    /// READs and atomics under way, as the requester.
    pub max_rd_atomic: u8,
    /// READs and atomics under way, as the responder.
    pub max_dest_rd_atomic: u8,
    /// What the queue pairs let a peer do.
    pub access: Access,
    /// What the region of each host lets a peer do.
    pub region_access: Access,
    /// Sizes of the queues.
    pub caps: Caps,
    /// Whether all sends are signaled.
    pub signal_all: bool,
    /// One way through the link.
    pub latency: Duration,
    /// Bytes of memory at each end.
    pub memory: usize,
    /// Whether owed acknowledgements leave at once.
    pub acks: Acks,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            service: Service::Rc,
            mtu: PathMtu::B1024,
            psns: [0x10, 0xff_fff0],
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: Access::all(),
            region_access: Access::all(),
            caps: Caps {
                max_send: 64,
                max_receive: 64,
                max_send_sge: 4,
                max_receive_sge: 4,
                max_inline: 256,
            },
            signal_all: false,
            latency: Duration::from_micros(5),
            memory: 1 << 20,
            acks: Acks::Send,
        }
    }
}

/// What the link does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives after the latency of the link.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives this much later than it would have; later packets may overtake it.
    Delay(Duration),
    /// This bit of its bytes is flipped.
    Flip(usize),
}

/// A packet that a side has sent, for a filter and for the record.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Time,
    /// The side that sent it.
    pub from: Side,
    /// How many packets this side had sent before.
    pub number: usize,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
}

impl Sent {
    /// The packet.
    ///
    /// # Panics
    /// A machine sent something that is no packet.
    #[must_use]
    pub fn packet(&self) -> Packet<&[u8]> {
        Packet::parse(&self.bytes).expect("machines send packets")
    }
}

/// The one-line form: time, side, packet.
impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.at, self.from, self.packet())
    }
}

type Filter = Box<dyn FnMut(&Sent) -> Verdict>;

/// Two connected queue pairs in virtual time.
pub struct Pair {
    nodes: [Node; 2],
    setup: Setup,
    now: Time,
    keys: [u32; 2],
    /// Datagrams under way, by arrival and then by the order in which they were sent.
    link: BTreeMap<(Time, u64), Datagram>,
    next: u64,
    filter: Filter,
    /// Everything that was sent, whatever the link did with it.
    pub sent: Vec<Sent>,
    sends: [Vec<Completion>; 2],
    receives: [Vec<Completion>; 2],
    events: [Vec<Event>; 2],
    log: Vec<Action>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("now", &self.now)
            .field("under_way", &self.link.len())
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// The Q_Key of both ends of a UD pair.
    pub const QKEY: QKey = QKey(0x1111);

    const DOMAIN: DomainId = DomainId(1);

    /// How long [`run`](Self::run) goes on before it calls the pair stuck.
    const LIMIT: Duration = Duration::from_secs(600);

    /// Both ends in RTS.
    ///
    /// # Panics
    /// The setup is not one that a queue pair takes.
    #[must_use]
    pub fn connect(setup: &Setup) -> Self {
        let mut pair = Self::unconnected(setup);
        for side in [Side::A, Side::B] {
            pair.bring_up(side, setup.psns[side.index()], setup.psns[side.other().index()])
                .expect("the setup of a pair can be brought up");
        }
        pair
    }

    /// Both ends in RESET.
    #[must_use]
    pub fn unconnected(setup: &Setup) -> Self {
        let mut keys = [0; 2];
        let nodes = [Side::A, Side::B].map(|side| {
            let index = side.index();
            let mut memory = Memory::new(Self::base(side), setup.memory);
            keys[index] =
                memory.register(Self::DOMAIN, Self::base(side), setup.memory as u64, setup.region_access);
            let mut node = Node::new(index, 2, Device::new(memory));
            let config = QpConfig {
                qpn: Self::qpn(side),
                service: setup.service,
                domain: Self::DOMAIN,
                caps: setup.caps,
                signal_all: setup.signal_all,
                shared_queue: None,
            };
            node.add(config, (setup.service != Service::Ud).then_some(1 - index));
            node
        });
        Self {
            nodes,
            setup: *setup,
            now: Time::from_nanos(1_000_000),
            keys,
            link: BTreeMap::new(),
            next: 0,
            filter: Box::new(|_| Verdict::Deliver),
            sent: Vec::new(),
            sends: [const { Vec::new() }; 2],
            receives: [const { Vec::new() }; 2],
            events: [const { Vec::new() }; 2],
            log: Vec::new(),
        }
    }

    /// Moves one end from RESET over INIT and RTR to RTS with these first PSNs.
    ///
    /// # Errors
    /// What [`QueuePair::modify`] says.
    pub fn bring_up(&mut self, side: Side, sends_from: u32, expects: u32) -> Result<(), ModifyError> {
        for attributes in transitions(&self.setup, side, sends_from, expects) {
            self.modify(side, &attributes)?;
        }
        Ok(())
    }

    /// Changes one end.
    ///
    /// # Errors
    /// What [`QueuePair::modify`] says.
    pub fn modify(&mut self, side: Side, attributes: &Attributes) -> Result<(), ModifyError> {
        let result = self.nodes[side.index()].modify(0, attributes);
        self.collect(side);
        result
    }

    /// The number of a side's queue pair.
    #[must_use]
    pub const fn qpn(side: Side) -> Qpn {
        Qpn::new(0x11 + side as u32)
    }

    const fn base(side: Side) -> u64 {
        0x10_0000 * (1 + side as u64)
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// A side's queue pair.
    #[must_use]
    pub fn queue_pair(&self, side: Side) -> &QueuePair {
        self.nodes[side.index()].queue_pair(0)
    }

    /// What happened to a side's queue pair.
    #[must_use]
    pub fn counters(&self, side: Side) -> &Counters {
        self.queue_pair(side).counters()
    }

    /// A side's host, for regions, windows and everything else.
    pub const fn node(&mut self, side: Side) -> &mut Node {
        &mut self.nodes[side as usize]
    }

    /// A side's memory.
    pub fn memory(&mut self, side: Side) -> &mut [u8] {
        let len = self.setup.memory;
        self.nodes[side.index()].device.memory.slice_mut(Self::base(side), len)
    }

    /// A piece of a side's memory.
    #[must_use]
    pub const fn sge(&self, side: Side, offset: u64, length: u32) -> Sge {
        Sge { address: Self::base(side) + offset, length, lkey: Lkey(self.keys[side as usize]) }
    }

    /// A place in a side's memory, as its peer names it.
    #[must_use]
    pub const fn remote(&self, side: Side, offset: u64) -> Remote {
        Remote { address: Self::base(side) + offset, rkey: Rkey(self.keys[side as usize]) }
    }

    /// Posts a send request and sends what it gives.
    ///
    /// # Errors
    /// What [`QueuePair::post_send`] says.
    pub fn post_send(&mut self, side: Side, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.nodes[side.index()].post_send(0, request)?;
        self.collect(side);
        Ok(())
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// What [`QueuePair::post_receive`] says.
    pub fn post_receive(&mut self, side: Side, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.nodes[side.index()].post_receive(0, request)?;
        self.collect(side);
        Ok(())
    }

    /// Has a side ask whether its peer is there; false if it cannot.
    pub fn ask(&mut self, side: Side) -> bool {
        self.nodes[side.index()].ask(0)
    }

    /// From now on this decides what becomes of each packet that is sent.
    pub fn filter(&mut self, filter: impl FnMut(&Sent) -> Verdict + 'static) {
        self.filter = Box::new(filter);
    }

    /// Lets a packet arrive at `to` now, as if its peer had sent it.
    ///
    /// # Panics
    /// The packet is longer than packets can be.
    pub fn inject(&mut self, to: Side, packet: &Packet<&[u8]>) {
        let (from, to) = (to.other().index(), to.index());
        let mut bytes = vec![0; packet.len()];
        packet.emit(&flow(from, to), 0, &mut bytes).expect("the buffer has the length of the packet");
        self.put((self.now, 0), Datagram { from, slot: 0, to, bytes, fault: None });
    }

    /// Sends one packet of a side, as a device does that has much else to do. False if none is ready.
    pub fn send_one(&mut self, side: Side) -> bool {
        let datagram = self.nodes[side.index()].transmit(self.now, 0, self.setup.acks);
        self.collect(side);
        let any = datagram.is_some();
        if let Some(datagram) = datagram {
            self.leave(side, datagram);
        }
        any
    }

    /// Lets the next packet arrive, before anything is sent. False if none is under way.
    pub fn receive_one(&mut self) -> bool {
        let Some(((at, _), datagram)) = self.link.pop_first() else { return false };
        self.now = self.now.max(at);
        self.arrive(&datagram);
        true
    }

    /// Does the next thing: sends what is ready; else lets the next packet arrive or the next timer
    /// run out, whichever comes first. False if there is nothing to do: the pair is at rest.
    pub fn step(&mut self) -> bool {
        if self.send_ready() {
            return true;
        }
        let arrival = self.link.keys().next().copied();
        let timer = [Side::A, Side::B].into_iter().filter_map(|side| Some((self.timeout(side)?, side)));
        let timer = timer.min_by_key(|(at, _)| *at);
        match (arrival, timer) {
            (Some(key), timer) if timer.is_none_or(|(at, _)| key.0 <= at) => {
                self.now = self.now.max(key.0);
                if let Some(datagram) = self.link.remove(&key) {
                    self.arrive(&datagram);
                }
                true
            }
            (_, Some((at, side))) => {
                self.now = self.now.max(at);
                self.nodes[side.index()].handle_timeout(self.now, 0);
                self.collect(side);
                true
            }
            (_, None) => false,
        }
    }

    /// Steps until the pair is at rest.
    ///
    /// # Panics
    /// It does not come to rest within ten minutes of virtual time.
    pub fn run(&mut self) {
        let start = self.now;
        while self.step() {
            assert!(self.now.since(start) < Self::LIMIT, "the pair does not come to rest");
        }
    }

    /// Steps until nothing happens before `duration` is over, then moves the clock there.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            if self.send_ready() {
                continue;
            }
            match self.next_at() {
                Some(at) if at <= end => self.step(),
                _ => break,
            };
        }
        self.now = self.now.max(end);
    }

    /// Moves the clock without letting either side act: both hosts are away.
    pub fn skip(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    /// When the next packet arrives or the next timer runs out.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let timers = [Side::A, Side::B].into_iter().filter_map(|side| self.timeout(side));
        timers.chain(self.link.keys().map(|key| key.0).take(1)).min()
    }

    fn timeout(&self, side: Side) -> Option<Time> {
        self.queue_pair(side).poll_timeout()
    }

    /// Completions of a side's send requests since the last call.
    pub fn take_sends(&mut self, side: Side) -> Vec<Completion> {
        std::mem::take(&mut self.sends[side.index()])
    }

    /// Completions of a side's receive requests since the last call.
    pub fn take_receives(&mut self, side: Side) -> Vec<Completion> {
        std::mem::take(&mut self.receives[side.index()])
    }

    /// Events of a side's queue pair since the last call.
    pub fn take_events(&mut self, side: Side) -> Vec<Event> {
        std::mem::take(&mut self.events[side.index()])
    }

    /// All packets of both sides, in their one-line forms.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.sent.iter().map(|sent| format!("{sent}\n")).collect()
    }

    /// Sends everything that is ready; false if nothing was.
    fn send_ready(&mut self) -> bool {
        let mut any = false;
        for side in [Side::A, Side::B] {
            while let Some(datagram) = self.nodes[side.index()].transmit(self.now, 0, self.setup.acks) {
                any = true;
                self.collect(side);
                self.leave(side, datagram);
            }
            self.collect(side);
        }
        any
    }

    fn leave(&mut self, from: Side, mut datagram: Datagram) {
        let number = self.sent.iter().filter(|sent| sent.from == from).count();
        let sent = Sent { at: self.now, from, number, bytes: datagram.bytes.clone() };
        let verdict = (self.filter)(&sent);
        self.sent.push(sent);
        let arrives = self.now + self.setup.latency;
        match verdict {
            Verdict::Deliver => self.put((arrives, 1), datagram),
            Verdict::Drop => {}
            Verdict::Duplicate => {
                self.put((arrives, 1), datagram.clone());
                self.put((arrives, 1), datagram);
            }
            Verdict::Delay(extra) => self.put((arrives + extra, 1), datagram),
            Verdict::Flip(bit) => {
                let at = bit / 8 % datagram.bytes.len();
                datagram.bytes[at] ^= 1 << (bit % 8);
                self.put((arrives, 1), datagram);
            }
        }
    }

    /// Puts a datagram on the link; those of rank 0 arrive before others of the same time.
    fn put(&mut self, (at, rank): (Time, u64), datagram: Datagram) {
        self.next += 1;
        self.link.insert((at, rank << 60 | self.next), datagram);
    }

    fn arrive(&mut self, datagram: &Datagram) {
        let side = if datagram.to == 0 { Side::A } else { Side::B };
        match self.nodes[datagram.to].receive(self.now, datagram) {
            Received::By(_) | Received::Refused(_) | Received::NoQueuePair(_) => self.collect(side),
        }
    }

    fn collect(&mut self, side: Side) {
        let index = side.index();
        self.nodes[index].device.take_log(&mut self.log);
        for action in self.log.drain(..) {
            match action {
                Action::SendDone(completion) => self.sends[index].push(completion),
                Action::ReceiveDone(completion) => self.receives[index].push(completion),
                Action::Event(_, event) => self.events[index].push(event),
                _ => {}
            }
        }
    }
}

/// The steps from RESET to RTS.
fn transitions(setup: &Setup, side: Side, sends_from: u32, expects: u32) -> [Attributes; 3] {
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1);
    let rtr = Attributes::to(State::Rtr);
    let rts = Attributes::to(State::Rts).with_sq_psn(Psn::new(sends_from));
    let connected_rtr = rtr
        .with(AttributeMask::AV)
        .with_path_mtu(setup.mtu)
        .with_dest_qpn(Pair::qpn(side.other()))
        .with_rq_psn(Psn::new(expects));
    match setup.service {
        Service::Ud => [init.with_qkey(Pair::QKEY), rtr, rts],
        Service::Rc => [
            init.with_access(setup.access),
            connected_rtr
                .with_max_dest_rd_atomic(setup.max_dest_rd_atomic)
                .with_min_rnr_timer(setup.min_rnr_timer),
            rts.with_timeout(setup.timeout)
                .with_retry_count(setup.retry_count)
                .with_rnr_retry(setup.rnr_retry)
                .with_max_rd_atomic(setup.max_rd_atomic),
        ],
        _ => [init.with_access(setup.access), connected_rtr, rts],
    }
}

//! Two hosts with one queue pair each, and a link whose packets wait until an operation takes them.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_transport::{
    Access, Acks, Attributes, Caps, DomainId, QpConfig, QueuePair, ReceiveQueue, ReceiveRequest, Sge,
    SharedQueueId, State, Time,
};
use ferroce_wire::{Body, Lkey, Packet, Psn, Qpn, Rkey, Service};

use super::hostile::{self, Knowledge};
use super::ledger::Ledger;
use super::posting::{self, Oddity, Shape};
use super::{Config, HostilePacket, Operation, PsnStart, ServiceKind};
use crate::host::{Action, Device};
use crate::memory::Memory;
use crate::node::{Datagram, Node, flow};

pub(super) const DOMAIN: DomainId = DomainId(1);

/// Bytes before and after the region that nothing may touch.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xa5;

/// Bytes of the region.
pub(super) const REGION: u64 = 32 * 1024;

/// Requests that fit into each queue.
const DEPTH: u32 = 16;

/// How long a good link may need until all work has ended, in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Packets that wait on the link in one direction; more are lost.
const MAX_WAITING: usize = 256;

pub(super) struct Rig {
    pub(super) config: Config,
    pub(super) nodes: [Node; 2],
    /// Packets under way, by the side that sent them.
    pub(super) link: [VecDeque<Datagram>; 2],
    pub(super) ledgers: [Ledger; 2],
    /// Keys of the regions, and of the memory windows.
    pub(super) keys: [u32; 2],
    pub(super) windows: [u32; 2],
    now: Time,
    pub(super) next_id: u64,
    /// The last PSN of a request that each side sent.
    pub(super) asked: [Psn; 2],
    /// Nothing but the network was bad so far, so everything must end.
    pub(super) gentle: bool,
    log: Vec<Action>,
}

impl Rig {
    pub(super) fn new(config: Config) -> Self {
        let (mut keys, mut windows) = ([0; 2], [0; 2]);
        let nodes = [0, 1].map(|side| {
            let start = base(side) - GUARD as u64;
            let mut memory = Memory::new(start, GUARD * 2 + usize::try_from(REGION).expect("it is small"));
            for guard in guards(side) {
                memory.slice_mut(guard, GUARD).fill(GUARD_BYTE);
            }
            keys[side] = memory.register(DOMAIN, base(side), REGION, Access::all());
            windows[side] = memory.make_window(DOMAIN);
            let mut node = Node::new(side, 2, Device::new(memory));
            node.device.shared.push(ReceiveQueue::new(DEPTH, 2));
            let caps = Caps {
                max_send: DEPTH,
                max_receive: DEPTH,
                max_send_sge: 3,
                max_receive_sge: 2,
                max_inline: 64,
            };
            let qp = QpConfig {
                qpn: qpn(side),
                service: service(config.service),
                domain: DOMAIN,
                caps,
                signal_all: config.signal_all,
                shared_queue: config.shared.then_some(SharedQueueId(0)),
            };
            node.add(qp, (config.service != ServiceKind::Ud).then_some(1 - side));
            node
        });
        let ledgers = [0, 1].map(|side| Ledger::new((base(side), base(side) + REGION)));
        let asked = config.psns.map(PsnStart::psn);
        let mut rig = Self {
            config,
            nodes,
            link: Default::default(),
            ledgers,
            keys,
            windows,
            now: Time::from_nanos(1_000_000),
            next_id: 0,
            asked,
            gentle: true,
            log: Vec::new(),
        };
        rig.bring_up(0);
        rig.bring_up(1);
        rig
    }

    pub(super) fn queue_pair(&self, side: usize) -> &QueuePair {
        self.nodes[side].queue_pair(0)
    }

    pub(super) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Post { b, work, place, length, pieces, flags, odd } => {
                let shape = Shape { place, length, pieces, flags, oddity: Oddity::from_byte(odd) };
                posting::post_send(self, usize::from(b), work, &shape);
            }
            Operation::PostReceive { b, count, length } => {
                // Mostly long enough for every message.
                let length = if length < 0x1000 { u32::from(length) } else { 8192 };
                self.post_receives(usize::from(b), usize::from(count % 8), length);
            }
            Operation::Transmit { b, count, hold_acks } => {
                let acks = if hold_acks { Acks::Hold } else { Acks::Send };
                self.transmit(usize::from(b), usize::from(count), acks);
            }
            Operation::Deliver { from_b, index } => {
                if let Some(datagram) = self.take(from_b, index) {
                    self.deliver(&datagram);
                }
            }
            Operation::DeliverAll { from_b } => {
                while let Some(datagram) = self.link[usize::from(from_b)].pop_front() {
                    self.deliver(&datagram);
                }
            }
            Operation::Exchange { rounds } => {
                for _ in 0..rounds % 4 {
                    self.exchange();
                }
            }
            Operation::Lose { from_b, index } => drop(self.take(from_b, index)),
            Operation::Repeat { from_b, index } => {
                if let Some(datagram) = self.take(from_b, index) {
                    self.deliver(&datagram);
                    self.put(datagram);
                }
            }
            Operation::Corrupt { from_b, index, bit, sealed } => self.corrupt(from_b, index, bit, sealed),
            Operation::Wait { micros } => self.wait(self.now + Duration::from_micros(u64::from(micros))),
            Operation::NextTimer { b } => {
                if let Some(at) = self.queue_pair(usize::from(b)).poll_timeout() {
                    self.wait(at);
                }
            }
            Operation::Modify { b, change } => self.change(usize::from(b), change),
            Operation::Reconnect { forget, psns } => self.reconnect(forget, psns),
            Operation::Reregister { b, access } => self.reregister(usize::from(b), access),
            Operation::Hostile { to_b, psn, packet } => self.hostile(usize::from(to_b), psn, packet),
        }
    }

    pub(super) fn post_receives(&mut self, side: usize, count: usize, length: u32) {
        for number in 0..count {
            self.next_id += 1;
            let (id, lkey) = (self.next_id, Lkey(self.keys[side]));
            let address = base(side) + number as u64 * 100;
            let (first, second) = (length / 2, length - length / 2);
            let sges = [
                Sge { address, length: first, lkey },
                Sge { address: base(side) + 16384 + number as u64, length: second, lkey },
            ];
            self.ledgers[side].post_receive(id, &sges);
            let taken = if self.config.shared {
                self.nodes[side].device.shared[0].push(id, &sges)
            } else {
                self.nodes[side].post_receive(0, &ReceiveRequest { id, sges: &sges }).is_ok()
            };
            if !taken {
                self.ledgers[side].withdraw_receive();
            }
            self.collect(side);
        }
    }

    /// Lets a side send up to `count` packets.
    fn transmit(&mut self, side: usize, count: usize, acks: Acks) {
        for _ in 0..count {
            let sent = self.nodes[side].transmit(self.now, 0, acks);
            self.collect(side);
            let Some(datagram) = sent else { return };
            let packet = Packet::parse(&datagram.bytes).expect("machines send packets");
            if let Body::RcRequest(_) = packet.body {
                self.asked[side] = packet.psn;
            }
            self.put(datagram);
        }
    }

    fn put(&mut self, datagram: Datagram) {
        let waiting = &mut self.link[datagram.from];
        if waiting.len() < MAX_WAITING {
            waiting.push_back(datagram);
        }
    }

    fn take(&mut self, from_b: bool, index: u8) -> Option<Datagram> {
        let waiting = &mut self.link[usize::from(from_b)];
        let index = usize::from(index) % waiting.len().max(1);
        waiting.remove(index)
    }

    fn deliver(&mut self, datagram: &Datagram) {
        self.nodes[datagram.to].receive(self.now, datagram);
        self.collect(datagram.to);
    }

    /// Flips a bit of the headers of a packet.
    fn corrupt(&mut self, from_b: bool, index: u8, bit: u16, sealed: bool) {
        let Some(mut datagram) = self.take(from_b, index) else { return };
        let headers = datagram.bytes.len().min(40);
        let bit = usize::from(bit) % (headers * 8);
        datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        if sealed {
            self.gentle = false;
            let sealed = flow(datagram.from, datagram.to).seal(&mut datagram.bytes, 0);
            sealed.expect("a packet has room for its ICRC");
        }
        self.deliver(&datagram);
    }

    fn hostile(&mut self, to: usize, psn: i8, packet: HostilePacket) {
        self.gentle = false;
        let origin = match packet {
            HostilePacket::Response { .. } => self.asked[to],
            _ => self.asked[1 - to],
        };
        let psn = Psn::new(origin.get().wrapping_add_signed(i32::from(psn)));
        let (key, window) = (Rkey(self.keys[to]), Rkey(self.windows[to]));
        let packet = hostile::build(packet, Knowledge { dest: qpn(to), psn, key, window, base: base(to) });
        let mut bytes = vec![0; packet.len()];
        packet.emit(&flow(1 - to, to), 0, &mut bytes).expect("the buffer has the length of the packet");
        self.deliver(&Datagram { from: 1 - to, slot: 0, to, bytes, fault: None });
    }

    /// Moves the clock to `at`, and lets both sides see it.
    fn wait(&mut self, at: Time) {
        self.now = self.now.max(at);
        for side in [0, 1] {
            self.nodes[side].handle_timeout(self.now, 0);
            self.collect(side);
        }
    }

    /// Lets the ledger judge what a side did.
    pub(super) fn collect(&mut self, side: usize) {
        self.nodes[side].device.take_log(&mut self.log);
        for action in self.log.drain(..) {
            self.ledgers[side].judge(&action);
        }
    }

    /// What must hold between any two operations: without work, nothing is under way.
    pub(super) fn check(&self) {
        for side in [0, 1] {
            let pair = self.queue_pair(side);
            if pair.sends_waiting() == 0 {
                assert_eq!(self.nodes[side].window(1 - side).in_flight(), 0, "side {side}");
                assert_eq!(pair.poll_timeout(), None, "side {side} waits for nothing");
            }
            assert!(pair.state() != State::Err || pair.sends_waiting() == 0, "ERR with work on side {side}");
        }
    }

    /// Lets both sides send, and everything arrive; false if nothing was on its way.
    fn exchange(&mut self) -> bool {
        self.transmit(0, 64, Acks::Send);
        self.transmit(1, 64, Acks::Send);
        let mut any = false;
        for side in [0, 1] {
            while let Some(datagram) = self.link[side].pop_front() {
                any = true;
                self.deliver(&datagram);
            }
        }
        any
    }

    /// From here on the link is good and receives are there: all work ends, and then all of it in ERR.
    pub(super) fn settle(&mut self) {
        let start = self.now;
        for _ in 0..20_000 {
            let moved = self.exchange();
            self.check();
            if !moved {
                let timers = [0, 1].into_iter().filter_map(|side| self.queue_pair(side).poll_timeout());
                let Some(at) = timers.min() else { break };
                self.post_receives(0, 2, 8192);
                self.post_receives(1, 2, 8192);
                self.wait(at);
            }
        }
        assert!(!self.gentle || self.now.since(start) < PATIENCE, "at rest only at {}", self.now);
        for side in [0, 1] {
            let waiting = self.queue_pair(side).sends_waiting();
            assert!(!self.gentle || waiting == 0, "side {side} does not come to rest: {waiting} wait");
            self.modify(side, &Attributes::to(State::Err));
            self.check();
            self.ledgers[side].check_all_ended(self.config.shared);
            for guard in guards(side) {
                let bytes = self.nodes[side].device.memory.slice(guard, GUARD);
                assert!(bytes.iter().all(|byte| *byte == GUARD_BYTE), "written outside of the region");
            }
        }
    }
}

impl PsnStart {
    fn psn(self) -> Psn {
        match self {
            Self::Low(low) => Psn::new(u32::from(low)),
            Self::High(high) => Psn::new(0xff_ff00 | u32::from(high)),
        }
    }
}

pub(super) fn service(kind: ServiceKind) -> Service {
    match kind {
        ServiceKind::Rc | ServiceKind::RcToo | ServiceKind::RcAgain => Service::Rc,
        ServiceKind::Uc => Service::Uc,
        ServiceKind::Ud => Service::Ud,
    }
}

pub(super) const fn base(side: usize) -> u64 {
    0x10_0000 * (1 + side as u64)
}

pub(super) fn qpn(side: usize) -> Qpn {
    Qpn::new(if side == 0 { 0x11 } else { 0x12 })
}

const fn guards(side: usize) -> [u64; 2] {
    [base(side) - GUARD as u64, base(side) + REGION]
}

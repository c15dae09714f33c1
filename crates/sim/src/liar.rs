//! A liar on one connection: it hears every packet of both ends, and says in their names what they did not say.
//!
//! What it says is well formed and has a right ICRC, as a peer could make it that keeps no rule. Both ends are honest
//! machines, so each is the victim of the other one's liar. What must hold nevertheless is in
//! [`check::witness`](crate::check::witness).

mod answers;
mod requests;

use std::collections::VecDeque;

use ferroce_wire::{Body, Packet, Psn, Qpn, Reth, Rkey};

use crate::dice::Dice;
use crate::link::Fault;
use crate::node::{Datagram, flow};
use crate::world::At;

/// How much a liar lies.
#[derive(Clone, Copy, Debug)]
pub struct LiarPlan {
    /// One packet in so many gives it an idea.
    pub every: u64,
    /// After so many ideas it is silent.
    pub ideas: u64,
}

/// What a liar knows of one end of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub at: At,
    pub qpn: Qpn,
    /// Path MTU, in bytes.
    pub mtu: u32,
    /// Memory that its peer may use: first byte, bytes, key.
    pub open: (u64, u64, u32),
    /// Memory that its peer may only read.
    pub constant: (u64, u64, u32),
    /// Memory for atomics.
    pub cells: (u64, u64, u32),
    /// A key that was taken out of use.
    pub revoked: u32,
    /// Memory of another connection of the same host, with its key.
    pub foreign: (u64, u32),
    /// Keys of the memory that may only be read: each is taken out of use after it was used once.
    pub fleeting: [u32; FLEETING],
}

/// Keys that the program at an end gives out for a moment.
pub(crate) const FLEETING: usize = 8;

/// The liar.
#[derive(Debug)]
pub(crate) struct Liar {
    plan: LiarPlan,
    dice: Dice,
    victims: [Victim; 2],
    /// Requests that each end has sent, the newest first.
    heard: [VecDeque<Vec<u8>>; 2],
    /// How many fleeting keys of each end were used.
    used: [usize; 2],
}

/// What a liar does.
#[derive(Debug)]
pub(crate) struct Lie {
    pub act: Act,
    pub when: When,
}

/// When a liar does something, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// After the packet that gave the idea has left.
    Left(u64),
    /// After it arrives; 0 is just before.
    Arrived(u64),
}

/// One thing that a liar does, or has done by the program of its victim.
#[derive(Debug)]
pub(crate) enum Act {
    /// Says this.
    Say(Datagram),
    /// A key of this host is taken out of use.
    Revoke(usize, u32),
}

/// How many requests of each end are remembered.
const REMEMBERED: usize = 24;

/// A packet in the making, with its payload.
type Said<'a> = Packet<&'a [u8]>;

/// Bytes that no honest end sends.
static RUBBISH: [u8; 4096] = [0xe1; 4096];

impl Liar {
    /// A liar between these two.
    #[must_use]
    pub(crate) fn new(plan: LiarPlan, dice: Dice, victims: [Victim; 2]) -> Self {
        Self { plan, dice, victims, heard: Default::default(), used: [0; 2] }
    }

    /// What it says about a packet that just left. Packets of other connections do not concern it.
    pub(crate) fn hear(&mut self, datagram: &Datagram) -> Vec<Lie> {
        let from = At { host: datagram.from, slot: datagram.slot };
        let Some(side) = self.victims.iter().position(|victim| victim.at == from) else { return Vec::new() };
        let Ok(packet) = Packet::parse(&datagram.bytes) else { return Vec::new() };
        let mut lies = Vec::new();
        if self.plan.ideas > 0 && self.dice.one_in(self.plan.every) {
            self.plan.ideas -= 1;
            match packet.body {
                Body::RcRequest(_) if self.dice.one_in(3) => self.answer(1 - side, &packet, &mut lies),
                Body::RcRequest(_) => self.request(side, &packet, &mut lies),
                Body::RcResponse(_) => self.other_answer(side, &packet, &mut lies),
                _ => {}
            }
        }
        if matches!(packet.body, Body::RcRequest(_)) {
            self.heard[side].truncate(REMEMBERED - 1);
            self.heard[side].push_front(datagram.bytes.clone());
        }
        lies
    }

    /// Says something in the name of the end `by`.
    fn say(&mut self, by: usize, packet: &Said<'_>, when: When, lies: &mut Vec<Lie>) {
        let (from, to) = (self.victims[by].at, self.victims[1 - by].at.host);
        let mut bytes = vec![0; packet.len()];
        if packet.emit(&flow(from.host, to), 0, &mut bytes).is_ok() {
            let datagram = Datagram { from: from.host, slot: from.slot, to, bytes, fault: Some(Fault::Lie) };
            lies.push(Lie { act: Act::Say(datagram), when });
        }
    }

    /// A packet to the peer of `by`.
    fn to_peer<'a>(&self, by: usize, psn: Psn, body: Body<&'a [u8]>) -> Said<'a> {
        Packet { ack_request: true, ..Packet::new(self.victims[1 - by].qpn, psn, body) }
    }

    /// Some bytes of rubbish.
    fn rubbish(&mut self, low: u32, high: u32) -> &'static [u8] {
        let len = self.dice.between_u32(low, high.max(low)) as usize;
        &RUBBISH[..len.min(RUBBISH.len())]
    }

    /// A place in memory that the victim has opened, for so many bytes.
    fn open_place(&mut self, victim: usize, length: u32) -> Reth {
        let (start, len, key) = self.victims[victim].open;
        let offset = self.dice.below(len.saturating_sub(u64::from(length)));
        Reth { address: start + offset, rkey: Rkey(key), length }
    }

    /// A place that the victim has not opened for this.
    fn closed_place(&mut self, victim: usize, length: u32) -> Reth {
        let Victim { open, constant, revoked, foreign, .. } = self.victims[victim];
        let (address, key) = match self.dice.below(6) {
            0 => (open.0, revoked),
            1 => (foreign.0, foreign.1),
            2 => (foreign.0, open.2),
            3 => (constant.0, constant.2),
            4 => (open.0, open.2 ^ 0x3300_0000),
            // A part of it is open.
            _ => (open.0 + open.1 - u64::from(length / 2), open.2),
        };
        Reth { address, rkey: Rkey(key), length }
    }
}

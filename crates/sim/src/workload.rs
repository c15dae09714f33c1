//! What the programs at the ends do: they post work, and keep receives posted, sometimes late.

use ferroce_transport::{Bind, ReceiveRequest, SendOp, Sge};
use ferroce_wire::{Lkey, Rkey, Service};

use crate::check::Violation;
use crate::check::broken;
use crate::check::grants::Owner;
use crate::check::model::Posted;
use crate::coverage::Kind;
use crate::link::Fault;
use crate::plan::PairPlan;
use crate::run::{Run, Token, WindowState};
use crate::setup::SHARED_DEPTH;

/// Receives that a program keeps posted.
const RECEIVES: usize = 12;

/// How often, in posts, a fault of one kind is injected while that kind is on.
const BAD_EVERY: u64 = 60;

impl Run<'_> {
    pub(crate) fn pair_plan(&self, end: usize) -> &PairPlan {
        &self.plan.pairs[end / 2]
    }

    /// The program at an end does something, and asks to be woken again while there is anything to do.
    pub(crate) fn tick(&mut self, end: usize) -> Result<(), Violation> {
        self.ends[end].ticking = false;
        if !self.watch.is_usable(end) {
            return Ok(());
        }
        self.post_receives(end)?;
        let mut more = true;
        for _ in 0..self.dice.between(1, 4) {
            more = self.budget > 0 && self.has_room(end);
            if !more {
                break;
            }
            if !self.post(end)? {
                // No memory: later there will be.
                self.tick_after(end, 20_000, 200_000);
                return Ok(());
            }
        }
        // Without room in the queue, the next completion wakes the program.
        if self.receives_lack(end) {
            self.tick_after(end, 2_000, 200_000);
        } else if more {
            self.tick_soon(end);
        }
        Ok(())
    }

    fn has_room(&self, end: usize) -> bool {
        self.watch.model.ends[end].outstanding() < self.pair_plan(end).outstanding
    }

    /// Whether the peer has sent more than there are receives for.
    fn receives_lack(&self, end: usize) -> bool {
        let ends = &self.watch.model.ends;
        if ends[end].service != Service::Rc {
            return false;
        }
        if self.watch.model.is_lied_to(end) {
            // What was delivered cannot be told from what a liar said.
            let waiting = ends[end].peer.map_or(0, |peer| ends[peer].outstanding());
            return waiting > 0 && ends[end].receives.is_empty();
        }
        if !ends[end].shared {
            let waiting = ends[end].peer.map_or(0, |peer| ends[peer].awaiting_receive());
            return waiting > ends[end].receives.len();
        }
        let host = ends[end].at.host;
        let waiting = ends.iter().filter(|end| end.shared && end.at.host == host);
        let waiting: usize =
            waiting.filter_map(|end| end.peer).map(|peer| ends[peer].awaiting_receive()).sum();
        waiting > self.watch.model.shared[host].len()
    }

    fn post_receives(&mut self, end: usize) -> Result<(), Violation> {
        let shared = self.watch.model.ends[end].shared;
        let host = self.at(end).host;
        loop {
            let model = &self.watch.model;
            let posted = if shared { model.shared[host].len() } else { model.ends[end].receives.len() };
            let wanted = if shared { SHARED_DEPTH as usize - 4 } else { RECEIVES };
            if posted >= wanted {
                return Ok(());
            }
            if self.pair_plan(end).late_receives {
                // One at a time, and often not now.
                if !self.dice.one_in(3) || posted > 0 {
                    self.watch.coverage.count(Kind::Fault, Fault::LateReceive.name());
                    return Ok(());
                }
            }
            if !self.post_receive(end)? {
                return Ok(());
            }
        }
    }

    fn post_receive(&mut self, end: usize) -> Result<bool, Violation> {
        let known = &self.watch.model.ends[end];
        let (shared, service, host) = (known.shared, known.service, known.at.host);
        let arena = if shared { self.ends.len() + host } else { end };
        // A shared queue serves every pair, so its receives must take the longest of all.
        let mut len = if shared { 16 * 1024 } else { self.pair_plan(end).send_max };
        if service == Service::Ud {
            len = 4096 + 40;
        }
        let mut good = true;
        if self.plan.chaos.bad_receives && service == Service::Rc && self.dice.one_in(BAD_EVERY) {
            let now = self.world.now();
            if self.dice.one_in(2) {
                len = len / 2 - 1;
            } else {
                good = false;
            }
            self.watch.inject(now, Fault::BadReceive, || format!("end {end}: {len} bytes, key good: {good}"));
        }
        let id = self.take_id(end);
        let Some(pieces) = self.cut_pieces(arena, len, |offset| Owner::Receive { id, offset }) else {
            return Ok(false);
        };
        let key = self.watch.model.arenas[arena].key ^ if good { 0 } else { 0x7f00_0000 };
        let sges: Vec<Sge> =
            pieces.iter().map(|&(address, length)| Sge { address, length, lkey: Lkey(key) }).collect();
        let posted = Posted { id, pieces, len, good };
        let now = self.world.now();
        self.watch
            .trace
            .line(now, || format!("end {end} posts receive {id:#x} of {len} bytes, key good: {good}"));
        if shared {
            self.watch.model.shared[host].push_back(posted);
            if !self.world.hosts[host].node.device.shared[0].push(id, &sges) {
                return broken("bounded-state", "a shared queue is full too early");
            }
            return Ok(true);
        }
        self.watch.model.ends[end].receives.push_back(posted);
        let request = ReceiveRequest { id, sges: &sges };
        let result =
            self.world.call(self.at(end), &mut self.watch, |node, slot| node.post_receive(slot, &request))?;
        match result {
            Ok(()) => Ok(true),
            Err(error) => broken("legal-post", format!("end {end} posts a receive: {error}")),
        }
    }

    /// An id that no other request has.
    pub(crate) fn take_id(&mut self, end: usize) -> u64 {
        self.next_id += 1;
        (end as u64) << 32 | self.next_id
    }

    /// Cuts `len` bytes in one to four pieces from an arena; nothing is cut if there is no room for all.
    pub(crate) fn cut_pieces(
        &mut self,
        arena: usize,
        len: u32,
        owner: impl Fn(u32) -> Owner,
    ) -> Option<Vec<(u64, u32)>> {
        let host = self.watch.model.arenas[arena].host;
        let count = if self.dice.one_in(3) { self.dice.between(2, 4) } else { 1 };
        let mut pieces = Vec::new();
        let mut rest = len;
        for piece in 0..count {
            let length = if piece + 1 == count { rest } else { self.dice.between_u32(0, rest) };
            let skew = self.dice.below(8);
            let start = if length == 0 {
                Some(self.watch.model.arenas[arena].start)
            } else {
                self.watch.model.cut(arena, length, skew, owner(len - rest))
            };
            let Some(start) = start else {
                for (start, length) in pieces {
                    if length > 0 {
                        self.watch.model.free(host, start);
                    }
                }
                return None;
            };
            pieces.push((start, length));
            rest -= length;
        }
        Some(pieces)
    }

    /// A send of this end completed.
    pub(crate) fn sent(&mut self, end: usize, id: u64, good: bool) {
        let known = &self.watch.model.ends[end];
        let op = known.messages.iter().find(|message| message.id == id).map(|message| message.op);
        match op {
            Some(SendOp::BindWindow(_)) if good => self.ends[end].window = WindowState::Bound,
            Some(SendOp::LocalInvalidate(_)) => self.ends[end].window = WindowState::Free,
            _ => {}
        }
        if self.budget > 0 && self.has_room(end) {
            self.tick_soon(end);
        }
    }

    /// A bind of the end's window to the whole of its memory.
    pub(crate) fn bind(&mut self, end: usize) -> Bind {
        let arena = &self.watch.model.arenas[end];
        let key = self.ends[end].window_key;
        Bind {
            window: Rkey(key),
            new_key: Rkey(key & !0xff | (key + 1) & 0xff),
            region: Lkey(arena.key),
            address: arena.start,
            length: arena.len,
            access: ferroce_transport::Access::REMOTE_WRITE | ferroce_transport::Access::REMOTE_READ,
        }
    }

    /// Now and then, while this kind of fault is on.
    pub(crate) fn now_and_then(&mut self, on: bool) -> bool {
        on && self.dice.one_in(BAD_EVERY)
    }

    /// Deregisters a key of a host after a while.
    pub(crate) fn doom(&mut self, host: usize, key: u32) {
        self.doomed.push((host, key));
        self.later(Token::Deregister(self.doomed.len() - 1), 500, 300_000);
    }
}

//! One work request: chosen, its memory granted, written down, posted.

use ferroce_transport::{
    Access, Data, DatagramDest, MaskedAdd, MaskedSwap, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use ferroce_wire::{Imm, Lkey, QKey, Rkey, Service};

use crate::check::grants::Owner;
use crate::check::model::{Content, Message, Model};
use crate::check::{Violation, broken};
use crate::link::Fault;
use crate::memory::fill;
use crate::run::{Run, WindowState};
use crate::setup::{CELLS, CONSTANT, QKEY};

/// What kind of request it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    ReadBack,
    CompareSwap,
    FetchAdd,
    MaskedCompareSwap,
    MaskedFetchAdd,
    AtomicWrite,
    Bind,
    LocalInvalidate,
}

impl Kind {
    const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd | Self::MaskedCompareSwap | Self::MaskedFetchAdd)
    }
}

const RELIABLE: [Kind; 22] = [
    Kind::Send,
    Kind::Send,
    Kind::Send,
    Kind::SendImm,
    Kind::SendInvalidate,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::WriteImm,
    Kind::WriteImm,
    Kind::Read,
    Kind::Read,
    Kind::Read,
    Kind::ReadBack,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::FetchAdd,
    Kind::MaskedCompareSwap,
    Kind::MaskedFetchAdd,
    Kind::AtomicWrite,
    Kind::Bind,
];
const UNRELIABLE: [Kind; 5] = [Kind::Send, Kind::SendImm, Kind::Write, Kind::Write, Kind::WriteImm];
const DATAGRAM: [Kind; 2] = [Kind::Send, Kind::SendImm];

/// A request on its way to being posted.
struct Draft {
    message: Message,
    /// The pieces of memory that it names; none if it is inline.
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
}

impl Run<'_> {
    /// Posts one request; false if there is no room for it now.
    pub(crate) fn post(&mut self, end: usize) -> Result<bool, Violation> {
        let Some(kind) = self.choose(end) else { return Ok(false) };
        let Some(draft) = self.draft(end, kind) else { return Ok(false) };
        let Draft { mut message, sges, inline } = draft;
        let mtu = self.pair_plan(end).mtu.bytes();
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, message.signaled);
        flags.set(SendFlags::SOLICITED, message.solicited);
        // Earlier READs through the key must be over before the peer takes it out of use.
        let invalidates = matches!(message.op, SendOp::SendInvalidate(_));
        let reliable = self.watch.model.ends[end].service == Service::Rc;
        flags.set(SendFlags::FENCE, invalidates || reliable && self.dice.one_in(8));
        let wrong_qkey = self.plan.chaos.bad_requests && self.dice.one_in(20);
        let dest = message.dest.map(|dest| {
            let dest = &self.watch.model.ends[dest];
            let handle = u32::try_from(dest.at.host).unwrap_or(0);
            // With its top bit set, the queue pair shows its own key.
            let qkey = if wrong_qkey { QKey(QKEY.0 ^ 1) } else { self.dice.pick(&[QKEY, QKey(0x8000_0000)]) };
            DatagramDest { handle, qpn: dest.qpn, qkey }
        });
        if wrong_qkey && message.dest.take().is_some() {
            // The model knows of no end that it may be delivered to.
            self.note(Fault::BadRequest, end);
        }
        let data = inline.as_deref().map_or(Data::Gather(&sges), Data::Inline);
        let request = SendRequest { id: message.id, op: message.op, data, flags, dest };
        let now = self.world.now();
        self.watch.trace.line(now, || {
            let (index, len) = (self.watch.model.ends[end].messages.len(), message.len);
            let inline = inline.as_ref().map_or("", |_| " inline");
            format!(
                "end {end} posts message {index}: {:?} {len} bytes{inline} {flags:?} {:?}",
                message.op, sges
            )
        });
        let packets = u64::from(message.len).div_ceil(mtu as u64).max(1);
        self.watch.model.ends[end].messages.push(message);
        let result =
            self.world.call(self.at(end), &mut self.watch, |node, slot| node.post_send(slot, &request))?;
        match result {
            Ok(()) => {
                self.budget = self.budget.saturating_sub(packets);
                self.posted(end, &request.op);
                Ok(true)
            }
            Err(error) => broken("legal-post", format!("end {end} posts {:?}: {error}", request.op)),
        }
    }

    /// The peer has to post receives for what comes, and windows change hands.
    fn posted(&mut self, end: usize, op: &SendOp) {
        let Some(peer) = self.watch.model.ends[end].peer else { return };
        self.tick_soon(peer);
        match op {
            SendOp::BindWindow(_) => self.ends[end].window = WindowState::Binding,
            SendOp::LocalInvalidate(_) => self.ends[end].window = WindowState::Closing,
            SendOp::SendInvalidate(_) => self.ends[peer].window = WindowState::Closing,
            _ => {}
        }
    }

    fn choose(&mut self, end: usize) -> Option<Kind> {
        let service = self.watch.model.ends[end].service;
        let kind = match service {
            Service::Rc => self.dice.pick(&RELIABLE),
            Service::Uc => self.dice.pick(&UNRELIABLE),
            _ => self.dice.pick(&DATAGRAM),
        };
        let peer = self.watch.model.ends[end].peer;
        let peer_window = peer.map_or(WindowState::Free, |peer| self.ends[peer].window);
        Some(match kind {
            Kind::SendInvalidate if peer_window != WindowState::Bound => Kind::Send,
            Kind::Bind => match self.ends[end].window {
                WindowState::Free => Kind::Bind,
                WindowState::Bound if self.window_is_idle(end) => Kind::LocalInvalidate,
                _ => Kind::Write,
            },
            kind => kind,
        })
    }

    /// Whether no request of the peer under way uses this end's window.
    fn window_is_idle(&self, end: usize) -> bool {
        let key = Rkey(self.ends[end].window_key);
        let Some(peer) = self.watch.model.ends[end].peer else { return false };
        let peer = &self.watch.model.ends[peer];
        let open = &peer.messages[peer.completed..];
        // What a broken peer has sent may still arrive.
        peer.is_usable()
            && open.iter().all(|message| remote(&message.op).is_none_or(|remote| remote.rkey != key))
    }

    fn length(&mut self, end: usize, max: u32) -> u32 {
        let mtu = u32::try_from(self.pair_plan(end).mtu.bytes()).unwrap_or(256);
        let len = match self.dice.below(20) {
            0 => 0,
            1..=5 => self.dice.between_u32(1, 64),
            6..=9 => self.dice.between_u32(1, mtu),
            10..=14 => mtu * self.dice.between_u32(1, 6) + self.dice.between_u32(0, 2) - 1,
            _ => u32::try_from(self.dice.log_between(1, u64::from(max))).unwrap_or(max),
        };
        // Enough is enough: what the budget does not hold is not posted.
        let left = u32::try_from(self.budget * u64::from(mtu)).unwrap_or(u32::MAX).saturating_add(mtu);
        len.min(max).min(left)
    }

    fn draft(&mut self, end: usize, kind: Kind) -> Option<Draft> {
        let plan = *self.pair_plan(end);
        let service = self.watch.model.ends[end].service;
        let max = match kind {
            Kind::Send | Kind::SendImm | Kind::SendInvalidate if service == Service::Ud => {
                plan.send_max.min(4096)
            }
            Kind::Send | Kind::SendImm | Kind::SendInvalidate => plan.send_max,
            _ if service == Service::Uc => plan.rdma_max.min(4096),
            Kind::Read => plan.rdma_max.min(u32::try_from(CONSTANT / 2).unwrap_or(0)),
            _ => plan.rdma_max,
        };
        let len = match kind {
            kind if kind.is_atomic() => 8,
            Kind::AtomicWrite => 8,
            Kind::Bind | Kind::LocalInvalidate => 0,
            _ => self.length(end, max),
        };
        let id = self.take_id(end);
        let number = self.watch.model.ends[end].messages.len();
        let last_room = self.watch.model.ends[end].outstanding() + 1 >= plan.outstanding;
        let quiet =
            self.watch.model.ends[end].messages.iter().rev().take_while(|message| !message.signaled).count();
        let local = matches!(kind, Kind::Bind | Kind::LocalInvalidate);
        let signaled = plan.signal_all[end % 2] || last_room || local || quiet >= 6 || self.dice.one_in(2);
        let mut draft = Draft {
            message: Message {
                id,
                op: SendOp::Send,
                len,
                content: Model::content(id),
                signaled,
                solicited: false,
                local: Vec::new(),
                sinks: Vec::new(),
                target: None,
                placed: 0,
                done: false,
                found: None,
                allowed: 0,
                dest: None,
            },
            sges: Vec::new(),
            inline: None,
        };
        if service == Service::Ud {
            let others: Vec<usize> = (0..self.ends.len())
                .filter(|other| *other != end && self.watch.model.ends[*other].service == Service::Ud)
                .collect();
            draft.message.dest = Some(self.dice.pick(&others));
        }
        let imm = Imm(u32::try_from(self.dice.below(1 << 32)).unwrap_or(0));
        let ready = match kind {
            Kind::Send => true,
            Kind::SendImm => {
                draft.message.op = SendOp::SendImm(imm);
                true
            }
            Kind::SendInvalidate => self.draft_invalidate(end, &mut draft),
            Kind::Write | Kind::WriteImm | Kind::AtomicWrite => {
                self.draft_write(end, number, kind, imm, &mut draft)
            }
            Kind::Read => self.draft_read(end, &mut draft),
            Kind::ReadBack => self.draft_read_back(end, &mut draft),
            Kind::CompareSwap | Kind::FetchAdd | Kind::MaskedCompareSwap | Kind::MaskedFetchAdd => {
                self.draft_atomic(end, kind, &mut draft)
            }
            Kind::Bind => self.draft_bind(end, &mut draft),
            Kind::LocalInvalidate => {
                draft.message.op = SendOp::LocalInvalidate(Rkey(self.ends[end].window_key));
                true
            }
        };
        if !ready || !local && !self.draft_data(end, number, &mut draft) {
            self.drop_draft(end, &draft);
            return None;
        }
        draft.message.solicited = draft.message.op.takes_receive() && self.dice.one_in(4);
        Some(draft)
    }

    /// Gives back what was granted to a request that is not posted.
    fn drop_draft(&mut self, end: usize, draft: &Draft) {
        let (Some(start), Some(peer)) = (draft.message.target, self.watch.model.ends[end].peer) else {
            return;
        };
        match (draft.message.op, self.watch.model.ends[end].messages.last_mut()) {
            // It was taken over from the WRITE before.
            (SendOp::Read(_), Some(last)) => last.target = Some(start),
            _ => {
                let host = self.at(peer).host;
                self.watch.model.free(host, start);
            }
        }
    }

    fn draft_invalidate(&mut self, end: usize, draft: &mut Draft) -> bool {
        let Some(peer) = self.watch.model.ends[end].peer else { return false };
        draft.message.op = SendOp::SendInvalidate(Rkey(self.ends[peer].window_key));
        true
    }

    fn draft_bind(&mut self, end: usize, draft: &mut Draft) -> bool {
        let mut bind = self.bind(end);
        if self.now_and_then(self.plan.chaos.bad_local) {
            bind.length += 1;
            draft.message.allow(Status::WindowBind);
            self.note(Fault::BadLocal, end);
        }
        draft.message.op = SendOp::BindWindow(bind);
        true
    }

    fn draft_write(&mut self, end: usize, number: usize, kind: Kind, imm: Imm, draft: &mut Draft) -> bool {
        let Some(peer) = self.watch.model.ends[end].peer else { return false };
        let len = draft.message.len;
        let skew = if kind == Kind::AtomicWrite { 0 } else { self.dice.below(8) };
        let arena_start = self.watch.model.arenas[peer].start;
        let start = if len == 0 {
            arena_start
        } else {
            let owner = Owner::Target { end, message: number, offset: 0 };
            let Some(start) = self.watch.model.cut(peer, len, skew, owner) else { return false };
            draft.message.target = Some(start);
            start
        };
        let mut remote = Remote { address: start, rkey: self.key_of(peer, false) };
        let reliable = self.watch.model.ends[end].service == Service::Rc;
        if reliable && len > 0 && self.now_and_then(self.plan.chaos.deregister) {
            let host = self.at(peer).host;
            let domain = self.homes[peer].domain;
            let memory = &mut self.world.hosts[host].node.device.memory;
            let key =
                memory.register(domain, start, u64::from(len), Access::REMOTE_WRITE | Access::LOCAL_WRITE);
            self.doom(host, key);
            remote.rkey = Rkey(key);
            draft.message.allow(Status::RemoteAccess);
        } else if len > 0 && self.now_and_then(self.plan.chaos.bad_requests) {
            remote = self.spoil(end, peer, remote, len, draft);
        }
        if kind == Kind::AtomicWrite {
            self.allow_overcommit(end, draft);
        }
        draft.message.op = match kind {
            Kind::WriteImm => SendOp::WriteImm(remote, imm),
            Kind::AtomicWrite => SendOp::AtomicWrite(remote),
            _ => SendOp::Write(remote),
        };
        true
    }

    /// The key by which an end's peer names its memory: of its window now and then.
    fn key_of(&mut self, owner: usize, atomic: bool) -> Rkey {
        if !atomic && self.ends[owner].window == WindowState::Bound && self.dice.one_in(2) {
            return Rkey(self.ends[owner].window_key);
        }
        Rkey(self.watch.model.arenas[owner].key)
    }

    /// A place that the peer must refuse.
    fn spoil(&mut self, end: usize, peer: usize, good: Remote, len: u32, draft: &mut Draft) -> Remote {
        self.note(Fault::BadRequest, end);
        if self.watch.model.ends[end].service == Service::Rc {
            draft.message.allow(Status::RemoteAccess);
        }
        let arena = &self.watch.model.arenas[peer];
        let past_the_end = arena.start + arena.len - u64::from(len) + 1;
        let host = arena.host;
        match self.dice.below(4) {
            0 => Remote { rkey: Rkey(good.rkey.0 ^ 0x5a00_0000), ..good },
            1 => Remote { address: past_the_end.next_multiple_of(8), rkey: Rkey(arena.key) },
            2 => Remote { address: self.constants[host], rkey: Rkey(self.homes[peer].constant_key) },
            _ => {
                let domain = self.homes[peer].domain;
                let stranger = (0..self.homes.len())
                    .find(|other| self.at(*other).host == host && self.homes[*other].domain != domain);
                let key =
                    stranger.map_or(good.rkey.0 ^ 0x5a00_0000, |other| self.watch.model.arenas[other].key);
                let address = stranger.map_or(good.address, |other| self.watch.model.arenas[other].start);
                Remote { address, rkey: Rkey(key) }
            }
        }
    }

    fn draft_read(&mut self, end: usize, draft: &mut Draft) -> bool {
        let Some(peer) = self.watch.model.ends[end].peer else { return false };
        let host = self.at(peer).host;
        draft.message.len = draft.message.len.min(u32::try_from(CONSTANT / 2).unwrap_or(0));
        let len = draft.message.len;
        let offset = self.dice.below(CONSTANT - u64::from(len) + 1);
        let mut remote =
            Remote { address: self.constants[host] + offset, rkey: Rkey(self.homes[peer].constant_key) };
        draft.message.content = Content { offset, ..Model::constant(host) };
        self.allow_overcommit(end, draft);
        if len > 0 && self.now_and_then(self.plan.chaos.deregister) {
            let domain = self.homes[peer].domain;
            let memory = &mut self.world.hosts[host].node.device.memory;
            let key = memory.register(domain, remote.address, u64::from(len), Access::REMOTE_READ);
            self.doom(host, key);
            remote.rkey = Rkey(key);
            draft.message.allow(Status::RemoteAccess);
            // Part of the answer may have been lost before the key was: a repeated READ is not
            // refused then, because the peer may have its answer, but it is not answered either.
            draft.message.allow(Status::RetryExceeded);
        } else if len > 0 && self.now_and_then(self.plan.chaos.bad_requests) {
            self.note(Fault::BadRequest, end);
            draft.message.allow(Status::RemoteAccess);
            match self.dice.below(2) {
                0 => remote.rkey.0 ^= 0x5a00_0000,
                _ => {
                    // What the first requests of a cut READ ask for still lies inside.
                    draft.message.content.offset = CONSTANT - u64::from(len) + 1;
                    remote.address = self.constants[host] + draft.message.content.offset;
                }
            }
        }
        draft.message.op = SendOp::Read(remote);
        true
    }

    /// Reads what the WRITE before it has written: on one connection it must see the new bytes.
    fn draft_read_back(&mut self, end: usize, draft: &mut Draft) -> bool {
        let Some(last) = self.watch.model.ends[end].messages.last_mut() else { return false };
        let SendOp::Write(remote) = last.op else { return self.draft_read(end, draft) };
        if last.target.is_none() || last.allowed != 0 {
            return self.draft_read(end, draft);
        }
        // The range stays granted until the READ completes too.
        draft.message.target = last.target.take();
        (draft.message.len, draft.message.content) = (last.len, last.content);
        draft.message.op = SendOp::Read(remote);
        self.allow_overcommit(end, draft);
        true
    }

    /// A requester with a greater depth than its responder takes may be refused.
    fn allow_overcommit(&self, end: usize, draft: &mut Draft) {
        let plan = self.pair_plan(end);
        if plan.max_rd_atomic[end % 2] > plan.max_dest_rd_atomic[1 - end % 2] {
            draft.message.allow(Status::RemoteInvalidRequest);
            // Or its answer is lost and pushed out by a later one before it is asked for again.
            draft.message.allow(Status::RetryExceeded);
        }
    }

    fn draft_atomic(&mut self, end: usize, kind: Kind, draft: &mut Draft) -> bool {
        let Some(peer) = self.watch.model.ends[end].peer else { return false };
        let host = self.at(peer).host;
        let cell = self.constants[host] + CONSTANT + 8 * self.dice.below(CELLS);
        let mut remote = Remote { address: cell, rkey: Rkey(self.homes[peer].cells_key) };
        self.allow_overcommit(end, draft);
        if self.now_and_then(self.plan.chaos.bad_requests) {
            self.note(Fault::BadRequest, end);
            match self.dice.below(2) {
                0 => {
                    draft.message.allow(Status::RemoteAccess);
                    remote.rkey.0 ^= 0x5a00_0000;
                }
                _ => {
                    draft.message.allow(Status::RemoteInvalidRequest);
                    remote.address = self.constants[host] + CONSTANT + self.dice.between(1, 7);
                }
            }
        }
        // Half of those that compare find what they look for.
        let now = self.watch.model.cells.get(&(host, cell)).copied().unwrap_or(0);
        draft.message.op = match kind {
            Kind::FetchAdd => SendOp::FetchAdd { remote, add: self.dice.word() },
            Kind::MaskedFetchAdd => {
                let boundaries = self.dice.word() & self.dice.word() & self.dice.word();
                SendOp::MaskedFetchAdd { remote, add: MaskedAdd { add: self.dice.word(), boundaries } }
            }
            Kind::MaskedCompareSwap => {
                let compare_mask = self.dice.word() & self.dice.word();
                let compare = if self.dice.one_in(2) { now } else { self.dice.word() };
                let (swap, swap_mask) = (self.dice.word(), self.dice.word());
                let swap = MaskedSwap { compare, compare_mask, swap, swap_mask };
                SendOp::MaskedCompareSwap { remote, swap }
            }
            _ => {
                let compare = if self.dice.one_in(2) { now } else { self.dice.below(3) };
                SendOp::CompareSwap { remote, compare, swap: self.dice.below(1 << 40) }
            }
        };
        true
    }

    /// Memory for the bytes: to be sent, or to be filled by the answer.
    fn draft_data(&mut self, end: usize, number: usize, draft: &mut Draft) -> bool {
        let len = draft.message.len;
        let answer = draft.message.op.is_atomic() || matches!(draft.message.op, SendOp::Read(_));
        let inline_max = self.pair_plan(end).caps.max_inline;
        if !answer && len <= inline_max && self.dice.one_in(2) {
            let mut bytes = vec![0; len as usize];
            fill(draft.message.content.tag, 0, &mut bytes);
            draft.inline = Some(bytes);
            return true;
        }
        let atomic = answer && !matches!(draft.message.op, SendOp::Read(_));
        let owner = |offset| {
            if answer { Owner::Sink { end, message: number, offset } } else { Owner::Source }
        };
        let pieces = if atomic {
            let Some(start) = self.watch.model.cut(end, len, 0, owner(0)) else { return false };
            vec![(start, len)]
        } else {
            let Some(pieces) = self.cut_pieces(end, len, owner) else { return false };
            pieces
        };
        let mut key = self.watch.model.arenas[end].key;
        let host = self.at(end).host;
        let mut at = 0;
        for &(start, length) in pieces.iter().filter(|(_, length)| *length > 0) {
            draft.message.local.push(start);
            if !answer {
                let memory = &mut self.world.hosts[host].node.device.memory;
                fill(draft.message.content.tag, at, memory.slice_mut(start, length as usize));
            }
            at += u64::from(length);
        }
        if len > 0 && self.now_and_then(self.plan.chaos.bad_local) {
            key ^= 0x6600_0000;
            draft.message.allow(Status::LocalProtection);
            self.note(Fault::BadLocal, end);
        }
        if answer {
            draft.message.sinks.clone_from(&pieces);
        }
        draft.sges =
            pieces.iter().map(|&(address, length)| Sge { address, length, lkey: Lkey(key) }).collect();
        true
    }

    fn note(&mut self, fault: Fault, end: usize) {
        let now = self.world.now();
        self.watch.inject(now, fault, || format!("in the next message of end {end}"));
    }
}

/// The place in the peer's memory that a request names.
const fn remote(op: &SendOp) -> Option<Remote> {
    match *op {
        SendOp::Write(remote)
        | SendOp::WriteImm(remote, _)
        | SendOp::Read(remote)
        | SendOp::AtomicWrite(remote)
        | SendOp::CompareSwap { remote, .. }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::MaskedCompareSwap { remote, .. }
        | SendOp::MaskedFetchAdd { remote, .. } => Some(remote),
        _ => None,
    }
}

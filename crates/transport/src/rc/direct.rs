//! Both queue pairs in one process: work is done directly, without packets.
//!
//! A message is done directly only where every step of the responder's ladder would let it pass: SENDs and
//! WRITEs ask the rules of [`arrival`](crate::arrival), as their packets would. Where one says no, no
//! receive was taken and no program was told anything, and the message goes as packets like any other:
//! refusals, RNR waits and errors come from the same code as over a network.

use ferroce_wire::{Lkey, Reth, Rkey, SendTail};

use crate::arrival::{Arrival, Verb};
use crate::connection::Connection;
use crate::host::{Accessor, Denied, DomainId, Host};
use crate::qp::Introduction;
use crate::rc::atomic::Atomic;
use crate::rc::requester::{Requester, reth};
use crate::rc::responder::Responder;
use crate::status::Status;
use crate::transmit::Gather;
use crate::work::{Access, Data, Remote, SendFlags, SendOp, SendRequest, Sge};

/// The device around two queue pairs that meet in it.
pub trait Direct {
    /// The device as one of them sees it.
    type Side<'a>: Host
    where
        Self: 'a;

    /// As the one sees it that asks.
    fn requester(&mut self) -> Self::Side<'_>;

    /// As the one sees it that answers.
    fn responder(&mut self) -> Self::Side<'_>;

    /// Copies bytes from one place to another, if both keys allow it. Nothing happens if one does not.
    ///
    /// # Errors
    /// Why not.
    fn copy(&mut self, from: Spot, to: Spot, len: u32) -> Result<(), Denied>;
}

/// A place in memory, by key.
#[derive(Clone, Copy, Debug)]
pub enum Spot {
    /// Of the program itself, in this protection domain.
    Own(DomainId, Lkey, u64),
    /// Opened to a peer.
    Opened(Accessor, Rkey, u64),
}

/// A message that is to be done.
#[derive(Clone, Copy)]
struct Job<'a> {
    /// Its number in the queue.
    number: u32,
    id: u64,
    op: &'a SendOp,
    flags: SendFlags,
    length: u32,
    data: Data<'a>,
}

impl<'a> Job<'a> {
    /// The pieces of its bytes, none if they are inline.
    const fn sges(&self) -> &'a [Sge] {
        match self.data {
            Data::Gather(sges) => sges,
            Data::Inline(_) => &[],
        }
    }

    /// The same without the empty ones, whose keys mean nothing.
    fn pieces(&self) -> Gather<'a> {
        Gather::new(self.sges(), 0, self.length.into())
    }
}

/// The two ends during one call.
pub(crate) struct Ends<'a, D> {
    pub(crate) requester: &'a mut Requester,
    pub(crate) meeting: Meeting<'a, D>,
}

/// What a message meets that the requester sends.
pub(crate) struct Meeting<'a, D> {
    pub(crate) asking: &'a Connection,
    pub(crate) responder: &'a mut Responder,
    pub(crate) answering: &'a Connection,
    pub(crate) introduction: Introduction<'a>,
    pub(crate) direct: &'a mut D,
}

impl<D: Direct> Ends<'_, D> {
    /// Whether nothing is under way between the two, so that the next message may be done directly.
    pub(crate) fn are_idle(&self) -> bool {
        let requester = &self.requester;
        requester.may_go_direct() && self.meeting.responder.expects_message_at(requester.cursor.psn)
    }

    /// Does the next message, if there is one and nothing speaks against it.
    /// Its length.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let number = self.requester.cursor.work;
        let work = self.requester.queue.get(number)?;
        let (length, packets) = (work.length, work.packets);
        let data = self.requester.queue.data(number);
        self.meeting
            .pass(&Job { number, id: work.id, op: &work.op, flags: work.flags, length, data }, packets)?;
        self.requester.queue.retire_oldest();
        self.requester.passed_directly(packets);
        Some(length)
    }

    /// Does a message that is posted just now and found in order, if nothing speaks against it; nothing is before it
    /// in the queue, and it is never put there.
    #[inline]
    pub(crate) fn pass(&mut self, request: &SendRequest<'_>, length: u32) -> Option<()> {
        let SendRequest { id, op, data, flags, .. } = request;
        let packets = self.meeting.asking.packets_of(op, length);
        let number = self.requester.queue.head();
        self.meeting.pass(&Job { number, id: *id, op, flags: *flags, length, data: *data }, packets)?;
        self.requester.post_unqueued(packets);
        self.requester.passed_directly(packets);
        Some(())
    }
}

impl<D: Direct> Meeting<'_, D> {
    #[inline(always)]
    fn pass(&mut self, job: &Job<'_>, packets: u32) -> Option<()> {
        match (job.op, job.data) {
            // By far the most frequent form.
            (SendOp::Write(remote), Data::Gather([piece @ Sge { length: 1.., .. }])) => {
                self.write_one(job, *remote, *piece)?;
            }
            _ => self.execute(job)?,
        }
        if self.introduction.is_due() {
            self.introduction.make(&mut self.direct.responder());
        }
        self.responder.passed(packets, true);
        if job.flags.contains(SendFlags::SIGNALED) || self.asking.signal_all {
            let mut completion = self.asking.completion(job.id, Status::Success, job.op.kind());
            completion.byte_len = job.length;
            self.direct.requester().complete_send(job.number, completion);
        }
        Some(())
    }

    /// Does a plain WRITE out of one piece. Copying asks both keys for all of it.
    #[inline]
    fn write_one(&mut self, job: &Job<'_>, remote: Remote, piece: Sge) -> Option<()> {
        let arrival = Arrival::whole(Verb::Write(whole(job, remote), None), job.length, false);
        let inbound = &mut self.responder.inbound;
        inbound.check_sequence(&arrival).ok()?;
        arrival.check_allowed(self.answering).ok()?;
        inbound.check_announced(&arrival).ok()?;
        let from = Spot::Own(self.asking.domain, piece.lkey, piece.address);
        let to = Spot::Opened(self.answering.accessor(), remote.rkey, remote.address);
        self.direct.copy(from, to, job.length).ok()
    }

    #[inline(never)]
    fn execute(&mut self, job: &Job<'_>) -> Option<()> {
        let verb = match *job.op {
            SendOp::Write(remote) => Verb::Write(whole(job, remote), None),
            SendOp::WriteImm(remote, imm) => Verb::Write(whole(job, remote), Some(imm)),
            SendOp::Send => Verb::Send(SendTail::Plain),
            SendOp::SendImm(imm) => Verb::Send(SendTail::Immediate(imm)),
            SendOp::SendInvalidate(rkey) => Verb::Send(SendTail::Invalidate(rkey)),
            SendOp::Read(remote) => return self.read(job, remote),
            SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::MaskedCompareSwap { .. }
            | SendOp::MaskedFetchAdd { .. } => return self.atomic(job, &Atomic::posted(job.op)?),
            // Rare enough to go the long way.
            SendOp::AtomicWrite(_) | SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => return None,
        };
        let solicited = job.flags.contains(SendFlags::SOLICITED);
        self.deliver(job, &Arrival::whole(verb, job.length, solicited))
    }

    /// Does a SEND or WRITE. Everything is asked before the first byte is placed, and a receive is taken
    /// only when nothing can fail any more.
    fn deliver(&mut self, job: &Job<'_>, arrival: &Arrival) -> Option<()> {
        let Self { asking, responder, answering, direct, .. } = self;
        let inbound = &mut responder.inbound;
        let shared = answering.shared_queue;
        inbound.check_sequence(arrival).ok()?;
        arrival.check_allowed(answering).ok()?;
        if arrival.takes_receive() {
            inbound.peek_receive(shared, &mut direct.responder()).ok()?;
        }
        inbound.check_announced(arrival).ok()?;
        inbound.check_room(arrival).ok()?;
        arrival.check_key(answering, &mut direct.responder()).ok()?;
        if let Verb::Send(_) = arrival.verb {
            let into = Gather::new(inbound.receive().sges(), 0, job.length.into());
            check_all(&mut direct.responder(), answering.domain, into, true)?;
        }
        check_all(&mut direct.requester(), asking.domain, job.pieces(), false)?;
        match arrival.verb {
            Verb::Send(_) => self.fill_receive(job)?,
            Verb::Write(reth, _) => self.write(job, reth)?,
        }
        let Self { responder, answering, introduction, direct, .. } = self;
        let mut host = direct.responder();
        // It reaches the peer in any case: if its key cannot be taken out of use, as packets that say so.
        introduction.make(&mut host);
        arrival.invalidate(answering, &mut host).ok()?;
        let inbound = &mut responder.inbound;
        if arrival.takes_receive() {
            inbound.take_receive_from(shared, &mut host).ok()?;
        }
        inbound.note_placed(arrival).ok()?;
        inbound.end_message(arrival, answering, &mut host);
        Some(())
    }

    /// Copies a message to where a key opens memory.
    fn write(&mut self, job: &Job<'_>, reth: Reth) -> Option<()> {
        let by = self.answering.accessor();
        match job.data {
            Data::Inline([]) => {}
            Data::Inline(bytes) => {
                self.direct.responder().write_remote(by, reth.rkey, reth.address, bytes).ok()?;
            }
            Data::Gather(_) => {
                let mut address = reth.address;
                for piece in job.pieces() {
                    let from = Spot::Own(self.asking.domain, piece.lkey, piece.address);
                    self.direct.copy(from, Spot::Opened(by, reth.rkey, address), piece.length).ok()?;
                    address = address.wrapping_add(piece.length.into());
                }
            }
        }
        Some(())
    }

    /// Copies a message into the receive that it will take.
    fn fill_receive(&mut self, job: &Job<'_>) -> Option<()> {
        let receive = self.responder.inbound.receive();
        if let Data::Inline(bytes) = job.data {
            let mut rest = bytes;
            for piece in Gather::new(receive.sges(), 0, job.length.into()) {
                let (part, after) = rest.split_at_checked(piece.length as usize)?;
                self.direct.responder().write_local(piece.lkey, piece.address, part).ok()?;
                rest = after;
            }
            return Some(());
        }
        let mut sent = 0;
        for source in job.pieces() {
            let mut address = source.address;
            for piece in Gather::new(receive.sges(), sent, source.length.into()) {
                let from = Spot::Own(self.asking.domain, source.lkey, address);
                let to = Spot::Own(self.answering.domain, piece.lkey, piece.address);
                self.direct.copy(from, to, piece.length).ok()?;
                address = address.wrapping_add(piece.length.into());
            }
            sent += u64::from(source.length);
        }
        Some(())
    }

    fn read(&mut self, job: &Job<'_>, remote: Remote) -> Option<()> {
        if !self.answering.lets(Access::REMOTE_READ) || !self.responder.resources.has_room() {
            return None;
        }
        let by = self.answering.accessor();
        // A copy checks both ends before it begins. Several of them must be checked before the first.
        if job.sges().len() > 1 && job.length > 0 {
            let mut host = self.direct.responder();
            host.check_remote(by, remote.rkey, remote.address, job.length, Access::REMOTE_READ).ok()?;
            drop(host);
            check_all(&mut self.direct.requester(), self.asking.domain, job.pieces(), true)?;
        }
        let mut address = remote.address;
        for piece in job.pieces() {
            let from = Spot::Opened(by, remote.rkey, address);
            let to = Spot::Own(self.asking.domain, piece.lkey, piece.address);
            self.direct.copy(from, to, piece.length).ok()?;
            address = address.wrapping_add(piece.length.into());
        }
        Some(())
    }

    fn atomic(&mut self, job: &Job<'_>, atomic: &Atomic) -> Option<()> {
        let Atomic { rkey, address, op } = *atomic;
        let allowed = self.answering.lets(Access::REMOTE_ATOMIC);
        if !allowed || !address.is_multiple_of(8) || !self.responder.resources.has_room() {
            return None;
        }
        check_all(&mut self.direct.requester(), self.asking.domain, job.pieces(), true)?;
        let by = self.answering.accessor();
        let original = self.direct.responder().atomic(by, rkey, address, op).ok()?;
        let bytes = original.to_ne_bytes();
        let mut rest = &bytes[..];
        for piece in job.pieces() {
            let (part, after) = rest.split_at_checked(piece.length as usize)?;
            let written = self.direct.requester().write_local(piece.lkey, piece.address, part);
            debug_assert!(written.is_ok(), "checked above, and nothing has changed since");
            rest = after;
        }
        Some(())
    }
}

/// Where a WRITE goes, all of it.
#[inline]
const fn whole(job: &Job<'_>, remote: Remote) -> Reth {
    reth(remote, 0, job.length as u64)
}

fn check_all<H: Host>(host: &mut H, domain: DomainId, mut pieces: Gather<'_>, write: bool) -> Option<()> {
    pieces.try_for_each(|piece| host.check_local(domain, piece, write)).ok()
}

//! Both queue pairs in one process: work is done directly, without packets.
//!
//! A message is done directly only where every step of the responder's ladder would let it pass.
//! Where one would not, nothing has happened to memory, and the message goes as packets like any
//! other: refusals, RNR waits and errors come from the same code as over a network. (A receive
//! that was taken for it stays taken; its packets find it.)

use ferroce_wire::{Imm, Lkey, Rkey};

use crate::connection::Connection;
use crate::host::{Accessor, Denied, DomainId, Host};
use crate::inbound::Message;
use crate::rc::atomic::Atomic;
use crate::rc::requester::Requester;
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
        self.meeting.pass(&Job { id: work.id, op: &work.op, flags: work.flags, length, data }, packets)?;
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
        self.meeting.pass(&Job { id: *id, op, flags: *flags, length, data: *data }, packets)?;
        self.requester.post_unqueued(packets);
        self.requester.passed_directly(packets);
        Some(())
    }
}

impl<D: Direct> Meeting<'_, D> {
    #[inline]
    fn pass(&mut self, job: &Job<'_>, packets: u32) -> Option<()> {
        match *job.op {
            SendOp::Write(remote) => self.write(job, remote)?,
            _ => self.execute(job)?,
        }
        self.responder.passed_directly(packets);
        if job.flags.contains(SendFlags::SIGNALED) || self.asking.signal_all {
            let mut completion = self.asking.completion(job.id, Status::Success, job.op.kind());
            completion.byte_len = job.length;
            self.direct.requester().complete_send(completion);
        }
        Some(())
    }

    #[inline(never)]
    fn execute(&mut self, job: &Job<'_>) -> Option<()> {
        let solicited = job.flags.contains(SendFlags::SOLICITED);
        match *job.op {
            SendOp::Write(remote) => self.write(job, remote),
            SendOp::WriteImm(remote, imm) => {
                self.take_receive()?;
                self.write(job, remote)?;
                // Only the length is looked at from here on.
                let (rkey, address) = (remote.rkey, remote.address);
                self.responder.inbound.message =
                    Message::Write { rkey, address, remaining: 0, total: job.length };
                self.finish(Some(imm), None, solicited);
                Some(())
            }
            SendOp::Send => self.send(job, None, None, solicited),
            SendOp::SendImm(imm) => self.send(job, Some(imm), None, solicited),
            SendOp::SendInvalidate(rkey) => self.send(job, None, Some(rkey), solicited),
            SendOp::Read(remote) => self.read(job, remote),
            SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::MaskedCompareSwap { .. }
            | SendOp::MaskedFetchAdd { .. } => self.atomic(job, &Atomic::posted(job.op)?),
            // Rare enough to go the long way.
            SendOp::AtomicWrite(_) | SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => None,
        }
    }

    #[inline]
    fn write(&mut self, job: &Job<'_>, remote: Remote) -> Option<()> {
        if !self.answering.access.contains(Access::REMOTE_WRITE) {
            return None;
        }
        let by = self.answering.accessor();
        // By far the most frequent form.
        if let Data::Gather([Sge { address, length: 1.., lkey }]) = job.data {
            let from = Spot::Own(self.asking.domain, *lkey, *address);
            return self.direct.copy(from, Spot::Opened(by, remote.rkey, remote.address), job.length).ok();
        }
        self.write_pieces(job, remote, by)
    }

    #[inline(never)]
    fn write_pieces(&mut self, job: &Job<'_>, remote: Remote, by: Accessor) -> Option<()> {
        let sges = match job.data {
            Data::Inline([]) => return Some(()),
            Data::Inline(bytes) => {
                return self.direct.responder().write_remote(by, remote.rkey, remote.address, bytes).ok();
            }
            Data::Gather(sges) => sges,
        };
        // A copy checks both ends before it begins. Several of them must be checked before the first.
        if sges.len() > 1 {
            let mut host = self.direct.responder();
            host.check_remote(by, remote.rkey, remote.address, job.length, Access::REMOTE_WRITE).ok()?;
            drop(host);
            check_all(&mut self.direct.requester(), self.asking.domain, sges, false)?;
        }
        let mut address = remote.address;
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let from = Spot::Own(self.asking.domain, sge.lkey, sge.address);
            let to = Spot::Opened(by, remote.rkey, address);
            self.direct.copy(from, to, sge.length).ok()?;
            address = address.wrapping_add(sge.length.into());
        }
        Some(())
    }

    fn read(&mut self, job: &Job<'_>, remote: Remote) -> Option<()> {
        if !self.answering.access.contains(Access::REMOTE_READ) || !self.responder.resources.has_room() {
            return None;
        }
        let by = self.answering.accessor();
        let sges = job.sges();
        if sges.len() > 1 {
            let mut host = self.direct.responder();
            host.check_remote(by, remote.rkey, remote.address, job.length, Access::REMOTE_READ).ok()?;
            drop(host);
            check_all(&mut self.direct.requester(), self.asking.domain, sges, true)?;
        }
        let mut address = remote.address;
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let from = Spot::Opened(by, remote.rkey, address);
            let to = Spot::Own(self.asking.domain, sge.lkey, sge.address);
            self.direct.copy(from, to, sge.length).ok()?;
            address = address.wrapping_add(sge.length.into());
        }
        Some(())
    }

    fn atomic(&mut self, job: &Job<'_>, atomic: &Atomic) -> Option<()> {
        let Atomic { rkey, address, op } = *atomic;
        let allowed = self.answering.access.contains(Access::REMOTE_ATOMIC);
        if !allowed || !address.is_multiple_of(8) || !self.responder.resources.has_room() {
            return None;
        }
        let sges = job.sges();
        check_all(&mut self.direct.requester(), self.asking.domain, sges, true)?;
        let by = self.answering.accessor();
        let original = self.direct.responder().atomic(by, rkey, address, op).ok()?;
        let bytes = original.to_ne_bytes();
        let mut rest = &bytes[..];
        for sge in sges {
            let (part, after) = rest.split_at_checked(sge.length as usize)?;
            let written = self.direct.requester().write_local(sge.lkey, sge.address, part);
            debug_assert!(written.is_ok() || part.is_empty(), "checked above, and nothing has changed since");
            rest = after;
        }
        Some(())
    }

    fn send(
        &mut self,
        job: &Job<'_>,
        imm: Option<Imm>,
        invalidate: Option<Rkey>,
        solicited: bool,
    ) -> Option<()> {
        let length = job.length;
        self.take_receive()?;
        let receive = self.responder.inbound.taken_receive();
        if u64::from(length) > receive.length() {
            return None;
        }
        let into = Gather::new(receive.sges(), 0, length.into());
        let mut responder = self.direct.responder();
        for piece in into {
            responder.check_local(self.answering.domain, piece, true).ok()?;
        }
        drop(responder);
        let sges = job.sges();
        check_all(&mut self.direct.requester(), self.asking.domain, sges, false)?;
        if let Some(rkey) = invalidate {
            self.direct.responder().invalidate(self.answering.accessor(), rkey).ok()?;
        }
        if let Data::Inline(bytes) = job.data {
            let mut rest = bytes;
            for piece in into {
                let (part, after) = rest.split_at_checked(piece.length as usize)?;
                let written = self.direct.responder().write_local(piece.lkey, piece.address, part);
                debug_assert!(written.is_ok(), "checked above, and nothing has changed since");
                rest = after;
            }
        } else {
            let mut sent = 0;
            for sge in sges {
                let mut address = sge.address;
                for piece in Gather::new(receive.sges(), sent, sge.length.into()) {
                    let from = Spot::Own(self.asking.domain, sge.lkey, address);
                    let to = Spot::Own(self.answering.domain, piece.lkey, piece.address);
                    let copied = self.direct.copy(from, to, piece.length);
                    debug_assert!(copied.is_ok(), "checked above, and nothing has changed since");
                    address = address.wrapping_add(piece.length.into());
                }
                sent += u64::from(sge.length);
            }
        }
        self.responder.inbound.message = Message::Send { received: length };
        self.finish(imm, invalidate, solicited);
        Some(())
    }

    fn take_receive(&mut self) -> Option<()> {
        let mut host = self.direct.responder();
        self.responder.inbound.take_receive_from(self.answering.shared_queue, &mut host).ok()
    }

    fn finish(&mut self, imm: Option<Imm>, invalidated: Option<Rkey>, solicited: bool) {
        let mut host = self.direct.responder();
        let inbound = &mut self.responder.inbound;
        inbound.finish_for(
            |completion| {
                completion.imm = imm.map(|imm| imm.0);
                completion.invalidated = invalidated;
                completion.solicited = solicited;
            },
            self.answering,
            &mut host,
        );
    }
}

fn check_all<H: Host>(host: &mut H, domain: DomainId, sges: &[Sge], write: bool) -> Option<()> {
    sges.iter().try_for_each(|sge| host.check_local(domain, *sge, write)).ok()
}

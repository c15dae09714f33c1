//! What a machine does to its host because of a packet, and what it sends.

use ferroce_transport::{Access, AtomicOp, Completion, MaskedAdd, MaskedSwap, SendOp, Status, WorkKind};
use ferroce_wire::{
    Aeth, Body, NakCode, Packet, PayloadLen, Request, Response, Reth, Rkey, SendTail, Syndrome,
};

use super::{Arriving, REMEMBERED, Witness};
use crate::check::grants::Owner;
use crate::check::model::{Cause, Model, Posted};
use crate::check::{Violation, broken};
use crate::host::applied;
use crate::memory::Memory;
use crate::world::HostState;

impl Model {
    /// A peer's bytes were placed by remote key.
    ///
    /// `granted-range`: they are the payload of the WRITE that came next, at the place that its message has reached, and the
    /// whole of that message lies in memory that this very peer was given for writing.
    ///
    /// # Errors
    /// It does not hold.
    pub(in crate::check) fn lied_wrote_remote(
        &self,
        memory: &Memory,
        end: usize,
        (address, len): (u64, usize),
    ) -> Result<(), Violation> {
        let Some(witness) = &self.ends[end].witness else { return Ok(()) };
        let expected = witness.next_request().and_then(|(request, payload)| {
            let (place, placed) = witness.place_of(request)?;
            Some((place, place.address + u64::from(placed), payload))
        });
        let Some((place, wanted, payload)) = expected else {
            let what = format!("{len} bytes of a peer at 0x{address:x} of end {end}");
            return broken("granted-range", format!("{what} by {:x?}", witness.arrived));
        };
        if (address, len) != (wanted, payload.len()) || memory.slice(address, len) != payload {
            let what = format!("{len} bytes at 0x{address:x} of end {end}");
            return broken("granted-range", format!("{what}, wanted {} at 0x{wanted:x}", payload.len()));
        }
        match witness.check_key(place, Access::REMOTE_WRITE, memory, &self.ends[end]) {
            Ok(()) => Ok(()),
            Err(denied) => {
                broken("granted-range", format!("a WRITE to {place:x?} of end {end} began: {denied}"))
            }
        }
    }

    /// Bytes were placed into the program's own memory: into the receive that comes next, by the SEND that comes next; or into
    /// the memory of the oldest READ or atomic, each byte once and in order.
    ///
    /// # Errors
    /// It does not hold.
    pub(in crate::check) fn lied_wrote_local(
        &mut self,
        by: usize,
        address: u64,
        len: usize,
    ) -> Result<(), Violation> {
        let host = self.ends[by].at.host;
        let held = self.grants[host].holding(address, len).map(|(at, grant)| (at, grant.owner));
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let end = &mut self.ends[by];
        let Some(witness) = &mut end.witness else { return Ok(()) };
        match held {
            Some((at, Owner::Sink { end: owner, message, offset })) if owner == by => {
                let known = &mut end.messages[message];
                let is_answer = matches!(
                    witness.arrived.as_ref().map(|arrived| &arrived.body),
                    Some(Body::RcResponse(Response::Read(..) | Response::AtomicAcknowledge(..)))
                );
                if !is_answer || message < end.completed || known.placed != offset + at {
                    let what = format!("byte {} of message {message} of end {by}", offset + at);
                    return broken("placed-once-in-order", format!("{what}, wanted byte {}", known.placed));
                }
                known.placed += bytes;
                Ok(())
            }
            Some((at, Owner::Receive { id, offset })) => {
                let front = end.receives.front().map(|posted| posted.id);
                let received = match (witness.next_request(), witness.message) {
                    (Some((Request::Send(..), _)), Arriving::Send { received }) => Some(received),
                    (Some((Request::Send(..), _)), Arriving::Nothing) => Some(0),
                    _ => None,
                };
                let wanted = received.map(|received| (received + witness.placed, id));
                if front != Some(id) || wanted != Some((offset + at, id)) {
                    let what = format!("byte {} of receive {id:#x} of end {by}", offset + at);
                    return broken("receive-order", format!("{what}, wanted {wanted:x?} of {front:x?}"));
                }
                witness.placed += bytes;
                Ok(())
            }
            held => broken("granted-range", format!("end {by} wrote 0x{address:x}, granted as {held:?}")),
        }
    }

    /// An atomic was executed.
    ///
    /// `atomic-once`: it is the one that came next, with its very operands, and finds what all before it have left.
    ///
    /// # Errors
    /// It does not hold.
    pub(in crate::check) fn lied_atomic(
        &mut self,
        memory: &Memory,
        (host, by): (usize, usize),
        (address, op, original): (u64, AtomicOp, u64),
    ) -> Result<(), Violation> {
        let end = &mut self.ends[by];
        let Some(witness) = &mut end.witness else { return Ok(()) };
        let asked = witness.next_request().and_then(|(request, _)| requested(request));
        let psn = witness.expected;
        let again = witness.found.iter().any(|(known, _)| *known == psn);
        if asked.map(|(place, op)| (place.address, op)) != Some((address, op)) || again {
            let what = format!("end {by} did {op:x?} at 0x{address:x} by {:x?}", witness.arrived);
            return broken("atomic-once", what);
        }
        if witness.found.len() == REMEMBERED {
            witness.found.pop_front();
        }
        witness.found.push_back((psn, original));
        if let Some(cell) = self.cells.get_mut(&(host, address)) {
            if *cell != original || memory.word(address) != applied(original, op) {
                let what =
                    format!("the cell at 0x{address:x} held 0x{cell:x}, the atomic found 0x{original:x}");
                return broken("atomic-once", what);
            }
            *cell = applied(original, op);
        }
        Ok(())
    }

    /// A receive ended: with the message whose last packet came next, of the length that arrived; or badly.
    ///
    /// # Errors
    /// It does not hold.
    pub(in crate::check) fn lied_receive_done(
        &mut self,
        by: usize,
        completion: &Completion,
        posted: &Posted,
    ) -> Result<(), Violation> {
        let end = &mut self.ends[by];
        let Some(witness) = &end.witness else { return Ok(()) };
        if completion.status != Status::Success {
            let cause = if completion.status == Status::Flushed {
                Cause::Peer
            } else {
                Cause::Receive(completion.status)
            };
            end.cause.get_or_insert(cause);
            return Ok(());
        }
        let seen = (completion.kind, completion.byte_len, completion.imm, completion.invalidated);
        let wanted = witness.next_request().and_then(|(request, payload)| {
            let len = u32::try_from(payload.len()).ok()?;
            match request {
                Request::Send(segment, _) => {
                    let received = match witness.message {
                        Arriving::Send { received } => received,
                        _ => 0,
                    };
                    let (imm, key) = match segment.tail()? {
                        SendTail::Plain => (None, None),
                        SendTail::Immediate(imm) => (Some(imm.0), None),
                        SendTail::Invalidate(key) => (None, Some(key)),
                    };
                    Some((WorkKind::Receive, received + len, imm, key))
                }
                Request::Write(segment, _) => {
                    let imm = segment.tail()??;
                    let (place, _) = witness.place_of(request)?;
                    Some((WorkKind::ReceiveWithImm, place.length, Some(imm.0), None))
                }
                _ => None,
            }
        });
        if wanted != Some(seen) || completion.kind == WorkKind::Receive && completion.byte_len > posted.len {
            let what = format!("receive {:#x} of end {by} ended as {seen:x?}", posted.id);
            return broken(
                "send-once-in-order",
                format!("{what}, wanted {wanted:x?} of {} bytes", posted.len),
            );
        }
        Ok(())
    }

    /// Whether a request that succeeded had a reason to.
    ///
    /// `success-means-answered`: all its packets were sent, and an answer came that covers the last of them; a READ or an atomic
    /// has all its bytes.
    ///
    /// # Errors
    /// It had none.
    pub(in crate::check) fn lied_check_done(&self, by: usize, index: usize) -> Result<(), Violation> {
        let end = &self.ends[by];
        let Some(witness) = &end.witness else { return Ok(()) };
        let message = &end.messages[index];
        let reads = message.op.is_atomic() || matches!(message.op, SendOp::Read(_));
        if reads && message.placed != message.len {
            let what = format!("{} of {} bytes are there", message.placed, message.len);
            return broken("success-means-answered", format!("message {index} of end {by} succeeds, {what}"));
        }
        let (mut counted, mut psn) = witness.counted;
        while counted <= index {
            psn += packets_of(&end.messages[counted].op, end.messages[counted].len, witness);
            counted += 1;
        }
        if counted == index + 1 && psn.is_after(witness.answered) {
            let what = format!("message {index} of end {by} ends before psn 0x{:x}", psn.get());
            let answered = witness.answered.get();
            return broken(
                "success-means-answered",
                format!("{what} and succeeds, answered is 0x{answered:x}"),
            );
        }
        Ok(())
    }

    /// A request of an end is over: its PSNs need not be counted again.
    pub(in crate::check) fn lied_retire(&mut self, by: usize, index: usize) {
        let end = &mut self.ends[by];
        let Some(mut witness) = end.witness.take() else { return };
        while witness.counted.0 <= index {
            let message = &end.messages[witness.counted.0];
            let packets = packets_of(&message.op, message.len, &witness);
            witness.counted = (witness.counted.0 + 1, witness.counted.1 + packets);
        }
        end.witness = Some(witness);
    }

    /// A key was taken out of use by a peer: the SEND that came next asks for it.
    #[must_use]
    pub(in crate::check) fn lied_invalidates(&self, by: usize, key: Rkey) -> bool {
        let request = self.ends[by].witness.as_ref().and_then(|witness| Some(witness.next_request()?.0));
        matches!(request, Some(Request::Send(segment, _)) if segment.tail() == Some(SendTail::Invalidate(key)))
    }

    /// A packet leaves.
    ///
    /// `answers-what-was-asked`: an answer to a READ brings memory that a READ of exactly this peer asked for with a key that is
    /// good at this moment; an atomic's brings what that atomic found; nothing is acknowledged that did not come, and
    /// nothing is called missing that could not be.
    ///
    /// # Errors
    /// It does not hold.
    pub fn witness_departure(
        &mut self,
        hosts: &[HostState],
        by: usize,
        packet: &Packet<&[u8]>,
    ) -> Result<(), Violation> {
        let Some(mut witness) = self.ends[by].witness.take() else { return Ok(()) };
        let memory = &hosts[self.ends[by].at.host].node.device.memory;
        let psn = packet.psn;
        let is_fine = match &packet.body {
            Body::RcRequest(request) => {
                let packets =
                    if let Request::Read(reth) = request { witness.packets(reth.length) } else { 1 };
                if (psn + packets).is_after(witness.sent) {
                    witness.sent = psn + packets;
                }
                true
            }
            Body::RcResponse(Response::Read(_, [])) => psn.is_before(witness.expected),
            Body::RcResponse(Response::Read(_, payload)) => {
                let mtu = witness.mtu;
                let part = |asked: &super::Asked| {
                    let skipped = u64::try_from(psn.distance_from(asked.psn)).unwrap_or(0) * u64::from(mtu);
                    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                    Reth { address: asked.place.address.wrapping_add(skipped), length, ..asked.place }
                };
                let gives = |asked: &super::Asked| {
                    let part = part(asked);
                    psn.is_within(asked.psn, asked.packets)
                        && witness.check_key(part, Access::REMOTE_READ, memory, &self.ends[by]).is_ok()
                        && memory.slice(part.address, payload.len()) == *payload
                };
                let found = psn.is_before(witness.expected) && witness.asked.iter().any(gives);
                for asked in witness.asked.iter_mut().filter(|asked| psn.is_within(asked.psn, asked.packets))
                {
                    asked.answered = u32::try_from(psn.distance_from(asked.psn)).unwrap_or(0) + 1;
                }
                found
            }
            Body::RcResponse(Response::AtomicAcknowledge(_, eth)) => {
                witness.found.contains(&(psn, eth.original))
            }
            Body::RcResponse(Response::Acknowledge(Aeth { syndrome, .. })) => match syndrome {
                Syndrome::Ack(_) => psn.is_before(witness.expected),
                Syndrome::Nak(NakCode::SequenceError) => witness.gap == Some(psn),
                _ => !psn.is_after(witness.expected),
            },
            _ => true,
        };
        self.ends[by].witness = Some(witness);
        let what = || format!("end {by} sends {packet}, which nothing asked for");
        if is_fine { Ok(()) } else { broken("answers-what-was-asked", what()) }
    }
}

/// PSNs that a request takes.
fn packets_of(op: &SendOp, len: u32, witness: &Witness) -> u32 {
    match op {
        SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => 0,
        op if op.is_read_or_atomic() && !matches!(op, SendOp::Read(_)) => 1,
        _ => witness.packets(len),
    }
}

/// The atomic that a request asks for, and its place.
pub(super) fn requested(request: &Request<PayloadLen>) -> Option<(Reth, AtomicOp)> {
    let (eth, op) = match request {
        Request::AtomicWrite(reth, bytes) => return Some((*reth, AtomicOp::Store(*bytes))),
        Request::CompareSwap(eth) => {
            (eth, AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_or_add })
        }
        Request::FetchAdd(eth) => (eth, AtomicOp::FetchAdd(eth.swap_or_add)),
        Request::MaskedCompareSwap(eth, masks) => {
            let (compare, swap) = (eth.compare, eth.swap_or_add);
            let (compare_mask, swap_mask) = (masks.compare, masks.swap_or_add);
            (eth, AtomicOp::MaskedCompareSwap(MaskedSwap { compare, compare_mask, swap, swap_mask }))
        }
        Request::MaskedFetchAdd(eth, masks) => {
            let add = MaskedAdd { add: eth.swap_or_add, boundaries: masks.swap_or_add };
            (eth, AtomicOp::MaskedFetchAdd(add))
        }
        _ => return None,
    };
    Some((Reth { address: eth.address, rkey: eth.rkey, length: 8 }, op))
}

//! The responder: a ladder of checks, each a step up, and the answer at the top (IBA 9.7.4).
//!
//! ```text
//! psn -> sequence -> allowed -> resources -> length -> key -> execute -> complete -> acknowledge
//! ```
//!
//! A request that fails a step gets the answer of that step, and nothing of the steps above
//! it has happened. The steps of SENDs and WRITEs are in [`arrival`](crate::arrival), since other ways
//! than packets lead to them too.

use ferroce_wire::{
    Aeth, AtomicAckEth, Body, CreditCode, Msn, NakCode, Packet, PayloadLen, Psn, ReadSegment, Request,
    Response, Reth, Syndrome,
};

use crate::arrival::{Arrival, Fault};
use crate::completion::Event;
use crate::connection::{Connection, Context, Failed};
use crate::host::{AtomicOp, Denied, Host};
use crate::inbound::{Inbound, MAX_MESSAGE};
use crate::planted::{Bug, is_planted};
use crate::rc::atomic::Atomic;
use crate::rc::resources::{Answer, ReadAnswer, Resource, Resources};
use crate::transmit::{Acks, Destination, PayloadSource, Transmit};
use crate::vendor::VendorCode;
use crate::work::Access;

#[derive(Debug)]
pub(crate) struct Responder {
    /// The PSN that comes next.
    pub(crate) expected: Psn,
    pub(crate) msn: Msn,
    pub(crate) inbound: Inbound,
    pub(crate) resources: Resources,
    /// A NAK was sent for the PSN that is expected: one is enough.
    pub(super) nak_sent: bool,
    pub(super) owed: Option<Owed>,
}

/// An acknowledgement or refusal that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) psn: Psn,
    answer: OwedAnswer,
}

impl Owed {
    /// The acknowledgement of this packet.
    pub(super) const fn ack(psn: Psn) -> Self {
        Self { psn, answer: OwedAnswer::Ack }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwedAnswer {
    Ack,
    Rnr,
    Nak(NakCode),
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Without an answer, or with one that is owed already.
    Silently,
    /// For now: no receive is posted.
    NotReady,
    /// For good: the connection ends. The receive that was taken ends with this status.
    ForGood(NakCode, VendorCode),
}

/// Packets that a peer may have under way at most, as far as this side believes.
const PLAUSIBLE: i32 = 1 << 20;

/// What comes with every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInfo {
    pub(crate) psn: Psn,
    pub(crate) ack_request: bool,
    pub(crate) solicited: bool,
}

impl Responder {
    pub(crate) fn new(inbound: Inbound) -> Self {
        Self {
            expected: Psn::default(),
            msn: Msn::default(),
            inbound,
            resources: Resources::new(),
            nak_sent: false,
            owed: None,
        }
    }

    /// Begins a connection whose first request has this PSN.
    pub(crate) fn start_at(&mut self, psn: Psn, connection: &Connection) {
        self.expected = psn;
        self.msn = Msn::default();
        self.nak_sent = false;
        self.owed = None;
        self.resources.reset(connection.max_dest_rd_atomic);
    }

    pub(crate) fn clear(&mut self) {
        self.inbound.clear();
        self.resources.reset(0);
        self.nak_sent = false;
        self.owed = None;
    }

    /// Whether it is between messages, owes nothing, and expects the next one at this PSN.
    pub(crate) fn expects_message_at(&self, psn: Psn) -> bool {
        self.expected == psn && self.inbound.is_idle() && self.owed.is_none() && !self.nak_sent
    }

    /// So many packets have passed, with the end of a message or without; or a message that needed none.
    #[inline]
    pub(crate) fn passed(&mut self, packets: u32, ends: bool) {
        self.expected += packets;
        if ends {
            self.msn = self.msn.next();
        }
    }

    /// After an error only a refusal is still sent, and the answers that come before it.
    pub(crate) fn silence(&mut self) {
        let refuses =
            |owed: &Owed| matches!(owed.answer, OwedAnswer::Nak(code) if code != NakCode::SequenceError);
        self.owed = self.owed.filter(refuses);
        if self.owed.is_none() {
            self.resources.reset(0);
        }
    }

    /// Takes in a request packet.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        info: RequestInfo,
        request: &Request<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        match self.climb(info, request, cx) {
            Ok(()) => {
                cx.counters.requests_received += 1;
                Ok(())
            }
            Err(refusal) => self.refuse(info.psn, refusal, cx),
        }
    }

    fn climb<H: Host>(
        &mut self,
        info: RequestInfo,
        request: &Request<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        self.check_psn(info.psn, request, cx)?;
        if let Some((arrival, payload)) = Arrival::of_request(request, info.solicited) {
            return Ok(self.take(info, &arrival, payload, cx)?);
        }
        self.check_sequence()?;
        check_allowed(request, cx.connection)?;
        self.check_resources()?;
        check_length(request)?;
        check_key(request, cx)?;
        let packets = self.execute(info.psn, request, cx)?;
        // READs and atomics are acknowledged by their answers.
        self.passed(packets, true);
        Ok(())
    }

    /// The ladder of a SEND or WRITE, from the second step on: the PSN is the expected one.
    #[inline]
    pub(super) fn take<H: Host>(
        &mut self,
        info: RequestInfo,
        arrival: &Arrival,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        self.inbound.check_sequence(arrival)?;
        arrival.check_allowed(cx.connection)?;
        if arrival.takes_receive() {
            self.inbound.take_receive(cx)?;
        }
        arrival.check_position(cx.connection.mtu)?;
        self.inbound.check_announced(arrival)?;
        // A packet that is all of its message shows by being placed that its key opens the whole range.
        if !arrival.is_whole() {
            arrival.check_key(cx.connection, cx.host)?;
        }
        self.inbound.place(arrival, payload, cx)?;
        if arrival.ends {
            arrival.invalidate(cx.connection, cx.host)?;
            self.inbound.end_message(arrival, cx.connection, cx.host);
        }
        self.passed(1, arrival.ends);
        // IBA 9.7.5.1.1: an acknowledgement is owed where one is asked for, and takes the place of an older
        // one.
        if info.ack_request {
            self.owed = Some(Owed::ack(info.psn));
        }
        Ok(())
    }

    /// IBA 9.7.4.1.2: the expected PSN goes on, an earlier one was seen before, a later one
    /// shows that something is missing, which is said once.
    fn check_psn<H: Host>(
        &mut self,
        psn: Psn,
        request: &Request<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let distance = if is_planted(Bug::PsnWrap) {
            psn.get().cast_signed() - self.expected.get().cast_signed()
        } else {
            psn.distance_from(self.expected)
        };
        match distance {
            0 => {
                self.nak_sent = false;
                Ok(())
            }
            ..0 if is_planted(Bug::DuplicateExecuted) && self.inbound.is_idle() => Ok(()),
            ..0 => {
                cx.counters.duplicate_requests += 1;
                self.repeat(psn, request, cx)?;
                Err(Refusal::Silently)
            }
            1.. if is_planted(Bug::GapAccepted) => {
                self.expected = psn;
                Ok(())
            }
            // No peer has so much under way. A loss would be said once for every packet that arrives in
            // order, and a forger could have the peer send everything again and again.
            PLAUSIBLE.. if !is_planted(Bug::PsnWrap) && !is_planted(Bug::ImplausibleGapTold) => {
                cx.counters.implausible += 1;
                Err(Refusal::Silently)
            }
            1.. => {
                cx.counters.out_of_sequence += 1;
                if !self.nak_sent {
                    self.nak_sent = true;
                    let answer = OwedAnswer::Nak(NakCode::SequenceError);
                    self.owed = Some(Owed { psn: self.expected, answer });
                }
                Err(Refusal::Silently)
            }
        }
    }

    /// Whether a request with this PSN is one of those behind a gap that was told of: [`check_psn`](Self::check_psn) only counts it.
    pub(crate) const fn is_deaf_to(&self, psn: Psn) -> bool {
        let distance = psn.distance_from(self.expected);
        self.nak_sent && distance > 0 && distance < PLAUSIBLE
    }

    /// Whether a request behind a gap would be [passed over](Self::is_deaf_to).
    pub(crate) const fn has_told_of_gap(&self) -> bool {
        self.nak_sent
    }

    /// IBA 9.7.5.1.4: a repeated SEND or WRITE is acknowledged again, a READ is read again,
    /// an atomic gets its first result.
    fn repeat<H: Host>(
        &mut self,
        psn: Psn,
        request: &Request<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Refusal> {
        let mut kept = self.resources.find(psn);
        if let Some(kept) = &mut kept {
            kept.repeated |= !kept.is_pending();
        }
        match (request, kept) {
            (Request::Send(..) | Request::Write(..), _) => {
                if self.owed.is_none_or(|owed| owed.answer == OwedAnswer::Ack) {
                    self.owed = Some(Owed { psn: self.expected.prev(), answer: OwedAnswer::Ack });
                }
                return Ok(());
            }
            (Request::Read(reth), Some(kept)) if matches!(kept.answer, Answer::Read(_)) => {
                let again = ReadAnswer::new(psn, reth, cx.connection);
                let last = psn + (again.packets - 1);
                let fits = last.is_within(kept.psn, kept.packets) || is_planted(Bug::RepeatedReadTooLong);
                // A key that is gone by now says nothing against a peer that may have its answer.
                if fits && (check_read_key(reth, cx).is_ok() || is_planted(Bug::RepeatedReadKeyUnchecked)) {
                    kept.answer = Answer::Read(again);
                    cx.counters.duplicate_reads += 1;
                    return Ok(());
                }
            }
            (Request::AtomicWrite(..), Some(kept)) => {
                if let Answer::Empty { pending } = &mut kept.answer {
                    *pending = true;
                    cx.counters.duplicate_atomics += 1;
                    return Ok(());
                }
            }
            (request, Some(kept)) => {
                if let (Some(atomic), Answer::Atomic { pending, .. }) =
                    (Atomic::requested(request), &mut kept.answer)
                {
                    *pending = true;
                    if is_planted(Bug::AtomicTwice) {
                        let Atomic { rkey, address, op } = atomic;
                        cx.host.atomic(cx.connection.accessor(), rkey, address, op)?;
                    }
                    cx.counters.duplicate_atomics += 1;
                    return Ok(());
                }
            }
            _ => {}
        }
        cx.counters.stale_duplicates += 1;
        Ok(())
    }

    /// IBA 9.7.4.1.3: inside a message of several packets no other may come.
    fn check_sequence(&self) -> Result<(), Refusal> {
        let fits = self.inbound.is_idle() || is_planted(Bug::SegmentOrderUnchecked);
        if fits { Ok(()) } else { Err(Refusal::INVALID) }
    }

    /// IBA 9.7.4.1.4: a READ or atomic takes a place among those whose answers can be repeated.
    fn check_resources(&self) -> Result<(), Refusal> {
        if self.resources.has_room() { Ok(()) } else { Err(Refusal::INVALID) }
    }

    /// Does what is asked, and says how many PSNs it takes.
    fn execute<H: Host>(
        &mut self,
        psn: Psn,
        request: &Request<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<u32, Refusal> {
        match request {
            Request::Read(reth) => {
                let read = ReadAnswer::new(psn, reth, cx.connection);
                self.keep(psn, read.packets, Answer::Read(read));
                Ok(read.packets)
            }
            Request::AtomicWrite(reth, operand) => {
                let op = AtomicOp::Store(*operand);
                cx.host.atomic(cx.connection.accessor(), reth.rkey, reth.address, op)?;
                self.keep(psn, 1, Answer::Empty { pending: true });
                Ok(1)
            }
            atomic => {
                let Some(Atomic { rkey, address, op }) = Atomic::requested(atomic) else {
                    return Err(Refusal::INVALID);
                };
                let original = cx.host.atomic(cx.connection.accessor(), rkey, address, op)?;
                self.keep(psn, 1, Answer::Atomic { original, pending: true });
                Ok(1)
            }
        }
    }

    fn keep(&mut self, psn: Psn, packets: u32, answer: Answer) {
        self.resources.push(Resource { psn, packets, msn: self.msn.next(), answer, repeated: false });
    }

    /// Says no.
    fn refuse<H: Host>(&mut self, psn: Psn, refusal: Refusal, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        match refusal {
            Refusal::Silently => Ok(()),
            Refusal::NotReady => {
                self.nak_sent = true;
                self.owed = Some(Owed { psn, answer: OwedAnswer::Rnr });
                Ok(())
            }
            Refusal::ForGood(code, failed) => {
                self.owed = Some(Owed { psn, answer: OwedAnswer::Nak(code) });
                self.inbound.abandon(failed, cx);
                match code {
                    NakCode::RemoteAccess => cx.host.event(cx.connection.qpn, Event::AccessError),
                    // Our own receive was at fault, and its completion has said so.
                    NakCode::RemoteOperation => {}
                    _ => cx.host.event(cx.connection.qpn, Event::RequestError),
                }
                Err(Failed)
            }
        }
    }

    /// The next response packet. Answers to READs and atomics leave in the order of their
    /// PSNs; an owed acknowledgement follows those before it.
    pub(crate) fn poll<H: Host>(
        &mut self,
        acks: Acks,
        cx: &mut Context<'_, H>,
    ) -> Result<Option<Transmit<'static>>, Failed> {
        while let Some(kept) = self.resources.first_pending() {
            let credits = credit_code(&self.inbound, cx.connection);
            // Whatever acknowledgement was owed for something earlier, this answer implies it.
            if self.owed.is_some_and(|owed| owed.psn.is_before(kept.psn)) {
                self.owed = None;
            }
            let aeth = Aeth { syndrome: Syndrome::Ack(credits), msn: kept.msn };
            let (psn, response, payload) = match next_answer(kept, aeth, cx) {
                Ok(answer) => answer,
                Err(_) if kept.repeated => {
                    kept.give_up();
                    continue;
                }
                Err((psn, refusal)) => {
                    // It is not tried again, and what comes after it has no answer any more.
                    self.resources.reset(0);
                    // Not the message that is arriving is at fault, but an earlier READ.
                    self.refuse(psn, refusal.with_receive(VendorCode::FlushedUnderWay), cx)?;
                    return Ok(None);
                }
            };
            cx.counters.responses_sent += 1;
            return Ok(Some(transmit(psn, response, payload, cx.connection)));
        }
        let Some(owed) = self.owed else { return Ok(None) };
        if owed.answer == OwedAnswer::Ack && acks == Acks::Hold {
            return Ok(None);
        }
        self.owed = None;
        let syndrome = match owed.answer {
            OwedAnswer::Ack => Syndrome::Ack(credit_code(&self.inbound, cx.connection)),
            OwedAnswer::Rnr => Syndrome::RnrNak(cx.connection.min_rnr_timer),
            OwedAnswer::Nak(code) => Syndrome::Nak(code),
        };
        count_answer(syndrome, cx);
        let response = Response::Acknowledge(Aeth { syndrome, msn: self.msn });
        Ok(Some(transmit(owed.psn, response, PayloadSource::Nothing, cx.connection)))
    }

    /// What a plain acknowledgement that is owed says has arrived.
    #[inline]
    pub(super) fn owed_ack(&self) -> Option<Psn> {
        self.owed.filter(|owed| owed.answer == OwedAnswer::Ack).map(|owed| owed.psn)
    }

    /// Whether an answer may wait that is not a plain acknowledgement.
    pub(crate) fn may_have_answers(&self) -> bool {
        self.resources.may_be_pending() || self.owed.is_some_and(|owed| owed.answer != OwedAnswer::Ack)
    }

    /// Whether an acknowledgement waits for [`Acks::Send`].
    pub(crate) const fn owes_ack(&self) -> bool {
        self.owed.is_some()
    }

    /// The last PSN that was acknowledged, or will be, and the message number then; nothing if the peer has nothing to
    /// hear again but a refusal.
    pub(crate) fn last_acknowledged(&self) -> Option<(Psn, Msn)> {
        let refused = self.owed.is_some_and(|owed| owed.answer != OwedAnswer::Ack);
        (self.msn != Msn::default() && !refused).then(|| (self.expected.prev(), self.msn))
    }

    /// Owes the last acknowledgement once more, if there was one.
    pub(crate) fn repeat_ack(&mut self) {
        if self.owed.is_none() && self.msn != Msn::default() {
            self.owed = Some(Owed { psn: self.expected.prev(), answer: OwedAnswer::Ack });
        }
    }
}

/// How many receives a peer may count on. Those of a shared queue cannot be promised to
/// any peer (IBA 9.7.7.2.1).
pub(super) fn credit_code(inbound: &Inbound, connection: &Connection) -> CreditCode {
    match connection.shared_queue {
        Some(_) => CreditCode::UNCOUNTED,
        None => CreditCode::at_most(inbound.credits()),
    }
}

/// IBA 9.7.4.1.4: the queue pair must have been opened for this kind of request.
fn check_allowed(request: &Request<&[u8]>, connection: &Connection) -> Result<(), Refusal> {
    let needed = match request {
        Request::AtomicWrite(..) => Access::REMOTE_WRITE,
        Request::Read(_) => Access::REMOTE_READ,
        Request::CompareSwap(_)
        | Request::FetchAdd(_)
        | Request::MaskedCompareSwap(..)
        | Request::MaskedFetchAdd(..) => Access::REMOTE_ATOMIC,
        // A flush is not among what this device offers.
        Request::Flush(..) | Request::Send(..) | Request::Write(..) => return Err(Refusal::INVALID),
    };
    if connection.lets(needed) { Ok(()) } else { Err(Refusal::INVALID) }
}

/// IBA 9.7.4.1.6: a READ asks for no more than a message, an ATOMIC WRITE brings eight bytes.
const fn check_length(request: &Request<&[u8]>) -> Result<(), Refusal> {
    match request {
        Request::Read(reth) if reth.length > MAX_MESSAGE => Err(Refusal::INVALID),
        Request::AtomicWrite(reth, _) if reth.length != 8 => Err(Refusal::INVALID),
        _ => Ok(()),
    }
}

/// IBA 9.7.4.1.5: the key must open the whole range before a byte of it is touched.
fn check_key<H: Host>(request: &Request<&[u8]>, cx: &mut Context<'_, H>) -> Result<(), Refusal> {
    let by = cx.connection.accessor();
    match request {
        Request::Read(reth) => check_read_key(reth, cx),
        Request::CompareSwap(atomic)
        | Request::FetchAdd(atomic)
        | Request::MaskedCompareSwap(atomic, _)
        | Request::MaskedFetchAdd(atomic, _) => {
            check_alignment(atomic.address)?;
            Ok(cx.host.check_remote(by, atomic.rkey, atomic.address, 8, Access::REMOTE_ATOMIC)?)
        }
        Request::AtomicWrite(reth, _) => {
            check_alignment(reth.address)?;
            Ok(cx.host.check_remote(by, reth.rkey, reth.address, 8, Access::REMOTE_WRITE)?)
        }
        Request::Send(..) | Request::Write(..) | Request::Flush(..) => Ok(()),
    }
}

fn check_read_key<H: Host>(reth: &Reth, cx: &mut Context<'_, H>) -> Result<(), Refusal> {
    match reth.length {
        0 => Ok(()),
        length => {
            let by = cx.connection.accessor();
            Ok(cx.host.check_remote(by, reth.rkey, reth.address, length, Access::REMOTE_READ)?)
        }
    }
}

/// IBA 9.4.5: atomics work on eight bytes at a multiple of eight.
const fn check_alignment(address: u64) -> Result<(), Refusal> {
    if address.is_multiple_of(8) { Ok(()) } else { Err(Refusal::INVALID) }
}

type NextAnswer = (Psn, Response<PayloadLen>, PayloadSource<'static>);

/// The next packet of a kept answer.
fn next_answer<H: Host>(
    kept: &mut Resource,
    aeth: Aeth,
    cx: &mut Context<'_, H>,
) -> Result<NextAnswer, (Psn, Refusal)> {
    match &mut kept.answer {
        Answer::Read(read) => next_read_packet(read, aeth, cx),
        Answer::Atomic { original, pending } => {
            *pending = false;
            let response = Response::AtomicAcknowledge(aeth, AtomicAckEth { original: *original });
            Ok((kept.psn, response, PayloadSource::Nothing))
        }
        Answer::Empty { pending } => {
            *pending = false;
            Ok((kept.psn, Response::Read(ReadSegment::Only(aeth), PayloadLen(0)), PayloadSource::Nothing))
        }
    }
}

/// The next packet of a READ response. The key is asked again: the memory may be gone.
fn next_read_packet<H: Host>(
    read: &mut ReadAnswer,
    aeth: Aeth,
    cx: &mut Context<'_, H>,
) -> Result<NextAnswer, (Psn, Refusal)> {
    let part = read.next_part(cx.connection.mtu_bytes());
    if !is_planted(Bug::ReadAnsweredWithoutKey) {
        check_read_key(&part.place, cx).map_err(|refusal| (part.psn, refusal))?;
    }
    let segment = match (part.begins, part.ends) {
        (true, true) => ReadSegment::Only(aeth),
        (true, false) => ReadSegment::First(aeth),
        (false, true) => ReadSegment::Last(aeth),
        (false, false) => ReadSegment::Middle,
    };
    read.sent += 1;
    let len = PayloadLen(part.place.length as usize);
    Ok((part.psn, Response::Read(segment, len), part.payload()))
}

fn transmit(
    psn: Psn,
    response: Response<PayloadLen>,
    payload: PayloadSource<'static>,
    connection: &Connection,
) -> Transmit<'static> {
    let mut packet = Packet::new(connection.dest_qpn, psn, Body::RcResponse(response));
    packet.pkey = connection.pkey;
    Transmit { packet, payload, dest: Destination::Peer }
}

fn count_answer<H>(syndrome: Syndrome, cx: &mut Context<'_, H>) {
    let counter = match syndrome {
        Syndrome::RnrNak(_) => &mut cx.counters.rnr_sent,
        Syndrome::Nak(NakCode::SequenceError) => &mut cx.counters.nak_sequence_sent,
        Syndrome::Nak(NakCode::RemoteAccess) => &mut cx.counters.nak_remote_access_sent,
        Syndrome::Nak(NakCode::RemoteOperation) => &mut cx.counters.nak_remote_operation_sent,
        Syndrome::Nak(_) => &mut cx.counters.nak_invalid_request_sent,
        Syndrome::Ack(_) | Syndrome::Reserved(_) => &mut cx.counters.acks_sent,
    };
    *counter += 1;
}

impl Refusal {
    /// The request breaks the protocol. A receive that its message has taken ends as well.
    const INVALID: Self = Self::ForGood(NakCode::InvalidRequest, VendorCode::MessageBrokenOff);

    /// The same, but the receive that was taken fails for this.
    const fn with_receive(self, failed: VendorCode) -> Self {
        match self {
            Self::ForGood(code, _) => Self::ForGood(code, failed),
            other => other,
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sequence | Fault::NotAllowed => Self::INVALID,
            Fault::Length => Self::ForGood(NakCode::InvalidRequest, VendorCode::PacketLength),
            Fault::TooLong => Self::ForGood(NakCode::InvalidRequest, VendorCode::ReceiveTooShort),
            Fault::NoReceive => Self::NotReady,
            Fault::Key(denied) => denied.into(),
            Fault::Receive(denied) => Self::ForGood(NakCode::RemoteOperation, VendorCode::local(denied)),
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Misaligned => Self::INVALID,
            Denied::UnknownKey | Denied::OutOfRange | Denied::NotPermitted | Denied::WrongDomain => {
                Self::ForGood(NakCode::RemoteAccess, VendorCode::access(denied))
            }
        }
    }
}

//! Why one work request failed: from what its status says back to where that came from.

use ferroce_record::{Completed, CompletedFlags, PacketFlags, Queue, WorkOp};
use ferroce_transport::{Access, State, Status, VendorCode};
use ferroce_wire::{Qpn, Rkey, Syndrome};

use super::facts::Facts;
use super::memory::Key;
use super::{Evidence, Explainer, Finding, Severity, at, state_name};
use crate::glance::{Glance, Target};
use crate::show::{Nanos, Span};
use crate::work::{PacketAt, Work};

/// Packets of a failed request that are shown: the last ones.
const EVIDENCE: usize = 6;

/// A failed request, and what its causes are looked for with.
struct Case<'a> {
    source: usize,
    qpn: Qpn,
    work: &'a Work,
    time: u64,
    completed: &'a Completed,
    because: Vec<String>,
}

impl Explainer {
    /// Explains a request that failed at this time.
    pub(super) fn explain(&self, source: usize, work: &Work, time: u64, completed: &Completed) -> Finding {
        let qpn = completed.qpn;
        let mut case = Case { source, qpn, work, time, completed, because: Vec::new() };
        if let Some(code) = completed.vendor_code {
            case.because.push(format!("vendor error {:#04x}: {code}", code.code()));
        }
        match completed.status {
            Status::RemoteAccess => self.remote_access(&mut case),
            Status::RemoteInvalidRequest => self.invalid_request(&mut case),
            Status::RemoteOperation => self.remote_operation(&mut case),
            Status::RetryExceeded => self.retry_exceeded(&mut case),
            Status::RnrRetryExceeded => self.rnr_exceeded(&mut case),
            Status::LocalLength => self.local_length(&mut case),
            Status::LocalProtection => self.local_protection(&mut case),
            Status::LocalAccess => self.local_access(&mut case),
            Status::BadResponse => {
                let what = "what it was asked, and what it answered";
                case.because.push(self.missing_peer(source, qpn, what));
            }
            Status::WindowBind | Status::LocalQpOperation => self.own_mistake(&mut case),
            Status::Success | Status::Flushed => {}
        }
        let posted = &work.posted;
        let (op, number, id) = (posted.op.name(), posted.work, posted.id);
        let name = self.name(source, qpn);
        let text = format!("{op} {number} (id {id:#x}) of {name} failed {}: {}", at(time), completed.status);
        let mut evidence = vec![Evidence { time: work.posted_at, text: "posted".to_owned() }];
        let skipped = work.packets.len().saturating_sub(EVIDENCE);
        evidence.extend(work.packets[skipped..].iter().map(packet_evidence));
        if completed.flags.contains(CompletedFlags::OVERRUN) {
            case.because.push("its completion is lost, too: the completion queue was full".to_owned());
        }
        Finding {
            severity: Severity::Error,
            time: Some(time),
            record: source,
            qpn: Some(qpn),
            work: Some(number),
            text,
            because: case.because,
            evidence,
        }
    }

    fn facts(&self, source: usize, qpn: Qpn) -> Option<&Facts> {
        self.queue_pairs.get(&(source, qpn))
    }

    /// The answer of the peer that refused a request, if one came.
    fn refusal(case: &mut Case<'_>) {
        let work = case.work;
        let refused = work.packets.iter().rev().find_map(|at| {
            let is_in = !at.packet.flags.contains(PacketFlags::OUT);
            let glance = Glance::of(&at.packet).filter(|_| is_in)?;
            let syndrome = glance.syndrome.filter(|syndrome| matches!(syndrome, Syndrome::Nak(_)))?;
            Some((at.time, glance.psn, syndrome))
        });
        if let Some((time, psn, syndrome)) = refused {
            let after = work
                .begun_at()
                .map(|begun| format!(", {} after the first packet left", Span(time.saturating_sub(begun))));
            case.because.push(format!(
                "the peer refused packet {psn} with {}{}",
                syndrome.name(),
                after.unwrap_or_default()
            ));
        }
    }

    fn remote_access(&self, case: &mut Case<'_>) {
        Self::refusal(case);
        let Some((home, peer)) = self.peer(case.source, case.qpn) else {
            return case.because.push(self.missing_peer(
                case.source,
                case.qpn,
                "which memory its key opens, and for what",
            ));
        };
        let posted = &case.work.posted;
        let length = if is_atomic(posted.op) { 8 } else { u64::from(posted.length) };
        let target = Target { address: posted.remote, key: posted.key, length };
        // Memory is asked as the peer answered, if that is told.
        let time = self.facts(home, peer).and_then(|facts| facts.refused).map_or(case.time, |(time, _)| time);
        let what = format!("the {}", short(posted.op));
        let why = self.memory[home].why(
            time.min(case.time),
            Key::Remote(posted.key.0),
            target,
            needs(posted.op),
            &what,
        );
        case.because.push(format!("at the other end, {why}"));
    }

    fn invalid_request(&self, case: &mut Case<'_>) {
        Self::refusal(case);
        if self.error_of_peer(case) {
            return;
        }
        case.because.push(
            match case.work.posted.op {
                WorkOp::Read => "the queue pair there does not allow READs, or as many were under way as it takes",
                op if is_atomic(op) => {
                    "the queue pair there does not allow atomics, or as many were under way as it takes, or the address \
                     is no multiple of eight"
                }
                WorkOp::Write | WorkOp::WriteImm => "the queue pair there does not allow WRITEs",
                _ => "the message was longer than the receive that it met",
            }
            .to_owned(),
        );
        case.because.push(self.missing_peer(case.source, case.qpn, "which of these it was"));
    }

    fn remote_operation(&self, case: &mut Case<'_>) {
        Self::refusal(case);
        if !self.error_of_peer(case) {
            let what =
                "what failed there: mostly the receive that the message met names memory that is not open";
            case.because.push(self.missing_peer(case.source, case.qpn, what));
        }
    }

    /// Whether the other end has an error of its own that explains this one.
    fn error_of_peer(&self, case: &mut Case<'_>) -> bool {
        let Some((home, peer)) = self.peer(case.source, case.qpn) else { return false };
        let Some((time, work, op, status)) = self.facts(home, peer).and_then(|facts| facts.first_error)
        else {
            return false;
        };
        let before = Span(case.time.saturating_sub(time));
        case.because
            .push(format!("at the other end, {} {work} had failed {before} before: {status}", op.name()));
        true
    }

    fn retry_exceeded(&self, case: &mut Case<'_>) {
        let work = case.work;
        let is_out = |at: &&PacketAt| at.packet.flags.contains(PacketFlags::OUT);
        let sent = work.packets.iter().filter(is_out).count();
        let taken = work.packets.iter().filter(|at| at.packet.flags.contains(PacketFlags::TAKEN)).count();
        let began = work.begun_at().unwrap_or(work.posted_at);
        let over = Span(case.time.saturating_sub(began));
        case.because
            .push(format!("its packets left {sent} time(s) in {over}, and no answer to the last came"));
        let Some(facts) = self.facts(case.source, case.qpn) else { return };
        if let Some((tries, most)) = facts.tries {
            case.because.push(format!("time-out {tries} of {most} in a row was the last"));
        }
        if taken > 0 {
            case.because.push(format!("fault injection took {taken} of its packets: they never left"));
        }
        if facts.answered.is_none() {
            case.because.push("nothing was ever answered on this queue pair".to_owned());
        } else {
            let ago = Span(case.time.saturating_sub(facts.answered.last));
            case.because
                .push(format!("the last answer to anything on this queue pair had come {ago} before"));
        }
        self.silence(case, began);
    }

    /// Why the other end did not answer.
    fn silence(&self, case: &mut Case<'_>, began: u64) {
        let Some((home, peer)) = self.peer(case.source, case.qpn) else {
            let what = "whether its packets came there, and what became of them";
            return case.because.push(self.missing_peer(case.source, case.qpn, what));
        };
        let Some(facts) = self.facts(home, peer) else { return };
        let there = self.name(home, peer);
        if let Some(gone) = facts.gone {
            case.because.push(format!("at the other end, {there} is gone since {}", Nanos(gone)));
        } else if let Some((state @ (State::Reset | State::Init | State::Err), since, is_asked)) = facts.state
        {
            let why = if is_asked { "the program there asked for it" } else { "something went wrong there" };
            let state = state_name(state);
            case.because
                .push(format!("at the other end, {there} is in {state} since {}: {why}", Nanos(since)));
            self.error_of_peer(case);
        } else if facts.wanted.is_none() || facts.wanted.last < began {
            let told = self
                .refused
                .iter()
                .filter(|((source, _), (tally, ..))| *source == home && tally.last >= began);
            let refused: Vec<String> = told
                .map(|((_, why), (tally, ..))| {
                    format!("{} packet(s) were refused there: {}", tally.count, why.name())
                })
                .collect();
            if refused.is_empty() {
                case.because.push("at the other end, none of them came: the network lost them".to_owned());
            }
            case.because.extend(refused);
        } else {
            let ago = Span(case.time.saturating_sub(facts.wanted.last));
            case.because.push(format!(
                "at the other end, packets came, the last {ago} before: its answers were lost"
            ));
        }
    }

    fn rnr_exceeded(&self, case: &mut Case<'_>) {
        let Some(facts) = self.facts(case.source, case.qpn) else { return };
        let Tries(count, since) = Tries::of(facts, case.time);
        case.because.push(format!(
            "the peer answered RNR NAK {count} time(s) in {since}: no receive was posted there"
        ));
        if let Some((tries, most)) = facts.rnr_tries {
            case.because.push(format!("try {tries} of {most} in a row was the last"));
        }
        match self.peer(case.source, case.qpn) {
            Some((home, peer)) => {
                let receives = self.receives_of(home, peer, case.time, "");
                case.because.push(format!("at the other end, {receives}"));
            }
            None => {
                let what = "when receives were posted there";
                case.because.push(self.missing_peer(case.source, case.qpn, what));
            }
        }
    }

    /// What is known of the receives of a queue pair, in a sentence; how long before what.
    pub(super) fn receives_of(&self, source: usize, qpn: Qpn, time: u64, what: &str) -> String {
        let facts = self.facts(source, qpn);
        let queue = facts.and_then(|facts| facts.shared).map_or(Queue::Receive(qpn), Queue::Shared);
        match self.receives.get(&(source, queue)) {
            None if facts.is_some_and(|facts| facts.is_earlier) => {
                format!("{queue} was empty as the record began, and no receive was posted to it since")
            }
            None => format!("no receive was ever posted to {queue}"),
            Some(receives) => {
                let ago = Span(time.saturating_sub(receives.posted.last));
                let (count, left) = (receives.posted.count, receives.waiting);
                format!(
                    "{count} receive(s) were posted to {queue}, the last {ago} before{what}, of which {left} were left"
                )
            }
        }
    }

    fn local_length(&self, case: &mut Case<'_>) {
        let posted = &case.work.posted;
        if posted.op == WorkOp::Receive && case.completed.vendor_code != Some(VendorCode::PacketLength) {
            let came = self.facts(case.source, case.qpn).map_or(0, |facts| facts.message);
            let (pieces, length) = (posted.pieces, posted.length);
            case.because.push(if came > 0 {
                format!("the receive has {length} bytes in {pieces} piece(s), and {came} bytes of the message had come")
            } else {
                format!("the receive has {length} bytes in {pieces} piece(s)")
            });
        } else if let Some(way) = self.facts(case.source, case.qpn).and_then(|facts| facts.way) {
            case.because
                .push(format!("packets of this connection have {} bytes of payload at most", way.mtu));
        }
    }

    fn local_protection(&self, case: &mut Case<'_>) {
        let (work, posted) = (case.work, &case.work.posted);
        let writes = posted.op == WorkOp::Receive || posted.op == WorkOp::Read || is_atomic(posted.op);
        let access = if writes { Access::LOCAL_WRITE } else { Access::empty() };
        let first = (posted.address, work.first_piece(), posted.lkey);
        let rest = work.pieces.iter().map(|piece| (piece.sge.address, piece.sge.length, piece.sge.lkey));
        for (place, (address, length, lkey)) in std::iter::once(first).chain(rest).enumerate() {
            let target = Target { address, key: Rkey(0), length: length.into() };
            let memory = &self.memory[case.source];
            if let Some(why) = memory.refuses(case.time, Key::Local(lkey.0), target, access, "the piece") {
                return case.because.push(format!("piece {place} of its memory: {why}"));
            }
        }
        case.because.push("its memory belongs to another protection domain than the queue pair".to_owned());
    }

    fn local_access(&self, case: &mut Case<'_>) {
        let Some(target) = self.facts(case.source, case.qpn).and_then(|facts| facts.target) else { return };
        let memory = &self.memory[case.source];
        let why = memory.why(
            case.time,
            Key::Remote(target.key.0),
            target,
            Access::REMOTE_WRITE,
            "the message of the peer",
        );
        case.because.push(why);
    }

    /// What is wrong with the request itself.
    fn own_mistake(&self, case: &mut Case<'_>) {
        let posted = &case.work.posted;
        if matches!(posted.op, WorkOp::LocalInvalidate | WorkOp::BindWindow | WorkOp::SendInvalidate) {
            let target = Target { address: posted.remote, key: posted.key, length: posted.length.into() };
            let what = format!("the {}", short(posted.op));
            let memory = &self.memory[case.source];
            let why = memory.why(case.time, Key::Remote(posted.key.0), target, Access::empty(), &what);
            case.because.push(why);
        }
        self.error_of_peer(case);
    }
}

/// RNR NAKs that came, and in what time.
struct Tries(u64, Span);

impl Tries {
    const fn of(facts: &Facts, time: u64) -> Self {
        Self(facts.rnr_came.count, Span(time.saturating_sub(facts.rnr_came.first)))
    }
}

fn packet_evidence(at: &PacketAt) -> Evidence {
    let way = if at.packet.flags.contains(PacketFlags::OUT) { "out" } else { "in" };
    let (bytes, len) = at.header_bytes();
    let what = match ferroce_wire::Packet::parse_kept(&bytes[..len], at.wire_len()) {
        Ok(packet) => packet.to_string(),
        Err(error) => error.to_string(),
    };
    let fates = crate::show::FATES.iter().filter(|(flag, _)| at.packet.flags.contains(*flag));
    let notes: String = fates.map(|(_, text)| format!(" [{text}]")).collect();
    Evidence { time: at.time, text: format!("{way} {what}{notes}") }
}

/// What the memory of the peer must allow.
const fn needs(op: WorkOp) -> Access {
    match op {
        WorkOp::Read => Access::REMOTE_READ,
        WorkOp::CompareSwap | WorkOp::FetchAdd | WorkOp::MaskedCompareSwap | WorkOp::MaskedFetchAdd => {
            Access::REMOTE_ATOMIC
        }
        _ => Access::REMOTE_WRITE,
    }
}

const fn is_atomic(op: WorkOp) -> bool {
    matches!(
        op,
        WorkOp::CompareSwap
            | WorkOp::FetchAdd
            | WorkOp::MaskedCompareSwap
            | WorkOp::MaskedFetchAdd
            | WorkOp::AtomicWrite
    )
}

/// An operation in one word.
const fn short(op: WorkOp) -> &'static str {
    match op {
        WorkOp::Write | WorkOp::WriteImm => "WRITE",
        WorkOp::Read => "READ",
        WorkOp::Send | WorkOp::SendImm | WorkOp::SendInvalidate => "SEND",
        WorkOp::Receive => "receive",
        WorkOp::BindWindow => "window",
        WorkOp::LocalInvalidate => "invalidation",
        _ => "atomic",
    }
}

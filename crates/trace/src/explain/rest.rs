//! What is told at the end: what waits and for what, and what happened too often.

use ferroce_record::{ConnectionStep, Queue, WaitReason, WorkOp};
use ferroce_transport::State;
use ferroce_wire::Qpn;

use super::facts::{Cause, Facts, Tally};
use super::{Explainer, Finding, Severity, at, state_name};
use crate::show::{Nanos, Span};
use crate::work::Work;

/// Findings of one kind that are told; those beyond are counted.
const TOLD: usize = 20;

/// Work that waits for so long looks wrong, in nanoseconds.
const LONG: u64 = 1_000_000_000;

/// Work of a queue that had not ended as the record did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    count: u64,
    /// When the oldest was posted, and what it is.
    since: u64,
    work: u32,
    op: WorkOp,
    /// Whether it was posted before the record began, at a time that is not known.
    is_earlier: bool,
}

impl Outstanding {
    /// Work comes oldest first.
    pub(super) const fn new(work: &Work) -> Self {
        let is_earlier = work.is_earlier();
        Self { count: 0, since: work.posted_at, work: work.posted.work, op: work.posted.op, is_earlier }
    }

    pub(super) const fn add(&mut self) {
        self.count += 1;
    }
}

impl Explainer {
    /// All but failed work.
    pub(super) fn rest(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (status, count) in &self.more {
            findings.push(note(Severity::Error, 0, format!("{count} more request(s) failed: {status}")));
        }
        for ((source, cq), tally) in &self.overruns {
            let of = self.of_record(*source);
            let text = format!("completion queue {cq}{of} was full: {} completion(s) are lost", tally.count);
            findings.push(Finding { time: Some(tally.first), ..note(Severity::Error, *source, text) });
        }
        self.several(&mut findings, Self::flushed);
        self.waiting(&mut findings);
        self.several(&mut findings, Self::not_ready);
        self.several(&mut findings, Self::repeated);
        self.connections(&mut findings);
        self.refused(&mut findings);
        self.unpolled(&mut findings);
        self.receives_left(&mut findings);
        self.record_itself(&mut findings);
        findings
    }

    /// One kind of finding for each queue pair that has it, the first ones in time.
    fn several(&self, findings: &mut Vec<Finding>, kind: fn(&Self, usize, Qpn, &Facts) -> Option<Finding>) {
        let found = self.queue_pairs.iter().filter_map(|((source, qpn), facts)| {
            let finding = kind(self, *source, *qpn, facts)?;
            Some(Finding { qpn: Some(*qpn), ..finding })
        });
        let mut found: Vec<Finding> = found.collect();
        found.sort_by_key(|finding| (finding.time, finding.record, finding.qpn.map(Qpn::get)));
        let more = found.len().saturating_sub(TOLD);
        let severity = found.first().map(|finding| finding.severity);
        findings.extend(found.into_iter().take(TOLD));
        if let Some(severity) = severity.filter(|_| more > 0) {
            findings.push(note(severity, 0, format!("the same of {more} more queue pair(s)")));
        }
    }

    /// Flushed work, by what its queue pair went into error for.
    fn flushed(&self, source: usize, qpn: Qpn, facts: &Facts) -> Option<Finding> {
        if facts.flushed.is_none() {
            return None;
        }
        let Tally { count, first, .. } = facts.flushed;
        let Cause { first_error, ended, state } = facts.flushed_for.unwrap_or_else(|| facts.cause());
        let (severity, why) = match (first_error, ended, state) {
            (Some((time, work, op, status)), ..) if time <= facts.flushed.last => {
                (Severity::Note, format!("{} {work} had failed {}: {status}", op.name(), at(time)))
            }
            (_, Some((time, step)), _) => {
                (Severity::Note, format!("the connection was {} {}", step.name(), at(time)))
            }
            (_, _, Some((State::Err, time, true))) => {
                (Severity::Note, format!("the program moved the queue pair to ERR {}", at(time)))
            }
            (_, _, Some((State::Err, time, false))) => (
                Severity::Warning,
                format!(
                    "the queue pair went into ERR by itself {}, and no request of its own had failed: a request of the \
                         peer was refused",
                    at(time)
                ),
            ),
            _ => (Severity::Note, "why is not in the record".to_owned()),
        };
        let text =
            format!("{count} request(s) of {} were flushed, the first {}", self.name(source, qpn), at(first));
        Some(Finding { time: Some(first), because: vec![why], ..note(severity, source, text) })
    }

    /// Sends that were outstanding at the end, and what they wait for.
    fn waiting(&self, findings: &mut Vec<Finding>) {
        let sends = self.outstanding.iter().filter_map(|((source, queue), outstanding)| match queue {
            Queue::Send(qpn) => Some((*source, *qpn, *outstanding)),
            _ => None,
        });
        let mut sends: Vec<(usize, Qpn, Outstanding)> = sends.collect();
        sends.sort_by_key(|(_, _, outstanding)| outstanding.since);
        for (source, qpn, outstanding) in sends.iter().take(TOLD) {
            findings.push(self.wait_of(*source, *qpn, *outstanding));
        }
        if let Some(more) = sends.len().checked_sub(TOLD + 1) {
            let text = format!("{} more queue pair(s) have sends outstanding", more + 1);
            findings.push(note(Severity::Note, 0, text));
        }
    }

    fn wait_of(&self, source: usize, qpn: Qpn, outstanding: Outstanding) -> Finding {
        let Outstanding { count, since, work, op, is_earlier } = outstanding;
        let waited = self.last.saturating_sub(since);
        let name = self.name(source, qpn);
        let text = format!(
            "{name} has {count} send(s) that are not over, the oldest ({} {work}) for {}{}",
            op.name(),
            if is_earlier { "more than " } else { "" },
            Span(waited)
        );
        let default = Facts::default();
        let facts = self.queue_pairs.get(&(source, qpn)).unwrap_or(&default);
        let mut because = Vec::new();
        let is_silent = facts.answered.is_none() || facts.answered.last < facts.asked.last;
        let is_rnr = matches!(facts.wait, Some((_, wait)) if wait.reason == WaitReason::ReceiverNotReady)
            || facts.rnr_came.count > 0 && facts.rnr_came.last >= facts.answered.last;
        let has_stopped = match facts.state {
            Some((state, time, _)) if !matches!(state, State::Rts | State::Sqd) => {
                because.push(format!(
                    "it is in {} since {}, where nothing is sent",
                    state_name(state),
                    Nanos(time)
                ));
                true
            }
            _ => false,
        };
        if is_rnr && !has_stopped {
            let Tally { count, first, .. } = facts.rnr_came;
            because.push(format!(
                "the peer has posted no receive: it has answered RNR NAK {count} time(s) since {}",
                Nanos(first)
            ));
        } else if let Some((time, wait)) = facts.wait.filter(|_| !has_stopped) {
            because.push(format!("it waits for {} since {}", wait.reason.name(), Nanos(time)));
        }
        if !facts.timeouts.is_none() && is_silent {
            let Tally { count, first, .. } = facts.timeouts;
            let tries =
                facts.tries.map_or_else(String::new, |(tries, most)| format!(", now try {tries} of {most}"));
            because.push(format!("no answer came in time, {count} time(s) since {}{tries}", Nanos(first)));
        } else if because.is_empty() && !facts.asked.is_none() && is_silent {
            because.push(format!(
                "its last packet left {}, and the peer has not answered yet",
                at(facts.asked.last)
            ));
        } else if because.is_empty() {
            because.push("the device has not come to it".to_owned());
        }
        if is_rnr || is_silent && !facts.timeouts.is_none() {
            match self.peer(source, qpn) {
                Some((home, peer)) => {
                    let receives = self.receives_of(home, peer, self.last, " the end");
                    because.push(format!("at the other end, {receives}"));
                }
                None => because.push(self.missing_peer(source, qpn, "what it does with them")),
            }
        }
        let is_wrong = waited >= LONG || is_rnr || has_stopped || !facts.timeouts.is_none() && is_silent;
        let severity = if is_wrong { Severity::Warning } else { Severity::Note };
        Finding {
            time: Some(since),
            qpn: Some(qpn),
            work: Some(work),
            because,
            ..note(severity, source, text)
        }
    }

    /// Messages that met no receive here.
    fn not_ready(&self, source: usize, qpn: Qpn, facts: &Facts) -> Option<Finding> {
        if facts.rnr_sent.is_none() {
            return None;
        }
        let Tally { count, first, last } = facts.rnr_sent;
        let name = self.name(source, qpn);
        let text =
            format!("{name} answered RNR NAK {count} time(s), from {} to {}", Nanos(first), Nanos(last));
        let because = vec![
            "messages came while no receive was posted".to_owned(),
            self.receives_of(source, qpn, self.last, " the end"),
        ];
        Some(Finding { time: Some(first), because, ..note(Severity::Warning, source, text) })
    }

    /// Packets that were sent again.
    fn repeated(&self, source: usize, qpn: Qpn, facts: &Facts) -> Option<Finding> {
        if facts.repeats.is_none() {
            return None;
        }
        let Tally { count, first, .. } = facts.repeats;
        let share = format!("{count} packet(s) of {} that left", facts.asked.count);
        let text = format!("{share} {} had left before, the first {}", self.name(source, qpn), at(first));
        let causes = [
            (
                facts.gaps_told.count,
                "time(s) the peer answered that packets before are missing (NAK sequence error)",
            ),
            (facts.rnr_came.count, "time(s) the peer had no receive (RNR NAK)"),
            (facts.timeouts.count, "time(s) no answer came in time"),
            (facts.probes.count, "time(s) the last packet was sent again to ask for an answer"),
            (facts.taken.count, "packet(s) were taken by fault injection"),
        ];
        let because =
            causes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        Some(Finding { time: Some(first), because: because.collect(), ..note(Severity::Note, source, text) })
    }

    fn connections(&self, findings: &mut Vec<Finding>) {
        for ((source, step), (tally, connection)) in &self.connections {
            let (count, remote) = (tally.count, connection.remote);
            let text = match step {
                ConnectionStep::Refused => {
                    format!(
                        "{count} connection(s) were refused, the first with {remote}, for reason {}",
                        connection.reason
                    )
                }
                _ => format!("{count} connection(s) got no answer, the first to {remote}"),
            };
            findings.push(Finding { time: Some(tally.first), ..note(Severity::Warning, *source, text) });
        }
    }

    fn refused(&self, findings: &mut Vec<Finding>) {
        for ((source, why), (tally, qpn, late)) in &self.refused {
            let (count, of) = (tally.count, self.of_record(*source));
            let text = format!("{count} packet(s) that came{of} were refused, the last for queue pair {qpn}");
            // Answers and repeats that were under way as a program ended are nothing to look after.
            let (severity, because) = if *late == count {
                (Severity::Note, "it was destroyed before they came".to_owned())
            } else {
                (Severity::Warning, why.name().to_owned())
            };
            let because = vec![because];
            findings.push(Finding { time: Some(tally.first), because, ..note(severity, *source, text) });
        }
    }

    fn unpolled(&self, findings: &mut Vec<Finding>) {
        for ((source, cq), tally) in &self.unpolled {
            let (count, waited) = (tally.count, self.last.saturating_sub(tally.first));
            let of = self.of_record(*source);
            let text = format!(
                "{count} completion(s) of completion queue {cq}{of} were never taken, the oldest for {}",
                Span(waited)
            );
            let severity = if waited >= LONG { Severity::Warning } else { Severity::Note };
            findings.push(Finding { time: Some(tally.first), ..note(severity, *source, text) });
        }
    }

    fn receives_left(&self, findings: &mut Vec<Finding>) {
        let left = self.outstanding.iter().filter(|((_, queue), _)| !matches!(queue, Queue::Send(_)));
        let count: u64 = left.map(|(_, outstanding)| outstanding.count).sum();
        if count > 0 {
            findings.push(note(
                Severity::Note,
                0,
                format!("{count} receive(s) were still waiting for messages at the end"),
            ));
        }
    }

    /// What is missing in the records.
    fn record_itself(&self, findings: &mut Vec<Finding>) {
        for (source, record) in self.records.iter().enumerate() {
            let name = &record.name;
            let mut tell = |severity, text| findings.push(note(severity, source, text));
            if record.lost > 0 {
                tell(
                    Severity::Warning,
                    format!(
                        "{name} lacks {} event(s) that could not be written in time: something may be missing above",
                        record.lost
                    ),
                );
            }
            if record.overwritten > 0 {
                tell(
                    Severity::Note,
                    format!(
                        "{name} lacks {} event(s): later ones took their places, or the file was cut off",
                        record.overwritten
                    ),
                );
            }
            if record.is_cut {
                tell(Severity::Warning, format!("{name} was cut off: its end is missing"));
            }
            if record.sample > 1 {
                tell(Severity::Note, format!("{name} has one of {} requests", record.sample));
            }
        }
        for (source, first) in &self.oddities {
            let text = format!(
                "{} thing(s) in the record do not fit together: the first is that {first}",
                self.more_oddities + 1
            );
            findings.push(note(Severity::Note, *source, text));
        }
    }
}

/// A finding without causes.
fn note(severity: Severity, record: usize, text: String) -> Finding {
    let (because, evidence) = (Vec::new(), Vec::new());
    Finding { severity, time: None, record, qpn: None, work: None, text, because, evidence }
}

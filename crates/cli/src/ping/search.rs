//! A responder that answers no more: since when, and where it is if it was started anew.

use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use ferroce_probe::net::Finder;
use ferroce_probe::{Outcome, Peer, ProbeEvent, Stamp};

/// Probes without an answer in a row, after which the responder is said to be silent.
const ROW: u32 = 3;

/// How long a host may take to tell where its responder is.
const ASK: Duration = Duration::from_secs(2);

/// Time between two questions: the first, and the longest, to which it doubles.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Watches over the answers of a responder, and asks its host for it while there are none.
pub(super) struct Search {
    finder: Finder,
    host: IpAddr,
    /// None if the responder was named by its queue pair: then it is not asked for.
    service: Option<u16>,
    timeout: Duration,
    target: Peer,
    row: Option<Row>,
    asking: Option<Receiver<Option<Peer>>>,
    next: Stamp,
    pause: Duration,
    pub(super) found: Found,
}

/// Probes in a row without an answer.
#[derive(Clone, Copy, Debug)]
struct Row {
    count: u32,
    /// The first of them.
    probe: u32,
    /// When that left.
    since: Stamp,
}

/// What came of it, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Times that no answer came for a while.
    pub(super) silences: u64,
    /// Questions for the responder.
    pub(super) lookups: u64,
    /// Times that it was found as another queue pair.
    pub(super) moves: u64,
}

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// No answer since this probe.
    Silent { probe: u32, time: Duration, asks: bool },
    /// The same queue pair answers again.
    Back { probe: u32, time: Duration },
    /// The responder is another queue pair now.
    Moved { probe: u32, time: Duration, from: u32, to: u32 },
}

impl Search {
    pub(super) fn new(
        finder: Finder,
        (host, service): (IpAddr, Option<u16>),
        target: Peer,
        timeout: Duration,
    ) -> Self {
        let (row, asking, next, pause) = (None, None, Stamp::default(), PAUSES.0);
        Self { finder, host, service, timeout, target, row, asking, next, pause, found: Found::default() }
    }

    /// Where probes go.
    pub(super) const fn target(&self) -> Peer {
        self.target
    }

    /// No answer since this probe, for so long, if that is said of the responder now.
    pub(super) fn silence(&self, now: Stamp) -> Option<(u32, Duration)> {
        self.row.filter(|row| row.count >= ROW).map(|row| (row.probe, now.since(row.since)))
    }

    /// Something happened to a probe.
    pub(super) fn event(&mut self, event: &ProbeEvent, now: Stamp) -> Option<Change> {
        match event {
            // What went to an earlier queue pair says nothing of this one.
            ProbeEvent::Overdue { target, .. } if *target != self.target => None,
            ProbeEvent::Overdue { sequence, .. } => {
                let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
                let since = Stamp::from_nanos(now.nanos().saturating_sub(timeout));
                let first = Row { count: 0, probe: sequence.counter().wrapping_add(1), since };
                let row = self.row.get_or_insert(first);
                row.count = row.count.saturating_add(1);
                if row.count != ROW {
                    return None;
                }
                self.found.silences += 1;
                (self.next, self.pause) = (now, PAUSES.0);
                let asks = self.service.is_some();
                Some(Change::Silent { probe: row.probe, time: now.since(row.since), asks })
            }
            ProbeEvent::Ended(report) => {
                let is_answer = matches!(
                    report.outcome,
                    Outcome::Ok | Outcome::Late | Outcome::Ack1Lost | Outcome::Ack2Lost | Outcome::Invalid(_)
                );
                let row = self.row.filter(|row| is_answer && report.times.t1 > row.since)?;
                self.row = None;
                (row.count >= ROW).then(|| Change::Back { probe: row.probe, time: now.since(row.since) })
            }
        }
    }

    /// Time has passed: asks, or hears what was answered.
    pub(super) fn look(&mut self, now: Stamp) -> Option<Change> {
        if let Some(asking) = &self.asking {
            let answer = match asking.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => None,
            };
            self.asking = None;
            self.next = now.plus(self.pause);
            self.pause = (2 * self.pause).min(PAUSES.1);
            let row = self.row.filter(|row| row.count >= ROW)?;
            let from = self.target.qpn;
            let to = answer.filter(|to| *to != self.target)?;
            (self.target, self.row) = (to, None);
            self.found.moves += 1;
            let time = now.since(row.since);
            return Some(Change::Moved { probe: row.probe, time, from, to: to.qpn });
        }
        let is_silent = self.row.is_some_and(|row| row.count >= ROW);
        if let Some(service) = self.service.filter(|_| is_silent && now >= self.next) {
            let (say, hear) = mpsc::channel();
            let (finder, host) = (self.finder.clone(), self.host);
            let ask = move || {
                // The one that asked may be gone.
                let _ = say.send(finder.find(host, service, ASK).ok());
            };
            // Without a thread there is no answer, which is heard as one.
            let _ = thread::Builder::new().name("find".into()).spawn(ask);
            self.found.lookups += 1;
            self.asking = Some(hear);
        }
        None
    }
}

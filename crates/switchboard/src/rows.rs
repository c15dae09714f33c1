//! What is told of a process, of its queue pairs and of its other queues, and how it looks between processes.
//!
//! A row is a plain structure of words that any bytes are a value of; `zerocopy` reads and writes it. What
//! the words mean is looked at afterwards: a code that does not exist makes a row none.

use std::net::{IpAddr, Ipv6Addr};

use ferroce_fabric::Path;
use ferroce_transport::{Completions, Level, State, Status, Time};
use ferroce_wire::{Qpn, Service};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Group;
use super::refusals::Refusals;

/// A process, and what its queue pairs have done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    /// Its number.
    pub pid: u32,
    /// What its program is called.
    pub program: String,
    /// What the service is called that it is a part of: by `FERROCE_SERVICE`, or else by its program's file.
    pub service: String,
    /// Which switchboard it is on: a process may be on several.
    pub group: Group,
    /// When it came there, by its own clock: together with its number this tells it from all others.
    pub since: Time,
    /// Engines that it has there.
    pub engines: u8,
    /// Those of them that did not answer in time: nothing is told of them.
    pub busy: u8,
    /// When it looked, by its own clock.
    pub time: Time,
    /// What its engines told.
    pub report: Report,
}

/// What engines tell of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was refused.
    pub refused: Refusals,
    /// What all queue pairs have done so far, also those that are gone: none of this ever gets less.
    pub totals: WorkStats,
    /// Queue pairs; more than are told if there are very many.
    pub queue_pairs: u32,
    /// Queue pairs that there ever were.
    pub queue_pairs_made: u64,
    /// The queue pairs.
    pub rows: Vec<QpStats>,
    /// The completion queues that they complete into.
    pub completion_queues: Vec<QueueStats>,
    /// The shared receive queues.
    pub shared_queues: Vec<QueueStats>,
}

impl Report {
    /// Adds what another engine tells, as far as there are not more than so many queues of a kind then.
    pub fn add(&mut self, other: Self, most: usize) {
        fn extend<T>(list: &mut Vec<T>, more: Vec<T>, most: usize) {
            let room = most.saturating_sub(list.len());
            list.extend(more.into_iter().take(room));
        }
        self.refused.add(&other.refused);
        self.totals.add(&other.totals);
        self.queue_pairs = self.queue_pairs.saturating_add(other.queue_pairs);
        self.queue_pairs_made = self.queue_pairs_made.saturating_add(other.queue_pairs_made);
        extend(&mut self.rows, other.rows, most);
        extend(&mut self.completion_queues, other.completion_queues, most);
        extend(&mut self.shared_queues, other.shared_queues, most);
    }
}

/// What a queue pair has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStats {
    /// Its number.
    pub qpn: Qpn,
    /// Which engine it is in.
    pub engine: u8,
    /// Its service.
    pub service: Service,
    /// Its state.
    pub state: State,
    /// Which way its packets take, if it is connected.
    pub path: Option<Path>,
    /// The queue pair that it is connected to, and the address of that.
    pub peer: Option<(Qpn, IpAddr)>,
    /// The address and the UDP source port that its packets to the peer leave from: with the address of the peer, all
    /// that networks choose a path by.
    pub from: Option<(IpAddr, u16)>,
    /// The numbers of the completion queues of its sends and of its receives.
    pub completion_queues: (u32, u32),
    /// The number of the shared queue that its receives come from.
    pub shared_queue: Option<u32>,
    /// How full its send queue is.
    pub send_queue: Level,
    /// How full its own receive queue is.
    pub receive_queue: Level,
    /// What it has done.
    pub work: WorkStats,
}

/// A completion queue or a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its number.
    pub id: u32,
    /// How full it is.
    pub level: Level,
    /// Whether completions were lost because it was full.
    pub overrun: bool,
}

/// Writes the counters of a queue pair once, with their names and what they count.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one queue pair has done so far, or many together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct WorkStats {
            $($(#[$doc])* pub $name: u64,)*
            /// How work ended. Of one queue pair, failures of a kind are told up to 2^32 - 1.
            pub completions: Completions,
        }

        /// Counters that are told beside completions.
        const COUNTS: usize = [$(stringify!($name),)*].len();

        impl WorkStats {
            /// Name and value of each counter, beside completions.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds what other queue pairs have done.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
                self.completions.add(&other.completions);
            }

            fn words(&self) -> [u64; COUNTS] {
                [$(self.$name,)*]
            }

            const fn from_words([$($name,)*]: [u64; COUNTS], completions: Completions) -> Self {
                Self { $($name,)* completions }
            }
        }
    };
}

counts! {
    /// Sends that were posted.
    sends_posted,
    /// Sends that are done, with or without a completion.
    sends_done,
    /// Receives that were posted to queue pairs themselves; those posted to shared queues are not among them.
    receives_posted,
    /// Packets that were sent.
    packets_sent,
    /// Packets that were taken.
    packets_received,
    /// Messages that were done directly at a peer in the same process, or by one here.
    direct,
    /// Packets that were sent again.
    retransmitted,
    /// Times that a peer had no receive posted.
    rnr_received,
    /// Times that there was none here.
    rnr_sent,
    /// Times that a peer did not answer in time.
    timeouts,
    /// Requests that were refused, here or by a peer, and messages that were dropped.
    errors,
    /// Times that something waited for its window, credits, depth or rate.
    waits,
}

/// Statuses of work that did not end well.
const FAILURES: usize = Status::ALL.len() - 1;

/// A queue pair between processes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct QpRow {
    qpn: u32,
    peer: u32,
    engine: u8,
    service: u8,
    state: u8,
    path: u8,
    has_peer: u8,
    has_shared_queue: u8,
    source_port: u16,
    remote: [u8; 16],
    local: [u8; 16],
    completion_queues: [u32; 2],
    shared_queue: u32,
    levels: [[u32; 3]; 2],
    failures: [[u32; FAILURES]; 2],
    reserved_too: u32,
    successes: [u64; 2],
    counts: [u64; COUNTS],
}

/// Another queue between processes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct QueueRow {
    id: u32,
    level: [u32; 3],
    overrun: u32,
}

/// What queue pairs have done together, between processes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TotalsRow {
    counts: [u64; COUNTS],
    completions: [[u64; FAILURES + 1]; 2],
}

impl From<&QpStats> for QpRow {
    fn from(stats: &QpStats) -> Self {
        let (peer, remote) = stats.peer.unwrap_or((Qpn::SMI, Ipv6Addr::UNSPECIFIED.into()));
        let (local, source_port) = stats.from.unwrap_or((Ipv6Addr::UNSPECIFIED.into(), 0));
        let completions = &stats.work.completions;
        let mut failures = [[0; FAILURES]; 2];
        for (place, (_, sends, receives)) in completions.iter().skip(1).enumerate() {
            let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
            (failures[0][place], failures[1][place]) = (short(sends), short(receives));
        }
        Self {
            qpn: stats.qpn.get(),
            peer: peer.get(),
            engine: stats.engine,
            service: code(&SERVICES, stats.service),
            state: code(&STATES, stats.state),
            path: stats.path.map_or(0, |path| code(&PATHS, path) + 1),
            has_peer: stats.peer.is_some().into(),
            has_shared_queue: stats.shared_queue.is_some().into(),
            source_port,
            remote: wide(remote),
            local: wide(local),
            completion_queues: stats.completion_queues.into(),
            shared_queue: stats.shared_queue.unwrap_or(0),
            levels: [stats.send_queue, stats.receive_queue].map(level_words),
            failures,
            reserved_too: 0,
            successes: [completions.sends(Status::Success), completions.receives(Status::Success)],
            counts: stats.work.words(),
        }
    }
}

impl QpRow {
    /// What it says, if it can be.
    pub(super) fn read(&self) -> Option<QpStats> {
        let mut completions = Completions::default();
        completions.set(Status::Success, self.successes[0], self.successes[1]);
        for (place, status) in Status::ALL.into_iter().skip(1).enumerate() {
            completions.set(status, self.failures[0][place].into(), self.failures[1][place].into());
        }
        let [send_queue, receive_queue] = self.levels.map(level);
        Some(QpStats {
            qpn: Qpn::new(self.qpn),
            engine: self.engine,
            service: *SERVICES.get(usize::from(self.service))?,
            state: *STATES.get(usize::from(self.state))?,
            path: match self.path.checked_sub(1) {
                None => None,
                Some(code) => Some(*PATHS.get(usize::from(code))?),
            },
            peer: (self.has_peer == 1).then(|| (Qpn::new(self.peer), narrow(self.remote))),
            from: (self.source_port != 0).then(|| (narrow(self.local), self.source_port)),
            completion_queues: self.completion_queues.into(),
            shared_queue: (self.has_shared_queue == 1).then_some(self.shared_queue),
            send_queue,
            receive_queue,
            work: WorkStats::from_words(self.counts, completions),
        })
    }
}

impl From<&QueueStats> for QueueRow {
    fn from(stats: &QueueStats) -> Self {
        Self { id: stats.id, level: level_words(stats.level), overrun: stats.overrun.into() }
    }
}

impl QueueRow {
    pub(super) fn read(&self) -> QueueStats {
        QueueStats { id: self.id, level: level(self.level), overrun: self.overrun != 0 }
    }
}

impl From<&WorkStats> for TotalsRow {
    fn from(stats: &WorkStats) -> Self {
        let mut completions = [[0; FAILURES + 1]; 2];
        for (place, (_, sends, receives)) in stats.completions.iter().enumerate() {
            (completions[0][place], completions[1][place]) = (sends, receives);
        }
        Self { counts: stats.words(), completions }
    }
}

impl TotalsRow {
    pub(super) fn read(&self) -> WorkStats {
        let mut completions = Completions::default();
        for (place, status) in Status::ALL.into_iter().enumerate() {
            completions.set(status, self.completions[0][place], self.completions[1][place]);
        }
        WorkStats::from_words(self.counts, completions)
    }
}

const fn level_words(level: Level) -> [u32; 3] {
    [level.now, level.most, level.capacity]
}

const fn level([now, most, capacity]: [u32; 3]) -> Level {
    Level::new(now, most, capacity)
}

const SERVICES: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];
const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];
const PATHS: [Path; 3] = [Path::Local, Path::Wire, Path::Shared];

/// The place of a value in a list of all there are.
fn code<T: PartialEq>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|known| *known == one);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

pub(super) fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub(super) fn narrow(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of the same version exchange rows of this length; a longer one would only be sent for nothing.
    #[test]
    fn a_row_is_as_long_as_what_is_told() {
        assert_eq!((size_of::<QpRow>(), COUNTS), (296, 12));
        assert_eq!((size_of::<QueueRow>(), size_of::<TotalsRow>()), (20, 8 * (12 + 26)));
    }
}

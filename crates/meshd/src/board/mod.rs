//! What people look at: the last windows, what was bad in them, and sums since the start.
//!
//! It is pure and bounded. The analyzer tells it of each window after it was judged ([`Board::window`]), of
//! each flow that an agent tells ([`Board::flow`]) and of traces ([`Board::trace`]).
//!
//! # What is kept
//! - The sums of each pair of ToRs, what was bad, and hosts and flows with trouble: 540 windows, which are
//!   three hours of 20 s, but no more than 256 MiB. With 320 ToRs that is more than an hour.
//! - All hosts, and flows without trouble: of the three newest windows. Each pair has as many flows as all
//!   have room for in 64 MiB.
//! - The newest trace of 262,144 tuples.
//! - Sums of no more than 1,024 ToRs; all others share one row.

mod detail;
mod finding;
mod input;
mod matrix;
mod record;
mod service;
mod shared;
mod tors;
mod totals;
mod traces;
mod trips;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::{Outcomes, Tier, Topology};
use ferroce_probe::paths::Path;

pub use detail::{Depth, Detail, KeptFlow};
pub use finding::{BoardFinding, BoardSuspect, Kind, TopFlow};
pub use input::{BoardFlow, BoardHost, BoardWindow};
pub use matrix::{Cell, Matrix};
pub use record::Record;
pub use service::{BoardAffected, BoardImpact, BoardService, priority_name};
pub use shared::SharedBoard;
pub use tors::TorPlace;
pub(crate) use totals::POWERS;
pub use totals::{Counts, RoundTrips, Totals};
pub use traces::KeptTrace;
pub use trips::Trips;

use crate::histogram::Histogram;
use record::{Places, Prepared, prepare};
use tors::Tors;
use traces::Traces;

/// How much a board keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardConfig {
    /// Windows at most.
    pub windows: usize,
    /// Bytes of all windows at most, but the newest is always kept.
    pub bytes: usize,
    /// So many of the newest windows have all hosts, and flows without trouble.
    pub whole: usize,
    /// Flows of one such window at most.
    pub flows: usize,
    /// Flows with trouble of an older window at most.
    pub troubled_flows: usize,
    /// Hosts with trouble of an older window at most.
    pub troubled_hosts: usize,
    /// Tuples with a trace at most.
    pub traces: usize,
    /// Findings that are over and still told.
    pub over: usize,
}

impl Default for BoardConfig {
    fn default() -> Self {
        Self {
            windows: 540,
            bytes: 256 << 20,
            whole: 3,
            flows: (64 << 20) / 3 / size_of::<KeptFlow>(),
            troubled_flows: 1024,
            troubled_hosts: 1024,
            traces: 262_144,
            over: 256,
        }
    }
}

/// What people look at.
#[derive(Debug)]
pub struct Board {
    config: BoardConfig,
    tors: Tors,
    windows: VecDeque<Kept>,
    /// Bytes of all windows.
    bytes: usize,
    next: u64,
    topology: Arc<Topology>,
    /// How often the wiring became another one.
    wiring: u64,
    over: VecDeque<BoardFinding>,
    totals: Totals,
    traces: Traces,
}

/// A window on the board.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What stays of it.
    pub record: Arc<Record>,
    /// What is only known while it is new, except for trouble.
    pub detail: Arc<Detail>,
    bytes: usize,
}

impl Kept {
    fn new(record: Arc<Record>, detail: Detail) -> Self {
        let bytes = record.bytes() + detail.bytes();
        Self { record, detail: Arc::new(detail), bytes }
    }

    /// The flows from one ToR to another that are known; rows and columns are those of the matrix.
    #[must_use]
    pub fn flows(&self, row: usize, column: usize) -> &[KeptFlow] {
        let place = row * self.record.matrix.tors().len() + column;
        self.detail.of_pair(u32::try_from(place).unwrap_or(u32::MAX))
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new(BoardConfig::default())
    }
}

impl Board {
    /// An empty board.
    #[must_use]
    pub fn new(config: BoardConfig) -> Self {
        Self {
            config,
            tors: Tors::default(),
            windows: VecDeque::new(),
            bytes: 0,
            next: 1,
            topology: Arc::default(),
            wiring: 0,
            over: VecDeque::new(),
            totals: Totals::default(),
            traces: Traces::new(config.traces),
        }
    }

    /// Takes a window that was judged. Returns its number.
    pub fn window(&mut self, window: BoardWindow) -> u64 {
        let places = self.places(&window.topology);
        let prepared = prepare(window, &places, self.config.flows);
        self.put(prepared)
    }

    /// Counts a flow that an agent told, from one ToR to another; none if they are not known.
    pub fn flow(&mut self, from: Option<&str>, to: Option<&str>, outcomes: &Outcomes, trips: &Histogram) {
        let mut place = |name: Option<&str>| name.map_or(TorPlace::UNKNOWN, |name| self.tors.place(name));
        let (from, to) = (place(from), place(to));
        self.totals.flow(from, to, outcomes, trips);
    }

    /// An agent traced the path of a tuple, and told it at this time.
    pub fn trace(&mut self, from: IpAddr, to: IpAddr, port: u16, path: Path, at: u64) {
        self.traces.insert((from, to, port), path, at);
    }

    /// Where the ToRs of a wiring are: those that have RNICs.
    fn places(&mut self, topology: &Topology) -> Places {
        let mut used = vec![false; topology.switches().len()];
        topology.rnics().iter().for_each(|rnic| used[rnic.tor.0 as usize] = true);
        let tors = (0_u32..).zip(topology.switches());
        let tors = tors.filter(|(id, switch)| switch.tier == Tier::Tor && used[*id as usize]);
        let mut named: Vec<(&str, u32)> = tors.map(|(id, switch)| (switch.name.as_str(), id)).collect();
        named.sort_by_cached_key(|(name, _)| natural(name));
        let mut order: Vec<TorPlace> = Vec::new();
        let (mut rows, mut row_of) = (HashMap::new(), HashMap::new());
        for (name, id) in named {
            let place = self.tors.place(name);
            let row = *row_of.entry(place).or_insert_with(|| {
                order.push(place);
                order.len() - 1
            });
            rows.insert(id, row);
        }
        Places { order, rows }
    }

    fn put(&mut self, prepared: Prepared) -> u64 {
        let Prepared { mut record, detail, over, topology } = prepared;
        let number = self.next;
        self.next += 1;
        record.number = number;
        self.totals.findings(&record.open, &over);
        for finding in over {
            if self.over.len() >= self.config.over {
                self.over.pop_front();
            }
            self.over.push_back(finding);
        }
        if !Arc::ptr_eq(&self.topology, &topology) {
            self.topology = topology;
            self.wiring += 1;
        }
        let kept = Kept::new(Arc::new(record), detail);
        self.bytes += kept.bytes;
        self.windows.push_back(kept);
        self.shorten();
        number
    }

    /// Lets the oldest go, and what is only known of new ones.
    fn shorten(&mut self) {
        let Self { windows, config, bytes, .. } = self;
        let old = windows.len().checked_sub(config.whole + 1).and_then(|place| windows.get_mut(place));
        if let Some(old) = old {
            let less = old.detail.troubled(config.troubled_flows, config.troubled_hosts);
            let less = Kept::new(Arc::clone(&old.record), less);
            *bytes = *bytes - old.bytes + less.bytes;
            *old = less;
        }
        while windows.len() > 1 && (windows.len() > config.windows || *bytes > config.bytes) {
            if let Some(gone) = windows.pop_front() {
                *bytes -= gone.bytes;
            }
        }
    }

    /// How much it keeps.
    #[must_use]
    pub const fn config(&self) -> &BoardConfig {
        &self.config
    }

    /// All windows, the oldest first.
    #[must_use]
    pub fn windows(&self) -> impl DoubleEndedIterator<Item = &Kept> + ExactSizeIterator {
        self.windows.iter()
    }

    /// The newest window.
    #[must_use]
    pub fn newest(&self) -> Option<&Kept> {
        self.windows.back()
    }

    /// The window with this number; none if it is not there, or no more.
    #[must_use]
    pub fn find(&self, number: u64) -> Option<&Kept> {
        let first = self.windows.front()?.record.number;
        self.windows.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Findings that are over, the oldest first.
    #[must_use]
    pub fn over(&self) -> impl DoubleEndedIterator<Item = &BoardFinding> + ExactSizeIterator {
        self.over.iter()
    }

    /// The wiring of the newest window.
    #[must_use]
    pub const fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// How often the wiring became another one.
    #[must_use]
    pub const fn wiring(&self) -> u64 {
        self.wiring
    }

    /// Sums since the start.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The newest trace of a tuple.
    #[must_use]
    pub fn traced(&self, from: IpAddr, to: IpAddr, port: u16) -> Option<&KeptTrace> {
        self.traces.get(from, to, port)
    }

    /// The place of a ToR; none if it was never seen.
    #[must_use]
    pub fn tor(&self, name: &str) -> Option<TorPlace> {
        self.tors.find(name)
    }

    /// The name of a ToR.
    #[must_use]
    pub fn tor_name(&self, place: TorPlace) -> &str {
        self.tors.name(place)
    }

    /// Traces that there was no room for.
    #[must_use]
    pub const fn traces_left_out(&self) -> u64 {
        self.traces.left_out
    }

    /// Bytes of all windows, of sums, and of traces.
    #[must_use]
    pub fn bytes(&self) -> [usize; 3] {
        [self.bytes, self.totals.bytes(), self.traces.bytes()]
    }
}

/// Names in the order that people expect: numbers in them count as numbers.
fn natural(name: &str) -> Vec<(u64, char)> {
    let mut key: Vec<(u64, char)> = Vec::new();
    let mut in_number = false;
    for letter in name.chars() {
        match letter.to_digit(10) {
            Some(digit) if in_number => {
                if let Some((number, _)) = key.last_mut() {
                    *number = number.saturating_mul(10).saturating_add(digit.into());
                }
            }
            Some(digit) => key.push((digit.into(), '0')),
            None => key.push((u64::MAX, letter)),
        }
        in_number = letter.is_ascii_digit();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["rack10", "rack9", "a", "rack1b", "rack1a", "2", "rack99999999999999999999999"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["2", "a", "rack1a", "rack1b", "rack9", "rack10", "rack99999999999999999999999"]);
    }
}

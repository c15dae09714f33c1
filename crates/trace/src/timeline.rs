//! Records of several processes on one time-line.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use ferroce_record::{Event, Events, Header, Stamped, Trace, TraceError, Wait};

use crate::align::{Aligner, Apart, DRIFT};
use crate::quiet::QuietEnds;

/// The record of one process, and how its clock is read.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    trace: Trace,
    /// What is added to its times.
    offset: u64,
    /// What its clock gains over that of the first machine, in parts of [`DRIFT`].
    drift: i64,
    /// The machine that it was made on.
    machine: usize,
}

impl Source {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// When its process began, on the time-line.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// A time of this record, on the time-line.
    fn on_timeline(&self, time: u64) -> u64 {
        let time =
            if self.drift == 0 { time } else { slower(time.into(), self.drift).try_into().unwrap_or(time) };
        time.saturating_add(self.offset)
    }

    /// Events that could not be kept, of all rings.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.trace.rings().map(|ring| ring.lost).sum()
    }

    /// Events that were overwritten by later ones, of all rings.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.trace.rings().map(|ring| ring.overwritten).sum()
    }

    /// Whether it has all that happened since it began: nothing was lost, overwritten, cut off or left out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.lost() == 0 && self.overwritten() == 0 && !self.trace.is_cut() && self.trace.header().sample == 1
    }
}

/// An event of one of several records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which record, by its place among them.
    pub source: usize,
    /// The event; its time is that of the time-line.
    pub stamped: Stamped,
}

/// How the clock of another machine was brought to that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// The first record of that machine, by its place.
    pub source: usize,
    /// How far its monotonic clock is ahead of that of the first machine, in nanoseconds.
    pub ahead: i64,
    /// How many nanoseconds more that is after a thousand seconds: clocks do not run at one speed.
    pub drift: i64,
    /// When it was so far ahead, on the clock of the first machine, in nanoseconds.
    pub at: u64,
    /// What this rests on.
    pub basis: Basis,
}

impl Alignment {
    /// What the clock of the first machine showed when that of this one showed this.
    fn on_first(&self, clock: u64) -> i128 {
        let start = i128::from(self.at) + i128::from(self.ahead);
        i128::from(self.at) + slower(i128::from(clock) - start, self.drift)
    }
}

/// So much time of a clock that runs too quick, as it truly was.
fn slower(time: i128, drift: i64) -> i128 {
    time * i128::from(DRIFT) / i128::from(DRIFT + drift)
}

/// What is known of the clocks of two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// Packets that went both ways between them.
    Packets {
        /// How many were seen at both.
        packets: u64,
        /// How much the result may be wrong by, in nanoseconds.
        within: u64,
    },
    /// Packets that went one way: later ones than this are never early, but all may be late.
    OneWay {
        /// How many were seen at both.
        packets: u64,
    },
    /// The clocks of the wall of both, whatever they are set to: no packet was seen at both.
    Wall,
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.basis {
            Basis::Packets { packets, within } => {
                let within = crate::show::Span(within);
                write!(
                    f,
                    "its clock is brought to the first by {packets} packets that both saw, and is right within {within}"
                )?;
                match self.drift {
                    0 => Ok(()),
                    #[expect(clippy::cast_precision_loss, reason = "two places are shown")]
                    drift => {
                        let parts = drift.unsigned_abs() as f64 * 1e6 / DRIFT as f64;
                        let how = if drift > 0 { "fast" } else { "slow" };
                        write!(f, "; it is {parts:.2} parts in a million too {how}")
                    }
                }
            }
            Basis::OneWay { packets } => write!(
                f,
                "its clock is brought to the first by {packets} packets that both saw, but all went one way: trips look \
                 shorter than they were"
            ),
            Basis::Wall => f.write_str(
                "no packet was seen by both, so its clock is brought to the first by the time of day of both machines",
            ),
        }
    }
}

/// Records of one or several processes, with one clock. Its times are nanoseconds since the first of them began.
#[derive(Debug)]
pub struct Timeline {
    sources: Vec<Source>,
    alignment: Vec<Alignment>,
}

impl Timeline {
    /// Opens these files. Those of several machines are read through once, to bring their clocks together.
    ///
    /// # Errors
    /// One of them is no record.
    pub fn open(paths: &[PathBuf]) -> Result<Self, TraceError> {
        let open = |path: &PathBuf| {
            Ok(Source { path: path.clone(), trace: Trace::open(path)?, offset: 0, drift: 0, machine: 0 })
        };
        Ok(Self::of(paths.iter().map(open).collect::<Result<_, TraceError>>()?))
    }

    fn of(mut sources: Vec<Source>) -> Self {
        let machines = machines(&mut sources);
        let alignment = if machines.len() > 1 { align(&sources, &machines) } else { Vec::new() };
        let of =
            |source: &Source| alignment.iter().find(|known| sources[known.source].machine == source.machine);
        let start = |source: &Source| {
            let clock = source.trace.header().clock_start;
            of(source).map_or((i128::from(clock), 0), |known| (known.on_first(clock), known.drift))
        };
        let starts: Vec<(i128, i64)> = sources.iter().map(start).collect();
        let first = starts.iter().map(|(start, _)| *start).min().unwrap_or(0);
        for (source, (start, drift)) in sources.iter_mut().zip(starts) {
            source.offset = u64::try_from(start - first).unwrap_or(u64::MAX);
            source.drift = drift;
        }
        Self { sources, alignment }
    }

    /// The records.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// How the clocks of other machines than the first were brought to its clock; empty if there is one machine.
    #[must_use]
    pub fn alignment(&self) -> &[Alignment] {
        &self.alignment
    }

    /// How many events there are at most.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.sources.iter().map(|source| source.trace.len()).sum()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All events, in the order of their times.
    #[must_use]
    pub fn events(&self) -> Merged<'_> {
        Merged { timeline: self, parts: self.sources.iter().map(Part::of).collect() }
    }
}

/// Says of each record which machine it is of, and gives the first record of each. Those of one boot are of one machine.
fn machines(sources: &mut [Source]) -> Vec<usize> {
    let mut firsts: Vec<usize> = Vec::new();
    for place in 0..sources.len() {
        let boot = sources[place].trace.header().boot;
        let is_it = |first: &usize| boot != 0 && sources[*first].trace.header().boot == boot;
        let known = firsts.iter().position(is_it);
        sources[place].machine = known.unwrap_or(firsts.len());
        if known.is_none() {
            firsts.push(place);
        }
    }
    firsts
}

/// Brings the clocks of all machines to that of the first: over the surest ways, by those in between if need be.
fn align(sources: &[Source], machines: &[usize]) -> Vec<Alignment> {
    let mut aligner = Aligner::new();
    for (place, source) in sources.iter().enumerate() {
        let start = source.trace.header().clock_start;
        for stamped in source.trace.events() {
            aligner.take(place, source.machine, start.wrapping_add(stamped.time), &stamped.event);
        }
    }
    let by_wall = |first: usize, second: usize| {
        let zero = |header: &Header| header.wall_start.wrapping_sub(header.clock_start).cast_signed();
        let header = |machine: usize| sources[machines[machine]].trace.header();
        zero(header(first)).wrapping_sub(zero(header(second)))
    };
    let mut ahead = vec![None; machines.len()];
    let at = sources[0].trace.header().clock_start;
    ahead[0] = Some(Alignment { source: 0, ahead: 0, drift: 0, at, basis: Basis::Wall });
    let mut unknown: BTreeSet<usize> = (1..machines.len()).collect();
    loop {
        let mut best: Option<(u64, Alignment, usize)> = None;
        for &machine in &unknown {
            for (first, known) in ahead.iter().enumerate().filter_map(|(at, known)| Some((at, (*known)?))) {
                let Some(apart) = aligner.apart(first, machine, by_wall(first, machine)) else { continue };
                let (sum, basis) = joined(known.basis, first == 0, apart);
                if best.is_none_or(|(before, ..)| sum < before) {
                    let alignment = by_way_of(&known, apart, machines[machine], basis);
                    best = Some((sum, alignment, machine));
                }
            }
        }
        let Some((_, alignment, machine)) = best else { break };
        ahead[machine] = Some(alignment);
        unknown.remove(&machine);
    }
    for machine in unknown {
        let source = machines[machine];
        let ahead_by_wall = by_wall(0, machine);
        ahead[machine] = Some(Alignment { source, ahead: ahead_by_wall, drift: 0, at, basis: Basis::Wall });
    }
    ahead.into_iter().skip(1).flatten().collect()
}

/// A machine that is so far from another one, whose clock is known.
fn by_way_of(known: &Alignment, apart: Apart, source: usize, basis: Basis) -> Alignment {
    let first = known.on_first(apart.at);
    let ahead = i128::from(apart.at) + i128::from(apart.ahead) - first;
    let (at, ahead) = (u64::try_from(first).unwrap_or(apart.at), i64::try_from(ahead).unwrap_or(apart.ahead));
    Alignment { source, ahead, drift: known.drift.saturating_add(apart.drift), at, basis }
}

/// What two steps rest on together, and how much that may be wrong by.
const fn joined(before: Basis, is_first: bool, apart: Apart) -> (u64, Basis) {
    let packets = apart.packets;
    match (before, apart.within) {
        (_, Some(within)) if is_first => (within, Basis::Packets { packets, within }),
        (Basis::Packets { within: before, .. }, Some(within)) => {
            let within = within.saturating_add(before);
            (within, Basis::Packets { packets, within })
        }
        _ => (u64::MAX, Basis::OneWay { packets }),
    }
}

/// The events of all records, in the order of their times.
#[derive(Debug)]
pub struct Merged<'a> {
    timeline: &'a Timeline,
    parts: Vec<Part<'a>>,
}

#[derive(Debug)]
struct Part<'a> {
    events: Events<'a>,
    /// What the record leaves out.
    quiet: QuietEnds,
    next: Option<Stamped>,
    /// The latest time so far: events of one record never change places.
    latest: u64,
}

impl<'a> Part<'a> {
    fn of(source: &'a Source) -> Self {
        let (events, quiet) = (source.trace.events(), QuietEnds::default());
        let mut part = Self { latest: 0, events, quiet, next: None };
        part.next = part.following();
        part.latest = time(part.next, source);
        part
    }

    /// The event after the next.
    fn following(&mut self) -> Option<Stamped> {
        if let Some(quiet) = self.quiet.pop() {
            return Some(quiet);
        }
        self.events.next().map(|stamped| self.quiet.take(stamped))
    }
}

fn time(next: Option<Stamped>, source: &Source) -> u64 {
    next.map_or(0, |next| source.on_timeline(next.time))
}

impl Merged<'_> {
    /// Places that held no event that is known here: it was not finished, or is of a newer writer.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.parts.iter().map(|part| part.events.skipped()).sum()
    }

    /// Why the events of a record ended early, if its file could not be read.
    pub fn trouble(&mut self) -> Option<std::io::Error> {
        self.parts.iter_mut().find_map(|part| part.events.trouble())
    }
}

impl Iterator for Merged<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        let of = |(source, part): (usize, &Part<'_>)| part.next.map(|_| (part.latest, source));
        let (_, source) = self.parts.iter().enumerate().filter_map(of).min()?;
        let of = &self.timeline.sources[source];
        let part = &mut self.parts[source];
        let following = part.following();
        let mut stamped = std::mem::replace(&mut part.next, following)?;
        part.latest = part.latest.max(time(part.next, of));
        stamped.time = of.on_timeline(stamped.time);
        if let Event::Wait(Wait { until, .. }) = &mut stamped.event
            && *until != 0
        {
            *until = of.on_timeline(*until);
        }
        Some(Seen { source, stamped })
    }
}

#[cfg(test)]
mod tests;

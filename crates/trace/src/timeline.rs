//! Records of several processes on one time-line.

use std::path::{Path, PathBuf};

use ferroce_record::{Events, Stamped, Trace, TraceError};

/// The record of one process, and how its clock is read.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    trace: Trace,
    /// What is added to its times.
    offset: u64,
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
}

/// An event of one of several records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which record, by its place among them.
    pub source: usize,
    /// The event; its time is that of the time-line.
    pub stamped: Stamped,
}

/// Records of one or several processes, with one clock. Its times are nanoseconds since the first of them began.
#[derive(Debug)]
pub struct Timeline {
    sources: Vec<Source>,
}

impl Timeline {
    /// Opens these files.
    ///
    /// # Errors
    /// One of them is no record.
    pub fn open(paths: &[PathBuf]) -> Result<Self, TraceError> {
        let open = |path: &PathBuf| Ok(Source { path: path.clone(), trace: Trace::open(path)?, offset: 0 });
        let mut sources: Vec<Source> = paths.iter().map(open).collect::<Result<_, TraceError>>()?;
        // Processes of one boot have one clock; others have at least the same wall.
        let boots = sources.iter().map(|source| source.trace.header().boot);
        let is_one = boots.clone().all(|boot| boot != 0 && Some(boot) == boots.clone().next());
        let start = |source: &Source| {
            let header = source.trace.header();
            if is_one { header.clock_start } else { header.wall_start }
        };
        let first = sources.iter().map(start).min().unwrap_or(0);
        for source in &mut sources {
            source.offset = start(source) - first;
        }
        Ok(Self { sources })
    }

    /// The records.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// All events, in the order of their times.
    #[must_use]
    pub fn events(&self) -> Merged<'_> {
        let events = self.sources.iter().map(|source| source.trace.events());
        let parts = events.map(|mut events| (events.next(), events)).map(|(next, events)| (events, next));
        Merged { timeline: self, parts: parts.collect() }
    }
}

/// The events of all records, in the order of their times.
#[derive(Debug)]
pub struct Merged<'a> {
    timeline: &'a Timeline,
    parts: Vec<(Events<'a>, Option<Stamped>)>,
}

impl Iterator for Merged<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        let time = |(source, (_, next)): (usize, &(Events<'_>, Option<Stamped>))| {
            Some((next.as_ref()?.time.saturating_add(self.timeline.sources[source].offset), source))
        };
        let (time, source) = self.parts.iter().enumerate().filter_map(time).min()?;
        let (events, next) = &mut self.parts[source];
        let stamped = std::mem::replace(next, events.next())?;
        Some(Seen { source, stamped: Stamped { time, ..stamped } })
    }
}

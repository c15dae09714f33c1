//! The files that are read: those that were named, and those of other processes of the same run.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferroce_record::{Mode, Trace, TraceError, numbered};
use ferroce_trace::{Source, Timeline};

use super::attach::Glance;
use super::record::duration;

/// Which records are read.
#[derive(Debug, clap::Args)]
pub(super) struct Files {
    /// Records; of several, all events are brought to one time-line
    #[arg(value_name = "FILE", required_unless_present = "attach")]
    files: Vec<PathBuf>,

    /// A program that runs, instead of a file: it is recorded for a moment
    #[arg(long, value_name = "PID", conflicts_with = "files")]
    attach: Option<u32>,

    /// With --attach: for how long, 1 s if nothing is said
    #[arg(long = "for", value_name = "TIME", requires = "attach", value_parser = duration)]
    time: Option<Duration>,

    /// Only the files that are named, not run.2.ftrace and so on beside run.ftrace
    #[arg(long)]
    alone: bool,
}

/// Records that could be opened, and what is wrong with the others.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) timeline: Timeline,
    /// The record of a program that runs, while it is read.
    _glance: Option<Glance>,
    wrong: Vec<anyhow::Error>,
}

impl Files {
    /// One record.
    pub(super) fn of(path: &Path) -> Self {
        Self { files: vec![path.to_owned()], attach: None, time: None, alone: true }
    }

    /// Opens all records, and says on standard error what is to be known of them.
    pub(super) fn open(&self) -> anyhow::Result<Opened> {
        let glance = self.attach.map(|pid| Glance::at(pid, self.time)).transpose()?;
        let mut paths = self.files.clone();
        paths.extend(glance.as_ref().map(|glance| glance.path.clone()));
        if !self.alone {
            let beside: Vec<PathBuf> = self.files.iter().flat_map(|path| others(path)).collect();
            paths.extend(beside.into_iter().filter(|path| !self.files.contains(path)));
        }
        let (mut good, mut wrong) = (Vec::new(), Vec::new());
        for path in paths {
            match Trace::open(&path) {
                Ok(_) => good.push(path),
                Err(error) => wrong.push(told(error)),
            }
        }
        if good.is_empty() {
            let first = wrong.into_iter().next();
            return Err(first.unwrap_or_else(|| anyhow::anyhow!("there is no record")));
        }
        let timeline = Timeline::open(&good)?;
        let is_alone = timeline.sources().len() == 1;
        for (number, source) in (1..).zip(timeline.sources()) {
            describe(source, (!is_alone).then_some(number));
            if source.trace().is_cut() {
                let (path, events) = (source.path().display(), source.trace().len());
                wrong.push(anyhow::anyhow!("{path} was cut off: {events} events of it could be read"));
            }
        }
        for alignment in timeline.alignment() {
            note(&format!("record {}: {alignment}", alignment.source + 1));
        }
        Ok(Opened { timeline, _glance: glance, wrong })
    }
}

impl Opened {
    /// At the end: what was wrong with the files, if anything was.
    pub(super) fn verdict(mut self) -> anyhow::Result<()> {
        let Some(last) = self.wrong.pop() else { return Ok(()) };
        self.wrong.iter().for_each(|error| note(&format!("{error:#}")));
        Err(last)
    }
}

/// An error with advice, where there is some.
fn told(error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Version { .. } => anyhow::Error::new(error).context("a newer ferroce wrote this record"),
        other => other.into(),
    }
}

/// Records of other processes of the same run: run.2.ftrace and so on beside run.ftrace.
fn others(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    (2_u32..).map(|number| numbered(path, number)).take_while(|path| path.is_file())
}

/// Says what is to be known of a record.
fn describe(source: &Source, number: Option<usize>) {
    let header = source.trace().header();
    let path = source.path().display();
    if let Some(number) = number {
        let (program, pid) = (&header.program, header.pid);
        note(&format!("record {number} is {path}: {program}, process {pid}"));
    }
    if !header.has_ended {
        note(&format!(
            "{path} is still being written, or its program was killed: this is what it has so far"
        ));
    }
    if header.sample > 1 {
        note(&format!("{path} has one of {} work requests", header.sample));
    }
    match source.lost() {
        0 => {}
        lost => note(&format!("{path} lacks {lost} events: they could not be written in time")),
    }
    match (source.overwritten(), header.mode) {
        (0, _) => {}
        (gone, Mode::Flight) => {
            let events = source.trace().len();
            note(&format!(
                "{path} is of a flight recorder: the last {events} events, and {gone} before them are gone"
            ));
        }
        (gone, Mode::Whole) => {
            note(&format!("{path} lacks {gone} events from its middle: a part of the file is missing"));
        }
    }
}

/// A line on standard error; a closed one is no reason to fail.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "ferroce: {text}");
}

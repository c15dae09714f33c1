//! All records of a time-line, read through once.

use std::ops::ControlFlow;

use ferroce_record::Event;
use ferroce_transport::Status;

use crate::assemble::{Assembler, Oddity};
use crate::timeline::{Seen, Timeline};
use crate::work::Work;

/// What is read.
#[derive(Debug)]
pub enum Told {
    /// The next event.
    Event(Seen),
    /// Work of this record that has just failed, and was not flushed; it comes again when it is over.
    Failed(usize, Box<Work>),
    /// Work of this record that is over.
    Over(usize, Work),
    /// Work of this record that was not over as the record ended; after all events.
    Open(usize, Work),
    /// What does not fit together in this record.
    Odd(usize, Oddity),
}

/// How reading ended.
#[derive(Debug, Default)]
pub struct End {
    /// Places that held no event that is known here: it was not finished, or is of a newer writer.
    pub skipped: u64,
    /// Why a record ended early, if its file could not be read.
    pub trouble: Option<std::io::Error>,
}

/// Reads all there is: each event, and then the work that is over by it.
///
/// # Errors
/// What `each` breaks off with.
pub fn read<B>(timeline: &Timeline, each: impl FnMut(Told) -> ControlFlow<B>) -> Result<End, B> {
    let assemblers = timeline.sources().iter().map(Assembler::for_record).collect();
    let mut events = timeline.events();
    put_together(assemblers, &mut events, each)?;
    Ok(End { skipped: events.skipped(), trouble: events.trouble() })
}

/// The same of events that come from anywhere, with an assembler for each record.
pub(crate) fn put_together<B>(
    mut assemblers: Vec<Assembler>,
    events: &mut impl Iterator<Item = Seen>,
    mut each: impl FnMut(Told) -> ControlFlow<B>,
) -> Result<(), B> {
    let mut stop = |told| match each(told) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(why) => Err(why),
    };
    for seen in events {
        let assembler = &mut assemblers[seen.source];
        assembler.take(&seen.stamped);
        stop(Told::Event(seen))?;
        if let Event::Completed(completed) = &seen.stamped.event
            && !matches!(completed.status, Status::Success | Status::Flushed)
            && let Some(work) = assembler.just_ended(completed)
        {
            stop(Told::Failed(seen.source, Box::new(work.clone())))?;
        }
        while let Some(work) = assembler.next_over() {
            stop(Told::Over(seen.source, work))?;
        }
        for oddity in assembler.oddities() {
            stop(Told::Odd(seen.source, oddity))?;
        }
    }
    for (source, mut assembler) in assemblers.into_iter().enumerate() {
        assembler.settle();
        while let Some(work) = assembler.next_over() {
            stop(Told::Over(source, work))?;
        }
        for work in assembler.finish() {
            stop(Told::Open(source, work))?;
        }
    }
    Ok(())
}

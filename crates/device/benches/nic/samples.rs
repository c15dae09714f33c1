//! What came out of a measurement.

use std::time::{Duration, Instant};

use crate::{Outcome, Settings};

/// One figure, once.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    /// What else was seen: percentiles, counters.
    pub(crate) note: String,
}

impl Sample {
    pub(crate) const fn new(value: f64) -> Self {
        Self { value, note: String::new() }
    }

    /// Half of round trips in microseconds: the median, and the tail as a note. `trips` in nanoseconds.
    pub(crate) fn of_trips(mut trips: Vec<u32>) -> Self {
        trips.sort_unstable();
        let at = |thousandths: usize| {
            let index = (trips.len() * thousandths / 1000).min(trips.len().saturating_sub(1));
            f64::from(trips.get(index).copied().unwrap_or(0)) / 2000.0
        };
        let (p90, p99, p999, most) = (at(900), at(990), at(999), at(1000));
        let note = format!("p90 {p90:.2} p99 {p99:.1} p99.9 {p999:.0} max {most:.0} n {}", trips.len());
        Self { value: at(500), note }
    }

    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.note = note;
        self
    }
}

/// Repeats `once` until the time is over and times each; the first fifth is not kept.
pub(crate) fn trips(settings: &Settings, mut once: impl FnMut() -> Outcome<()>) -> Outcome<Vec<u32>> {
    let mut kept = Vec::with_capacity(1 << 20);
    let mut last = Instant::now();
    let warm = last + settings.duration / 5;
    let end = warm + settings.duration;
    loop {
        once()?;
        let now = Instant::now();
        if now > warm && kept.len() < kept.capacity() {
            kept.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        }
        if now > end {
            return Ok(kept);
        }
        last = now;
    }
}

/// Repeats `batch` of so many until the time is over: nanoseconds for each.
pub(crate) fn nanos_each(settings: &Settings, count: u32, mut batch: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = Vec::new();
    while begin.elapsed() < settings.duration || best.is_empty() {
        let start = Instant::now();
        batch();
        best.push(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    best.sort_unstable_by(f64::total_cmp);
    best[best.len() / 2]
}

/// How long one slice of a stream is: shorter than the time for which a scheduler takes a core away.
const SLICE: Duration = Duration::from_millis(2);

/// How long the first moments of a connection are, and the slices of its later time that they are compared with.
const MOMENT: Duration = Duration::from_millis(50);

/// What is made of the slices of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// What nine of ten slices do not reach. On a machine with other work a stream stands still whenever one of its ends has no
    /// core, and the mean says more about the neighbours than about the stream.
    Best,
    /// The mean: where a stream stands still by its own doing.
    Mean,
    /// The first slice, from the first post on, over the median of the later ones; slices are longer then. Nothing warms up.
    First,
}

/// Counts over a time, in slices, after a time of warming up.
#[derive(Debug)]
pub(crate) struct Span {
    statistic: Statistic,
    slice: Duration,
    warm: Instant,
    end: Instant,
    /// Where counting began, and where the slice did.
    from: Option<[(Instant, u64); 2]>,
    slices: Vec<f64>,
}

impl Span {
    pub(crate) fn begin(settings: &Settings, statistic: Statistic) -> Self {
        let (now, slices) = (Instant::now(), Vec::with_capacity(4096));
        if statistic == Statistic::First {
            let end = now + settings.duration + MOMENT * 4;
            return Self { statistic, slice: MOMENT, warm: now, end, from: Some([(now, 0); 2]), slices };
        }
        let warm = now + settings.duration / 5;
        Self { statistic, slice: SLICE, warm, end: warm + settings.duration, from: None, slices }
    }

    /// So much is done by now. Says how much per second was done, once the time is over.
    pub(crate) fn done(&mut self, count: u64) -> Option<Sample> {
        let now = Instant::now();
        let per_second =
            |(start, first): (Instant, u64)| (count - first) as f64 / (now - start).as_secs_f64();
        let Some([first, slice]) = &mut self.from else {
            if now >= self.warm {
                self.from = Some([(now, count); 2]);
            }
            return None;
        };
        if now - slice.0 >= self.slice {
            self.slices.push(per_second(*slice));
            *slice = (now, count);
        }
        // A mean of nothing says nothing.
        let is_mean = self.statistic == Statistic::Mean;
        if now < self.end || self.slices.is_empty() || is_mean && count == first.1 {
            return None;
        }
        let mean = per_second(*first);
        let rate = self.slices[0];
        if self.statistic == Statistic::First {
            let later = self.slices.get_mut(1..).filter(|later| !later.is_empty())?;
            later.sort_unstable_by(f64::total_cmp);
            let steady = later[later.len() / 2];
            return Some(Sample::new(rate / steady).with_note(format!("{rate:.0}/s of {steady:.0}/s")));
        }
        self.slices.sort_unstable_by(f64::total_cmp);
        let value = self.slices[self.slices.len() * 9 / 10];
        if is_mean {
            return Some(
                Sample::new(mean).with_note(format!("nine of ten slices below {:.2} of it", value / mean)),
            );
        }
        if value <= 0.0 {
            // Nothing moved in nine slices of ten: there is only the mean to tell.
            return Some(Sample::new(mean).with_note("stood still most of the time".to_owned()));
        }
        Some(Sample::new(value).with_note(format!("mean {:.2} of it", mean / value)))
    }

    /// It should have been over long ago: nothing happens any more.
    pub(crate) fn is_stuck(&self) -> bool {
        Instant::now() > self.end + Duration::from_secs(5)
    }
}

/// Text as JSON writes it. Ours has nothing but quotes and backslashes to hide.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

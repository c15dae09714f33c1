//! Where the time of a work request went.

use hdrhistogram::Histogram;

use crate::work::Work;

/// A stretch in the life of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// From the call that posts it to the doorbell.
    Doorbell,
    /// In its queue, until the device begins with it; for a receive, until a message takes it.
    Queue,
    /// On the wire and at the peer, until the last answer.
    Wire,
    /// From there to its completion; on the local path, all that the device does.
    Completion,
    /// In the completion queue, until the program takes it.
    Poll,
    /// From the call that posts it to its completion.
    Total,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Doorbell, Self::Queue, Self::Wire, Self::Completion, Self::Poll, Self::Total];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Doorbell => "post to doorbell",
            Self::Queue => "in the queue",
            Self::Wire => "wire and peer",
            Self::Completion => "to completion",
            Self::Poll => "completion to poll",
            Self::Total => "post to completion",
        }
    }

    /// What it is called in JSON.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Doorbell => "post_to_doorbell",
            Self::Queue => "in_queue",
            Self::Wire => "wire_and_peer",
            Self::Completion => "to_completion",
            Self::Poll => "completion_to_poll",
            Self::Total => "post_to_completion",
        }
    }

    /// How long work was in it, if that is known.
    #[must_use]
    pub fn of(self, work: &Work) -> Option<u64> {
        let ended = work.completed.map(|(time, _)| time)?;
        let posted = (!work.is_earlier()).then_some(work.posted_at);
        let rung = work.doorbell_at.or(posted);
        let begun = work.begun_at();
        // One answer may be for much work: then its completion says when it came.
        let answered = (!work.packets.is_empty()).then(|| work.answered_at.unwrap_or(ended).min(ended));
        let (from, to) = match self {
            Self::Doorbell => (posted, work.doorbell_at),
            // What is done at once is done before its bell is rung.
            Self::Queue => (rung.zip(begun).map(|(rung, begun)| rung.min(begun)), begun),
            Self::Wire => (begun.filter(|_| answered.is_some()), answered),
            Self::Completion => (answered.or(begun), Some(ended)),
            Self::Poll => (Some(ended), work.polled_at),
            Self::Total => (posted, Some(ended)),
        };
        Some(to?.saturating_sub(from?))
    }
}

/// Times of all stages, as histograms; each has its memory only when it is needed.
#[derive(Debug, Default)]
pub(super) struct Times([Option<Histogram<u32>>; Stage::ALL.len()]);

/// The longest time that is told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Figures that are told apart: within a hundredth.
const FIGURES: u8 = 2;

/// Shares of all work: what so many were quicker than.
pub(super) const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

impl Times {
    pub(super) fn add(&mut self, work: &Work) {
        for (stage, histogram) in Stage::ALL.into_iter().zip(&mut self.0) {
            let Some(nanos) = stage.of(work) else { continue };
            if histogram.is_none() {
                // These bounds are possible, so it never fails.
                *histogram = Histogram::new_with_bounds(1, LONGEST, FIGURES).ok();
            }
            if let Some(histogram) = histogram {
                histogram.saturating_record(nanos);
            }
        }
    }

    /// Each stage that has times, with its quantiles.
    pub(super) fn quantiles(&self) -> impl Iterator<Item = (Stage, u64, [u64; QUANTILES.len()])> + '_ {
        Stage::ALL.into_iter().zip(&self.0).filter_map(|(stage, histogram)| {
            let histogram = histogram.as_ref()?;
            let values = QUANTILES.map(|(_, share)| histogram.value_at_quantile(share).min(histogram.max()));
            Some((stage, histogram.len(), values))
        })
    }
}

//! Figures that tell how a program fares: how its work ended, and how full its queues are.

use crate::counters::Counters;
use crate::status::Status;

/// Places of a list by status: one for each number of `ibv_wc_status` that a status can have.
const CODES: usize = 14;

/// Completions, counted by how the work ended, sends and receives apart.
///
/// A completion counts when it is put into its completion queue. Work that ends without one does not count: a
/// send that was not signaled and went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    sends: [u64; CODES],
    receives: [u64; CODES],
}

impl Completions {
    /// Counts the completion of a send.
    #[inline]
    pub const fn count_send(&mut self, status: Status) {
        self.sends[status.code() as usize] += 1;
    }

    /// Counts the completion of a receive, from a queue of its own or a shared one.
    #[inline]
    pub const fn count_receive(&mut self, status: Status) {
        self.receives[status.code() as usize] += 1;
    }

    /// Completions of sends that ended so.
    #[must_use]
    pub const fn sends(&self, status: Status) -> u64 {
        self.sends[status.code() as usize]
    }

    /// Completions of receives that ended so.
    #[must_use]
    pub const fn receives(&self, status: Status) -> u64 {
        self.receives[status.code() as usize]
    }

    /// All completions of sends.
    #[must_use]
    pub fn all_sends(&self) -> u64 {
        saturating_sum(self.sends)
    }

    /// All completions of receives.
    #[must_use]
    pub fn all_receives(&self) -> u64 {
        saturating_sum(self.receives)
    }

    /// Completions of sends and receives that did not end well.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failed = self.iter().filter(|(status, ..)| *status != Status::Success);
        saturating_sum(failed.flat_map(|(_, sends, receives)| [sends, receives]))
    }

    /// Each status, with the completions of sends and of receives that ended so.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64, u64)> {
        Status::ALL.into_iter().map(|status| (status, self.sends(status), self.receives(status)))
    }

    /// Adds another queue pair's counts to these.
    pub fn add(&mut self, other: &Self) {
        let Self { sends, receives } = other;
        for (sum, more) in self.sends.iter_mut().chain(&mut self.receives).zip(sends.iter().chain(receives)) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Counts that were read elsewhere.
    pub fn set(&mut self, status: Status, sends: u64, receives: u64) {
        self.sends[usize::from(status.code())] = sends;
        self.receives[usize::from(status.code())] = receives;
    }
}

/// Counts that came from another process may be any numbers.
fn saturating_sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// What a queue pair has done since it was made, or all queue pairs of a device, also those that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpTotals {
    /// Sends that were posted.
    pub sends_posted: u64,
    /// Sends that have ended, with or without a completion; those that a reset discarded are not among them.
    pub sends_done: u64,
    /// Receives that were posted to queue pairs themselves, and not to shared receive queues.
    pub receives_posted: u64,
    /// How work ended.
    pub completions: Completions,
    /// Everything else that happened, by name: retries, time-outs, RNR NAKs of both directions.
    pub counters: Counters,
}

impl QpTotals {
    /// Adds another queue pair's totals to these.
    pub fn add(&mut self, other: &Self) {
        self.sends_posted += other.sends_posted;
        self.sends_done += other.sends_done;
        self.receives_posted += other.receives_posted;
        self.completions.add(&other.completions);
        self.counters.add(&other.counters);
    }
}

/// How full a queue is, and was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// Entries that it holds now.
    pub now: u32,
    /// The most that it held at a time, so far.
    pub most: u32,
    /// Entries that it has room for.
    pub capacity: u32,
}

impl Level {
    /// A level; it never held less than it holds now.
    #[must_use]
    pub const fn new(now: u32, most: u32, capacity: u32) -> Self {
        Self { now, most: if most > now { most } else { now }, capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_counted_by_status_and_queue() {
        let mut one = Completions::default();
        for (times, status) in Status::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| one.count_send(status));
            (0..times * 10).for_each(|_| one.count_receive(status));
        }
        assert!(one.iter().map(|(_, sends, receives)| (sends, receives)).eq((0..13).map(|n| (n, n * 10))));
        assert_eq!((one.all_sends(), one.all_receives(), one.failed()), (78, 780, 858));
        let mut two = one;
        two.add(&one);
        assert_eq!((two.sends(Status::RnrRetryExceeded), two.receives(Status::Flushed)), (24, 80));
        let mut again = Completions::default();
        one.iter().for_each(|(status, sends, receives)| again.set(status, sends, receives));
        assert_eq!(again, one);
        one.count_send(Status::Success);
        assert_eq!((one.sends(Status::Success), one.failed()), (1, 858), "success is no failure");
    }

    #[test]
    fn a_queue_never_held_less_than_it_holds() {
        assert_eq!(Level::new(5, 3, 8), Level { now: 5, most: 5, capacity: 8 });
        assert_eq!(Level::new(2, 3, 8), Level { now: 2, most: 3, capacity: 8 });
    }
}

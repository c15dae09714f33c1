//! Messages for queue pair 1 of other processes that have no room for them at the moment.
//!
//! A socket for letters holds as few as the system says (`net.unix.max_dgram_qlen`, 10 in places), and a thousand requests
//! for connections may come at once. What is lost comes again half a second later; so the leader keeps what does not fit.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_fabric::Received;
use ferroce_sys::clock;
use ferroce_transport::Time;

use super::forward::{Arrival, Handed, Kind};
use super::inner::Inner;
use super::mad_queue::Sealed;

/// Messages that are kept for all processes together; what comes then is lost, and comes again.
const MOST: usize = 4096;

/// Those of them for one process, so that one that takes nothing out leaves room for others.
const MOST_OF_ONE: usize = 1024;

/// How long one is kept. What sent it sends it again after half a second, many times: one that is older tells nothing new.
/// In tests a process may be stopped for longer.
const MOST_AGE: Duration = if cfg!(test) { Duration::from_secs(600) } else { Duration::from_secs(4) };

/// When to try again, should the system not say that there is room: first and, as long as there is none, last.
const AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Messages that are kept, by the slot that they are for.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: BTreeMap<u8, VecDeque<Message>>,
    count: usize,
    again: Again,
}

#[derive(Debug)]
struct Message {
    received: Received,
    place: usize,
    packet: Sealed,
    /// The owner that it is for: another that has the slot by then knows nothing of it.
    incarnation: u64,
    since: Time,
}

/// When to try again in any case.
#[derive(Debug)]
struct Again {
    when: Time,
    step: Duration,
}

impl Default for Again {
    fn default() -> Self {
        let (first, _) = AGAIN;
        Self { when: Time::from_nanos(0), step: first }
    }
}

impl Again {
    /// Some could be handed on, or are the first that wait.
    fn soon(&mut self, now: Time) {
        let (first, _) = AGAIN;
        *self = Self { when: now + first, step: first };
    }

    /// It was tried in vain.
    fn later(&mut self, now: Time) {
        let (_, last) = AGAIN;
        if now >= self.when {
            self.step = (self.step * 2).min(last);
            self.when = now + self.step;
        }
    }
}

impl Late {
    /// Hands a message on, or keeps it behind those that wait for the same process; false if it is lost.
    pub(super) fn hand(&mut self, inner: &Inner, slot: u8, arrival: &Arrival<'_>) -> bool {
        let Some(incarnation) = inner.incarnation_of(slot) else { return false };
        if !self.waiting.contains_key(&slot) {
            match inner.hand_over(Kind::Management, slot, arrival) {
                Handed::Taken => return true,
                Handed::Gone => return false,
                Handed::Full => {}
            }
        }
        self.keep(slot, incarnation, arrival, clock::now())
    }

    /// Keeps a message; false if there is no room.
    fn keep(&mut self, slot: u8, incarnation: u64, arrival: &Arrival<'_>, since: Time) -> bool {
        let of_one = self.waiting.get(&slot).map_or(0, VecDeque::len);
        let has_room = self.count < MOST && of_one < MOST_OF_ONE;
        let Some(packet) = has_room.then(|| Sealed::copy_of(arrival.bytes)).flatten() else { return false };
        let Arrival { received, place, .. } = *arrival;
        let message = Message { received, place, packet, incarnation, since };
        self.waiting.entry(slot).or_default().push_back(message);
        if self.count == 0 {
            self.again.soon(since);
        }
        self.count += 1;
        true
    }

    /// Hands on what there is room for by now, and drops what is no use any more.
    pub(super) fn flush(&mut self, inner: &Inner) {
        if self.count > 0 {
            self.flush_at(inner, clock::now());
        }
    }

    fn flush_at(&mut self, inner: &Inner, now: Time) {
        let before = self.count;
        let Self { waiting, count, .. } = self;
        waiting.retain(|slot, messages| {
            let owner = inner.incarnation_of(*slot);
            while let Some(Message { received, place, packet, incarnation, since }) = messages.front() {
                let arrival = Arrival { received: *received, place: *place, bytes: packet.bytes() };
                let is_of_use = owner == Some(*incarnation) && now.since(*since) < MOST_AGE;
                let handed =
                    if is_of_use { inner.hand_over(Kind::Management, *slot, &arrival) } else { Handed::Gone };
                match handed {
                    Handed::Full => return true,
                    Handed::Taken => {}
                    Handed::Gone => {
                        inner.counts.mads_unclaimed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                messages.pop_front();
                *count -= 1;
            }
            false
        });
        if self.count < before { self.again.soon(now) } else { self.again.later(now) }
    }

    /// What can be written to when there is room.
    pub(super) fn descriptors(&self, inner: &Inner) -> impl Iterator<Item = RawFd> {
        self.waiting.keys().filter_map(|slot| inner.way_to(*slot))
    }

    /// When to try again in any case.
    pub(super) fn next_try(&self) -> Option<Time> {
        (self.count > 0).then_some(self.again.when)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was: what waited for a process that ended went to the next owner of its slot, and one that was stopped had the
    /// leader wake every millisecond for ever.
    #[test]
    fn what_waits_goes_to_no_other_owner_and_does_not_wait_for_ever() {
        let ours = crate::tests::enter(47);
        let (inner, slot) = (ours.member().inner(), ours.number());
        let owner = inner.incarnation_of(slot).expect("it is ours");
        let unclaimed = || inner.counts.mads_unclaimed.load(Ordering::Relaxed);
        let received = Received {
            len: 4,
            segment: 4,
            source: ([127, 0, 0, 2].into(), 4791),
            local: [127, 0, 0, 1].into(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            stamp: 0,
        };
        let arrival = Arrival { received, place: 0, bytes: &[1; 4] };
        let start = clock::now();
        let mut late = Late::default();
        assert!(late.keep(slot, owner + 1, &arrival, start) && late.next_try() == Some(start + AGAIN.0));
        late.flush_at(inner, start);
        assert_eq!((unclaimed(), late.next_try()), (1, None));
        assert!(late.keep(slot, owner, &arrival, start));
        late.flush_at(inner, start + MOST_AGE);
        assert_eq!((unclaimed(), late.next_try()), (2, None));
        // One process leaves room for others.
        assert!((0..MOST_OF_ONE).all(|_| late.keep(slot, owner, &arrival, start)));
        assert!(!late.keep(slot, owner, &arrival, start) && late.keep(slot + 1, owner, &arrival, start));
    }

    #[test]
    fn as_long_as_nothing_moves_it_is_tried_less_often() {
        let mut again = Again::default();
        let mut now = clock::now();
        again.soon(now);
        let mut steps = Vec::new();
        for _ in 0..8 {
            again.later(now);
            steps.push(again.when.since(now).as_millis());
            now = again.when;
        }
        assert_eq!(steps, [1, 2, 4, 8, 16, 32, 50, 50]);
    }
}

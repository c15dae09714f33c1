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

/// When to try again, should the system not say that there is room.
const AGAIN: Duration = Duration::from_millis(1);

/// Messages that are kept, by the slot that they are for.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: BTreeMap<u8, VecDeque<Message>>,
    count: usize,
}

#[derive(Debug)]
struct Message {
    received: Received,
    place: usize,
    packet: Sealed,
}

impl Late {
    /// Hands a message on, or keeps it behind those that wait for the same process; false if it is lost.
    pub(super) fn hand(&mut self, inner: &Inner, slot: u8, arrival: &Arrival<'_>) -> bool {
        if !self.waiting.contains_key(&slot) {
            match inner.hand_over(Kind::Management, slot, arrival) {
                Handed::Taken => return true,
                Handed::Gone => return false,
                Handed::Full => {}
            }
        }
        let Some(packet) = Sealed::copy_of(arrival.bytes).filter(|_| self.count < MOST) else { return false };
        let message = Message { received: arrival.received, place: arrival.place, packet };
        self.waiting.entry(slot).or_default().push_back(message);
        self.count += 1;
        true
    }

    /// Hands on what there is room for by now.
    pub(super) fn flush(&mut self, inner: &Inner) {
        let Self { waiting, count } = self;
        waiting.retain(|slot, messages| {
            while let Some(Message { received, place, packet }) = messages.front() {
                let arrival = Arrival { received: *received, place: *place, bytes: packet.bytes() };
                match inner.hand_over(Kind::Management, *slot, &arrival) {
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
    }

    /// What can be written to when there is room.
    pub(super) fn descriptors(&self, inner: &Inner) -> impl Iterator<Item = RawFd> {
        self.waiting.keys().filter_map(|slot| inner.way_to(*slot))
    }

    /// When to try again in any case.
    pub(super) fn next_try(&self) -> Option<Time> {
        (self.count > 0).then(|| clock::now() + AGAIN)
    }
}

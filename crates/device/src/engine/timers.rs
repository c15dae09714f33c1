//! When which queue pair wants to be called.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::Time;

/// A heap of times. An entry may be earlier than what its queue pair wants by now: then it is
/// put back when it comes up, which is cheaper than moving it with every packet.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u16)>>,
}

/// Entries that there is room for before the heap has to grow: a queue pair can have some dozens that
/// were overtaken and have not come up yet.
const ROOM: usize = 1024;

impl Default for Timers {
    fn default() -> Self {
        Self { heap: BinaryHeap::with_capacity(ROOM) }
    }
}

impl Timers {
    /// Takes note that a queue pair wants to be called at `wanted`. `scheduled` is the queue
    /// pair's own note of its earliest entry.
    #[inline]
    pub(crate) fn schedule(&mut self, index: u16, wanted: Option<Time>, scheduled: &mut Option<Time>) {
        let Some(wanted) = wanted else { return };
        if scheduled.is_none_or(|scheduled| wanted < scheduled) {
            *scheduled = Some(wanted);
            self.heap.push(Reverse((wanted, index)));
        }
    }

    /// The earliest entry.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    /// Takes off an entry that is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, u16)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_times_are_entered() {
        let mut timers = Timers::default();
        let mut scheduled = None;
        let at = Time::from_nanos;
        timers.schedule(7, Some(at(100)), &mut scheduled);
        timers.schedule(7, Some(at(200)), &mut scheduled);
        timers.schedule(7, None, &mut scheduled);
        assert_eq!((timers.heap.len(), scheduled), (1, Some(at(100))));
        timers.schedule(7, Some(at(50)), &mut scheduled);
        assert_eq!(timers.pop_due(at(49)), None);
        assert_eq!(timers.pop_due(at(50)), Some((at(50), 7)));
        assert_eq!(timers.next(), Some(at(100)));
    }
}

//! What is remembered of posted sends while a device records: which packet belongs to which work, and what ended
//! without a completion.

use std::collections::VecDeque;

use ferroce_wire::Psn;

/// The sends of a queue pair that are not over, oldest first.
///
/// The machine of a queue pair knows more, but nothing of records: this is filled only while one is made, and takes all of its
/// memory when it begins.
#[derive(Debug, Default)]
pub struct Shadow {
    works: VecDeque<Entry>,
    /// One past the last packet that was ever sent.
    high: Option<Psn>,
    /// Packets of all work.
    packets: u64,
}

/// The bits of a packet sequence number.
const PSN_MASK: u32 = 0xff_ffff;

/// One send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    work: u32,
    id: u64,
    /// The number of its first packet.
    psn: Psn,
    /// Packets of all work before it.
    start: u64,
    /// Packets that it has, or that its answer has.
    packets: u32,
}

/// A packet and the work that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belongs {
    /// Which work of the send queue it is.
    pub work: u32,
    /// Whether it is its first packet.
    pub is_first: bool,
    /// Whether it had been sent before.
    pub is_repeat: bool,
}

impl Shadow {
    /// For a queue of so many sends.
    #[must_use]
    pub fn with_capacity(depth: usize) -> Self {
        Self { works: VecDeque::with_capacity(depth), high: None, packets: 0 }
    }

    /// A send was posted, with the number of its first packet, and how many it has.
    pub fn post(&mut self, work: u32, id: u64, psn: Psn, packets: u32) {
        self.works.push_back(Entry { work, id, psn, start: self.packets, packets });
        self.packets += u64::from(packets);
    }

    /// The work that the packet with this number belongs to; none if that is over, or has no packets.
    #[must_use]
    pub fn find(&self, psn: Psn) -> Option<u32> {
        self.entry(psn).map(|entry| entry.work)
    }

    /// As [`find`](Self::find), of a packet that leaves.
    pub fn leaves(&mut self, psn: Psn) -> Option<Belongs> {
        let is_repeat = self.high.is_some_and(|high| psn.distance_from(high) < 0);
        if !is_repeat {
            self.high = Some(psn + 1);
        }
        let entry = self.entry(psn)?;
        Some(Belongs { work: entry.work, is_first: entry.psn == psn, is_repeat })
    }

    fn entry(&self, psn: Psn) -> Option<Entry> {
        // Numbers of packets go round, and a queue may hold more work than there are numbers: but what is under way is
        // near its beginning.
        let oldest = self.works.front()?;
        let ahead = psn.get().wrapping_sub(oldest.psn.get()) & PSN_MASK;
        let place = oldest.start + u64::from(ahead);
        let after = self.works.partition_point(|entry| entry.start <= place);
        // Local work has no packets, and the number of what comes after it.
        let mut before = self.works.range(..after).rev();
        let entry = *before.find(|entry| entry.packets > 0)?;
        (place - entry.start < u64::from(entry.packets)).then_some(entry)
    }

    /// This work is over, and with it all that was posted before: those ended well, without a completion.
    pub fn end(&mut self, work: u32, mut quiet: impl FnMut(u32, u64)) {
        while let Some(entry) = self.works.pop_front() {
            if entry.work == work {
                return;
            }
            quiet(entry.work, entry.id);
        }
    }

    /// All that was posted before this one is over, and ended well, without a completion.
    pub fn end_before(&mut self, work: u32, mut quiet: impl FnMut(u32, u64)) {
        let is_before = |entry: &mut Entry| work.wrapping_sub(entry.work).wrapping_sub(1) < u32::MAX / 2;
        while let Some(entry) = self.works.pop_front_if(is_before) {
            quiet(entry.work, entry.id);
        }
    }

    /// The queue pair was reset: all is forgotten.
    pub fn reset(&mut self, mut forgotten: impl FnMut(u32, u64)) {
        self.high = None;
        self.works.drain(..).for_each(|entry| forgotten(entry.work, entry.id));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::new(number)
    }

    proptest! {
        /// Wherever numbers begin, and though they go round, each packet belongs to the work that it was made for.
        #[test]
        fn every_packet_belongs_to_its_work(
            first in 0_u32..1 << 24,
            number in any::<u32>(),
            lengths in vec(0_u32..6, 1..40),
        ) {
            let mut shadow = Shadow::with_capacity(lengths.len());
            let (mut next, mut packets) = (psn(first), Vec::new());
            for (place, length) in (0..).zip(&lengths) {
                let work = number.wrapping_add(place);
                shadow.post(work, u64::from(place), next, *length);
                packets.extend((0..*length).map(|ahead| (work, next + ahead, ahead == 0)));
                next += *length;
            }
            for (work, psn, is_first) in packets.iter().copied() {
                prop_assert_eq!(shadow.find(psn), Some(work));
                prop_assert_eq!(shadow.leaves(psn), Some(Belongs { work, is_first, is_repeat: false }));
            }
            prop_assert_eq!(shadow.find(next), None);
            prop_assert_eq!(shadow.find(psn(first) - 1), None);
            for (work, psn, is_first) in packets {
                prop_assert_eq!(shadow.leaves(psn), Some(Belongs { work, is_first, is_repeat: true }));
            }
        }

        /// Each work has one end.
        #[test]
        fn every_work_ends_once(number in any::<u32>(), count in 1_u32..50, ends in vec((any::<bool>(), 0_u32..8), 0..60)) {
            let mut shadow = Shadow::with_capacity(50);
            let work = |place: u32| number.wrapping_add(place);
            for place in 0..count {
                shadow.post(work(place), u64::from(place), psn(place), 1);
            }
            let (mut next, mut ended) = (0, Vec::new());
            for (is_told, ahead) in ends {
                let mut quiet = |work: u32, id: u64| {
                    assert_eq!(u64::from(work.wrapping_sub(number)), id);
                    ended.push(work);
                };
                if is_told {
                    let place = next + ahead;
                    if place >= count {
                        continue;
                    }
                    shadow.end(work(place), &mut quiet);
                    ended.push(work(place));
                    next = place + 1;
                } else {
                    next = (next + ahead).min(count);
                    shadow.end_before(work(next), &mut quiet);
                }
            }
            shadow.reset(|work, _| ended.push(work));
            prop_assert_eq!(ended, (0..count).map(work).collect::<Vec<_>>());
        }
    }
}

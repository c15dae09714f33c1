//! What is remembered of posted sends while a device records: which packet belongs to which work, and what ended
//! without a completion.

use std::collections::VecDeque;

use ferroce_transport::WorkKind;
use ferroce_wire::Psn;

/// The sends of a queue pair that are not over, oldest first.
///
/// The machine of a queue pair knows more, but nothing of records: this is filled only while one is made, and takes all of its
/// memory when it begins.
#[derive(Debug, Default)]
pub struct Shadow {
    works: VecDeque<Entry>,
    /// The number that the first packet ever would have had: those that wait have numbers without a gap.
    base: Psn,
    /// Packets of all work that was ever posted.
    packets: u64,
    /// Work that is over.
    gone: u64,
    /// Where the last packet was found, counted from the first work ever: the next is most often there, or after it.
    last: u64,
}

/// One send, as it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shade {
    /// Which work of the send queue it is.
    pub work: u32,
    /// The program's name for it.
    pub id: u64,
    /// What it is.
    pub kind: WorkKind,
    /// The number of its first packet.
    pub psn: Psn,
    /// Packets that it has, or that its answer has.
    pub packets: u32,
}

/// As little as possible: there is one for each send of a queue, and each is touched four times.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    /// Packets of all work before it.
    start: u64,
    work: u32,
    packets: u32,
    /// The packet that left last, counted from 1; none if 0.
    last: u32,
    kind: WorkKind,
    /// How often packets of it were sent again from an earlier one on.
    round: u8,
}

impl Entry {
    #[inline]
    fn shade(&self, base: Psn) -> Shade {
        let Self { id, start, work, packets, kind, .. } = *self;
        Shade { work, id, kind, psn: numbered(base, start), packets }
    }
}

/// The number of a packet, of which so many came before.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "numbers of packets go round after fewer bits")]
fn numbered(base: Psn, packets: u64) -> Psn {
    base + (packets as u32 & PSN_MASK)
}

/// A packet and the work that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belongs {
    /// The work.
    pub shade: Shade,
    /// Whether it is the first packet of it that ever leaves.
    pub begins: bool,
    /// How often it was sent before.
    pub round: u8,
}

/// The bits of a packet sequence number.
const PSN_MASK: u32 = 0xff_ffff;

impl Shadow {
    /// For a queue of so many sends.
    #[must_use]
    pub fn with_capacity(depth: usize) -> Self {
        Self { works: VecDeque::with_capacity(depth), ..Self::default() }
    }

    /// A send was posted.
    #[inline]
    pub fn post(&mut self, shade: Shade) {
        let Shade { work, id, kind, psn, packets } = shade;
        if self.works.is_empty() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "numbers of packets go round after fewer bits"
            )]
            let before = self.packets as u32 & PSN_MASK;
            self.base = psn - before;
        }
        debug_assert_eq!(self.next_psn().unwrap_or(psn), psn, "numbers of packets have a gap");
        self.works.push_back(Entry { id, start: self.packets, work, packets, last: 0, kind, round: 0 });
        self.packets += u64::from(packets);
    }

    /// A send was posted before anything was remembered; some of its packets may have left.
    pub fn post_earlier(&mut self, shade: Shade) {
        self.post(shade);
        if let Some(entry) = self.works.back_mut() {
            entry.last = 1;
        }
    }

    /// The number of the first packet of what is posted next, if something is there already.
    #[must_use]
    #[inline]
    pub fn next_psn(&self) -> Option<Psn> {
        (!self.works.is_empty()).then(|| numbered(self.base, self.packets))
    }

    /// The work that the packet with this number belongs to; none if that is over, or has no packets.
    #[must_use]
    pub fn find(&mut self, psn: Psn) -> Option<Shade> {
        let place = self.place(psn)?;
        Some(self.works[place].shade(self.base))
    }

    /// As [`find`](Self::find), of a packet that leaves, and that was sent before or not.
    #[inline]
    pub fn leaves(&mut self, psn: Psn, is_repeat: bool) -> Option<Belongs> {
        let place = self.place(psn)?;
        Some(leave(&mut self.works[place], self.base, psn, is_repeat))
    }

    /// A packet leaves of work that sends one after the other, and has no numbers in advance.
    pub fn leaves_in_turn(&mut self, work: u32) -> Option<Belongs> {
        let entry = self.works.iter_mut().find(|entry| entry.work == work)?;
        let psn = numbered(self.base, entry.start) + entry.last;
        Some(leave(entry, self.base, psn, false))
    }

    #[inline]
    fn place(&mut self, psn: Psn) -> Option<usize> {
        // Numbers of packets go round, and a queue may hold more work than there are numbers: but what is under way is
        // near its beginning.
        let oldest = self.works.front()?;
        let first = numbered(self.base, oldest.start);
        let packet = oldest.start + u64::from(psn.get().wrapping_sub(first.get()) & PSN_MASK);
        self.near(packet).or_else(|| self.far(packet))
    }

    /// The place of a packet, wherever it is.
    #[inline(never)]
    fn far(&mut self, packet: u64) -> Option<usize> {
        let mut place = self.works.partition_point(|entry| entry.start <= packet).checked_sub(1)?;
        // Local work has no packets, and the number of what comes after it.
        while self.works[place].packets == 0 {
            place = place.checked_sub(1)?;
        }
        let entry = &self.works[place];
        let is_there = packet - entry.start < u64::from(entry.packets);
        self.last = self.gone + place as u64;
        is_there.then_some(place)
    }

    /// The place of a packet, if it is where the last one was found, or just behind.
    #[inline]
    fn near(&mut self, packet: u64) -> Option<usize> {
        let last = usize::try_from(self.last.checked_sub(self.gone)?).ok()?;
        let is_there = |place: &usize| {
            let entry = self.works.get(*place);
            entry.is_some_and(|entry| packet.wrapping_sub(entry.start) < u64::from(entry.packets))
        };
        let place = [last, last + 1].into_iter().find(is_there)?;
        self.last = self.gone + place as u64;
        Some(place)
    }

    /// This work is over, and with it all that was posted before: those ended well, without a completion. What was
    /// known of it; none if it is not known, and then nothing that was posted after it is touched.
    pub fn end(&mut self, work: u32, mut quiet: impl FnMut(Shade, bool)) -> Option<(Shade, bool)> {
        let is_reached = |entry: &mut Entry| work.wrapping_sub(entry.work).cast_signed() >= 0;
        while let Some(entry) = self.works.pop_front_if(is_reached) {
            self.gone += 1;
            if entry.work == work {
                return Some((entry.shade(self.base), entry.last > 0));
            }
            quiet(entry.shade(self.base), entry.last > 0);
        }
        None
    }

    /// Whether something is remembered that was posted before this one.
    #[must_use]
    #[inline]
    pub fn has_before(&self, work: u32) -> bool {
        self.works.front().is_some_and(|entry| is_before(entry.work, work))
    }

    /// All that was posted before this one is over, and ended well, without a completion. Each is told with whether a
    /// packet of it has left.
    pub fn end_before(&mut self, work: u32, mut quiet: impl FnMut(Shade, bool)) {
        while let Some(entry) = self.works.pop_front_if(|entry| is_before(entry.work, work)) {
            self.gone += 1;
            quiet(entry.shade(self.base), entry.last > 0);
        }
    }

    /// The queue pair was reset: all is forgotten.
    pub fn reset(&mut self, mut forgotten: impl FnMut(Shade)) {
        self.gone += self.works.len() as u64;
        let base = self.base;
        self.works.drain(..).for_each(|entry| forgotten(entry.shade(base)));
    }
}

/// Whether one work was posted before another; their numbers go round.
#[inline]
const fn is_before(one: u32, other: u32) -> bool {
    other.wrapping_sub(one).wrapping_sub(1) < u32::MAX / 2
}

/// A packet of this work leaves.
#[inline]
fn leave(entry: &mut Entry, base: Psn, psn: Psn, is_repeat: bool) -> Belongs {
    let first = numbered(base, entry.start);
    let number = (psn.get().wrapping_sub(first.get()) & PSN_MASK) + 1;
    entry.round = entry.round.saturating_add(u8::from(is_repeat && number <= entry.last));
    let begins = entry.last == 0;
    entry.last = number;
    Belongs { shade: entry.shade(base), begins, round: if is_repeat { entry.round.max(1) } else { 0 } }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn shade(work: u32, id: u64, psn: Psn, packets: u32) -> Shade {
        Shade { work, id, kind: WorkKind::Write, psn, packets }
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
            let (mut next, mut packets) = (Psn::new(first), Vec::new());
            for (place, length) in (0..).zip(&lengths) {
                let shade = shade(number.wrapping_add(place), u64::from(place), next, *length);
                shadow.post(shade);
                packets.extend((0..*length).map(|ahead| (shade, next + ahead, ahead == 0)));
                next += *length;
            }
            for (shade, psn, begins) in packets.iter().copied() {
                prop_assert_eq!(shadow.find(psn), Some(shade));
                prop_assert_eq!(shadow.leaves(psn, false), Some(Belongs { shade, begins, round: 0 }));
            }
            prop_assert_eq!(shadow.find(next), None);
            prop_assert_eq!(shadow.find(Psn::new(first) - 1), None);
            for round in [1, 2] {
                for (shade, psn, _) in packets.iter().copied() {
                    prop_assert_eq!(shadow.leaves(psn, true), Some(Belongs { shade, begins: false, round }));
                }
            }
        }

        /// Each work has one end.
        #[test]
        fn every_work_ends_once(number in any::<u32>(), count in 1_u32..50, ends in vec((any::<bool>(), 0_u32..8), 0..60)) {
            let mut shadow = Shadow::with_capacity(50);
            let work = |place: u32| number.wrapping_add(place);
            for place in 0..count {
                shadow.post(shade(work(place), u64::from(place), Psn::new(place), 1));
            }
            let (mut next, mut ended) = (0, Vec::new());
            for (is_told, ahead) in ends {
                let mut quiet = |shade: Shade, has_begun: bool| {
                    assert_eq!(u64::from(shade.work.wrapping_sub(number)), shade.id);
                    assert!(!has_begun);
                    ended.push(shade.work);
                };
                if is_told {
                    let place = next + ahead;
                    if place >= count {
                        continue;
                    }
                    assert_eq!(shadow.end(work(place), &mut quiet).map(|(it, _)| it.work), Some(work(place)));
                    ended.push(work(place));
                    next = place + 1;
                } else {
                    next = (next + ahead).min(count);
                    shadow.end_before(work(next), &mut quiet);
                }
            }
            shadow.reset(|shade| ended.push(shade.work));
            prop_assert_eq!(ended, (0..count).map(work).collect::<Vec<_>>());
        }
    }

    /// It was: the end of work that was posted before a record began ended all that was posted after it.
    #[test]
    fn the_end_of_unknown_work_ends_nothing_that_comes_after_it() {
        let mut shadow = Shadow::with_capacity(8);
        for (ahead, work) in (0..).zip([u32::MAX, 0, 1]) {
            shadow.post(shade(work, 0, Psn::new(7) + ahead, 1));
        }
        assert_eq!(shadow.end(u32::MAX - 1, |it, _| panic!("{it:?} has not ended")), None);
        assert_eq!(shadow.end(0, |it, _| assert_eq!(it.work, u32::MAX)).map(|(it, _)| it.work), Some(0));
        assert_eq!(shadow.end(0, |_, _| {}), None, "it ended before");
        assert_eq!(shadow.end(1, |_, _| {}).map(|(it, _)| it.work), Some(1));
    }

    /// A queue may hold more packets than there are numbers.
    #[test]
    fn the_work_of_a_packet_is_found_though_all_numbers_are_taken_twice() {
        let mut shadow = Shadow::with_capacity(8);
        let (mut psn, packets) = (Psn::new(77), 1 << 23);
        for work in 0..6 {
            shadow.post(shade(work, 0, psn, packets));
            psn += packets;
        }
        assert_eq!(shadow.find(Psn::new(77)).map(|shade| shade.work), Some(0));
        assert_eq!(shadow.find(Psn::new(77) + packets).map(|shade| shade.work), Some(1));
        shadow.end_before(3, |_, _| {});
        assert_eq!(shadow.find(Psn::new(77) + packets).map(|shade| shade.work), Some(3));
    }
}

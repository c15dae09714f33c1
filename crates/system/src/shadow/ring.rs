//! A queue whose work ends in the order in which it was posted: sends, and receives of a queue pair's own.

use std::collections::VecDeque;

use ferroce_transport::WorkKind;

use super::Posted;
use super::regulars::{Named, Regulars, Window};

/// The requests of one queue that are not done, oldest first. `H` is what they keep alive.
///
/// Sends that asked for no completion are done when a later one is: work of a queue ends in order, and work that fails
/// always says so. All memory is taken at the beginning: posting allocates nothing.
#[derive(Debug)]
pub(crate) struct Ring<H> {
    /// A power of two of them. Which are in use, and by which request, follows from its place.
    entries: Box<[Entry<H>]>,
    /// What entries keep alive beside their first object, in their order.
    more: VecDeque<H>,
    /// What requests name again and again.
    regulars: Regulars<H>,
    /// The place of the oldest entry. Places count up, and around, as long as the ring lives: so what a card
    /// says of work that was forgotten meanwhile names no other.
    first: u32,
    /// Requests that are not done, and how many there may be.
    len: u32,
    depth: u32,
    /// Objects that entries keep alive themselves: mostly none, and then many of them are retired at once.
    holds: usize,
}

#[derive(Debug)]
struct Entry<H> {
    posted: Posted,
    /// Most work names one object.
    hold: Option<H>,
    /// How many of `more` are its own.
    more: u32,
}

impl<H> Ring<H> {
    /// A ring for so many requests that hold so many objects each.
    pub(crate) fn new(depth: u32, holds: u32) -> Self {
        // No card has queues of more than some hundred thousand requests.
        let depth = depth.min(1 << 30);
        let empty = || Entry { posted: Posted { id: 0, kind: WorkKind::Send }, hold: None, more: 0 };
        let entries = std::iter::repeat_with(empty).take(depth.next_power_of_two() as usize).collect();
        let more = (depth as usize).saturating_mul(holds.saturating_sub(1) as usize);
        Self {
            entries,
            more: VecDeque::with_capacity(more),
            regulars: Regulars::default(),
            first: 0,
            len: 0,
            depth,
            holds: 0,
        }
    }

    /// Requests that are not done.
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Puts a request at the end, and says its place; nothing if the ring is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, posted: Posted) -> Option<u32> {
        if self.len >= self.depth {
            return None;
        }
        let place = self.first.wrapping_add(self.len);
        self.len += 1;
        let entry = self.entry(place);
        (entry.posted, entry.more) = (posted, 0);
        Some(place)
    }

    /// [Puts](Self::push) a request at the end that [names](Self::name) what has this key, or nothing, if that is held already; else
    /// nothing, and nothing has changed.
    #[inline(always)]
    pub(crate) fn push_known(&mut self, posted: Posted, key: Option<usize>) -> Option<u32> {
        let place = self.first.wrapping_add(self.len);
        if self.len >= self.depth || key.is_some_and(|key| !self.regulars.name_known(key, place)) {
            return None;
        }
        self.push(posted)
    }

    /// Has the request that was put last keep an object alive.
    #[inline]
    pub(crate) fn hold(&mut self, hold: H) {
        self.holds += 1;
        let last = self.first.wrapping_add(self.len).wrapping_sub(1);
        let entry = self.entry(last);
        if entry.hold.is_none() {
            entry.hold = Some(hold);
        } else {
            entry.more += 1;
            self.more.push_back(hold);
        }
    }

    /// Has the request that was put last keep alive what has this key, for which there is one holder as long as requests name it again and
    /// again. Whether it is to be [let go](Self::let_go) from now on.
    #[inline]
    pub(crate) fn name(&mut self, key: usize, hold: impl Fn() -> H) -> bool {
        let waiting = self.waiting();
        let last = waiting.first.wrapping_add(waiting.len).wrapping_sub(1);
        match self.regulars.name(key, last, waiting, &hold) {
            Named::Known => false,
            Named::New => true,
            Named::Alone => {
                self.hold(hold());
                false
            }
        }
    }

    /// No request is going to name what has this key: its holder, unless some do still.
    pub(crate) fn let_go(&mut self, key: usize) -> Option<H> {
        self.regulars.let_go(key, self.waiting())
    }

    const fn waiting(&self) -> Window {
        Window { first: self.first, len: self.len }
    }

    /// Takes back the last requests, which the card did not take.
    pub(crate) fn take_back(&mut self, requests: usize) {
        let taken = u32::try_from(requests).map_or(self.len, |requests| requests.min(self.len));
        for _ in 0..taken {
            self.len -= 1;
            let place = self.first.wrapping_add(self.len);
            let entry = self.entry(place);
            let (hold, more) = (entry.hold.take(), entry.more as usize);
            self.holds -= usize::from(hold.is_some()) + more;
            self.more.truncate(self.more.len().saturating_sub(more));
        }
        self.regulars.take_back(self.waiting(), taken);
    }

    /// The request at this place is done, and with it all before it: `each` gets what they kept alive, and whether it was
    /// kept by the one at this place. What it was, or nothing if no request is there.
    pub(crate) fn retire(&mut self, place: u32, mut each: impl FnMut(H, bool)) -> Option<Posted> {
        let before = place.wrapping_sub(self.first);
        if before >= self.len {
            return None;
        }
        self.let_go_until(place, &mut each);
        let posted = self.entry(place).posted;
        self.first = place.wrapping_add(1);
        self.len -= before + 1;
        self.regulars.sweep(self.waiting(), |hold| each(hold, false));
        Some(posted)
    }

    /// The same where nothing goes with the requests; else nothing, and nothing has changed.
    #[inline(always)]
    pub(crate) fn retire_bare(&mut self, place: u32) -> Option<Posted> {
        let before = place.wrapping_sub(self.first);
        if before >= self.len || self.holds > 0 || self.regulars.is_leaving() {
            return None;
        }
        let posted = self.entry(place).posted;
        self.first = place.wrapping_add(1);
        self.len -= before + 1;
        Some(posted)
    }

    /// Hands to `each` what requests keep alive themselves, from the oldest to that at this place.
    fn let_go_until(&mut self, place: u32, each: &mut impl FnMut(H, bool)) {
        let mut at = self.first;
        while self.holds > 0 {
            let is_it = at == place;
            let entry = self.entry(at);
            let (hold, more) = (entry.hold.take(), std::mem::take(&mut entry.more) as usize);
            if let Some(hold) = hold {
                self.holds -= 1;
                each(hold, is_it);
            }
            if more > 0 {
                self.holds -= more;
                self.more.drain(..more).for_each(|another| each(another, is_it));
            }
            if is_it {
                return;
            }
            at = at.wrapping_add(1);
        }
    }

    /// Forgets all requests, and lets go of what they kept alive: the card has forgotten them, too.
    pub(crate) fn clear(&mut self) {
        while self.len > 0 {
            let place = self.first;
            self.entry(place).hold = None;
            self.first = place.wrapping_add(1);
            self.len -= 1;
        }
        self.more.clear();
        self.holds = 0;
        self.regulars.clear();
    }

    /// The entry for a place, whether it is in use or not.
    #[inline]
    fn entry(&mut self, place: u32) -> &mut Entry<H> {
        // It is a power of two, so this is where the place lies also when places have gone around.
        let mask = self.entries.len() - 1;
        &mut self.entries[place as usize & mask]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn forget<H>(_: H, _: bool) {}

    /// Puts a request in that holds these.
    fn push<H>(ring: &mut Ring<H>, posted: Posted, holds: impl IntoIterator<Item = H>) -> Option<u32> {
        let place = ring.push(posted)?;
        holds.into_iter().for_each(|hold| ring.hold(hold));
        Some(place)
    }

    fn work(id: u64) -> Posted {
        Posted { id, kind: WorkKind::Write }
    }

    #[test]
    fn an_unsignaled_send_is_done_with_the_next_completion() {
        let region = Arc::new(());
        let mut ring = Ring::new(4, 2);
        let hold = || [Arc::clone(&region), Arc::clone(&region)];
        let places: Vec<u32> = (0..3).filter_map(|id| push(&mut ring, work(id), hold())).collect();
        assert_eq!((places.as_slice(), Arc::strong_count(&region)), ([0, 1, 2].as_slice(), 7));
        assert_eq!(ring.retire(1, forget), Some(work(1)));
        assert_eq!((ring.len(), Arc::strong_count(&region)), (1, 3));
        assert_eq!(ring.retire(2, forget), Some(work(2)));
        assert_eq!(Arc::strong_count(&region), 1);
    }

    #[test]
    fn what_failed_is_told_from_what_was_done_before_it() {
        let mut ring = Ring::new(4, 1);
        for id in 0..3 {
            push(&mut ring, work(id), [id]);
        }
        let mut told = Vec::new();
        ring.retire(1, |id, is_it| told.push((id, is_it)));
        assert_eq!(told, [(0, false), (1, true)]);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_keeps_nothing() {
        let region = Arc::new(());
        let mut ring = Ring::new(1, 1);
        assert_eq!(push(&mut ring, work(0), [Arc::clone(&region)]), Some(0));
        assert_eq!(push(&mut ring, work(1), [Arc::clone(&region)]), None);
        assert_eq!(Arc::strong_count(&region), 2);
    }

    #[test]
    fn what_a_card_says_twice_or_too_late_is_of_no_request() {
        let mut ring: Ring<()> = Ring::new(4, 0);
        assert_eq!(ring.retire(0, forget), None, "nothing was posted");
        push(&mut ring, work(7), []);
        assert_eq!(ring.retire(1, forget), None, "not posted yet");
        assert_eq!(ring.retire(0, forget), Some(work(7)));
        assert_eq!(ring.retire(0, forget), None);
        let before_reset = push(&mut ring, work(8), []);
        ring.clear();
        let after_reset = push(&mut ring, work(9), []);
        assert_eq!(before_reset.and_then(|place| ring.retire(place, forget)), None);
        assert_eq!(after_reset.and_then(|place| ring.retire(place, forget)), Some(work(9)));
    }

    #[test]
    fn places_go_around() {
        let mut ring: Ring<()> = Ring::new(2, 0);
        ring.first = u32::MAX;
        assert_eq!([push(&mut ring, work(1), []), push(&mut ring, work(2), [])], [Some(u32::MAX), Some(0)]);
        assert_eq!(ring.retire(0, forget), Some(work(2)));
        assert_eq!((ring.len(), push(&mut ring, work(3), [])), (0, Some(1)));
    }

    #[test]
    fn what_the_card_did_not_take_is_taken_back() {
        let region = Arc::new(());
        let mut ring = Ring::new(4, 3);
        push(&mut ring, work(1), [Arc::clone(&region)]);
        push(&mut ring, work(2), std::iter::repeat_n(Arc::clone(&region), 3));
        push(&mut ring, work(3), [Arc::clone(&region)]);
        ring.take_back(2);
        assert_eq!((ring.len(), Arc::strong_count(&region)), (1, 2));
        assert_eq!(push(&mut ring, work(4), []), Some(1), "the place is free again");
        ring.take_back(9);
        assert_eq!((ring.len(), Arc::strong_count(&region)), (0, 1));
    }

    #[test]
    fn a_ring_allocates_only_when_it_is_made() {
        let region = Arc::new(());
        let mut ring = Ring::new(64, 4);
        let allocated = allocation_counter::measure(|| {
            for round in 0..100 {
                for id in 0..64 {
                    push(&mut ring, work(id), std::iter::repeat_n(Arc::clone(&region), 4));
                }
                ring.retire((round + 1) * 64 - 1, forget);
            }
        });
        assert_eq!((allocated.count_total, ring.len()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        TakeBack(usize),
        /// Of all places so far, as a share of 256.
        Retire(u8),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0_usize..4).prop_map(Step::Push),
            1 => (0_usize..4).prop_map(Step::TakeBack),
            4 => any::<u8>().prop_map(Step::Retire),
            1 => Just(Step::Clear),
        ];
        proptest::collection::vec(step, 0..200)
    }

    #[test]
    fn what_is_held_already_is_named_on_the_short_way() {
        let mut ring = Ring::new(3, 1);
        assert_eq!(ring.push_known(work(0), Some(0x1000)), None, "it is not held");
        assert_eq!((ring.len(), ring.push(work(1))), (0, Some(0)));
        assert!(ring.name(0x1000, || 'a'));
        assert_eq!(ring.push_known(work(2), Some(0x1000)), Some(1));
        assert_eq!(ring.push_known(work(3), None), Some(2));
        assert_eq!(ring.push_known(work(4), Some(0x1000)), None, "the ring is full");
        assert_eq!(ring.retire_bare(0), Some(work(1)));
        // The second names it, so it stays until that is done, which is the long way's to see.
        assert_eq!(ring.let_go(0x1000), None);
        assert_eq!(ring.push_known(work(5), Some(0x1000)), None, "it is leaving");
        assert_eq!(ring.retire_bare(2), None);
        let mut gone = Vec::new();
        assert_eq!(ring.retire(1, |hold, _| gone.push(hold)), Some(work(2)));
        assert_eq!((gone.as_slice(), ring.retire_bare(2)), (['a'].as_slice(), Some(work(3))));
    }

    proptest! {
        /// A list of requests, each with its own object, says what must live; the ring holds no more and no less.
        #[test]
        fn what_is_held_is_what_is_not_done(steps in steps(), first in any::<u32>()) {
            let mut ring = Ring::new(8, 3);
            ring.first = first;
            let mut model: VecDeque<(u32, u64, Vec<std::sync::Weak<u64>>)> = VecDeque::new();
            let mut gone = Vec::new();
            let mut place = first;
            for (id, step) in (0_u64..).zip(steps) {
                match step {
                    Step::Push(holds) => {
                        let objects: Vec<Arc<u64>> = (0..holds).map(|_| Arc::new(id)).collect();
                        let weak = objects.iter().map(Arc::downgrade).collect();
                        let pushed = push(&mut ring, work(id), objects);
                        prop_assert_eq!(pushed, (model.len() < 8).then_some(place));
                        match pushed {
                            Some(at) => {
                                model.push_back((at, id, weak));
                                place = place.wrapping_add(1);
                            }
                            None => gone.extend(weak),
                        }
                    }
                    Step::TakeBack(requests) => {
                        ring.take_back(requests);
                        for _ in 0..requests.min(model.len()) {
                            gone.extend(model.pop_back().unwrap().2);
                            place = place.wrapping_sub(1);
                        }
                    }
                    Step::Retire(share) => {
                        let back = place.wrapping_sub(u32::from(share) / 16);
                        let expected = model.iter().find(|(at, ..)| *at == back).map(|(_, id, _)| work(*id));
                        let mut freed = 0;
                        // The short way is for rings that hold nothing, and else changes nothing.
                        let is_bare = model.iter().all(|(.., weak)| weak.is_empty());
                        let bare = ring.retire_bare(back);
                        prop_assert_eq!(bare, expected.filter(|_| is_bare));
                        if bare.is_none() {
                            prop_assert_eq!(ring.retire(back, |_, _| freed += 1), expected);
                        }
                        let mut count = 0;
                        while expected.is_some() {
                            let (at, _, weak) = model.pop_front().unwrap();
                            count += weak.len();
                            gone.extend(weak);
                            if at == back {
                                break;
                            }
                        }
                        prop_assert_eq!(freed, count);
                    }
                    Step::Clear => {
                        ring.clear();
                        gone.extend(model.drain(..).flat_map(|(.., weak)| weak));
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert!(model.iter().all(|(.., weak)| weak.iter().all(|object| object.strong_count() == 1)));
                prop_assert!(gone.iter().all(|object| object.strong_count() == 0));
            }
        }
    }
}

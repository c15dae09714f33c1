//! What the requests of a queue name again and again, held once for all of them.
//!
//! To count each request at a region is an atomic operation when it is posted and another when it is done. Work of a queue is done in
//! the order in which it was posted, so it is enough to know the last request that names the region: once that is done, all are.

/// Places for regulars; each key has one, that it shares with others.
const PLACES: usize = 8;

/// So many requests in a row must find their place taken before it is given to another.
const PATIENCE: u8 = 16;

/// The regulars of a queue. `H` is what keeps one alive.
#[derive(Debug)]
pub(crate) struct Regulars<H> {
    slots: [Slot<H>; PLACES],
    /// How many are to go when the last request that names them is done.
    leaving: u32,
}

#[derive(Debug)]
struct Slot<H> {
    /// What it is, 0 if there is none, or if it is leaving.
    key: usize,
    hold: Option<H>,
    /// The last request that names it.
    last: u32,
    /// Requests that named another of this place since.
    misses: u8,
}

/// The requests that are not done: so many, from the first on. Their numbers go around.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) first: u32,
    pub(crate) len: u32,
}

impl Window {
    const fn holds(self, place: u32) -> bool {
        place.wrapping_sub(self.first) < self.len
    }
}

/// What became of something that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// It is held already.
    Known,
    /// It is held from now on, until it is [let go](Regulars::let_go).
    New,
    /// There is no place for it: the request is to hold it itself.
    Alone,
}

impl<H> Default for Regulars<H> {
    fn default() -> Self {
        let empty = || Slot { key: 0, hold: None, last: 0, misses: 0 };
        Self { slots: std::array::from_fn(|_| empty()), leaving: 0 }
    }
}

impl<H> Regulars<H> {
    /// The request at this place, which was put into the queue last, names what has this key, which is not 0 and is no other's as long as
    /// `hold` keeps it alive.
    #[inline]
    pub(crate) fn name(
        &mut self,
        key: usize,
        place: u32,
        waiting: Window,
        hold: impl FnOnce() -> H,
    ) -> Named {
        if self.name_known(key, place) {
            return Named::Known;
        }
        self.slots[place_of(key)].enter(key, place, waiting, hold)
    }

    /// The same of what is held already; else nothing, and nothing has changed.
    #[inline(always)]
    pub(crate) fn name_known(&mut self, key: usize, place: u32) -> bool {
        let slot = &mut self.slots[place_of(key)];
        let is_known = slot.key == key;
        if is_known {
            (slot.last, slot.misses) = (place, 0);
        }
        is_known
    }

    /// Whether something is to go when the last request that names it is done.
    #[inline(always)]
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// What has this key is not named any more from now on: it goes at once if no request names it, else when the last is done.
    pub(crate) fn let_go(&mut self, key: usize, waiting: Window) -> Option<H> {
        let slot = &mut self.slots[place_of(key)];
        if slot.key != key {
            return None;
        }
        slot.key = 0;
        if waiting.holds(slot.last) {
            self.leaving += 1;
            return None;
        }
        slot.hold.take()
    }

    /// Requests are done: what was to go with them goes.
    #[inline]
    pub(crate) fn sweep(&mut self, waiting: Window, gone: impl FnMut(H)) {
        if self.leaving > 0 {
            self.sweep_out(waiting, gone);
        }
    }

    #[cold]
    fn sweep_out(&mut self, waiting: Window, mut gone: impl FnMut(H)) {
        for slot in self.slots.iter_mut().filter(|slot| slot.key == 0) {
            if !waiting.holds(slot.last)
                && let Some(hold) = slot.hold.take()
            {
                self.leaving -= 1;
                gone(hold);
            }
        }
    }

    /// The last requests were taken back: these wait now, and their places are going to be those of others.
    pub(crate) fn take_back(&mut self, waiting: Window, taken: u32) {
        let end = waiting.first.wrapping_add(waiting.len);
        for slot in &mut self.slots {
            if slot.last.wrapping_sub(end) < taken {
                // It may have been named by the last that is left.
                slot.last = end.wrapping_sub(1);
            }
        }
        self.sweep(waiting, drop);
    }

    /// All requests are forgotten, and with them what they name.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<H> Slot<H> {
    #[cold]
    fn enter(&mut self, key: usize, place: u32, waiting: Window, hold: impl FnOnce() -> H) -> Named {
        if self.hold.is_some() {
            self.misses = self.misses.saturating_add(1);
            // One that is leaving keeps its place until it is gone.
            if self.key == 0 || self.misses < PATIENCE || waiting.holds(self.last) {
                return Named::Alone;
            }
        }
        *self = Self { key, hold: Some(hold()), last: place, misses: 0 };
        Named::New
    }
}

/// Keys are addresses of objects of more than 64 bytes.
const fn place_of(key: usize) -> usize {
    ((key >> 6) ^ (key >> 9)) % PLACES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const A: usize = 0x1000;
    /// Another of the same place.
    const B: usize = 0x1000 + (PLACES << 15);

    const fn waiting(first: u32, len: u32) -> Window {
        Window { first, len }
    }

    #[test]
    fn what_is_named_again_and_again_is_held_once() {
        let region = Arc::new(());
        let mut regulars = Regulars::default();
        let mut named = |place| regulars.name(A, place, waiting(0, place + 1), || Arc::clone(&region));
        assert_eq!((named(0), named(1), named(2)), (Named::New, Named::Known, Named::Known));
        assert_eq!(Arc::strong_count(&region), 2);
        // Two are done, and it is let go: the third still names it.
        assert_eq!(regulars.let_go(A, waiting(2, 1)), None);
        regulars.sweep(waiting(2, 1), drop);
        assert_eq!(Arc::strong_count(&region), 2);
        regulars.sweep(waiting(3, 0), drop);
        assert_eq!((Arc::strong_count(&region), regulars.leaving), (1, 0));
    }

    #[test]
    fn what_nothing_names_goes_at_once() {
        let mut regulars = Regulars::default();
        assert_eq!(regulars.name(A, u32::MAX, waiting(u32::MAX, 1), || 'a'), Named::New);
        assert_eq!(regulars.let_go(B, waiting(0, 0)), None);
        assert_eq!(regulars.let_go(A, waiting(0, 0)), Some('a'));
        assert_eq!(regulars.let_go(A, waiting(0, 0)), None);
        assert_eq!(regulars.name(A, 0, waiting(0, 1), || 'b'), Named::New);
    }

    #[test]
    fn two_of_one_place_do_not_drive_each_other_out() {
        assert_eq!(place_of(A), place_of(B));
        let mut regulars = Regulars::default();
        for round in 0..100 {
            let all = waiting(2 * round, 2);
            let first = regulars.name(A, 2 * round, all, || 'a');
            assert_eq!(first, if round == 0 { Named::New } else { Named::Known });
            assert_eq!(regulars.name(B, 2 * round + 1, all, || 'b'), Named::Alone);
        }
        // The first does not come any more.
        let named = (200..300).map(|place| regulars.name(B, place, waiting(place, 1), || 'b'));
        let named: Vec<Named> = named.collect();
        let alone = named.iter().position(|named| *named == Named::New).unwrap();
        assert!(alone > 0 && named[..alone].iter().all(|named| *named == Named::Alone), "{named:?}");
        assert!(named[alone + 1..].iter().all(|named| *named == Named::Known), "{named:?}");
    }

    #[test]
    fn one_that_leaves_under_work_keeps_its_place_and_is_no_other() {
        let mut regulars = Regulars::default();
        assert_eq!(regulars.name(A, 0, waiting(0, 1), || 'a'), Named::New);
        assert_eq!(regulars.let_go(A, waiting(0, 1)), None);
        for place in 1..100 {
            assert_eq!(regulars.name(A, place, waiting(0, place + 1), || 'x'), Named::Alone, "it is another");
        }
        let mut gone = Vec::new();
        regulars.sweep(waiting(1, 99), |hold| gone.push(hold));
        assert_eq!(gone, ['a']);
        assert_eq!(regulars.name(A, 100, waiting(1, 100), || 'y'), Named::New);
    }

    #[test]
    fn what_was_taken_back_names_nothing() {
        let mut regulars = Regulars::default();
        assert_eq!(regulars.name(A, 4, waiting(4, 1), || 'a'), Named::New);
        assert_eq!(regulars.name(A, 5, waiting(4, 2), || 'a'), Named::Known);
        regulars.take_back(waiting(4, 1), 1);
        assert_eq!(regulars.let_go(A, waiting(4, 1)), None, "the first names it");
        let mut gone = Vec::new();
        regulars.sweep(waiting(5, 0), |hold| gone.push(hold));
        assert_eq!(gone, ['a']);
        // The only one is taken back after its region was let go.
        assert_eq!(regulars.name(A, 5, waiting(5, 1), || 'b'), Named::New);
        assert_eq!(regulars.let_go(A, waiting(5, 1)), None);
        regulars.take_back(waiting(5, 0), 1);
        assert_eq!(regulars.leaving, 0);
    }
}

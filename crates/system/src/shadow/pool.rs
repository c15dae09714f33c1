//! A queue whose work ends in any order: receives that several queue pairs take from.

use super::Posted;

/// The receives of a shared queue that are not done. `H` is what they keep alive.
///
/// All memory is taken at the beginning, and posting allocates nothing. One case is apart: a receive that a queue pair
/// had begun when it was destroyed never completes, and keeps its place as long as the pool lives. The card has room
/// again then, and the pool makes some, up to its limit.
#[derive(Debug)]
pub(crate) struct Pool<H> {
    slots: Vec<Slot>,
    /// What the receives keep alive: so many places for each slot.
    held: Vec<Option<H>>,
    holds: usize,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    posted: Option<Posted>,
    /// How often it was given back, so that what is told of a request before is not taken for the one that has it now.
    generation: u8,
}

/// Bits of a place that say which slot it is.
const INDEX: u32 = 24;
/// Receives that may be lost with queue pairs before the pool is full for good, beside as many as its depth.
const SPARE: usize = 1024;

impl<H> Pool<H> {
    /// A pool for so many receives that hold so many objects each.
    pub(crate) fn new(depth: u32, holds: u32) -> Self {
        let (slots, holds) = (depth as usize, holds as usize);
        let mut pool = Self {
            slots: Vec::with_capacity(slots),
            held: Vec::with_capacity(slots.saturating_mul(holds)),
            holds,
            free: Vec::with_capacity(slots),
            limit: limit_of(depth),
        };
        for _ in 0..slots {
            pool.grow();
        }
        // The first slots go first.
        pool.free.reverse();
        pool
    }

    /// Receives that are not done, and those that were lost.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Has it hold another number of receives.
    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.limit = limit_of(depth);
    }

    /// Puts a receive in, and says its place; nothing if there is no room.
    pub(crate) fn insert(&mut self, posted: Posted) -> Option<u32> {
        if self.free.is_empty() {
            self.grow();
        }
        let index = self.free.pop()?;
        let at = index as usize;
        let slot = self.slots.get_mut(at)?;
        slot.posted = Some(posted);
        Some(u32::from(slot.generation) << INDEX | index)
    }

    /// Has the receive at this place keep an object alive, of which there are no more than the pool was made for.
    pub(crate) fn hold(&mut self, place: u32, hold: H) {
        let at = (place & ((1 << INDEX) - 1)) as usize * self.holds;
        let free = self.held.iter_mut().skip(at).take(self.holds).find(|place| place.is_none());
        debug_assert!(free.is_some(), "more objects than the pool was made for");
        if let Some(free) = free {
            *free = Some(hold);
        }
    }

    /// The receive at this place is done: what it was, or nothing if none is there. `each` gets what it kept alive.
    pub(crate) fn remove(&mut self, place: u32, each: impl FnMut(H)) -> Option<Posted> {
        let index = place & ((1 << INDEX) - 1);
        let at = index as usize;
        let slot = self.slots.get_mut(at)?;
        if u32::from(slot.generation) != place >> INDEX {
            return None;
        }
        let posted = slot.posted.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        let places = self.held.iter_mut().skip(at * self.holds).take(self.holds);
        places.filter_map(Option::take).for_each(each);
        Some(posted)
    }

    fn grow(&mut self) {
        if self.slots.len() < self.limit {
            self.free.push(u32::try_from(self.slots.len()).unwrap_or(0));
            self.slots.push(Slot { posted: None, generation: 0 });
            self.held.extend(std::iter::repeat_with(|| None).take(self.holds));
        }
    }
}

/// Slots that a pool of this depth may come to have.
fn limit_of(depth: u32) -> usize {
    (depth as usize).saturating_mul(2).saturating_add(SPARE).min((1 << INDEX) - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Weak};

    use ferroce_transport::WorkKind;
    use proptest::prelude::*;

    use super::*;

    /// Puts a receive in that holds these.
    fn insert<H>(pool: &mut Pool<H>, posted: Posted, holds: impl IntoIterator<Item = H>) -> Option<u32> {
        let place = pool.insert(posted)?;
        holds.into_iter().for_each(|hold| pool.hold(place, hold));
        Some(place)
    }

    fn receive(id: u64) -> Posted {
        Posted { id, kind: WorkKind::Receive }
    }

    #[test]
    fn receives_end_in_any_order() {
        let region = Arc::new(());
        let mut pool = Pool::new(3, 2);
        let places: Vec<u32> = (0..3)
            .filter_map(|id| insert(&mut pool, receive(id), [Arc::clone(&region), Arc::clone(&region)]))
            .collect();
        assert_eq!((places.as_slice(), Arc::strong_count(&region)), ([0, 1, 2].as_slice(), 7));
        for (left, &place) in [places[2], places[0], places[1]].iter().enumerate() {
            let id = u64::from(place);
            assert_eq!(pool.remove(place, drop), Some(receive(id)));
            assert_eq!(Arc::strong_count(&region), 5 - 2 * left);
            assert_eq!(pool.remove(place, drop), None, "told twice");
        }
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn what_is_told_too_late_names_no_other() {
        let mut pool: Pool<()> = Pool::new(1, 0);
        let first = insert(&mut pool, receive(1), []).unwrap();
        pool.remove(first, drop);
        let second = insert(&mut pool, receive(2), []).unwrap();
        assert_ne!(first, second);
        assert_eq!(pool.remove(first, drop), None);
        assert_eq!(pool.remove(second, drop), Some(receive(2)));
        assert_eq!(pool.remove(u32::MAX, drop), None, "no such slot");
    }

    #[test]
    fn lost_receives_leave_room_for_others_up_to_a_limit() {
        let mut pool: Pool<()> = Pool::new(2, 0);
        let taken = (0..).map_while(|id| insert(&mut pool, receive(id), [])).count();
        assert_eq!(taken, 2 * 2 + SPARE);
        pool.set_depth(3);
        assert_eq!((0..).map_while(|id| insert(&mut pool, receive(id), [])).count(), 2);
    }

    #[test]
    fn a_pool_allocates_only_when_it_is_made() {
        let region = Arc::new(());
        let mut pool = Pool::new(64, 4);
        let allocated = allocation_counter::measure(|| {
            for _ in 0..100 {
                let mut places = [0; 64];
                for place in &mut places {
                    *place =
                        insert(&mut pool, receive(0), std::iter::repeat_n(Arc::clone(&region), 4)).unwrap();
                }
                for place in places {
                    pool.remove(place, drop);
                }
            }
        });
        assert_eq!((allocated.count_total, Arc::strong_count(&region)), (0, 1));
    }

    proptest! {
        /// A map of places says what must live; the pool holds no more and no less.
        #[test]
        fn what_is_held_is_what_is_not_done(steps in proptest::collection::vec((any::<bool>(), 0_usize..8), 0..300)) {
            let mut pool = Pool::new(4, 2);
            let mut model: HashMap<u32, (u64, Weak<u64>)> = HashMap::new();
            let mut gone: Vec<(u32, Weak<u64>)> = Vec::new();
            for (id, (inserts, which)) in (0_u64..).zip(steps) {
                if inserts {
                    let object = Arc::new(id);
                    let weak = Arc::downgrade(&object);
                    let place = insert(&mut pool, receive(id), [object]).unwrap();
                    prop_assert!(model.insert(place, (id, weak)).is_none(), "the place is in use");
                } else {
                    let mut places: Vec<u32> = model.keys().copied().collect();
                    places.sort_unstable();
                    if let Some(place) = places.get(which) {
                        let (id, weak) = model.remove(place).unwrap();
                        prop_assert_eq!(pool.remove(*place, drop), Some(receive(id)));
                        gone.push((*place, weak));
                    } else if let Some((place, _)) = gone.last() {
                        prop_assert_eq!(pool.remove(*place, drop), None);
                    }
                }
                prop_assert_eq!(pool.len(), model.len());
                prop_assert!(model.values().all(|(_, object)| object.strong_count() == 1));
                prop_assert!(gone.iter().all(|(_, object)| object.strong_count() == 0));
            }
        }
    }
}

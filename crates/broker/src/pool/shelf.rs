//! The slabs of one class in one partition: what a lock guards.

use super::usage::{ClassUsage, Freed};

/// A slab and what is in it. Its vectors keep their memory when it goes from one class to another.
#[derive(Debug)]
pub(super) struct Slab {
    /// Where it begins in the region.
    offset: usize,
    /// The slots that were ever in use since it was claimed; those behind them are free.
    slots: Vec<Slot>,
    /// Free slots among them.
    free: Vec<u32>,
    /// Its index in the list of slabs with room, if it has some.
    roomy_at: usize,
}

/// A place for one item.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The owner, if there is one, and each work that the item is lent to. At 0 the slot is free.
    holders: u32,
    /// Bytes that were asked for.
    size: u32,
    /// The number under which it is kept, or 0.
    kept: u64,
}

/// Where an item is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) class: usize,
    /// The slab's index in its shelf.
    pub(super) at: u32,
    pub(super) slot: u32,
    /// In the region.
    pub(super) offset: usize,
    /// Bytes that were asked for.
    pub(super) len: usize,
}

/// The slabs of one class in one partition.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    slabs: Vec<Option<Slab>>,
    /// Unused indices of `slabs`.
    vacant: Vec<u32>,
    /// Indices of slabs that have a free slot.
    roomy: Vec<u32>,
    items: usize,
    bytes: u64,
    kept: usize,
    loans: usize,
}

impl Slab {
    pub(super) const fn new(offset: usize) -> Self {
        Self { offset, slots: Vec::new(), free: Vec::new(), roomy_at: 0 }
    }

    const fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Shelf {
    /// A slot for an item, in a slab that has one free.
    pub(super) fn alloc(&mut self, class: usize, room: usize, capacity: usize, len: usize) -> Option<Place> {
        let at = *self.roomy.last()?;
        let slab = self.slabs[at as usize].as_mut()?;
        let new = Slot { holders: 1, size: narrow(len), kept: 0 };
        let slot = match slab.free.pop() {
            Some(slot) => {
                slab.slots[slot as usize] = new;
                slot
            }
            None => {
                slab.slots.push(new);
                narrow(slab.slots.len() - 1)
            }
        };
        let offset = slab.offset + slot as usize * room;
        if slab.used() == capacity {
            self.roomy.pop();
        }
        self.items += 1;
        self.bytes += len as u64;
        Some(Place { class, at, slot, offset, len })
    }

    /// Takes a slab in that has just been claimed.
    pub(super) fn put(&mut self, mut slab: Slab) {
        let at = match self.vacant.pop() {
            Some(at) => at,
            None => {
                self.slabs.push(None);
                narrow(self.slabs.len() - 1)
            }
        };
        slab.roomy_at = self.roomy.len();
        self.roomy.push(at);
        self.slabs[at as usize] = Some(slab);
    }

    /// One holder more: work that names the item.
    pub(super) fn lend(&mut self, place: &Place) {
        if let Some(slot) = self.slot(place.at, place.slot) {
            slot.holders += 1;
            self.loans += 1;
        }
    }

    /// The work is done. Gives the slab out if this was its last item.
    pub(super) fn give_back(&mut self, place: &Place, capacity: usize) -> Option<Slab> {
        self.loans -= 1;
        self.let_go(place.at, place.slot, capacity)
    }

    /// One holder less. Gives the slab out if this was its last item.
    pub(super) fn let_go(&mut self, at: u32, slot: u32, capacity: usize) -> Option<Slab> {
        let slab = self.slabs[at as usize].as_mut()?;
        let state = &mut slab.slots[slot as usize];
        state.holders -= 1;
        if state.holders > 0 {
            return None;
        }
        self.items -= 1;
        self.bytes -= u64::from(state.size);
        let was_full = slab.used() == capacity;
        slab.free.push(slot);
        if was_full {
            slab.roomy_at = self.roomy.len();
            self.roomy.push(at);
        }
        if slab.used() > 0 {
            return None;
        }
        let mut slab = self.slabs[at as usize].take()?;
        self.roomy.swap_remove(slab.roomy_at);
        if let Some(&moved) = self.roomy.get(slab.roomy_at)
            && let Some(moved) = self.slabs[moved as usize].as_mut()
        {
            moved.roomy_at = slab.roomy_at;
        }
        self.vacant.push(at);
        slab.slots.clear();
        slab.free.clear();
        Some(slab)
    }

    /// The owner leaves it here, under a number that no other kept item of this process ever has.
    pub(super) fn keep(&mut self, place: &Place, number: u64) {
        if let Some(slot) = self.slot(place.at, place.slot) {
            slot.kept = number;
            self.kept += 1;
        }
    }

    /// The item under this number has an owner again. Its size, if it was there.
    pub(super) fn take(&mut self, at: u32, slot: u32, number: u64) -> Option<(usize, usize)> {
        let slab = self.slabs.get_mut(at as usize)?.as_mut()?;
        let offset = slab.offset;
        let state = slab.slots.get_mut(slot as usize)?;
        if state.kept != number {
            return None;
        }
        state.kept = 0;
        self.kept -= 1;
        Some((offset, state.size as usize))
    }

    /// Frees what is kept here, and hands out the slabs that are empty then.
    pub(super) fn free_kept(&mut self, capacity: usize, freed: &mut Freed, empty: &mut Vec<Slab>) {
        for at in 0..self.slabs.len() {
            let slots = self.slabs[at].as_ref().map_or(0, |slab| slab.slots.len());
            for slot in 0..slots {
                let Some(state) = self.slabs[at].as_mut().and_then(|slab| slab.slots.get_mut(slot)) else {
                    break;
                };
                if state.kept == 0 {
                    continue;
                }
                state.kept = 0;
                let (size, lent) = (state.size, state.holders > 1);
                self.kept -= 1;
                if lent {
                    freed.lent += 1;
                } else {
                    freed.items += 1;
                    freed.bytes += u64::from(size);
                }
                empty.extend(self.let_go(narrow(at), narrow(slot), capacity));
            }
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// What is in use.
    pub(super) const fn usage(&self, size: usize, capacity: usize) -> ClassUsage {
        let slabs = self.slabs.len() - self.vacant.len();
        let Self { items, bytes, kept, loans, .. } = *self;
        ClassUsage { size, slabs, items, room: slabs * capacity, bytes, kept, loans }
    }

    fn slot(&mut self, at: u32, slot: u32) -> Option<&mut Slot> {
        self.slabs.get_mut(at as usize)?.as_mut()?.slots.get_mut(slot as usize)
    }
}

/// Slabs have at most 2^31 bytes, and items at least 8.
#[expect(clippy::cast_possible_truncation, reason = "slabs and all that is in one are smaller")]
const fn narrow(number: usize) -> u32 {
    number as u32
}

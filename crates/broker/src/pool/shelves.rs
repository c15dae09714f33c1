//! The shelves of one partition, and the locks around them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_verbs::MemoryRegion;

use super::Core;
use super::item::KeptItem;
use super::shelf::{Place, Shelf};
use super::usage::{Freed, PartitionUsage};

/// The slabs of one key, a shelf for each class.
///
/// Locks are taken in one order: a shelf, then the free slabs. No thread locks two shelves at a time.
pub(super) struct Shelves {
    key: u64,
    core: Arc<Core>,
    shelves: Box<[Mutex<Shelf>]>,
}

impl Shelves {
    pub(super) fn new(key: u64, core: &Arc<Core>) -> Self {
        let shelves = core.classes.sizes().iter().map(|_| Mutex::default()).collect();
        Self { key, core: Arc::clone(core), shelves }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn region(&self) -> &MemoryRegion {
        &self.core.region
    }

    pub(super) fn alloc(&self, class: usize, len: usize) -> Option<Place> {
        let (room, capacity) = (self.core.classes.size(class), self.capacity(class));
        let mut shelf = self.shelf(class);
        if let Some(place) = shelf.alloc(class, room, capacity, len) {
            return Some(place);
        }
        shelf.put(self.core.claim()?);
        shelf.alloc(class, room, capacity, len)
    }

    pub(super) fn lend(&self, place: &Place) {
        self.shelf(place.class).lend(place);
    }

    pub(super) fn give_back(&self, place: &Place) {
        let mut shelf = self.shelf(place.class);
        if let Some(slab) = shelf.give_back(place, self.capacity(place.class)) {
            self.core.give_back(slab);
        }
    }

    pub(super) fn let_go(&self, place: &Place) {
        let mut shelf = self.shelf(place.class);
        if let Some(slab) = shelf.let_go(place.at, place.slot, self.capacity(place.class)) {
            self.core.give_back(slab);
        }
    }

    pub(super) fn keep(&self, place: &Place) -> KeptItem {
        // Partitions come and go, so they cannot count for themselves.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.shelf(place.class).keep(place, number);
        KeptItem { key: self.key, class: place.class, at: place.at, slot: place.slot, number }
    }

    pub(super) fn take(&self, kept: &KeptItem) -> Option<Place> {
        let KeptItem { class, at, slot, number, .. } = *kept;
        // It may be of another pool.
        let room = *self.core.classes.sizes().get(class)?;
        let (slab, len) = self.shelf(class).take(at, slot, number)?;
        Some(Place { class, at, slot, offset: slab + slot as usize * room, len })
    }

    pub(super) fn free_kept(&self) -> Freed {
        let (mut freed, mut empty) = (Freed::default(), Vec::new());
        for class in 0..self.shelves.len() {
            self.shelf(class).free_kept(self.capacity(class), &mut freed, &mut empty);
        }
        for slab in empty {
            self.core.give_back(slab);
        }
        freed
    }

    pub(super) fn is_empty(&self) -> bool {
        (0..self.shelves.len()).all(|class| self.shelf(class).is_empty())
    }

    pub(super) fn usage(&self) -> PartitionUsage {
        let of = |class| {
            let usage = self.shelf(class).usage(self.core.classes.size(class), self.capacity(class));
            (usage.slabs > 0).then_some(usage)
        };
        PartitionUsage { key: self.key, classes: (0..self.shelves.len()).filter_map(of).collect() }
    }

    /// Items of a class in one slab.
    fn capacity(&self, class: usize) -> usize {
        self.core.slab_size / self.core.classes.size(class)
    }

    fn shelf(&self, class: usize) -> MutexGuard<'_, Shelf> {
        self.shelves[class].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! When regions go that nothing holds any more.
//!
//! Each engine knows its own work. A region goes when no engine has any that names it: with several engines,
//! the one whose last such work is done has the thread that leaves it look at all of them.

use ferroce_memory::RegionKeys;
use ferroce_record::Step;
use ferroce_sys::sync::Share;
use ferroce_wire::{Lkey, Rkey};

use super::Engine;
use super::leaving::Leaving;
use crate::engines::Everywhere;
use crate::record;

impl Everywhere<'_> {
    /// Deregisters a region as soon as no posted work names it.
    pub(crate) fn release_region(&mut self, lkey: Lkey) {
        for engine in &mut self.visits {
            engine.leaving.push(Leaving { lkey, held: false, sends: Vec::new(), shared: Vec::new() });
        }
        self.release_regions();
    }

    /// A region is gone.
    pub(crate) fn forget_region(&mut self, lkey: Lkey) {
        for engine in &mut self.visits {
            engine.leaving.retain(|leaving| leaving.lkey != lkey);
        }
    }

    /// Deregisters those leaving regions that no posted work names any more.
    pub(crate) fn release_regions(&mut self) {
        let count = self.visits.first().map_or(0, |engine| engine.leaving.len());
        for place in (0..count).rev() {
            // All of them are asked, so that each has its marks.
            let held = self.visits.iter_mut().fold(false, |any, engine| engine.holds(place) | any);
            let Some(lkey) = self.visits.first().and_then(|engine| Some(engine.leaving.get(place)?.lkey))
            else {
                continue;
            };
            // A window may be bound to it: then it stays until that is gone.
            if !held && (self.deregister(lkey).is_ok() || self.memory().region(lkey).is_none()) {
                self.forget_region(lkey);
            }
        }
    }
}

impl Engine {
    /// Sees whether work that named leaving regions is done. Alone, the engine deregisters them itself;
    /// else the thread that leaves it does so with all engines.
    pub(crate) fn release_regions(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let unbindings = self.tables.memory.unbindings();
        let mut changed = std::mem::replace(&mut self.unbindings, unbindings) != unbindings;
        for place in 0..self.leaving.len() {
            changed |= self.leaving.get(place).is_some_and(|region| region.held) && !self.holds(place);
        }
        if !changed {
            return;
        }
        let Self { leaving, tables, let_go, .. } = self;
        match Share::all([&mut tables.memory]) {
            Some(table) => leaving.retain(|region| {
                let spec = table.region(region.lkey);
                let stays = region.held || table.deregister(region.lkey).is_err() && spec.is_some();
                if let (Some(record), Some(spec), false) = (&mut tables.record, spec, stays) {
                    let keys = RegionKeys { lkey: region.lkey, rkey: Rkey(region.lkey.0) };
                    record.region(record::region(Step::Gone, keys, &spec));
                }
                stays
            }),
            None => *let_go = true,
        }
    }

    /// Whether work of this engine names the leaving region at this place of the list.
    fn holds(&mut self, place: usize) -> bool {
        // The list stays where it is: should this panic, it still names what those of other engines name.
        let Self { leaving, qps, tables, .. } = self;
        leaving.get_mut(place).is_some_and(|region| {
            region.held = region.is_held(qps, tables) || region.mark(qps, tables);
            region.held
        })
    }
}

//! Regions that nobody holds any more, but posted work may still name.
//!
//! Each engine knows its own work. A region goes when no engine has any that names it: with several engines,
//! the one whose last such work is done has whoever leaves it look at all of them.

use ferroce_sys::sync::Share;
use ferroce_transport::Hold;
use ferroce_wire::Lkey;

use super::host::Tables;
use super::qps::QpTable;
use super::{Engine, qps};
use crate::engines::Everywhere;

/// A region on its way out, as one engine sees it. The lists of all engines name the same regions in the
/// same order.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) lkey: Lkey,
    /// Work of this engine was seen to name it, and may still be posted.
    held: bool,
    /// How far queue pairs have to go until their work does not.
    sends: Vec<(u16, Hold)>,
    /// The same of shared receive queues.
    shared: Vec<(usize, u32)>,
}

impl Everywhere<'_> {
    /// Deregisters a region as soon as no posted work names it.
    pub(crate) fn release_region(&mut self, lkey: Lkey) {
        for engine in &mut self.inside {
            engine.leaving.push(Leaving { lkey, held: false, sends: Vec::new(), shared: Vec::new() });
        }
        self.release_regions();
    }

    /// A region is gone.
    pub(crate) fn forget_region(&mut self, lkey: Lkey) {
        for engine in &mut self.inside {
            engine.leaving.retain(|leaving| leaving.lkey != lkey);
        }
    }

    /// Deregisters those leaving regions that no posted work names any more.
    pub(crate) fn release_regions(&mut self) {
        let count = self.inside.first().map_or(0, |engine| engine.leaving.len());
        for place in (0..count).rev() {
            // All of them are asked, so that each has its marks.
            let held = self.inside.iter_mut().fold(false, |any, engine| engine.holds(place) | any);
            let Some(lkey) = self.inside.first().and_then(|engine| Some(engine.leaving.get(place)?.lkey))
            else {
                continue;
            };
            // A window may be bound to it: then it stays until that is gone.
            let table = self.memory();
            if !held && (table.deregister(lkey).is_ok() || table.region(lkey).is_none()) {
                self.forget_region(lkey);
            }
        }
    }
}

impl Engine {
    /// Sees whether work that named leaving regions is done. Alone, the engine deregisters them itself;
    /// else whoever leaves it does so with all engines.
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
                region.held || table.deregister(region.lkey).is_err() && table.region(region.lkey).is_some()
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

impl Leaving {
    /// Whether work that was seen to name the region is still posted.
    fn is_held(&self, qps: &mut QpTable, tables: &Tables) -> bool {
        let waits =
            |(index, hold): &(u16, Hold)| qps.by_index(*index).is_some_and(|entry| entry.machine.holds(hold));
        let queued = |(queue, number): &(usize, u32)| {
            tables.srqs.get(*queue).is_some_and(|side| side.queue.has(*number))
        };
        self.sends.iter().any(waits) || self.shared.iter().any(queued)
    }

    /// Looks at all posted work for this region; whether any names it.
    fn mark(&mut self, qps: &QpTable, tables: &Tables) -> bool {
        let lkey = self.lkey;
        let holds = qps
            .iter()
            .filter_map(|entry| Some((qps::index_of(entry.machine.qpn()), entry.machine.hold_on(lkey)?)));
        self.sends.clear();
        self.sends.extend(holds);
        let shared = tables.srqs.iter();
        self.shared.clear();
        self.shared.extend(shared.filter_map(|(queue, side)| Some((queue, side.queue.last_use(lkey)?))));
        !self.sends.is_empty() || !self.shared.is_empty()
    }
}

//! Regions that nothing holds any more, but posted work may still name.

use ferroce_transport::Hold;
use ferroce_wire::Lkey;

use super::host::Tables;
use super::qps::{self, QpTable};

/// A region on its way out, as one engine sees it. The lists of all engines name the same regions in the
/// same order.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) lkey: Lkey,
    /// Work of this engine was seen to name it, and may still be posted.
    pub(super) held: bool,
    /// How far queue pairs have to go until their work names it no more.
    pub(super) sends: Vec<(u16, Hold)>,
    /// How far shared receive queues have to go until their work names it no more.
    pub(super) shared: Vec<(usize, u32)>,
}

impl Leaving {
    /// Whether work that was seen to name the region is still posted.
    pub(super) fn is_held(&self, qps: &mut QpTable, tables: &Tables) -> bool {
        let waits =
            |(index, hold): &(u16, Hold)| qps.by_index(*index).is_some_and(|entry| entry.machine.holds(hold));
        let queued = |(queue, number): &(usize, u32)| {
            tables.srqs.get(*queue).is_some_and(|side| side.queue.has(*number))
        };
        self.sends.iter().any(waits) || self.shared.iter().any(queued)
    }

    /// Looks at all posted work for this region; whether any names it.
    pub(super) fn mark(&mut self, qps: &QpTable, tables: &Tables) -> bool {
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

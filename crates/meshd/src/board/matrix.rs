//! From ToR to ToR: probes, losses and round trips of a window.

use super::tors::TorPlace;
use super::trips;

/// No round trip is in this bucket: there are fewer than a thousand.
const NONE: u16 = u16::MAX;

/// A square of ToRs: rows are where probes come from, columns where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The ToRs, in the order of rows and columns.
    tors: Vec<TorPlace>,
    probes: Vec<u32>,
    /// Places with losses, growing. Most have none.
    lost: Vec<(u32, u32)>,
    /// Buckets of the round trip that half of all, and 99 of 100, are no longer than.
    half: Vec<u16>,
    most: Vec<u16>,
    /// All probes, and all that were lost.
    sums: (u64, u64),
}

/// The probes from one ToR to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Probes that ended.
    pub probes: u32,
    /// Of these, probes of which something was lost.
    pub lost: u32,
    /// Half of all round trips are no longer, in nanoseconds; none if there are none.
    pub p50: Option<u64>,
    /// 99 of 100 are no longer.
    pub p99: Option<u64>,
}

impl Matrix {
    pub(super) fn new(tors: Vec<TorPlace>) -> Self {
        let cells = tors.len() * tors.len();
        let buckets = || vec![NONE; cells];
        Self {
            tors,
            probes: vec![0; cells],
            lost: Vec::new(),
            half: buckets(),
            most: buckets(),
            sums: (0, 0),
        }
    }

    /// Sets a cell; places come in growing order.
    pub(super) fn set(&mut self, place: usize, probes: u32, lost: u32, half: Option<u16>, most: Option<u16>) {
        self.probes[place] = probes;
        self.sums = (self.sums.0 + u64::from(probes), self.sums.1 + u64::from(lost));
        self.half[place] = half.unwrap_or(NONE);
        self.most[place] = most.unwrap_or(NONE);
        if lost > 0 {
            self.lost.push((u32::try_from(place).unwrap_or(u32::MAX), lost));
        }
    }

    /// The ToRs, in the order of rows and columns.
    #[must_use]
    pub fn tors(&self) -> &[TorPlace] {
        &self.tors
    }

    /// Row or column of a ToR.
    #[must_use]
    pub fn row(&self, tor: TorPlace) -> Option<usize> {
        self.tors.iter().position(|one| *one == tor)
    }

    /// The cell of a row and a column.
    ///
    /// # Panics
    /// There are fewer rows or columns.
    #[must_use]
    pub fn cell(&self, row: usize, column: usize) -> Cell {
        assert!(column < self.tors.len(), "no such column");
        let place = row * self.tors.len() + column;
        let lost = self.lost.binary_search_by_key(&place, |(place, _)| *place as usize);
        Cell {
            probes: self.probes[place],
            lost: lost.map_or(0, |found| self.lost[found].1),
            p50: time(self.half[place]),
            p99: time(self.most[place]),
        }
    }

    /// Probes of all cells, row by row.
    #[must_use]
    pub fn probes(&self) -> &[u32] {
        &self.probes
    }

    /// Places with losses, and how many, row by row.
    #[must_use]
    pub fn lost(&self) -> &[(u32, u32)] {
        &self.lost
    }

    /// The times that half, and 99 of 100 round trips of each cell are no longer than, row by row.
    pub fn times(&self) -> [impl Iterator<Item = Option<u64>> + '_; 2] {
        [&self.half, &self.most].map(|buckets| buckets.iter().map(|bucket| time(*bucket)))
    }

    /// All probes, and all that were lost.
    #[must_use]
    pub const fn sums(&self) -> (u64, u64) {
        self.sums
    }

    pub(super) fn bytes(&self) -> usize {
        let Self { tors, probes, lost, half, most, .. } = self;
        tors.capacity() * 2
            + (probes.capacity() + 2 * lost.capacity()) * 4
            + (half.capacity() + most.capacity()) * 2
    }
}

fn time(bucket: u16) -> Option<u64> {
    (bucket != NONE).then(|| trips::nanos(bucket))
}

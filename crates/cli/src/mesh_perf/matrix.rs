//! What was found: a number for each pair, as tables or as JSON.

use std::io::{self, Write};
use std::net::IpAddr;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::mesh::{DEPTH, MESSAGE};
use crate::output::{Style, figure, size};

/// What was measured between all members.
pub(super) struct Matrix {
    addresses: Vec<IpAddr>,
    size: usize,
    at_once: bool,
    /// From each member to each, themselves included.
    cells: Vec<Cell>,
}

/// What was measured from one member to another.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// Bytes per second.
    pub(super) bandwidth: Option<f64>,
    /// Half round trips, in nanoseconds.
    pub(super) latency: Option<Histogram<u64>>,
}

/// One of the two tables.
pub(super) struct Side<'a> {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// What was done for it.
    pub(super) how: String,
    matrix: &'a Matrix,
    of: fn(&Cell) -> Option<f64>,
}

impl Matrix {
    pub(super) fn new(addresses: &[IpAddr], size: usize, at_once: bool) -> Self {
        let cells = vec![Cell::default(); addresses.len() * addresses.len()];
        Self { addresses: addresses.to_vec(), size, at_once, cells }
    }

    /// Members.
    pub(super) const fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) const fn addresses(&self) -> &[IpAddr] {
        self.addresses.as_slice()
    }

    /// From one member to another.
    pub(super) fn cell(&mut self, from: u32, to: u32) -> &mut Cell {
        let place = from as usize * self.len() + to as usize;
        &mut self.cells[place]
    }

    /// Both tables.
    pub(super) fn sides(&self) -> [Side<'_>; 2] {
        let together = if self.at_once { "all pairs at once" } else { "one pair at a time" };
        [
            Side {
                name: "bandwidth",
                unit: "GB/s",
                how: format!("WRITEs of {}, {DEPTH} under way, {together}", size(self.size)),
                matrix: self,
                of: |cell| cell.bandwidth.map(|bytes| bytes / 1e9),
            },
            Side {
                name: "latency",
                unit: "us",
                how: format!("half a round trip of {} messages, median", size(MESSAGE)),
                matrix: self,
                of: |cell| {
                    let times = cell.latency.as_ref().filter(|times| !times.is_empty());
                    times.map(|times| times.value_at_quantile(0.5) as f64 / 1000.0)
                },
            },
        ]
    }

    /// Says how many members there are, and where.
    pub(super) fn print_heading(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if let [first, .., last] = self.addresses.as_slice() {
            let count = self.len();
            writeln!(out, "{count} members at {first} to {last}, RoCEv2 packets between all of them")?;
        }
        out.flush()
    }

    /// The tables, or everything as JSON.
    pub(super) fn print(&self, as_json: bool, interrupted: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json {
            writeln!(out, "{:#}", self.to_json(interrupted))?;
            return out.flush();
        }
        for side in self.sides() {
            let Side { name, unit, how, .. } = &side;
            writeln!(out, "{}", Style::Title.of(format!("{name} in {unit}: {how}")))?;
            let columns: String = (0..self.len()).map(|to| format!("{to:>8}")).collect();
            writeln!(out, "{}", Style::Faint.of(format!("from\\to {columns}")))?;
            for from in 0..self.len() {
                let text = |to| side.at(from, to).map_or_else(|| "-".to_owned(), figure);
                let cells: String = (0..self.len()).map(|to| format!("{:>8}", text(to))).collect();
                writeln!(out, "{from:>7} {cells}")?;
            }
            if let Some((least, most)) = side.range() {
                let line = format!("from {} to {} {unit}", figure(least), figure(most));
                writeln!(out, "{}", Style::Faint.of(line))?;
            }
        }
        out.flush()
    }

    fn to_json(&self, interrupted: bool) -> Value {
        let mut pairs = Vec::new();
        for (place, Cell { bandwidth, latency }) in self.cells.iter().enumerate() {
            if bandwidth.is_none() && latency.is_none() {
                continue;
            }
            let latency = latency.as_ref().map(|times| {
                json!({
                    "min": times.min(),
                    "p50": times.value_at_quantile(0.5),
                    "p99": times.value_at_quantile(0.99),
                    "max": times.max(),
                    "mean": times.mean(),
                    "count": times.len(),
                })
            });
            pairs.push(json!({
                "from": place / self.len(),
                "to": place % self.len(),
                "bytes_per_second": bandwidth,
                "latency_ns": latency,
            }));
        }
        json!({
            "ferroce": env!("CARGO_PKG_VERSION"),
            "interrupted": interrupted,
            "members": self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "size": self.size,
            "at_once": self.at_once,
            "pairs": pairs,
        })
    }
}

impl Side<'_> {
    /// From one member to another, if it was measured.
    pub(super) fn at(&self, from: usize, to: usize) -> Option<f64> {
        (self.of)(&self.matrix.cells[from * self.matrix.len() + to])
    }

    /// The least and the most.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let values = self.matrix.cells.iter().filter_map(self.of);
        values.fold(None, |range, value| {
            let (least, most) = range.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        })
    }
}

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
    /// Bytes per second, of each repeat.
    bandwidth: Vec<f64>,
    /// Half round trips of all repeats, in nanoseconds.
    times: Option<Histogram<u64>>,
    /// The median half round trip of each repeat, in nanoseconds.
    medians: Vec<u64>,
}

impl Cell {
    /// Adds the bytes per second of one repeat.
    pub(super) fn add_bandwidth(&mut self, rate: f64) {
        self.bandwidth.push(rate);
    }

    /// Adds the half round trips of one repeat; one that was interrupted before the first of them does not count.
    pub(super) fn add_latency(&mut self, times: Histogram<u64>) {
        if times.is_empty() {
            return;
        }
        self.medians.push(times.value_at_quantile(0.5));
        match &mut self.times {
            None => self.times = Some(times),
            Some(all) => *all += times,
        }
    }

    /// Bytes per second, over all repeats: they take the same time.
    fn rate(&self) -> Option<f64> {
        let count = self.bandwidth.len();
        (count > 0).then(|| self.bandwidth.iter().sum::<f64>() / count as f64)
    }

    /// The time that this share of half round trips did not need more than, in microseconds.
    fn quantile(&self, share: f64) -> Option<f64> {
        self.times.as_ref().map(|times| times.value_at_quantile(share) as f64 / 1000.0)
    }
}

/// One of the two things that are measured: what its table shows, and what stands beside it.
pub(super) struct Side<'a> {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// What was done for it.
    pub(super) how: String,
    matrix: &'a Matrix,
    of: fn(&Cell) -> Option<f64>,
    /// The same of each repeat.
    repeats: fn(&Cell) -> Vec<f64>,
    /// Further figures of a cell, by name.
    beside: &'static [Beside],
    /// The least and the most of all cells.
    range: Option<(f64, f64)>,
}

/// The name of a further figure of a cell, and how it is found.
type Beside = (&'static str, fn(&Cell) -> Option<f64>);

const BANDWIDTH: [Beside; 1] = [("least repeat", |cell| range(&gigabytes(cell)).map(|(least, _)| least))];

const LATENCY: [Beside; 2] = [("least", |cell| cell.quantile(0.0)), ("p90", |cell| cell.quantile(0.9))];

fn gigabytes(cell: &Cell) -> Vec<f64> {
    cell.bandwidth.iter().map(|bytes| bytes / 1e9).collect()
}

/// Whether the difference between a cell and the others of its table is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The repeats of the cell differ by no more than the cells of the table do.
    Signal,
    /// They differ by more.
    Noise,
    /// There is one repeat only, so nothing can be said.
    Unknown,
}

impl Trust {
    /// What stands behind the figure of such a cell.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Self::Signal => "",
            Self::Noise => "~",
            Self::Unknown => "?",
        }
    }

    /// Whether it is noise, if this can be said.
    const fn is_noise(self) -> Option<bool> {
        match self {
            Self::Signal => Some(false),
            Self::Noise => Some(true),
            Self::Unknown => None,
        }
    }
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

    /// Both of them.
    pub(super) fn sides(&self) -> [Side<'_>; 2] {
        let together = if self.at_once { "all pairs at once" } else { "one pair at a time" };
        let range =
            |of: fn(&Cell) -> Option<f64>| range(&self.cells.iter().filter_map(of).collect::<Vec<f64>>());
        let rate: fn(&Cell) -> Option<f64> = |cell| cell.rate().map(|bytes| bytes / 1e9);
        let median: fn(&Cell) -> Option<f64> = |cell| cell.quantile(0.5);
        [
            Side {
                name: "bandwidth",
                unit: "GB/s",
                how: format!("WRITEs of {}, {DEPTH} under way, {together}", size(self.size)),
                matrix: self,
                of: rate,
                repeats: gigabytes,
                beside: &BANDWIDTH,
                range: range(rate),
            },
            Side {
                name: "latency",
                unit: "us",
                how: format!("half a round trip of {} messages, median", size(MESSAGE)),
                matrix: self,
                of: median,
                repeats: |cell| cell.medians.iter().map(|nanos| *nanos as f64 / 1000.0).collect(),
                beside: &LATENCY,
                range: range(median),
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
            side.print(&mut out)?;
        }
        out.flush()
    }

    fn to_json(&self, interrupted: bool) -> Value {
        let mut pairs = Vec::new();
        let [bandwidth, latency] = self.sides();
        for (place, cell) in self.cells.iter().enumerate() {
            if cell.bandwidth.is_empty() && cell.times.is_none() {
                continue;
            }
            let (from, to) = (place / self.len(), place % self.len());
            let times = cell.times.as_ref().map(|times| {
                json!({
                    "min": times.min(),
                    "p50": times.value_at_quantile(0.5),
                    "p90": times.value_at_quantile(0.9),
                    "p99": times.value_at_quantile(0.99),
                    "max": times.max(),
                    "mean": times.mean(),
                    "count": times.len(),
                    "p50_of_repeats": cell.medians,
                    "noise": latency.trust(from, to).is_noise(),
                })
            });
            let (least, most) = range(&cell.bandwidth).unzip();
            pairs.push(json!({
                "from": from,
                "to": to,
                "bytes_per_second": cell.rate(),
                "bytes_per_second_of_repeats": cell.bandwidth,
                "bytes_per_second_least": least,
                "bytes_per_second_most": most,
                "bandwidth_noise": bandwidth.trust(from, to).is_noise(),
                "latency_ns": times,
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
        (self.of)(self.cell(from, to))
    }

    /// What stands beside it, by name.
    pub(super) fn beside(&self, from: usize, to: usize) -> impl Iterator<Item = (&'static str, f64)> {
        let cell = self.cell(from, to);
        self.beside.iter().filter_map(move |(name, of)| Some((*name, of(cell)?)))
    }

    /// The least and the most of all cells.
    pub(super) const fn range(&self) -> Option<(f64, f64)> {
        self.range
    }

    /// Whether a cell tells something: it is noise if its repeats differ by more than the cells of the table do.
    pub(super) fn trust(&self, from: usize, to: usize) -> Trust {
        let repeats = (self.repeats)(self.cell(from, to));
        let spread = range(&repeats).map(|(least, most)| most - least).filter(|_| repeats.len() > 1);
        let shown = self.range().map(|(least, most)| most - least);
        match spread.zip(shown) {
            None => Trust::Unknown,
            Some((spread, shown)) if spread > shown => Trust::Noise,
            Some(_) => Trust::Signal,
        }
    }

    /// What the marks of the table mean, if it has any.
    pub(super) fn notes(&self) -> Vec<String> {
        let count = self.matrix.len();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let measured: Vec<Trust> = pairs
            .filter(|(from, to)| self.at(*from, *to).is_some())
            .map(|(from, to)| self.trust(from, to))
            .collect();
        let all = measured.len();
        let of = |trust| measured.iter().filter(|seen| **seen == trust).count();
        [
            (Trust::Noise, "noise: their repeats differ by more than all cells do"),
            (Trust::Unknown, "measured once only, so noise cannot be told"),
        ]
        .into_iter()
        .filter(|(trust, _)| of(*trust) > 0)
        .map(|(trust, why)| format!("{} {} of {all} cells are {why}", trust.mark(), of(trust)))
        .collect()
    }

    fn cell(&self, from: usize, to: usize) -> &Cell {
        &self.matrix.cells[from * self.matrix.len() + to]
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Side { name, unit, how, .. } = self;
        writeln!(out, "{}", Style::Title.of(format!("{name} in {unit}: {how}")))?;
        self.table(out, |from, to| {
            let mark = self.trust(from, to).mark();
            self.at(from, to).map(|value| format!("{}{mark:1}", figure(value)))
        })?;
        if let Some((least, most)) = self.range() {
            let line = format!("from {} to {} {unit}", figure(least), figure(most));
            writeln!(out, "{}", Style::Faint.of(line))?;
        }
        for note in self.notes() {
            writeln!(out, "{}", Style::Faint.of(note))?;
        }
        for (beside, of) in self.beside {
            writeln!(out, "{}", Style::Title.of(format!("{name} in {unit}: {beside}")))?;
            self.table(out, |from, to| of(self.cell(from, to)).map(|value| format!("{} ", figure(value))))?;
        }
        Ok(())
    }

    fn table(&self, out: &mut impl Write, text: impl Fn(usize, usize) -> Option<String>) -> io::Result<()> {
        let count = self.matrix.len();
        let columns: String = (0..count).map(|to| format!("{to:>8} ")).collect();
        writeln!(out, "{}", Style::Faint.of(format!("from\\to {}", columns.trim_end())))?;
        for from in 0..count {
            let cell = |to| format!("{:>9}", text(from, to).unwrap_or_else(|| "- ".to_owned()));
            let cells: String = (0..count).map(cell).collect();
            writeln!(out, "{from:>7} {}", cells.trim_end())?;
        }
        Ok(())
    }
}

/// The least and the most of these.
fn range(values: &[f64]) -> Option<(f64, f64)> {
    values.iter().fold(None, |range, &value| {
        let (least, most) = range.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::report::histogram;

    fn matrix(repeats: [&[f64]; 2]) -> Matrix {
        let mut matrix = Matrix::new(&[[127, 0, 0, 2].into(), [127, 0, 0, 3].into()], 65_536, false);
        repeats[0].iter().for_each(|rate| matrix.cell(0, 1).add_bandwidth(*rate));
        repeats[1].iter().for_each(|rate| matrix.cell(1, 0).add_bandwidth(*rate));
        matrix
    }

    fn times(values: &[u64]) -> Histogram<u64> {
        let mut times = histogram();
        values.iter().for_each(|value| times.saturating_record(*value));
        times
    }

    fn text(side: &Side<'_>) -> String {
        let mut out = Vec::new();
        side.print(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_cell_is_noise_if_its_repeats_differ_by_more_than_the_cells() {
        // The cells differ by 1 GB/s; the repeats of the first by 1.5, those of the second by 0.2.
        let matrix = matrix([&[1.0e9, 2.0e9, 2.5e9, 1.0e9, 1.0e9], &[2.4e9, 2.5e9, 2.6e9, 2.5e9, 2.5e9]]);
        let [bandwidth, latency] = matrix.sides();
        assert_eq!(bandwidth.trust(0, 1), Trust::Noise);
        assert_eq!(bandwidth.trust(1, 0), Trust::Signal);
        assert_eq!(latency.trust(0, 1), Trust::Unknown, "nothing was measured");
        let said = text(&bandwidth);
        assert!(said.contains("      0        -     1.50~\n      1     2.50        -\n"), "{said}");
        assert!(said.contains("~ 1 of 2 cells are noise: their repeats differ by more"), "{said}");
        assert!(said.contains("bandwidth in GB/s: least repeat\n"), "{said}");
        assert!(said.ends_with("      0        -     1.00\n      1     2.40        -\n"), "{said}");
        let json = matrix.to_json(false);
        assert_eq!(json["pairs"][0]["bandwidth_noise"], true);
        assert_eq!(json["pairs"][1]["bandwidth_noise"], false);
        assert_eq!(json["pairs"][0]["bytes_per_second_least"], 1.0e9);
        assert_eq!(json["pairs"][0]["bytes_per_second_most"], 2.5e9);
    }

    #[test]
    fn cells_that_were_measured_once_say_nothing_of_noise() {
        let matrix = matrix([&[1.0e9], &[2.0e9]]);
        let [bandwidth, _] = matrix.sides();
        assert_eq!(bandwidth.trust(0, 1), Trust::Unknown);
        let said = text(&bandwidth);
        assert!(said.contains("1.00?") && said.contains("? 2 of 2 cells are measured once only"), "{said}");
        assert_eq!(matrix.to_json(true)["pairs"][0]["bandwidth_noise"], Value::Null);
    }

    #[test]
    fn latencies_have_least_median_and_p90_of_all_repeats() {
        let mut matrix = matrix([&[], &[]]);
        // Twenty half round trips in two repeats, and a repeat that was interrupted before the first.
        let slow: Vec<u64> = (1..=10).map(|n| n * 2000).collect();
        let quick: Vec<u64> = (1..=10).map(|n| n * 1000).collect();
        for repeat in [&slow[..], &quick, &[]] {
            matrix.cell(0, 1).add_latency(times(repeat));
        }
        let json = &matrix.to_json(false)["pairs"][0];
        let near = |name: &str, nanos: u64| {
            let seen = json["latency_ns"][name].as_u64().expect("a number");
            assert!(seen.abs_diff(nanos) <= nanos / 500, "{name}: {seen}");
        };
        near("min", 1000);
        near("p50", 7000);
        near("p90", 16_000);
        let medians = json["latency_ns"]["p50_of_repeats"].as_array().expect("a list").len();
        assert_eq!((medians, &json["latency_ns"]["count"]), (2, &20.into()));
        let [_, latency] = matrix.sides();
        // One cell alone shows no difference, and its repeats have one.
        assert_eq!(latency.trust(0, 1), Trust::Noise);
        let beside: Vec<_> = latency.beside(0, 1).map(|(name, value)| (name, figure(value))).collect();
        assert_eq!(beside, [("least", "1.00".to_owned()), ("p90", "16.0".to_owned())]);
        assert!(text(&latency).contains("latency in us: least\n"));
    }
}

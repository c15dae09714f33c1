//! What a record costs: figures of the device with and without one, measured in turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Args;
use super::checkout::Checkout;
use super::line::Line;
use super::table::{aligned, short};
use crate::say::{complain, say};
use crate::shell::{Cmd, target_dir};

/// Its name for `--only`.
pub(crate) const NAME: &str = "trace";

/// Figures of the device, and by how much a record may change them.
const ROWS: &[Row] = &[
    Row { figure: "WRITE 64 B rate, lists of 32, depth 4096", bar: Bar::AtLeast(0.7) },
    Row { figure: "WRITE 1 MiB, depth 16$", bar: Bar::AtLeast(0.95) },
    Row { figure: "SEND 64 B, RTT/2, both poll$", bar: Bar::AtMost(1.15) },
];

/// Mebibytes of the flight recorder.
const FLIGHT: &str = "64";

/// How often each side is measured.
const REPEATS: usize = 25;

/// How long, each time.
const MILLIS: &str = "150";

struct Row {
    figure: &'static str,
    bar: Bar,
}

/// What the figure with a record is by that without.
#[derive(Clone, Copy)]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn is_kept(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
        }
    }
}

/// The one in the middle.
fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The best but one; the best, of one.
fn second_best(values: &[f64]) -> f64 {
    let values = sorted(values);
    values.iter().rev().nth(1).or(values.last()).copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// A figure of the device, without a record and with one.
#[derive(Default)]
struct Measured {
    unit: String,
    off: Vec<f64>,
    on: Vec<f64>,
}

impl Measured {
    /// Without a record, and with one.
    ///
    /// The two cores of a rented machine are often halves of one: plain arithmetic on both then has two speeds,
    /// one 1.6 times the other, that take turns every few seconds. A median of rates would compare one speed with the
    /// other as often as not, so a rate is that of the fast moments. Times of single messages, of which one end or
    /// the other waits at any moment, differ less; the median tells.
    fn sides(&self, bar: Bar) -> [f64; 2] {
        [&self.off, &self.on].map(|values| match bar {
            Bar::AtLeast(_) => second_best(values),
            Bar::AtMost(_) => median(values),
        })
    }

    fn ratio(&self, bar: Bar) -> f64 {
        let [off, on] = self.sides(bar);
        on / off
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let program = Checkout::here().build("device", "nic")?;
    let folder = target_dir().join("trace-bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { REPEATS });
    let millis = if args.quick { "20" } else { MILLIS };
    let mut measured: BTreeMap<String, Measured> = BTreeMap::new();
    for repeat in 0..repeats {
        // A slow minute falls on both sides, and each is the first one in turn.
        for records in [repeat % 2 == 1, repeat % 2 == 0] {
            complain!("{} of {repeats}, {} a record", repeat + 1, if records { "with" } else { "without" });
            measure(&program, &folder, millis, records, &mut measured)?;
        }
    }
    let rows: Vec<(&String, &Measured, Bar)> = measured
        .iter()
        .filter_map(|(name, figure)| {
            let row = ROWS.iter().find(|row| name == row.figure.trim_end_matches('$'))?;
            Some((name, figure, row.bar))
        })
        .collect();
    let readers = readers(args)?;
    show(args, &rows, &readers);
    let mut above: Vec<String> = rows
        .iter()
        .filter(|(_, figure, bar)| !bar.is_kept(figure.ratio(*bar)))
        .map(|(name, figure, bar)| format!("{name}: {:.3}, the bar is {}", figure.ratio(*bar), bar.text()))
        .collect();
    above.extend(readers.iter().filter(|reader| !reader.is_kept()).map(
        |Reader { name, seconds, mib, .. }| {
            format!("{name} takes {seconds} s and {mib} MiB; {SECONDS} s and {MIB} MiB are allowed")
        },
    ));
    if !above.is_empty() && !args.quick {
        bail!("a record costs too much: {}", above.join("; "));
    }
    Ok(())
}

/// Events of a long record, and what readers of one may take.
const EVENTS: &str = "10000000";
const SECONDS: f64 = 10.0;
const MIB: f64 = 500.0;

/// What a reader of a long record takes.
struct Reader {
    name: String,
    seconds: f64,
    mib: f64,
    events: f64,
}

impl Reader {
    fn is_kept(&self) -> bool {
        self.seconds <= SECONDS && self.mib <= MIB
    }
}

/// Has all readers read a long record.
fn readers(args: &Args) -> Result<Vec<Reader>> {
    let program = Checkout::here().build("trace", "readers")?;
    complain!("readers of a long record");
    let output = Cmd::new(&program).arg(if args.quick { "100000" } else { EVENTS }).output()?;
    let reader = |line: &str| {
        let line = Line::parse(line).context("reading what the benchmark says")?;
        Ok(Reader {
            name: line.text("name")?.to_owned(),
            seconds: line.number("seconds")?,
            mib: line.number("mib")?,
            events: line.number("events")?,
        })
    };
    output.lines().map(reader).collect()
}

/// Measures all rows once.
fn measure(
    program: &Path,
    folder: &Path,
    millis: &str,
    records: bool,
    into: &mut BTreeMap<String, Measured>,
) -> Result<()> {
    let mut cmd = Cmd::new(program).args(["--bench", "--only-ours", "--repeats", "1", "--millis", millis]);
    cmd = cmd.args(ROWS.iter().map(|row| row.figure));
    if records {
        let file = folder.join("bench.ftrace").display().to_string();
        cmd = cmd.env("FERROCE_TRACE", file).env("FERROCE_TRACE_FLIGHT", FLIGHT);
    }
    let output = cmd.output()?;
    for file in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        fs::remove_file(file?.path())?;
    }
    for line in output.lines() {
        let line = Line::parse(line).context("reading what the benchmark says")?;
        if line.text("kind")? == "machine" {
            continue;
        }
        let figure = into.entry(line.text("figure")?.to_owned()).or_default();
        line.text("unit")?.clone_into(&mut figure.unit);
        let side = if records { &mut figure.on } else { &mut figure.off };
        side.push(line.number("value")?);
    }
    Ok(())
}

fn show(args: &Args, rows: &[(&String, &Measured, Bar)], readers: &[Reader]) {
    if args.json {
        let row = |(name, figure, bar): &(&String, &Measured, Bar)| -> Value {
            let ([off, on], ratio) = (figure.sides(*bar), figure.ratio(*bar));
            let is_kept = bar.is_kept(ratio);
            json!({ "figure": name, "unit": figure.unit, "off": off, "on": on, "ratio": ratio,
                    "all_off": figure.off, "all_on": figure.on, "bar": bar.text(), "kept": is_kept })
        };
        let reader = |Reader { name, seconds, mib, events }: &Reader| -> Value {
            json!({ "reader": name, "seconds": seconds, "mib": mib, "events": events })
        };
        let readers: Vec<Value> = readers.iter().map(reader).collect();
        say!("{:#}", json!({ "trace": rows.iter().map(row).collect::<Vec<_>>(), "readers": readers }));
        return;
    }
    let mut table = vec![["flight recorder", "without", "with", "ratio", "bar"].map(str::to_owned)];
    for (name, figure, bar) in rows {
        let [off, on] = figure.sides(*bar).map(|value| format!("{} {}", short(value), figure.unit));
        table.push([(*name).clone(), off, on, format!("{:.3}", figure.ratio(*bar)), bar.text()]);
    }
    say!("\n{}", aligned(&table));
    let mut table = vec![["reader", "events", "seconds", "MiB", "bar"].map(str::to_owned)];
    for Reader { name, seconds, mib, events } in readers {
        let bar = format!("<= {SECONDS} s, {MIB} MiB");
        table.push([name.clone(), format!("{events:.0}"), short(*seconds), format!("{mib:.0}"), bar]);
    }
    say!("{}", aligned(&table));
}

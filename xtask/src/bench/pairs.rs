//! `cargo xtask bench pairs`: two commits, measured in turn, and what became of each figure.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::checkout::{Checkout, sides};
use super::compare::{Good, Quartiles, Verdict};
use super::line::Line;
use super::table::{aligned, short};
use crate::clock::{Stopwatch, Took};
use crate::say::{complain, progress, say};
use crate::shell::Cmd;

/// What `cargo xtask bench pairs --help` says first.
pub(crate) const ABOUT: &str = "\
Measure two commits in turn, and say which figures changed.

Both are built, each in a folder of its own below target/pairs, which is kept for the next time. Then their \
benchmarks run in pairs, one after the other, so that a slow minute falls on both; each pair begins with the \
other side. The verdict is \"worse\" or \"better\" only if the quartiles lie apart: if three quarters of the \
samples of one side are beyond three quarters of those of the other. A row that is worse makes the exit \
status 1.";

/// What it says last.
const TEACHES: &str = "\
Examples:
  cargo xtask bench pairs                                  the work tree beside the commit before the last
  cargo xtask bench pairs --before v1 --after HEAD         two commits, whatever is in the work tree
  cargo xtask bench pairs --rows 'local WRITE' --pairs 31  few rows, and a sharper look at them
  cargo xtask bench pairs --only wire --only transport     the benchmarks of other crates

A row shows the median and the quartiles of each side, and the ratio of the medians, after by before. Times \
and memory should be small, what is done in a second should be large; the verdict knows which.

With fewer than ten pairs, quartiles lie apart by chance now and then: measure a row that is worse again, \
alone and with more pairs, before you believe it. Changes of a few percent drown in the noise of time; \
`cargo xtask bench --only instructions --before REV` sees them.";

/// Options of `cargo xtask bench pairs`.
#[derive(clap::Args)]
#[command(after_help = TEACHES)]
pub(crate) struct Args {
    /// The commit to compare with
    #[arg(long, value_name = "REV", default_value = "HEAD~")]
    before: String,
    /// The commit to judge; the work tree if not given
    #[arg(long, value_name = "REV")]
    after: Option<String>,
    /// How often each side is measured
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..))]
    pairs: u32,
    /// Which benchmark; repeat for several
    #[arg(long, value_name = "BENCH", default_value = "device", value_parser = known_benches())]
    only: Vec<String>,
    /// Only rows whose name contains this; repeat for several
    #[arg(long, value_name = "TEXT")]
    rows: Vec<String>,
    /// One short look at every figure; it shows that all work, and little more
    #[arg(long)]
    quick: bool,
    /// Keep each process on a core of its own
    #[arg(long)]
    pin: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A benchmark that says samples of our side, once, a JSON object in each line.
struct Bench {
    package: &'static str,
    bench: &'static str,
    args: &'static [&'static str],
    /// Whether it takes parts of the names of rows as arguments.
    filters: bool,
}

const BENCHES: &[Bench] = &[
    Bench { package: "wire", bench: "packet", args: &["--bench", "--once"], filters: false },
    Bench { package: "transport", bench: "machines", args: &["--bench", "--once"], filters: false },
    Bench {
        package: "device",
        bench: "nic",
        args: &["--bench", "--repeats", "1", "--only-ours"],
        filters: true,
    },
    Bench { package: "endpoint", bench: "endpoint", args: &["--bench", "--once"], filters: true },
    Bench { package: "broker", bench: "broker", args: &["--bench", "--once"], filters: false },
];

fn known_benches() -> PossibleValuesParser {
    PossibleValuesParser::new(BENCHES.iter().map(|bench| bench.package))
}

const BEFORE: usize = 0;
const AFTER: usize = 1;
const SIDES: [&str; 2] = ["before", "after"];

pub(super) fn run(args: &Args) -> Result<()> {
    let sides = sides(Some(&args.before), args.after.as_deref())?;
    let mut programs = Vec::new();
    for bench in BENCHES.iter().filter(|bench| args.only.iter().any(|only| only == bench.package)) {
        let [before, after] = &sides;
        let build = |side: &Checkout| side.build(bench.package, bench.bench);
        programs.push((bench, [build(before)?, build(after)?]));
    }
    let (mut rows, mut failures) = (Vec::new(), 0);
    let clock = Stopwatch::start();
    for pair in 0..args.pairs {
        // Which side comes first must not matter.
        let order = if pair % 2 == 0 { [BEFORE, AFTER] } else { [AFTER, BEFORE] };
        for (done, side) in order.into_iter().enumerate() {
            let done = 2 * pair + u32::try_from(done)?;
            let remains = remaining(clock.read(), done, 2 * args.pairs - done);
            progress(format_args!("pair {} of {}, {}{remains}", pair + 1, args.pairs, SIDES[side]));
            for (bench, programs) in &programs {
                failures += u32::from(!bench.measure(args, &programs[side], side, &mut rows)?);
            }
        }
    }
    progress(format_args!(""));
    ensure!(!rows.is_empty(), "no row has {:?} in its name", args.rows);
    let [before, after] = sides.map(|side| side.name);
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let pairs = args.pairs;
        say!("{:#}", json!({ "before": before, "after": after, "pairs": pairs, "rows": rows }));
    } else {
        say!("before: {before}, after: {after}, {} pairs\n\n{}", args.pairs, render(&rows));
    }
    ensure!(failures == 0, "{failures} runs failed; what they said is above");
    let worse = worse(&rows);
    if !worse.is_empty() {
        bail!("{} of {} rows are worse: {}", worse.len(), rows.len(), worse.join("; "));
    }
    Ok(())
}

/// What is to be said about the time that is left, by what it took so far.
fn remaining(Took(so_far): Took, done: u32, left: u32) -> String {
    match so_far.checked_div(done) {
        Some(each) => format!("; {} remain", Took(each * left)),
        None => String::new(),
    }
}

impl Bench {
    /// Runs it once, and adds its samples to the rows. Whether it ended well.
    fn measure(&self, args: &Args, program: &PathBuf, side: usize, rows: &mut Vec<Row>) -> Result<bool> {
        let mut cmd = Cmd::new(program).args(self.args);
        for (wanted, flag) in [(args.quick, "--quick"), (args.pin, "--pin")] {
            cmd = cmd.args(wanted.then_some(flag));
        }
        if self.filters {
            cmd = cmd.args(&args.rows);
        }
        let (status, printed, complained) = cmd.finished()?;
        for line in printed.lines() {
            let sample = Line::parse(line).with_context(|| {
                format!("`{}` of {} is too old for pairs: it says no lines of JSON", self.bench, SIDES[side])
            })?;
            let is_ours = sample.text("kind")? == "sample" && sample.text("side")? == "ours";
            if is_ours && self.is_wanted(sample.text("figure")?, &args.rows) {
                Row::take(rows, side, &sample)?;
            }
        }
        if !status.success() {
            progress(format_args!(""));
            complain!("{} ({}) failed: {status}\n{}", self.bench, SIDES[side], complained.trim_end());
        }
        Ok(status.success())
    }

    /// Whether a row was asked for; one that filters by itself, in its own way, says no others.
    fn is_wanted(&self, figure: &str, parts: &[String]) -> bool {
        self.filters || parts.is_empty() || parts.iter().any(|part| figure.contains(part.as_str()))
    }
}

/// A figure and its samples of both sides.
#[derive(Debug)]
struct Row {
    name: String,
    unit: String,
    samples: [Vec<f64>; 2],
}

impl Row {
    fn take(rows: &mut Vec<Self>, side: usize, sample: &Line) -> Result<()> {
        let (name, unit) = (sample.text("figure")?, sample.text("unit")?);
        let at = rows.iter().position(|row| row.name == name).unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(Self { name: name.into(), unit: unit.into(), samples: [Vec::new(), Vec::new()] });
        }
        rows[at].samples[side].push(sample.number("value")?);
        Ok(())
    }

    fn quartiles(&self) -> [Option<Quartiles>; 2] {
        [Quartiles::of(&self.samples[BEFORE]), Quartiles::of(&self.samples[AFTER])]
    }

    /// The ratio of the medians and the verdict, if both sides have the figure.
    fn judge(&self) -> Option<(f64, Verdict)> {
        let [before, after] = self.quartiles();
        let (before, after) = (before?, after?);
        Some((after.median / before.median, Verdict::on(before, after, Good::in_unit(&self.unit))))
    }

    fn to_json(&self) -> Value {
        let [before, after] = self.quartiles().map(|side| side.map(Quartiles::to_json));
        let judged = self.judge();
        json!({
            "figure": self.name,
            "unit": self.unit,
            "before": before,
            "after": after,
            "ratio": judged.map(|(ratio, _)| ratio),
            "verdict": judged.map(|(_, verdict)| verdict.name()),
        })
    }
}

/// The rows that are worse, and by how much.
fn worse(rows: &[Row]) -> Vec<String> {
    let judged = rows.iter().filter_map(|row| Some((row, row.judge()?)));
    let worse = judged.filter(|(_, (_, verdict))| *verdict == Verdict::Worse);
    worse.map(|(row, (ratio, _))| format!("{} ({ratio:.2} of before)", row.name)).collect()
}

/// A table for people.
fn render(rows: &[Row]) -> String {
    let mut table = vec![["figure", "before", "after", "after/before", "verdict"].map(String::from)];
    for row in rows {
        let [before, after] = row.quartiles().map(|side| side.map_or_else(|| "-".into(), Quartiles::show));
        let (ratio, verdict) = match row.judge() {
            Some((ratio, verdict)) => (short(ratio), verdict.name()),
            None => ("-".into(), "only one side has it"),
        };
        table.push([format!("{} [{}]", row.name, row.unit), before, after, ratio, verdict.into()]);
    }
    format!(
        "{}\nMedian (quartiles). A verdict other than \"same\" means that the quartiles lie apart.",
        aligned(&table)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(name: &str, unit: &str, before: &[f64], after: &[f64]) -> Row {
        Row { name: name.into(), unit: unit.into(), samples: [before.to_vec(), after.to_vec()] }
    }

    #[test]
    fn a_row_is_worse_by_its_unit() {
        let (low, high) = (&[1.0, 1.1, 1.2][..], &[2.0, 2.1, 2.2][..]);
        let rows = [
            row("slower", "us", low, high),
            row("more", "GB/s", low, high),
            row("less", "GB/s", high, low),
            row("as before", "us", low, low),
            row("new", "us", &[], high),
        ];
        assert_eq!(worse(&rows), ["slower (1.91 of before)", "less (0.52 of before)"]);
        let table = render(&rows);
        let line = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(
            line("slower").contains("| 1.10 (1.05 to 1.15) | 2.10 (2.05 to 2.15) | 1.91         | worse")
        );
        assert!(line("more").contains("better"));
        assert!(line("as before").contains("same"));
        assert!(
            line("new").contains("| -                   | 2.10 (2.05 to 2.15) | -            | only one")
        );
        assert_eq!(rows[4].to_json()["verdict"], Value::Null);
        assert_eq!(rows[0].to_json()["after"]["median"], 2.1);
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        let bench = Bench { package: "wire", bench: "packet", args: &[], filters: false };
        let parts = ["64 B".to_owned(), "build".to_owned()];
        assert!(bench.is_wanted("parse, 64 B", &parts) && bench.is_wanted("build, 4096 B", &parts));
        assert!(!bench.is_wanted("parse, 4096 B", &parts));
        assert!(bench.is_wanted("parse, 4096 B", &[]));
    }

    #[test]
    fn what_remains_follows_from_what_it_took() {
        assert_eq!(remaining(Took(Duration::from_secs(9)), 0, 30), "");
        assert_eq!(remaining(Took(Duration::from_secs(9)), 3, 27), "; 1 min 21 s remain");
    }
}

//! `ferroce mesh-perf`: how fast is every member to every other?

mod matrix;
mod mesh;
mod picture;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use ferroce_device::now;

use crate::interrupt;
use crate::output::{parse_size, size};
use crate::perf::{bar, seconds};
use matrix::Matrix;
use mesh::Mesh;

/// Measure bandwidth and latency between all members of a mesh
///
/// The members are threads of this process, each with a network card of its own on loopback: 127.0.0.2, 127.0.0.3 and so
/// on. A broker connects each with every other, and RoCEv2 packets go through the kernel between them. Pairs are
/// measured one after the other, in both directions.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// How many members there are
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    members: u32,

    /// Bytes of a WRITE for the bandwidth
    #[arg(long, short, value_name = "BYTES", value_parser = write_size, default_value = "64K")]
    size: usize,

    /// How long each measurement takes, all repeats together [default: 0.1, or less if all of them would take more than 10 seconds]
    #[arg(long, short = 'd', value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Measure the bandwidth of all pairs at the same time
    #[arg(long)]
    at_once: bool,

    /// Write the two tables as a picture, too: a heat map in SVG
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    plot: Option<PathBuf>,

    /// One JSON object: "pairs" is a list, times are in nanoseconds
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce mesh-perf --members 4
  ferroce mesh-perf --members 8 --plot mesh.svg
          The same as a picture, for a browser.
  ferroce mesh-perf --members 4 --at-once --size 1M --duration 1
  FERROCE_FAULTS=loss=0.01,seed=1 ferroce mesh-perf
          Under one percent of loss.
  ferroce mesh-perf --json | jq '[.pairs[].bytes_per_second] | min'

How it is measured:
  bandwidth  WRITEs into the other member's memory, 16 under way: those that were completed
             after a warm-up, by the time this took
  latency    a message of 64 bytes and the same one back, halved; both ends poll
  repeats    every pair is measured five times, in turn with all others; without --duration less
             often, but twice at least, when ten seconds are over. A table shows what all
             repeats give together, and beside it stand the least and the p90 of the latencies
             and the least repeat of the bandwidth

What is noise:
  A figure is marked with ~ if the repeats of its cell (medians, for the latency) lie further apart than
  the least and the most cell of the table: measured again, the cell could have been any of them.
  Whether it differs from others cannot be told then; a longer --duration may help.

Ctrl-C ends it early and shows what was found so far; the exit code is then 1.";

/// Each pair is measured so often, in turn with all others: how far the repeats of a pair lie apart tells how far a
/// figure can be trusted.
const REPEATS: u32 = 5;

/// Fewer repeats than this say nothing about each other.
const LEAST_REPEATS: u32 = 2;

/// All measurements together take no more than this, unless the command line says how long each takes.
const ALTOGETHER: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    // A picture that cannot be written should not cost the measurement.
    let file = args.plot.as_deref().map(create).transpose()?;
    let mesh = Mesh::start(args.members, args.size)?;
    let mut matrix = Matrix::new(mesh.addresses(), args.size, args.at_once);
    let patience = interrupt::be_patient();
    if !args.json {
        matrix.print_heading()?;
    }
    let found = measure(args, &mesh, &mut matrix);
    drop(patience);
    let interrupted = interrupt::is_asked();
    matrix.print(args.json, interrupted)?;
    if let (Some(mut file), Some(path)) = (file, &args.plot) {
        let written = file.write_all(picture::draw(&matrix).as_bytes()).and_then(|()| file.sync_all());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    found?;
    mesh.end();
    if interrupted {
        bail!("interrupted; the figures are of what was done until then");
    }
    Ok(())
}

fn measure(args: &Args, mesh: &Mesh, matrix: &mut Matrix) -> anyhow::Result<()> {
    let members = args.members;
    let pairs: Vec<(u32, u32)> = (0..members)
        .flat_map(|from| (0..members).filter(move |to| *to != from).map(move |to| (from, to)))
        .collect();
    let count = u32::try_from(pairs.len())?;
    let usual = (ALTOGETHER / (2 * count)).min(Duration::from_millis(100));
    let time = args.duration.unwrap_or(usual);
    let (each, repeats) = (time / REPEATS, REPEATS as usize);
    let bar = bar(repeats * if args.at_once { pairs.len() + 1 } else { 2 * pairs.len() }, args.json);
    let step = |name: String| {
        bar.inc(1000);
        bar.set_message(name);
    };
    let result = (|| {
        let begin = now();
        for repeat in 0..REPEATS {
            if is_enough(repeat, now().since(begin), args.duration.is_some()) {
                break;
            }
            if args.at_once && !interrupt::is_asked() {
                step(format!("bandwidth, all {count} pairs"));
                everybody(mesh, members, each, matrix)?;
            }
            for &(from, to) in pairs.iter().take_while(|_| !interrupt::is_asked()) {
                if !args.at_once {
                    step(format!("bandwidth {from} to {to}"));
                    for rate in mesh.bandwidth(from, &[to], each)? {
                        matrix.cell(from, to).add_bandwidth(rate);
                    }
                }
                step(format!("latency {from} to {to}"));
                matrix.cell(from, to).add_latency(mesh.latency(from, to, each)?);
            }
        }
        anyhow::Ok(())
    })();
    bar.finish_and_clear();
    result
}

/// Whether so many repeats must do: on a busy machine a large mesh takes longer than its measurements should.
fn is_enough(repeats: u32, taken: Duration, wanted_so: bool) -> bool {
    !wanted_so && repeats >= LEAST_REPEATS && taken >= ALTOGETHER
}

/// The bandwidth from every member to every other, at the same time.
fn everybody(mesh: &Mesh, members: u32, time: Duration, matrix: &mut Matrix) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let others = |from: u32| (0..members).filter(|to| *to != from).collect::<Vec<u32>>();
        let work: Vec<_> = (0..members)
            .map(|from| (from, scope.spawn(move || mesh.bandwidth(from, &others(from), time))))
            .collect();
        for (from, rates) in work {
            let rates = rates.join().map_err(|_| anyhow!("the thread of member {from} panicked"))??;
            for (to, rate) in others(from).into_iter().zip(rates) {
                matrix.cell(from, to).add_bandwidth(rate);
            }
        }
        Ok(())
    })
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn write_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    let most = 16 << 20;
    if (1..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("1 byte to {}", size(most))) }
}

pub(crate) fn picture_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("pictures are SVG; give the file a name that ends in .svg".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_that_takes_too_long_is_measured_twice_at_least() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(100));
        assert!((0..REPEATS).all(|repeats| !is_enough(repeats, short, false)));
        let goes_on: Vec<u32> = (0..REPEATS).filter(|repeats| !is_enough(*repeats, long, false)).collect();
        assert_eq!(goes_on, [0, 1]);
        assert!(
            (0..REPEATS).all(|repeats| !is_enough(repeats, long, true)),
            "the user said how long it may take"
        );
    }
}

//! `ferroce trace stats`: where the time went, in figures.

use std::io::{self, Write};
use std::ops::ControlFlow;

use anyhow::Context;
use ferroce_trace::Stats;

use super::files::Files;
use super::reading::read_all;
use super::select::Select;

/// Show where the time of work requests went, and how often what went wrong
///
/// For each operation and class of sizes: how many, how much, and percentiles of each stage. Then rates over time,
/// errors, repeats and time-outs of each queue pair, and how full queues were.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,

    /// Which requests have percentiles; rates and queues are always of all
    #[command(flatten)]
    select: Select,

    /// One JSON document; times are nanoseconds
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
The stages of a request:
  post to doorbell     the call that posts it, and others of the same list
  in the queue         until the device begins with it; for a receive, until a message takes it
  wire and peer        from the first packet to the last answer
  to completion        from there to the completion; on the local path, all that the device does
  completion to poll   until the program takes the completion
  post to completion   all but the last

Percentiles are right within one in a hundred.

Examples:
  ferroce trace stats run.ftrace
  ferroce trace stats --op write --from 1 --to 2 run.ftrace
  ferroce trace stats --json run.ftrace | jq '.operations[] | {operation, p99: .times_ns.wire_and_peer.p99}'";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.files.open()?;
    let mut stats = Stats::new(&opened.timeline, args.select.filter());
    read_all(&opened.timeline, false, |told| {
        stats.take(&told);
        Ok(ControlFlow::Continue(()))
    })?;
    let mut out = io::stdout().lock();
    if args.json { writeln!(out, "{}", stats.to_json()) } else { write!(out, "{stats}") }
        .context("standard output")?;
    out.flush().context("standard output")?;
    opened.verdict()
}

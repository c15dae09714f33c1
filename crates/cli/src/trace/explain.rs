//! `ferroce trace explain`: what went wrong, and why.

use std::io::{self, Write};
use std::ops::ControlFlow;

use anyhow::{Context, bail};
use ferroce_trace::Explainer;

use super::files::Files;
use super::reading::read_all;

/// Say what went wrong, and why: the first error, what led to it, and what waits for what
///
/// Findings come in the order of their weight: errors, then what looks wrong, then what is good to know. With the records
/// of both ends, it also says what one end did that the other refused.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce trace explain run.ftrace
  ferroce trace explain client.ftrace server.ftrace
  ferroce trace explain --json run.ftrace | jq -r '.findings[] | select(.severity == \"error\").text'

Exit codes:
  0  nothing went wrong
  1  work failed, or completions were lost; or a file could not be read
  2  the command line is wrong";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.files.open()?;
    let mut explainer = Explainer::new(&opened.timeline);
    read_all(&opened.timeline, false, |told| {
        explainer.take(&told);
        Ok(ControlFlow::Continue(()))
    })?;
    let explanation = explainer.finish();
    let mut out = io::stdout().lock();
    if args.json { writeln!(out, "{}", explanation.to_json()) } else { write!(out, "{explanation}") }
        .context("standard output")?;
    out.flush().context("standard output")?;
    opened.verdict()?;
    if explanation.has_error() {
        bail!("the record tells of errors");
    }
    Ok(())
}

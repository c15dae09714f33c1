//! `ferroce demo`: everything once, explained, in a few seconds.

mod acts;
mod host;
mod speeds;
mod stage;

use std::path::PathBuf;

use anyhow::Context as _;
use ferroce::{FaultPlan, Recording};

use crate::trace::export;
use crate::{interrupt, perf};
use host::{Host, Pair};
use perf::session::Place;
use perf::task::Way;
use stage::Stage;

/// Show everything once: verbs, errors, loss, paths and speeds
///
/// Two network cards made of software meet on loopback. Every verb is posted once, with its work
/// request (WQE) and its completion (CQE); then come a protection error, a receiver that is not ready,
/// lost packets, the two paths, and a small table of speeds. It takes a few seconds, less than
/// twenty.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// One JSON object at the end: "events" is a list
    #[arg(long)]
    json: bool,

    /// Write all work requests and packets as a time-line, into a page for a browser
    ///
    /// The name says in which form: .html is a page, .pcapng is for Wireshark, .pftrace for ui.perfetto.dev,
    /// and .ftrace for ferroce trace. The speeds at the end are not in it.
    #[arg(long, value_name = "FILE", value_parser = export::file_to_save)]
    trace: Option<PathBuf>,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce demo
  ferroce demo | less
          In a pipe it is plain text, and does not pause for readers.
  ferroce demo --trace demo.html
          The same as a picture: arrows for packets; a click on one shows its headers.
  ferroce demo --json | jq '.events[] | select(.kind == \"completion\")'

Nothing leaves this machine: the cards have the addresses 127.0.0.2 and 127.0.0.3, or others of
127.0.0.0/8 if these are taken.";

/// One packet in twenty.
const LOSS: f64 = 0.05;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    let (near, far) = perf::two_places(Way::Wire)?;
    let lossy = lossy_places().context("the cards that lose packets")?;
    let cards = [&near, &far, &lossy[0], &lossy[1]].map(|place| &place.context);
    let mut recording = args.trace.as_ref().map(|_| Recording::of(&cards)).transpose()?;
    let mut stage = Stage::new(args.json, &near.context)?;
    let pair = Pair::connect(Host::new("ann", &near)?, Host::new("bob", &far)?)?;
    acts::introduce(&mut stage, &pair)?;
    acts::every_verb(&mut stage, &pair)?;
    acts::protection(&mut stage, &pair)?;
    acts::not_ready(&mut stage, &pair)?;
    let [eve, joe] = &lossy;
    acts::loss(&mut stage, &Pair::connect(Host::new("eve", eve)?, Host::new("joe", joe)?)?)?;
    drop(lossy);
    acts::paths(&mut stage, &pair)?;
    drop(pair);
    // Measurements are not to be measured.
    if let Some(recording) = &mut recording {
        recording.stop();
    }
    speeds::show(&mut stage, &near, &far)?;
    if let (Some(recording), Some(file)) = (recording, &args.trace) {
        let how = export::save(recording.path(), file)?;
        stage.saved(&format!("The time-line of all this: {how}"), file)?;
    }
    acts::farewell(&mut stage)?;
    Ok(stage.finish()?)
}

/// Two more cards, whose packets get lost.
fn lossy_places() -> anyhow::Result<[Place; 2]> {
    let place = |part: u8| {
        let plan = FaultPlan { loss: LOSS, seed: u64::from(part) + 1, ..FaultPlan::default() };
        perf::place([127, 0, 0, 4 + part].into(), part, |builder| builder.faults(plan))
    };
    Ok([place(0)?, place(1)?])
}

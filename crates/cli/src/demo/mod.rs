//! `ferroce demo`: everything once, explained, in a few seconds.

mod acts;
mod host;
mod speeds;
mod stage;

use anyhow::Context as _;
use ferroce::FaultPlan;

use crate::{interrupt, perf};
use host::{Host, Pair};
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
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce demo
  ferroce demo | less
          In a pipe it is plain text, and does not pause for readers.
  ferroce demo --json | jq '.events[] | select(.kind == \"completion\")'

Nothing leaves this machine: the cards have the addresses 127.0.0.2 and 127.0.0.3, or others of
127.0.0.0/8 if these are taken.";

/// One packet in twenty.
const LOSS: f64 = 0.05;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    let (near, far) = perf::two_places(Way::Wire)?;
    let mut stage = Stage::new(args.json, &near.context)?;
    let pair = Pair::connect(Host::new("ann", &near)?, Host::new("bob", &far)?)?;
    acts::introduce(&mut stage, &pair)?;
    acts::every_verb(&mut stage, &pair)?;
    acts::protection(&mut stage, &pair)?;
    acts::not_ready(&mut stage, &pair)?;
    let lossy = lossy_pair().context("the cards that lose packets")?;
    acts::loss(&mut stage, &lossy)?;
    drop(lossy);
    acts::paths(&mut stage, &pair)?;
    drop(pair);
    speeds::show(&mut stage, &near, &far)?;
    acts::farewell(&mut stage)?;
    Ok(stage.finish()?)
}

/// Two more cards, whose packets get lost.
fn lossy_pair() -> anyhow::Result<Pair> {
    let place = |part: u8| {
        let plan = FaultPlan { loss: LOSS, seed: u64::from(part) + 1, ..FaultPlan::default() };
        perf::place([127, 0, 0, 4 + part].into(), part, |builder| builder.faults(plan))
    };
    Pair::connect(Host::new("eve", &place(0)?)?, Host::new("joe", &place(1)?)?)
}

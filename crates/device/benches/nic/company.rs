//! Company: a program on each core that does nothing but keep it busy, as others do on a machine that is not ours alone.
//!
//! Each end of a stream then has half of a core, and mostly not at the same time as the other.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use ferroce_testkit::process::{Parent, Peer};

use crate::figures::Load;
use crate::samples::Sample;
use crate::{Outcome, Settings, peer, system};

/// The role of such a program.
pub(crate) const BUSY_LOOP: &str = "busy-loop";

/// Measures this beside a busy loop on each core.
pub(crate) fn beside(settings: &Settings, load: Load) -> Outcome<Sample> {
    let loops: Vec<Peer> = (0..system::cores()).map(|core| start(settings, core)).collect::<Outcome<_>>()?;
    let sample = load(settings)?;
    for busy in loops {
        busy.stop()?;
    }
    Ok(sample)
}

fn start(settings: &Settings, core: usize) -> Outcome<Peer> {
    let mut busy = peer::start(BUSY_LOOP, settings)?;
    busy.say(core)?;
    // It is at work when it says so.
    busy.hear()?;
    Ok(busy)
}

/// Is such a program.
pub(crate) fn play(parent: Parent) -> Outcome<()> {
    system::pin_if(true, parent.hear()?.parse()?)?;
    parent.say("busy")?;
    let stop = parent.watch();
    while !stop.load(Ordering::Relaxed) {
        spin_loop();
    }
    Ok(())
}

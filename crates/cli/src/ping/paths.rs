//! Which ports lead to which paths: traced until no other path is likely.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ferroce_probe::Peer;
use ferroce_probe::net::{ProberEnd, stamp_now};
use ferroce_probe::paths::{FIRST_PORT, Steering, TracerConfig};

use crate::interrupt;

/// Ports that are traced at most.
const MOST: u32 = 512;

/// Ports that are traced at once.
const AT_ONCE: u32 = 16;

/// How sure it must be that there is no other path.
const CONFIDENCE: f64 = 0.99;

/// Between looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(200);

/// Traces ports until there is one for each path.
pub(super) fn find(
    end: &mut ProberEnd,
    target: Peer,
    expected: Option<u32>,
    is_quiet: bool,
) -> anyhow::Result<Steering> {
    let mut steering = Steering::new(expected.unwrap_or(u32::MAX));
    end.trace_to(target, TracerConfig::default());
    let (mut next, mut open, mut refused) = (0, 0, None);
    // Far apart, so that a neighbour that counts its ports up is not met again and again.
    let port = |number: u32| FIRST_PORT | u16::try_from(number.wrapping_mul(0x2f2d) & 0x3fff).unwrap_or(0);
    let is_enough =
        |steering: &Steering| steering.is_done() || expected.is_none() && steering.is_exhausted(CONFIDENCE);
    while !interrupt::is_asked() && !is_enough(&steering) {
        while open < AT_ONCE && next < MOST {
            next += 1;
            match end.trace_port(port(next + end.qpn())) {
                Ok(()) => open += 1,
                Err(error) => refused = Some(error),
            }
        }
        if open == 0 {
            break;
        }
        if let Some(trace) = end.next_trace(stamp_now().plus(LOOK))? {
            open -= 1;
            steering.offer(&trace);
        }
    }
    if steering.kept().is_empty() && !interrupt::is_asked() {
        match refused {
            Some(error) => {
                return Err(error).context("paths are told apart by ports, and none could be used");
            }
            None => bail!(
                "no router and no responder answered probes with small hop limits to {}; without that, paths cannot be \
                 told apart",
                target.address
            ),
        }
    }
    if let Some(polarised) = steering.polarised(0.01).filter(|_| expected.is_some() && !is_quiet) {
        let mut err = std::io::stderr().lock();
        writeln!(
            err,
            "ferroce: {} of {} paths were seen by {} ports, by chance it would be {:.1}: hashes of switches are \
             polarised, or a path is down",
            polarised.seen, polarised.expected, polarised.ports, polarised.mean
        )?;
    }
    Ok(steering)
}

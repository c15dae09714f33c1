//! The sockets of a device: one for each engine, each with the slot that it receives for.

use std::time::Duration;

use crate::clock;
use crate::config::Config;
use crate::error::OpenError;
use crate::fabric::Fabric;
use crate::fabric::capture::Capture;
use crate::fabric::faults::{FaultPlan, Faults};
use crate::fabric::udp::{self, UdpConfig, UdpFabric};

/// How long a port that is taken is tried.
const PORT_PATIENCE: Duration = Duration::from_millis(50);

/// The slot of the first engine. Slot 0 is for the general services and strays.
const FIRST_SLOT: u8 = 1;

/// What an engine receives for, and from where.
pub(crate) type Port = (u8, Box<dyn Fabric>);

/// The ports of all engines, and the bytes of receive buffer that each was granted.
pub(crate) fn open_ports(
    config: &Config,
    interface: &str,
    engines: usize,
) -> Result<(Vec<Port>, usize), OpenError> {
    let udp = UdpConfig {
        address: config.address,
        receive_buffer: config.receive_buffer,
        segmentation: config.segmentation,
        coalescing: config.coalescing,
        ..UdpConfig::new(interface)
    };
    let sockets = open_sockets(&udp, engines)?;
    let receive_buffer = sockets.first().map_or(0, UdpFabric::receive_buffer);
    let mut capture = None;
    let mut ports = Vec::with_capacity(engines);
    for ((slot, seed), socket) in (FIRST_SLOT..).zip(0..).zip(sockets) {
        ports.push((slot, with_middleware(socket, config, seed, &mut capture)?));
    }
    Ok((ports, receive_buffer))
}

/// Opens the sockets. A child of this process that has not yet become another program may hold a
/// copy of one that was closed a moment ago, so a port that is taken is tried for a while.
#[expect(clippy::disallowed_methods, reason = "there is nothing to wait for but time")]
fn open_sockets(config: &UdpConfig, count: usize) -> Result<Vec<UdpFabric>, udp::OpenError> {
    let give_up = clock::now() + PORT_PATIENCE;
    loop {
        match UdpFabric::open_group(config, FIRST_SLOT, count) {
            Err(udp::OpenError::PortTaken { .. }) if clock::now() < give_up => {
                std::thread::sleep(PORT_PATIENCE / 50);
            }
            result => return result,
        }
    }
}

/// All engines write into one capture file; each does harm by dice of its own.
fn with_middleware(
    socket: UdpFabric,
    config: &Config,
    seed: u64,
    capture: &mut Option<Capture<()>>,
) -> Result<Box<dyn Fabric>, OpenError> {
    let mut fabric: Box<dyn Fabric> = Box::new(socket);
    if let Some(path) = &config.capture {
        let file = match capture.take() {
            Some(file) => file,
            None => Capture::create(path, ())?,
        };
        fabric = Box::new(file.around(fabric));
        *capture = Some(file);
    }
    if let Some(plan) = config.faults {
        let plan = FaultPlan { seed: plan.seed.wrapping_add(seed), ..plan };
        fabric = Box::new(Faults::new(plan, fabric));
    }
    Ok(fabric)
}

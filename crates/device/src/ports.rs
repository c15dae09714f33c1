//! The sockets of a device: one for each engine, each with the slot that it receives for.

use std::sync::Arc;

use ferroce_fabric::Fabric;
use ferroce_fabric::capture::Capture;
use ferroce_fabric::faults::{FaultPlan, Faults};
use ferroce_fabric::udp::{UdpConfig, UdpFabric};
use ferroce_switchboard::{Group, Membership, Slot};

use crate::config::Config;
use crate::discovery::DeviceInfo;
use crate::error::NicOpenError;

/// What an engine receives for, and from where.
pub(crate) type Port = (u8, Box<dyn Fabric>);

/// What a device has of the network.
pub(crate) struct Ports {
    /// Of each engine.
    pub(crate) ports: Vec<Port>,
    /// Bytes of receive buffer that each was granted.
    pub(crate) receive_buffer: usize,
    /// What the ports receive for; they outlive the ports.
    pub(crate) slots: Vec<Slot>,
    pub(crate) member: Arc<Membership>,
    /// The file that everything is captured in, if there is one.
    pub(crate) capture: Option<Capture<()>>,
}

/// Takes a slot of the switchboard for each engine, and opens the rest around its socket.
pub(crate) fn open_ports(config: &Config, info: &DeviceInfo, engines: usize) -> Result<Ports, NicOpenError> {
    let udp = UdpConfig {
        address: config.address,
        receive_buffer: config.receive_buffer,
        segmentation: config.segmentation,
        coalescing: config.coalescing,
        ..UdpConfig::new(info.interface.clone())
    };
    let group = Group { interface: info.interface.clone(), address: config.address };
    let member = Membership::join(&group, info.loopback)?;
    let slots = (0..engines).map(|_| member.take()).collect::<Result<Vec<Slot>, _>>()?;
    let mut receive_buffer = 0;
    let mut capture = None;
    let mut ports = Vec::with_capacity(engines);
    for (seed, slot) in (0..).zip(&slots) {
        let mut socket = UdpFabric::over(slot.socket(), &udp)?;
        socket.hide_from_children(member.record());
        receive_buffer = socket.receive_buffer();
        ports.push((slot.number(), with_middleware(socket, config, seed, &mut capture)?));
    }
    Ok(Ports { ports, receive_buffer, slots, member, capture })
}

/// All engines write into one capture file; each does harm by dice of its own.
fn with_middleware(
    socket: UdpFabric,
    config: &Config,
    seed: u64,
    capture: &mut Option<Capture<()>>,
) -> Result<Box<dyn Fabric>, NicOpenError> {
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

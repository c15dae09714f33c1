//! Management datagrams that a program makes itself.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::fabric::PORT;
use ferroce_wire::mad::MAD_LEN;

use super::error::CmError;
use crate::capability::Capability;
use crate::context::Context;

/// Sends a management datagram as it is, from queue pair 1 of the device to that of a peer. It may be lost,
/// as any datagram; answers go to the connection manager of the device, which knows nothing of this one.
///
/// # Errors
/// The system refuses it: the addresses are not of one family, or there is no way.
pub fn send_mad(context: &Context, local: IpAddr, peer: IpAddr, mad: &[u8; MAD_LEN]) -> Result<(), CmError> {
    let nic = context.device().soft(Capability::ManagementDatagrams)?;
    let sent = nic.send_mad(local, peer, mad);
    sent.map_err(|error| CmError::Unreachable { peer: SocketAddr::new(peer, PORT), error: error.kind() })
}

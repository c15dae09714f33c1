//! Queue pair 1 of a device: messages of connection management in and out.
//!
//! The queue pair is one for all processes on the port ([`ferroce_switchboard`]). A process gets the requests
//! for the services that it listens for, and every answer to a communication id of its own.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ferroce_switchboard::{Mad, Scope, ServiceClaim, Slot, SwitchError, communication_id};
use ferroce_sys::descriptor::EventFd;
use ferroce_wire::mad::{MAD_LEN, ServiceId};

use crate::nic::Nic;

impl Nic {
    /// Listens for a service until the claim is dropped: requests for it come to this process.
    ///
    /// # Errors
    /// Another process listens for it, or there are too many services.
    pub fn listen_for(&self, service: ServiceId) -> Result<ServiceClaim, SwitchError> {
        self.listen_on(service, Scope::All)
    }

    /// The same on some of the addresses: other processes may listen for the service on others.
    ///
    /// # Errors
    /// As above.
    pub fn listen_on(&self, service: ServiceId, scope: Scope) -> Result<ServiceClaim, SwitchError> {
        match self.slots().first() {
            Some(slot) => slot.claim_on(service.0, scope),
            None => Err(SwitchError::Forked),
        }
    }

    /// A communication id for a connection: answers to it come to this process. 24 bits of the number
    /// are the caller's.
    #[must_use]
    pub fn communication_id(&self, number: u32) -> u32 {
        communication_id(self.slots().first().map_or(0, Slot::number), number)
    }

    /// The next message for this process, waiting for it until the time is over.
    #[must_use]
    pub fn next_mad(&self, timeout: Duration) -> Option<Mad> {
        if self.is_ours() { self.member().next_mad(timeout) } else { None }
    }

    /// Readable while messages wait.
    #[must_use]
    pub fn mads_readable(&self) -> &EventFd {
        self.member().mads_readable()
    }

    /// Sends a message from queue pair 1 to that of a peer. It may be lost, as any datagram.
    ///
    /// # Errors
    /// The system refuses it: the addresses are not of one family, or there is no way.
    pub fn send_mad(&self, local: IpAddr, remote: IpAddr, mad: &[u8; MAD_LEN]) -> io::Result<()> {
        self.member().send_mad(local, remote, mad)
    }
}

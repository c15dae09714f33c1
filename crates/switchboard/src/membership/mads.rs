//! Queue pair 1 of this process: messages that come, and messages that leave.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_wire::mad::MAD_LEN;

use super::Membership;
use crate::mad_queue::{Mad, Sealed};
use crate::mads::seal;

impl Membership {
    /// The next message for this process; `None` if none comes in this time.
    pub fn next_mad(&self, timeout: Duration) -> Option<Mad> {
        let mads = &self.inner().mads;
        let end = clock::now() + timeout;
        loop {
            if let Some(mad) = mads.pop() {
                return Some(mad);
            }
            let left = clock::until(end);
            if left.is_zero() || mads.readable.wait(Some(left)).is_err() {
                return mads.pop();
            }
        }
    }

    /// A message that is there already.
    pub fn waiting_mad(&self) -> Option<Mad> {
        self.inner().mads.pop()
    }

    /// Readable while messages wait.
    pub fn mads_readable(&self) -> &EventFd {
        &self.inner().mads.readable
    }

    /// Messages that found the queue full.
    pub fn mads_dropped(&self) -> u64 {
        self.inner().mads.dropped.load(Ordering::Relaxed)
    }

    /// Sends a message from queue pair 1 to that of a peer. It may be lost, as any datagram.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn send_mad(&self, local: IpAddr, remote: IpAddr, mad: &[u8; MAD_LEN]) -> io::Result<()> {
        self.post_mad((local, remote), &seal(local, remote, mad)?)
    }

    /// Sends a packet that was made for these two.
    pub fn post_mad(&self, between: (IpAddr, IpAddr), packet: &Sealed) -> io::Result<()> {
        if !self.is_ours() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.inner().post_mad(between, packet)
    }
}

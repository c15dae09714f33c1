//! Limits.

use ferroce_transport::Window;

use super::model::Model;
use super::{Violation, broken};
use crate::link::Fault;
use crate::node::{Datagram, Received};
use crate::world::{At, HostState};

/// What one datagram costs at most.
const ONE_DATAGRAM: u32 = 16 * 1024;

impl Model {
    /// `bounded-state`: what is under way to one receiver never exceeds the largest window by more
    /// than one datagram, and no more requests wait than the queue was made for.
    ///
    /// # Errors
    /// It does not hold.
    pub fn check_bounds(&self, hosts: &[HostState], at: At, max_send: u32) -> Result<(), Violation> {
        let end = self.end_at(at);
        let waiting = self.ends[end].outstanding();
        // Unsignaled requests are seen to be done only at the next completion.
        let unsure =
            self.ends[end].messages[self.ends[end].completed..].iter().filter(|m| !m.signaled).count();
        if waiting - unsure > max_send as usize {
            return broken("bounded-state", format!("{waiting} requests wait in a queue for {max_send}"));
        }
        for host in 0..hosts.len() {
            let in_flight = hosts[at.host].node.window(host).in_flight();
            if in_flight > Window::CAP + ONE_DATAGRAM {
                return broken("bounded-state", format!("{in_flight} bytes under way to host {host}"));
            }
        }
        Ok(())
    }

    /// `icrc`: a packet with flipped bits is refused, one whose changed bits no receiver may look
    /// at is taken, and so is every packet that arrives as it was sent.
    ///
    /// # Errors
    /// It does not hold.
    pub fn check_received(&self, datagram: &Datagram, outcome: Received) -> Result<(), Violation> {
        match (datagram.fault, outcome) {
            // No queue pair has the number that a ghost is for.
            (Some(Fault::Corrupt), Received::Refused(_)) | (Some(Fault::Lie), _) => Ok(()),
            (Some(Fault::Corrupt), _) => broken("icrc", "a corrupt packet was taken"),
            (_, Received::By(_)) => Ok(()),
            (_, outcome) => broken("icrc", format!("a packet that arrived as it was sent: {outcome:?}")),
        }
    }
}

//! Multicast groups: which queue pairs are attached to which.
//!
//! Inside a process every attached queue pair gets a copy. That this process has any is made known when the
//! first is attached: to the other processes on a loopback device, and to the kernel on any other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use ferroce_sys::sync::lock;
use ferroce_wire::Qpn;

/// Which queue pairs of a device get what is sent to a multicast group.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) members: Mutex<HashMap<IpAddr, Vec<Qpn>>>,
    /// Taken for every change. Engines look at the members, and never wait for what a change waits for.
    pub(crate) changing: Mutex<()>,
}

impl Groups {
    /// The queue pairs of a group, into a list that is empty.
    pub(crate) fn members_of(&self, group: IpAddr, into: &mut Vec<Qpn>) {
        if let Some(members) = lock(&self.members).get(&group) {
            into.extend_from_slice(members);
        }
    }

    /// Takes a queue pair out of a group: `None` if it was not in it, else whether it was the last one.
    pub(crate) fn remove(&self, group: IpAddr, qpn: Qpn) -> Option<bool> {
        let mut all = lock(&self.members);
        let members = all.get_mut(&group)?;
        let place = members.iter().position(|member| *member == qpn)?;
        members.remove(place);
        let was_last = members.is_empty();
        if was_last {
            all.remove(&group);
        }
        Some(was_last)
    }
}

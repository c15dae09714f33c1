//! Queue pairs join and leave multicast groups, and the first and the last of them are made known.

use std::net::IpAddr;

use ferroce_switchboard::{Slot, SwitchError};
use ferroce_sys::sync::lock;
use ferroce_wire::Qpn;

use super::Nic;
use crate::error::NicCreateError;
use crate::limits::Limits;

impl Nic {
    /// How many multicast groups its queue pairs may belong to, if no other process has any.
    #[must_use]
    pub fn most_groups(&self) -> usize {
        Slot::most_groups(self.info().loopback).min(Limits::GROUPS)
    }

    /// Has a queue pair get what is sent to a group; once, however often it is attached.
    ///
    /// # Errors
    /// There are too many groups, or members of this one, or the system refuses a socket.
    pub(crate) fn join_group(&self, group: IpAddr, qpn: Qpn) -> Result<(), NicCreateError> {
        let groups = &self.engines().groups;
        let _changing = lock(&groups.changing);
        let all = lock(&groups.members);
        let is_first = match all.get(&group) {
            Some(members) if members.contains(&qpn) => return Ok(()),
            Some(members) if members.len() >= Limits::GROUP_MEMBERS => {
                let (what, allowed) = ("members of a multicast group", Limits::GROUP_MEMBERS);
                return Err(NicCreateError::TooMany { what, allowed });
            }
            Some(_) => false,
            None if all.len() >= Limits::GROUPS => {
                return Err(NicCreateError::TooMany { what: "multicast groups", allowed: Limits::GROUPS });
            }
            None => true,
        };
        drop(all);
        if is_first {
            self.make_known(group)?;
        }
        lock(&groups.members).entry(group).or_default().push(qpn);
        Ok(())
    }

    /// Ends that; false if it was not so.
    pub(crate) fn leave_group(&self, group: IpAddr, qpn: Qpn) -> bool {
        let groups = &self.engines().groups;
        let _changing = lock(&groups.changing);
        let left = groups.remove(group, qpn);
        if left == Some(true) {
            self.make_forgotten(group);
        }
        left.is_some()
    }

    /// A queue pair is gone: it leaves all groups.
    pub(crate) fn leave_all_groups(&self, qpn: Qpn) {
        let groups = &self.engines().groups;
        if lock(&groups.members).is_empty() {
            return;
        }
        let _changing = lock(&groups.changing);
        let is_member = |(group, members): (&IpAddr, &Vec<Qpn>)| members.contains(&qpn).then_some(*group);
        let of: Vec<IpAddr> = lock(&groups.members).iter().filter_map(is_member).collect();
        for group in of {
            if groups.remove(group, qpn) == Some(true) {
                self.make_forgotten(group);
            }
        }
    }

    /// The first queue pair of this process is about to be attached.
    fn make_known(&self, group: IpAddr) -> Result<(), NicCreateError> {
        let Some(slot) = self.slots().first() else { return Ok(()) };
        let made = if self.info().loopback { slot.publish_listener(group) } else { slot.hear(group) };
        made.map_err(|error| match error {
            SwitchError::TooManyListeners { allowed } => {
                NicCreateError::TooMany { what: "multicast groups of all processes", allowed }
            }
            SwitchError::Forked => NicCreateError::Forked,
            SwitchError::System { error, .. } => NicCreateError::GroupRefused { group, kind: error.kind() },
            _ => NicCreateError::GroupRefused { group, kind: std::io::ErrorKind::Other },
        })
    }

    /// The last one was detached.
    fn make_forgotten(&self, group: IpAddr) {
        let Some(slot) = self.slots().first() else { return };
        if self.info().loopback {
            slot.withdraw_listener(group);
        } else {
            slot.stop_hearing(group);
        }
    }
}

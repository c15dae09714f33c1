//! The multicast groups of a slot.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::Slot;
use crate::error::SwitchError;
use crate::heard::MOST_HEARD;
use crate::multicast::words;
use crate::owners::{Locked, owner_word};
use crate::table::{LISTENERS, Listener};

impl Slot {
    /// How many groups one process may listen to, if no other listens to any.
    #[must_use]
    pub const fn most_groups(loopback: bool) -> usize {
        if loopback { LISTENERS } else { MOST_HEARD }
    }

    /// Lets other processes know that this one listens to a group.
    pub fn publish_listener(&self, group: IpAddr) -> Result<(), SwitchError> {
        let inner = self.member().inner();
        if !inner.is_ours() {
            return Err(SwitchError::Forked);
        }
        let _locked = Locked::new(inner)?;
        let is_free = |listener: &&Listener| inner.live_slot(listener.owner.load(Ordering::SeqCst)).is_none();
        let free = inner.table.listeners().iter().find(is_free).or_else(|| inner.table.new_listener());
        let listener = free.ok_or(SwitchError::TooManyListeners { allowed: LISTENERS })?;
        listener.owner.store(0, Ordering::SeqCst);
        for (word, value) in listener.group.iter().zip(words(group)) {
            word.store(value, Ordering::SeqCst);
        }
        listener.owner.store(owner_word(self.number(), self.incarnation()), Ordering::SeqCst);
        Ok(())
    }

    /// Ends that.
    pub fn withdraw_listener(&self, group: IpAddr) {
        let inner = self.member().inner();
        if !inner.is_ours() {
            return;
        }
        let owner = owner_word(self.number(), self.incarnation());
        for listener in inner.table.listeners() {
            if listener.is_of(words(group)) {
                // Only what is ours: others may have the place.
                let _ = listener.owner.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }

    /// Takes in what is sent to a group on the network.
    pub fn hear(&self, group: IpAddr) -> Result<(), SwitchError> {
        self.member().inner().hear(group, self.number())
    }

    /// Ends that.
    pub fn stop_hearing(&self, group: IpAddr) {
        self.member().inner().stop_hearing(group);
    }
}

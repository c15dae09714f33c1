//! Which process owns what stands in the shared file: services, and listeners to groups.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::fork::PerProcess;
use ferroce_sys::sync::lock;

use super::SLOTS;
use super::error::{SwitchError, refused};
use super::inner::Inner;
use super::table::Claim;

/// How long a process may keep the table of services from others.
const PATIENCE: Duration = Duration::from_secs(2);

impl Inner {
    /// A slot of the process that listens for a service.
    pub(super) fn claimant(&self, service: u64) -> Option<u8> {
        let found = self.table.claims().iter().find_map(|claim| {
            let asked = claim.service.load(Ordering::SeqCst) == service;
            // Asked again after the owner: the place may have been given to another service meanwhile.
            let slot = asked.then(|| self.live_owner(claim)).flatten()?;
            (claim.service.load(Ordering::SeqCst) == service).then_some(slot)
        });
        found.and_then(|slot| u8::try_from(slot).ok())
    }

    /// A slot of every process that listens for something.
    pub(super) fn claimants(&self) -> Vec<u8> {
        let mut seen = [false; SLOTS];
        for claim in self.table.claims() {
            if let Some(slot) = self.live_owner(claim) {
                seen[slot] = true;
            }
        }
        (0_u8..).zip(seen).filter(|(_, seen)| *seen).map(|(slot, _)| slot).collect()
    }

    /// Whether there is a process behind a slot.
    pub(super) fn has_owner(&self, slot: u8) -> bool {
        let at = usize::from(slot);
        at != 0 && at < SLOTS && self.table.entry(at).read().is_some() && self.is_alive(at)
    }

    /// The slot that a claim belongs to, if its owner is the process that claimed, and lives.
    pub(super) fn live_owner(&self, claim: &Claim) -> Option<usize> {
        self.live_slot(claim.owner.load(Ordering::SeqCst))
    }

    /// The slot that an owner's word names, if the owner is still the process that wrote it, and lives.
    pub(super) fn live_slot(&self, owner: u64) -> Option<usize> {
        let slot = usize::try_from(owner & 0xff).ok().filter(|slot| (1..SLOTS).contains(slot))?;
        let number = u8::try_from(slot).ok()?;
        let published = self.table.entry(slot).published.load(Ordering::SeqCst);
        let same = published != 0 && owner_word(number, published) == owner;
        (same && self.is_alive(slot)).then_some(slot)
    }
}

pub(super) fn owner_word(slot: u8, incarnation: u64) -> u64 {
    incarnation << 8 | u64::from(slot)
}

/// The tables of services and listeners, locked against threads of this process and against other processes.
pub(super) struct Locked<'a> {
    inner: &'a Inner,
    _thread: std::sync::MutexGuard<'a, ()>,
}

/// One for all groups: claims are rare.
static CLAIMING: PerProcess<Mutex<()>> = PerProcess::new();

impl<'a> Locked<'a> {
    pub(super) fn new(inner: &'a Inner) -> Result<Self, SwitchError> {
        let thread = lock(CLAIMING.get());
        let end = clock::now() + PATIENCE;
        while !inner.table.lock_claims().map_err(refused("a record lock"))? {
            if clock::now() >= end {
                let error = std::io::Error::from_raw_os_error(libc::EBUSY);
                return Err(refused("the table of services")(error));
            }
            clock::pause(Duration::from_millis(1));
        }
        Ok(Self { inner, _thread: thread })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.inner.table.unlock_claims();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tests::enter;

    #[test]
    fn a_slot_has_an_owner_while_its_process_has_taken_it() {
        let ours = enter(36);
        let inner = ours.member().inner();
        assert!(inner.has_owner(ours.number()));
        let owned = (0..=u8::MAX).filter(|slot| inner.has_owner(*slot)).count();
        assert_eq!(owned, 1, "neither slot 0 nor one that is none");
        let word = owner_word(ours.number(), ours.incarnation());
        assert_eq!(inner.live_slot(word), Some(ours.number().into()));
        for other in [
            owner_word(ours.number(), ours.incarnation() + 1),
            owner_word(ours.number() ^ 1, ours.incarnation()),
            owner_word(0, ours.incarnation()),
            owner_word(u8::MAX, ours.incarnation()),
            0,
        ] {
            assert_eq!(inner.live_slot(other), None, "{other:x}");
        }
    }

    #[test]
    fn a_listener_is_known_until_its_claim_is_dropped() {
        let (ours, second) = (enter(37), enter(37));
        let inner = ours.member().inner();
        assert_eq!((inner.claimant(7), inner.claimants()), (None, vec![]));
        let (seven, eight, nine) = (ours.claim(7), ours.claim(8), second.claim(9));
        assert_eq!([7, 8, 9, 10].map(|service| inner.claimant(service)), {
            let (first, second) = (Some(ours.number()), Some(second.number()));
            [first, first, second, None]
        });
        let mut both = vec![ours.number(), second.number()];
        both.sort_unstable();
        assert_eq!(inner.claimants(), both, "each once");
        drop(nine);
        assert_eq!((inner.claimant(9), inner.claimants()), (None, vec![ours.number()]));
        // With the slot go its claims, whatever stands in the table.
        let member = Arc::clone(ours.member());
        drop(ours);
        assert_eq!((member.inner().claimant(7), member.inner().claimants()), (None, vec![]));
        let again = second.claim(7).expect("it is free");
        drop((seven, eight));
        assert_eq!(member.inner().claimant(7), Some(second.number()), "the old claim takes nothing away");
        drop(again);
    }
}

//! Which process owns what stands in the shared file: services, and listeners to groups.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::fork::PerProcess;
use ferroce_sys::sync::lock;

use super::SLOTS;
use super::claim::Claim;
use super::error::{SwitchError, refused};
use super::inner::Inner;

/// How long a process may keep the table of services from others.
const PATIENCE: Duration = Duration::from_secs(2);

impl Inner {
    /// A slot of the process that listens for a service on an address: one that listens on this address comes before
    /// one that listens on many.
    pub(super) fn claimant(&self, service: u64, local: IpAddr) -> Option<u8> {
        let mut best = None;
        for row in self.table.claims().iter().filter_map(Claim::read).filter(|row| row.service == service) {
            let Some(rank) = row.scope.rank(local) else { continue };
            if best.is_none_or(|(known, _)| rank < known)
                && let Some(slot) = self.live_slot(row.owner)
            {
                best = Some((rank, slot));
            }
        }
        best.and_then(|(_, slot)| u8::try_from(slot).ok())
    }

    /// A slot of every process that listens for something.
    pub(super) fn claimants(&self) -> Vec<u8> {
        let mut seen = [false; SLOTS];
        let mut living = Living::new(self);
        for row in self.table.claims().iter().filter_map(Claim::read) {
            if let Some(slot) = living.slot(row.owner) {
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

    /// The slot that an owner's word names, if the owner is still the process that wrote it, and lives.
    pub(super) fn live_slot(&self, owner: u64) -> Option<usize> {
        let slot = usize::try_from(owner & 0xff).ok().filter(|slot| (1..SLOTS).contains(slot))?;
        let number = u8::try_from(slot).ok()?;
        let published = self.table.entry(slot).published.load(Ordering::SeqCst);
        let same = published != 0 && owner_word(number, published) == owner;
        (same && self.is_alive(slot)).then_some(slot)
    }
}

/// The owners that live, each asked about once: for a walk through a table.
pub(super) struct Living<'a> {
    inner: &'a Inner,
    known: HashMap<u64, Option<usize>>,
}

impl<'a> Living<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Self { inner, known: HashMap::new() }
    }

    /// The slot that an owner's word names, if the owner is still the process that wrote it, and lives.
    pub(super) fn slot(&mut self, owner: u64) -> Option<usize> {
        *self.known.entry(owner).or_insert_with(|| self.inner.live_slot(owner))
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
    use crate::claim::Scope;
    use crate::error::SwitchError;
    use crate::tests::enter;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

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
        assert_eq!((inner.claimant(7, LOCAL), inner.claimants()), (None, vec![]));
        let (seven, eight, nine) = (ours.claim(7), ours.claim(8), second.claim(9));
        assert_eq!([7, 8, 9, 10].map(|service| inner.claimant(service, LOCAL)), {
            let (first, second) = (Some(ours.number()), Some(second.number()));
            [first, first, second, None]
        });
        let mut both = vec![ours.number(), second.number()];
        both.sort_unstable();
        assert_eq!(inner.claimants(), both, "each once");
        drop(nine);
        assert_eq!((inner.claimant(9, LOCAL), inner.claimants()), (None, vec![ours.number()]));
        // With the slot go its claims, whatever stands in the table.
        let member = Arc::clone(ours.member());
        drop(ours);
        assert_eq!((member.inner().claimant(7, LOCAL), member.inner().claimants()), (None, vec![]));
        let again = second.claim(7).expect("it is free");
        drop((seven, eight));
        assert_eq!(
            member.inner().claimant(7, LOCAL),
            Some(second.number()),
            "the old claim takes nothing away"
        );
        drop(again);
    }

    #[test]
    fn two_processes_may_have_a_service_on_different_addresses() {
        let (ours, second) = (enter(68), enter(68));
        let inner = ours.member().inner();
        let [here, there]: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        let _one = ours.claim_on(7, Scope::One(here)).expect("it is free");
        let refused = |scope| match second.claim_on(7, scope) {
            Err(SwitchError::ServiceClaimed { exact, .. }) => Some(exact),
            _ => None,
        };
        assert_eq!(refused(Scope::One(here)), Some(true));
        assert_eq!([Scope::All, Scope::AllV4].map(refused), [Some(false); 2]);
        assert_eq!(refused(Scope::AllV6), None, "no address of it is taken");
        let _two = second.claim_on(7, Scope::One(there)).expect("it is free");
        assert_eq!(
            [here, there].map(|local| inner.claimant(7, local)),
            [Some(ours.number()), Some(second.number())]
        );
        assert_eq!(inner.claimant(7, [127, 0, 0, 3].into()), None);
        // A process may have more of it, and what is bound to the address itself comes first.
        assert!(ours.claim_on(7, Scope::One(here)).is_err());
        assert!(ours.claim_on(7, Scope::AllV4).is_err(), "the other process has one of them");
        let _more =
            ours.claim_on(8, Scope::One(here)).and_then(|_| ours.claim_on(8, Scope::All)).expect("its own");
    }

    #[test]
    fn a_claim_that_lingers_is_for_the_first_that_wants_it() {
        let (ours, second) = (enter(69), enter(69));
        let inner = ours.member().inner();
        let old = ours.claim_on(7, Scope::AllV4).expect("it is free");
        assert!(second.claim_on(7, Scope::One(LOCAL)).is_err());
        old.linger();
        assert_eq!(inner.claimant(7, LOCAL), Some(ours.number()), "until then it is its owner's");
        let new = second.claim_on(7, Scope::One(LOCAL)).expect("its owner has no use for it");
        assert_eq!(inner.claimant(7, LOCAL), Some(second.number()));
        // The place may have another claim by now: the old one takes nothing away.
        let next = ours.claim(9).expect("it is free");
        drop(old);
        assert_eq!(
            [7, 9].map(|service| inner.claimant(service, LOCAL)),
            [Some(second.number()), Some(ours.number())]
        );
        drop((new, next));
        assert_eq!([7, 9].map(|service| inner.claimant(service, LOCAL)), [None; 2]);
    }
}

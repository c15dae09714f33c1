//! The services that a process listens for: a table in the shared file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Membership, Slot};
use crate::error::SwitchError;
use crate::owners::{Locked, owner_word};
use crate::table::CLAIMS;

/// A service that this process listens for, until it is dropped.
#[derive(Debug)]
pub struct ServiceClaim {
    member: Arc<Membership>,
    place: usize,
    owner: u64,
}

impl Slot {
    /// Listens for a service: requests for it come to this process.
    pub fn claim(&self, service: u64) -> Result<ServiceClaim, SwitchError> {
        let inner = self.member().inner();
        if !inner.is_ours() {
            return Err(SwitchError::Forked);
        }
        let owner = owner_word(self.number(), self.incarnation());
        let _locked = Locked::new(inner)?;
        let mut free = None;
        for (place, claim) in inner.table.claims().iter().enumerate() {
            match inner.live_owner(claim) {
                None => free = free.or(Some(place)),
                Some(slot) if claim.service.load(Ordering::SeqCst) == service => {
                    let pid = inner.table.entry(slot).pid.load(Ordering::SeqCst);
                    return Err(SwitchError::ServiceClaimed { service, pid });
                }
                Some(_) => {}
            }
        }
        let place = free.ok_or(SwitchError::TooManyServices { allowed: CLAIMS })?;
        let claim = &inner.table.claims()[place];
        claim.owner.store(0, Ordering::SeqCst);
        claim.service.store(service, Ordering::SeqCst);
        claim.owner.store(owner, Ordering::SeqCst);
        Ok(ServiceClaim { member: Arc::clone(self.member()), place, owner })
    }
}

impl Drop for ServiceClaim {
    fn drop(&mut self) {
        let inner = self.member.inner();
        if inner.is_ours() {
            let claim = &inner.table.claims()[self.place];
            // Only if it is still ours: a slot that was given back voids its claims, and others may have the place.
            let _ = claim.owner.compare_exchange(self.owner, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

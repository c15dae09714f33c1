//! The services that a process listens for: a table in the shared file.

use std::sync::Arc;

use super::{Membership, Slot};
use crate::claim::{Row, Scope};
use crate::error::SwitchError;
use crate::owners::{Living, Locked, owner_word};
use crate::table::CLAIMS;

/// A service that this process listens for, until it is dropped.
#[derive(Debug)]
pub struct ServiceClaim {
    member: Arc<Membership>,
    place: usize,
    number: u64,
}

impl Slot {
    /// Listens for a service on all addresses: requests for it come to this process.
    pub fn claim(&self, service: u64) -> Result<ServiceClaim, SwitchError> {
        self.claim_on(service, Scope::All)
    }

    /// Listens for a service on some addresses. Another claim of this process may have some of them too, but not the
    /// same.
    pub fn claim_on(&self, service: u64, scope: Scope) -> Result<ServiceClaim, SwitchError> {
        let inner = self.member().inner();
        if !inner.is_ours() {
            return Err(SwitchError::Forked);
        }
        let owner = owner_word(self.number(), self.incarnation());
        let locked = Locked::new(inner)?;
        let mut living = Living::new(inner);
        let (mut free, mut lingering, mut taken_over) = (None, None, Vec::new());
        for (place, claim) in inner.table.claims().iter().enumerate() {
            let Some((row, slot)) = claim.read().and_then(|row| Some((row, living.slot(row.owner)?))) else {
                free = free.or(Some(place));
                continue;
            };
            let is_other = row.owner != owner || row.scope == scope;
            match row.scope.overlap(scope).filter(|_| row.service == service && is_other) {
                // Its owner keeps it for a while, in case that it is wanted again: it is.
                Some(_) if row.lingers => taken_over.push(place),
                Some(exact) => {
                    let pid = inner.table.entry(slot).pid.load(std::sync::atomic::Ordering::SeqCst);
                    return Err(SwitchError::ServiceClaimed { service, pid, exact });
                }
                None if row.lingers => lingering = lingering.or(Some(place)),
                None => {}
            }
        }
        for place in &taken_over {
            inner.table.claims()[*place].clear();
        }
        let free = free.or_else(|| taken_over.first().copied());
        let place = free.or_else(|| inner.table.new_claim()).or(lingering);
        let place = place.ok_or(SwitchError::TooManyServices { allowed: CLAIMS })?;
        let number = inner.table.next_claim_number();
        inner.table.claims()[place].write(&Row { number, owner, service, scope, lingers: false });
        drop(locked);
        Ok(ServiceClaim { member: Arc::clone(self.member()), place, number })
    }
}

impl ServiceClaim {
    /// The process has no use for it any more, and keeps it all the same until another one wants the service.
    pub fn linger(&self) {
        let inner = self.member.inner();
        if inner.is_ours()
            && let Some(claim) = inner.table.claims().get(self.place)
        {
            claim.linger(self.number);
        }
    }
}

impl Drop for ServiceClaim {
    fn drop(&mut self) {
        let inner = self.member.inner();
        if inner.is_ours()
            && let Some(claim) = inner.table.claims().get(self.place)
        {
            claim.end(self.number);
        }
    }
}

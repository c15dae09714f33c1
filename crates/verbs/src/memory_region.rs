//! Registered memory.

use std::fmt;
use std::ops::RangeBounds;
use std::panic::Location;
use std::sync::Arc;

use ferroce_device::Nic;
use ferroce_device::memory::{AccessError, MemoryError};
use ferroce_system::RegisterOptions;
use ferroce_transport::{Access, DomainId};
use ferroce_wire::{Lkey, Rkey};
use thiserror::Error;

use crate::card::kept::{Kind, Region as Kept, WayBack};
use crate::error::CreateError;
use crate::local_slice::LocalSlice;
use crate::memory::Memory;
use crate::protection_domain::{Domain, ProtectionDomain};
use crate::ranges::bounds;
use crate::remote::RemoteRegion;

/// Registered memory: the only kind that work can name, and that peers can be let into.
///
/// # When it ends
///
/// - **Dropping it is always safe.** Work that was posted holds its memory: if some names this
///   region, the device keeps it registered until the last of that work is done, and frees the
///   memory then. Posting costs nothing for this. Until then peers that know its key can use it too; a
///   receive that is never met holds it until its queue pair is gone.
/// - **[`deregister`](Self::deregister) takes it away at once**, and gives the memory back. Work under
///   way that names it fails with
///   [`LocalProtection`](crate::Status::LocalProtection), and peers are refused.
///
/// A [`slice`](Self::slice) borrows the region, so the compiler sees to it that work is posted while
/// the region is there.
///
/// # Its bytes
///
/// They may change at any moment, because peers write them. So they are copied in and out, and never
/// borrowed; [`load_u64`](Self::load_u64) and its friends are for words that both sides look at.
pub struct MemoryRegion {
    memory: Memory,
    start: usize,
    len: usize,
    address: u64,
    access: Access,
    lkey: Lkey,
    rkey: Rkey,
    /// It goes before its domain.
    registration: Registration,
    domain: Arc<Domain>,
}

/// The region on the device, which goes when posted work lets it.
enum Registration {
    Soft(SoftRegistration),
    Card(CardRegistration),
    /// It was ended already.
    Ended,
}

/// The region of a card, and where it goes when it is dropped if it is kept for later.
struct CardRegistration {
    /// None only once it was ended.
    region: Option<ferroce_system::MemoryRegion>,
    way_back: Option<WayBack>,
}

impl Drop for CardRegistration {
    fn drop(&mut self) {
        if let (Some(region), Some(way_back)) = (self.region.take(), self.way_back.take()) {
            way_back.give(region);
        }
    }
}

struct SoftRegistration {
    nic: Nic,
    domain: DomainId,
    lkey: Lkey,
    /// It was ended already.
    ended: bool,
}

impl Drop for SoftRegistration {
    fn drop(&mut self) {
        if !self.ended {
            self.nic.release(self.domain, self.lkey);
        }
    }
}

impl MemoryRegion {
    #[track_caller]
    pub(crate) fn new(
        domain: &Arc<Domain>,
        memory: Memory,
        (start, end): (usize, usize),
        (address, chosen): (u64, bool),
        access: Access,
    ) -> Result<Self, CreateError> {
        let Some(len) = end.checked_sub(start) else {
            let size = memory.len();
            return Err(MemoryError::OutsideAllocation { offset: start, len: 0, size }.into());
        };
        let (registration, lkey, rkey) = match &**domain {
            Domain::Soft { nic, id } => {
                let (lkey, rkey) = nic.register(*id, memory.as_device(), (start, len), address, access)?;
                let made = SoftRegistration { nic: nic.clone(), domain: *id, lkey, ended: false };
                (Registration::Soft(made), lkey, rkey)
            }
            Domain::Card { card, domain, kept, .. } => {
                let address = chosen.then_some(address);
                // Our own drop-in library maps bytes.
                if !card.system.library().is_ours() {
                    check_place(memory.address().wrapping_add(start as u64), address)?;
                }
                let options = RegisterOptions { address, ..RegisterOptions::default() };
                card.registrations.note(card.name(), Location::caller());
                let register = || domain.register_part(memory.as_device(), start..end, access, options);
                // What is kept must not be the reason why there is no room.
                let made = register().or_else(|error| {
                    let again = error.is_for_want_of_room() && kept.empty();
                    if again { register() } else { Err(error) }
                })?;
                let (lkey, rkey) = (made.lkey(), made.rkey());
                let made = CardRegistration { region: Some(made), way_back: None };
                (Registration::Card(made), lkey, rkey)
            }
        };
        let domain = Arc::clone(domain);
        Ok(Self { memory, start, len, address, access, lkey, rkey, domain, registration })
    }

    /// One of a card that stays registered when it is dropped, or one that did so before.
    #[track_caller]
    pub(crate) fn kept(
        domain: &Arc<Domain>,
        kind: Kind,
        memory: impl FnOnce() -> Result<(Memory, (usize, usize)), CreateError>,
        access: Access,
    ) -> Result<Self, CreateError> {
        let Domain::Card { kept, card, .. } = &**domain else {
            let (memory, (start, end)) = memory()?;
            let address = memory.address().saturating_add(start as u64);
            return Self::new(domain, memory, (start, end), (address, false), access);
        };
        let known = if card.is_ours() { kept.take(&kind) } else { None };
        let mut made = match known {
            Some(Kept { region, memory, start }) => Self {
                start,
                len: region.len(),
                address: region.address(),
                access,
                lkey: region.lkey(),
                rkey: region.rkey(),
                memory,
                domain: Arc::clone(domain),
                registration: Registration::Card(CardRegistration { region: Some(region), way_back: None }),
            },
            None => {
                let (memory, (start, end)) = memory()?;
                let address = memory.address().saturating_add(start as u64);
                Self::new(domain, memory, (start, end), (address, false), access)?
            }
        };
        if let Registration::Card(card) = &mut made.registration {
            let (kept, memory, start) = (Arc::clone(kept), made.memory.clone(), made.start);
            card.way_back = Some(WayBack { kept, kind, memory, start });
        }
        Ok(made)
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first byte, as work and peers use it.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// What work and peers may do with it.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The key by which work names it.
    #[must_use]
    pub const fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// The key by which a peer names it.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// A part of it, for work. Whether the part is inside is checked when the work is posted.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> LocalSlice<'_> {
        let (start, end) = bounds(&range, self.len);
        LocalSlice::new(self, start, end)
    }

    /// What a peer must know to use it: to be sent there in any way.
    #[must_use]
    pub const fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.address, length: self.len as u64, rkey: self.rkey }
    }

    /// Copies bytes into it, the last ones last.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.memory.as_device().write(self.inside(offset, bytes.len())?, bytes)
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.memory.as_device().read(self.inside(offset, bytes.len())?, bytes)
    }

    /// A copy of a part of it.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, AccessError> {
        let (start, end) = bounds(&range, self.len);
        let len = end.saturating_sub(start);
        self.inside(start, len)?;
        let mut bytes = vec![0; len];
        self.read_at(start, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets a part of it to one byte.
    ///
    /// # Errors
    /// The range is not inside; nothing was set.
    pub fn fill(&self, range: impl RangeBounds<usize>, byte: u8) -> Result<(), AccessError> {
        let (start, end) = bounds(&range, self.len);
        let len = end.saturating_sub(start);
        self.memory.as_device().fill(self.inside(start, len)?, len, byte)
    }

    /// One byte, to wait for: a thread that sees it change sees what was placed before it (Acquire).
    ///
    /// # Errors
    /// The byte is not inside.
    pub fn load_u8(&self, offset: usize) -> Result<u8, AccessError> {
        self.memory.as_device().load_u8(self.inside(offset, 1)?)
    }

    /// A number of this machine at a multiple of 8, to wait for (Acquire).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        self.memory.as_device().load_u64(self.inside(offset, 8)?)
    }

    /// Stores a number at a multiple of 8, after all that was written before (Release).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        self.memory.as_device().store_u64(self.inside(offset, 8)?, value)
    }

    /// Adds to a number at a multiple of 8, wrapping around, and returns what was there. It is atomic
    /// also with a peer's atomics.
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn fetch_add_u64(&self, offset: usize, value: u64) -> Result<u64, AccessError> {
        self.memory.as_device().fetch_add_u64(self.inside(offset, 8)?, value)
    }

    /// Registers it anew: with other access, in another protection domain, over other memory, or several of
    /// these in one step. Its keys are new: work under way that names the old ones fails with
    /// [`LocalProtection`](crate::Status::LocalProtection), and peers that know them are refused. The memory
    /// comes back if other memory takes its place.
    ///
    /// # Errors
    /// Memory windows are bound to it, the domain is of another device, or what is wrong with the new region;
    /// nothing has changed.
    #[track_caller]
    pub fn reregister(&mut self, change: Reregistration<'_>) -> Result<Option<Memory>, CreateError> {
        let Reregistration { access, domain, memory } = change;
        let domain = Arc::clone(domain.map_or(&self.domain, ProtectionDomain::domain));
        if !domain.is_of(&self.domain.device()) {
            return Err(CreateError::OtherDevice { what: "protection domain" });
        }
        let access = access.unwrap_or(self.access);
        let place = memory.as_ref().map(|(memory, (start, end), address)| {
            let own = memory.address().saturating_add(*start as u64);
            (*start, end.saturating_sub(*start), address.unwrap_or(own))
        });
        let (start, len, address) = place.unwrap_or((self.start, self.len, self.address));
        match (&mut self.registration, &*domain) {
            (Registration::Soft(registration), Domain::Soft { nic, id }) => {
                let (lkey, rkey) = nic.reregister(registration.lkey, |spec| {
                    spec.domain = *id;
                    spec.access = access;
                    if let Some((memory, ..)) = &memory {
                        spec.memory = Arc::clone(memory.as_device());
                        (spec.offset, spec.len, spec.iova) = (start, len, address);
                    }
                })?;
                (registration.lkey, registration.domain) = (lkey, *id);
                (self.lkey, self.rkey) = (lkey, rkey);
            }
            _ => {
                // A card gets the new region first, so that the old one is there if it is refused.
                let own = memory.as_ref().map_or(&self.memory, |(memory, ..)| memory).clone();
                let chosen = own.address().saturating_add(start as u64) != address;
                let mut made = Self::new(&domain, own, (start, start + len), (address, chosen), access)?;
                let old = std::mem::replace(&mut self.registration, Registration::Ended);
                match old.end() {
                    Ok(()) => {
                        self.registration = std::mem::replace(&mut made.registration, Registration::Ended);
                    }
                    Err((old, reason)) => {
                        self.registration = old;
                        return Err(reason);
                    }
                }
                (self.lkey, self.rkey) = (made.lkey, made.rkey);
            }
        }
        self.access = access;
        (self.start, self.len, self.address) = (start, len, address);
        self.domain = domain;
        Ok(memory.map(|(memory, ..)| std::mem::replace(&mut self.memory, memory)))
    }

    /// Deregisters it at once and gives the memory back. Work under way that names it fails, and
    /// nothing touches the memory any more.
    ///
    /// # Errors
    /// Memory windows are bound to it; the region comes back in the error.
    pub fn deregister(mut self) -> Result<Memory, DeregisterError> {
        let registration = std::mem::replace(&mut self.registration, Registration::Ended);
        match registration.end() {
            Ok(()) => Ok(self.memory),
            Err((registration, reason)) => {
                self.registration = registration;
                Err(DeregisterError { region: Box::new(self), reason })
            }
        }
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    #[inline]
    pub(crate) const fn as_card(&self) -> Option<&ferroce_system::MemoryRegion> {
        match &self.registration {
            Registration::Card(card) => card.region.as_ref(),
            Registration::Soft(_) | Registration::Ended => None,
        }
    }

    /// The offset in the memory of a range of this region.
    fn inside(&self, offset: usize, len: usize) -> Result<usize, AccessError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.len }),
        }
    }
}

/// A card maps whole pages: what it is to call the first byte must lie at the same place of its page as the byte itself.
fn check_place(own: u64, chosen: Option<u64>) -> Result<(), CreateError> {
    const PAGE: u64 = 4096;
    match chosen {
        Some(chosen) if chosen % PAGE != own % PAGE => Err(CreateError::OtherPlaceInPage { chosen, own }),
        _ => Ok(()),
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len, rkey, access, .. } = self;
        write!(f, "MemoryRegion({len} bytes at 0x{address:x}, key {rkey}, {access:?})")
    }
}

impl Registration {
    /// Takes the region away at once; it comes back if that is refused.
    fn end(self) -> Result<(), (Self, CreateError)> {
        match self {
            Self::Soft(mut registration) => {
                let SoftRegistration { nic, domain, lkey, .. } = &registration;
                match nic.deregister(*domain, *lkey) {
                    Ok(()) => {
                        registration.ended = true;
                        Ok(())
                    }
                    Err(reason) => Err((Self::Soft(registration), reason.into())),
                }
            }
            Self::Card(mut card) => {
                let Some(region) = card.region.take() else { return Ok(()) };
                region.deregister().map(|_| ()).map_err(|(region, error)| {
                    card.region = Some(region);
                    (Self::Card(card), error.into())
                })
            }
            Self::Ended => Ok(()),
        }
    }
}

/// What is to be different about a region; see [`MemoryRegion::reregister`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing changes until a region is registered anew with it"]
pub struct Reregistration<'a> {
    access: Option<Access>,
    domain: Option<&'a ProtectionDomain>,
    memory: Option<(Memory, (usize, usize), Option<u64>)>,
}

impl<'a> Reregistration<'a> {
    /// Nothing is to be different, but the keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// What work and peers may do with it.
    pub const fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// The protection domain that it belongs to, of the same device.
    pub const fn domain(mut self, domain: &'a ProtectionDomain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// The memory behind it, or a part of some.
    pub fn memory(mut self, memory: impl Into<Memory>, range: impl RangeBounds<usize>) -> Self {
        let memory = memory.into();
        let range = bounds(&range, memory.len());
        self.memory = Some((memory, range, None));
        self
    }

    /// The address that work and peers use for the first byte of the memory given before.
    pub fn address(mut self, address: u64) -> Self {
        if let Some((.., place)) = &mut self.memory {
            *place = Some(address);
        }
        self
    }
}

/// Why a region is still registered.
#[derive(Debug, Error)]
#[error("the region with key {} stays registered", region.rkey())]
pub struct DeregisterError {
    /// The region, as it was.
    pub region: Box<MemoryRegion>,
    /// Why.
    #[source]
    pub reason: CreateError,
}

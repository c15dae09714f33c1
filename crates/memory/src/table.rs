//! The regions and windows of one device, and the keys that open them.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_transport::{Access, Accessor, Denied, DomainId, Sge};
use ferroce_wire::{Lkey, Qpn, Rkey};
use rand_chacha::ChaCha8Rng;

use super::allocation::Allocation;
use super::error::MemoryError;
use super::keys::{Dealer, Spread, handle};
use super::place::{Opened, Place};
use super::windows::{Window, WindowState};

/// Regions that a device may have.
pub const MAX_REGIONS: usize = 1 << 20;

/// Memory windows that a device may have.
pub const MAX_WINDOWS: usize = 1 << 20;

/// What lets peers change memory.
pub(super) const PEER_WRITES: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

/// What engines look keys up in.
///
/// All engines of a device read it at the same time; regions come and go only while none does, which
/// is what `&mut self` says here, so using one takes no lock. What work binds and invalidates while others
/// read are windows, and those have locks of their own.
///
/// A key is a random handle of 24 bits and a random tag of 8: a peer cannot guess keys from its own, nor from
/// those that were taken back. Every region holds its [`Allocation`], so a [`Place`] points into live memory
/// for as long as it borrows the table.
#[derive(Debug)]
pub struct MemoryTable {
    /// Regions by the handle of their key, and windows by their name.
    pub(super) entries: HashMap<u32, Entry, BuildHasherDefault<Spread>>,
    /// Type 2 windows that are bound, by the queue pair that they belong to.
    pub(super) owned: Mutex<BTreeSet<(Qpn, u32)>>,
    /// How often a region has lost its last window.
    pub(super) unbindings: AtomicU64,
    pub(super) counts: Counts,
    dealer: Mutex<Dealer>,
}

/// A region to be: which memory, under which address, and what its owner and peers may do with it.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// The protection domain that it belongs to.
    pub domain: DomainId,
    /// What the owner and peers may do with it.
    pub access: Access,
    /// The address that work and peers use for its first byte.
    pub iova: u64,
    /// The memory.
    pub memory: Arc<Allocation>,
    /// Its first byte in the memory.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// The keys of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKeys {
    /// For work of the owner.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// How much a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regions.
    pub regions: usize,
    /// Memory windows, bound or not.
    pub windows: usize,
}

/// What a handle stands for.
#[derive(Debug)]
pub(super) struct Entry {
    /// The whole key of a region, the handle and its tag; of a window the one that it began with, which names
    /// it.
    pub(super) key: u32,
    pub(super) domain: DomainId,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Region(Region),
    Window(Window),
}

/// A registered range. It is inside its memory, its addresses do not wrap, and if `access` has
/// LOCAL_WRITE the memory can be written: [`Region::new`] sees to it.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) access: Access,
    pub(super) iova: u64,
    pub(super) len: usize,
    /// The first byte: `offset` bytes into `memory`.
    first: *mut u8,
    memory: Arc<Allocation>,
    offset: usize,
    /// Windows that are bound to it.
    pub(super) windows: AtomicU32,
}

// SAFETY: `first` points into `memory`, which may be shared between threads and moves with it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl MemoryTable {
    /// An empty table that draws its keys from `random`.
    #[must_use]
    pub fn new(random: ChaCha8Rng) -> Self {
        Self {
            entries: HashMap::default(),
            owned: Mutex::default(),
            unbindings: AtomicU64::new(0),
            counts: Counts::default(),
            dealer: Mutex::new(Dealer::new(random)),
        }
    }

    /// Makes a region.
    ///
    /// # Errors
    /// What is wrong with it, or that the table is full.
    pub fn register(&mut self, spec: RegionSpec) -> Result<RegionKeys, MemoryError> {
        if self.counts.regions >= MAX_REGIONS {
            return Err(MemoryError::TooManyRegions { limit: MAX_REGIONS });
        }
        let domain = spec.domain;
        let kind = Kind::Region(Region::new(spec)?);
        let key = self.dealer().key();
        self.entries.insert(handle(key), Entry { key, domain, kind });
        self.counts.regions += 1;
        Ok(RegionKeys::of(key))
    }

    /// Makes another region of this one. Its keys are drawn anew, so that the old ones open
    /// nothing and tell nothing of the new ones. If it is refused, the region stays as it is.
    ///
    /// # Errors
    /// There is no such region, windows are bound to it, or what is wrong with the new one.
    pub fn reregister(&mut self, lkey: Lkey, spec: RegionSpec) -> Result<RegionKeys, MemoryError> {
        let old = self.free_of_windows(lkey)?;
        let domain = spec.domain;
        let kind = Kind::Region(Region::new(spec)?);
        let key = self.dealer().key();
        self.entries.remove(&handle(old));
        self.dealer().give_back(handle(old));
        self.entries.insert(handle(key), Entry { key, domain, kind });
        Ok(RegionKeys::of(key))
    }

    /// Makes another region of this one under the same keys: work that names them reaches the new region.
    ///
    /// # Errors
    /// As [`reregister`](Self::reregister).
    pub fn reregister_in_place(&mut self, lkey: Lkey, spec: RegionSpec) -> Result<RegionKeys, MemoryError> {
        let key = self.free_of_windows(lkey)?;
        let domain = spec.domain;
        let kind = Kind::Region(Region::new(spec)?);
        self.entries.insert(handle(key), Entry { key, domain, kind });
        Ok(RegionKeys::of(key))
    }

    /// Takes a region out of use and gives its memory back.
    ///
    /// # Errors
    /// There is no such region, or windows are bound to it.
    pub fn deregister(&mut self, lkey: Lkey) -> Result<Arc<Allocation>, MemoryError> {
        let key = self.free_of_windows(lkey)?;
        match self.entries.remove(&handle(key)) {
            Some(Entry { kind: Kind::Region(region), .. }) => {
                self.counts.regions -= 1;
                self.dealer().give_back(handle(key));
                Ok(region.memory)
            }
            _ => Err(MemoryError::UnknownKey { key }),
        }
    }

    /// All regions, and what they were made of.
    pub fn regions(&self) -> impl Iterator<Item = (RegionKeys, RegionSpec)> {
        let regions = self.entries.values().filter(|entry| matches!(entry.kind, Kind::Region(_)));
        regions.filter_map(|entry| Some((RegionKeys::of(entry.key), self.region(Lkey(entry.key))?)))
    }

    /// What a region was made of; changed, it is what [`reregister`](Self::reregister) takes.
    #[must_use]
    pub fn region(&self, lkey: Lkey) -> Option<RegionSpec> {
        let (domain, region) = self.find_region(lkey.0).ok()?;
        Some(RegionSpec {
            domain,
            access: region.access,
            iova: region.iova,
            memory: Arc::clone(&region.memory),
            offset: region.offset,
            len: region.len,
        })
    }

    /// The program's own memory, on behalf of work in `domain`. No bytes need no key.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn local(&self, domain: DomainId, sge: Sge, write: bool) -> Result<Place<'_>, Denied> {
        self.open_local(Some(domain), sge, write)
    }

    /// The same for work whose domain was already compared, by an earlier [`local`](Self::local).
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn local_again(&self, sge: Sge, write: bool) -> Result<Place<'_>, Denied> {
        self.open_local(None, sge, write)
    }

    /// Memory for a peer. No bytes need no key (IBA 9.7.4.1.5).
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn remote(
        &self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<Opened<'_>, Denied> {
        if len == 0 {
            return Ok(Opened::plain(Place::EMPTY));
        }
        let entry = match self.entries.get(&handle(rkey.0)) {
            Some(entry) => entry,
            None => self.behind_door(rkey.0)?,
        };
        let own = entry.domain == by.domain;
        match &entry.kind {
            Kind::Region(region) if entry.key == rkey.0 => {
                check(own, region.access.contains(access))?;
                region.place(address, len, access.intersects(PEER_WRITES)).map(Opened::plain)
            }
            Kind::Region(_) => Err(Denied::UnknownKey),
            Kind::Window(window) => self.through(window, own, by.qpn, rkey, (address, len), access),
        }
    }

    /// Has a peer write to memory of this key: `write` is given the place.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn write_remote(
        &self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        write: impl FnOnce(&Place<'_>) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        // The other way asks the same questions and knows windows too. Most keys are of regions, and this is shorter.
        if let Ok((domain, region)) = self.find_region(rkey.0)
            && domain == by.domain
            && region.access.contains(Access::REMOTE_WRITE)
            && len > 0
        {
            let place = region.place(address, len, true)?;
            return write(&place);
        }
        let opened = self.remote(by, rkey, address, len, Access::REMOTE_WRITE)?;
        write(&opened)
    }

    /// Memory for a peer that has the key of a window; `own` says whether the domains agree.
    #[inline(never)]
    fn through<'a>(
        &'a self,
        window: &'a Window,
        own: bool,
        qpn: Qpn,
        rkey: Rkey,
        (address, len): (u64, u32),
        access: Access,
    ) -> Result<Opened<'a>, Denied> {
        let state = window.lock();
        if state.key != rkey.0 {
            return Err(Denied::UnknownKey);
        }
        let region = self.behind(&state, own, qpn, (address, len), access)?;
        Ok(Opened::through(region.place(address, len, access.intersects(PEER_WRITES))?, state))
    }

    /// How much there is.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a region or window belongs to this domain. It looks at all of them.
    #[must_use]
    pub fn uses_domain(&self, domain: DomainId) -> bool {
        self.entries.values().any(|entry| entry.domain == domain)
    }

    /// The region behind a window that allows this; `own` says whether the domains agree.
    fn behind(
        &self,
        window: &WindowState,
        own: bool,
        qpn: Qpn,
        (address, len): (u64, u32),
        access: Access,
    ) -> Result<&Region, Denied> {
        let bound = window.bound.as_ref().ok_or(Denied::UnknownKey)?;
        let behind = self.entries.get(&bound.region).ok_or(Denied::UnknownKey)?;
        let Kind::Region(region) = &behind.kind else { return Err(Denied::UnknownKey) };
        let own = own && bound.owner.is_none_or(|owner| owner == qpn);
        check(own, bound.access.contains(access))?;
        within((bound.start, bound.len), address, u64::from(len))?;
        Ok(region)
    }

    #[inline]
    fn open_local(&self, domain: Option<DomainId>, sge: Sge, write: bool) -> Result<Place<'_>, Denied> {
        if sge.length == 0 {
            return Ok(Place::EMPTY);
        }
        let (owner, region) = self.find_region(sge.lkey.0)?;
        if domain.is_some_and(|domain| domain != owner) {
            return Err(Denied::WrongDomain);
        }
        let place = region.place(sge.address, sge.length, write)?;
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(Denied::NotPermitted);
        }
        Ok(place)
    }

    #[inline]
    pub(super) fn find(&self, key: u32) -> Result<&Entry, Denied> {
        let has_key = |entry: &Entry| match &entry.kind {
            Kind::Region(_) => entry.key == key,
            Kind::Window(window) => window.lock().key == key,
        };
        let entry = match self.entries.get(&handle(key)) {
            Some(entry) => entry,
            None => self.behind_door(key)?,
        };
        if has_key(entry) { Ok(entry) } else { Err(Denied::UnknownKey) }
    }

    /// The window that is bound under a handle other than its name, if there is one. Its key may be another
    /// by now.
    #[inline(never)]
    fn behind_door(&self, key: u32) -> Result<&Entry, Denied> {
        let name = self.dealer().behind(handle(key)).ok_or(Denied::UnknownKey)?;
        self.entries.get(&name).ok_or(Denied::UnknownKey)
    }

    #[inline]
    pub(super) fn find_region(&self, key: u32) -> Result<(DomainId, &Region), Denied> {
        // A window is not even looked at: it may be held still by the thread that asks.
        match self.entries.get(&handle(key)) {
            Some(Entry { key: whole, domain, kind: Kind::Region(region) }) if *whole == key => {
                Ok((*domain, region))
            }
            _ => Err(Denied::UnknownKey),
        }
    }

    /// The key of a region that has no windows.
    fn free_of_windows(&self, lkey: Lkey) -> Result<u32, MemoryError> {
        let key = lkey.0;
        let (_, region) = self.find_region(key).map_err(|_| MemoryError::UnknownKey { key })?;
        match region.windows.load(Ordering::Relaxed) {
            0 => Ok(key),
            windows => Err(MemoryError::InUse { windows }),
        }
    }

    /// What deals keys. A thread that holds a window still may take it, not the other way round.
    pub(super) fn dealer(&self) -> MutexGuard<'_, Dealer> {
        self.dealer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region {
    fn new(spec: RegionSpec) -> Result<Self, MemoryError> {
        let RegionSpec { domain: _, access, iova, memory, offset, len } = spec;
        let size = memory.len();
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(MemoryError::OutsideAllocation { offset, len, size });
        }
        if iova.checked_add(len as u64).is_none() {
            return Err(MemoryError::AddressWraps { iova, len });
        }
        let by_owner = access.contains(Access::LOCAL_WRITE);
        if !by_owner && access.intersects(PEER_WRITES) {
            return Err(MemoryError::NeedsLocalWrite { access });
        }
        if by_owner && !memory.is_writable() {
            return Err(MemoryError::ReadOnly { access });
        }
        let first = memory.as_ptr().wrapping_add(offset);
        Ok(Self { access, iova, len, first, memory, offset, windows: AtomicU32::new(0) })
    }

    /// The range at this address, if it is inside. Without LOCAL_WRITE it cannot be written,
    /// whatever was asked.
    #[inline]
    fn place(&self, address: u64, len: u32, write: bool) -> Result<Place<'_>, Denied> {
        let offset = within((self.iova, self.len as u64), address, u64::from(len))?;
        let offset = usize::try_from(offset).map_err(|_| Denied::OutOfRange)?;
        let writable = write && self.access.contains(Access::LOCAL_WRITE);
        let first = self.first.wrapping_add(offset);
        // SAFETY: the range is inside the region, and the region inside its memory, which can be
        // written if the region has LOCAL_WRITE (`Region::new`). The memory lives while the region
        // holds it, and the place borrows the region.
        Ok(unsafe { Place::new(first, len as usize, address, writable) })
    }
}

impl RegionKeys {
    const fn of(key: u32) -> Self {
        Self { lkey: Lkey(key), rkey: Rkey(key) }
    }
}

/// The offset of a range inside another one, given as start and length, which does not wrap.
#[inline]
pub(super) fn within((start, size): (u64, u64), address: u64, len: u64) -> Result<u64, Denied> {
    let offset = address.checked_sub(start).ok_or(Denied::OutOfRange)?;
    let left = size.checked_sub(offset).ok_or(Denied::OutOfRange)?;
    if len <= left { Ok(offset) } else { Err(Denied::OutOfRange) }
}

/// Whose memory it is comes before what may be done with it.
#[inline]
pub(super) const fn check(own: bool, permitted: bool) -> Result<(), Denied> {
    match (own, permitted) {
        (false, _) => Err(Denied::WrongDomain),
        (true, false) => Err(Denied::NotPermitted),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! Memory windows: a part of a region, opened for a while under a key of its own.

use ferroce_transport::{Access, Accessor, Bind, Denied, DomainId};
use ferroce_wire::{Lkey, Qpn, Rkey};

use super::error::MemoryError;
use super::keys::{handle, with_next_tag};
use super::table::{Entry, Kind, MAX_WINDOWS, MemoryTable, PEER_WRITES, check, within};

/// The two kinds of memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Bound by a verb, and open to all queue pairs of its protection domain.
    Type1,
    /// Bound by work of a queue pair, and open to that one only (the form that the IBA calls 2B).
    Type2,
}

/// A memory window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) bound: Option<Bound>,
}

/// What a window opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The only queue pair that may use it, if there is one.
    pub(super) owner: Option<Qpn>,
    /// The handle of the region behind it, which cannot change while this is bound.
    pub(super) region: u32,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

impl MemoryTable {
    /// Makes a window with nothing bound to it.
    ///
    /// # Errors
    /// The table is full.
    pub fn allocate_window(&mut self, domain: DomainId, kind: WindowKind) -> Result<Rkey, MemoryError> {
        if self.counts.windows >= MAX_WINDOWS {
            return Err(MemoryError::TooManyWindows { limit: MAX_WINDOWS });
        }
        let key = self.unused_key();
        let kind = Kind::Window(Window { kind, bound: None });
        self.entries.insert(handle(key), Entry { key, domain, kind });
        self.counts.windows += 1;
        Ok(Rkey(key))
    }

    /// Takes a window away, bound or not.
    ///
    /// # Errors
    /// There is no such window.
    pub fn free_window(&mut self, rkey: Rkey) -> Result<(), MemoryError> {
        let key = rkey.0;
        self.find_window(key).map_err(|_| MemoryError::UnknownKey { key })?;
        self.set(key, key, None);
        self.entries.remove(&handle(key));
        self.counts.windows -= 1;
        Ok(())
    }

    /// Binds a type 2 window to a part of a region on behalf of a queue pair, or unbinds it with a
    /// length of 0. Its key becomes the one in `bind`.
    ///
    /// # Errors
    /// Why not; the window is as before.
    pub fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        let (domain, window) = self.find_window(bind.window.0)?;
        let fits = window.kind == WindowKind::Type2
            && handle(bind.window.0) == handle(bind.new_key.0)
            && window.bound.is_none_or(|bound| bound.owner == Some(by.qpn));
        let bound = self.bound(by.domain == domain, fits, bind, Some(by.qpn))?;
        self.set(bind.window.0, bind.new_key.0, (bind.length > 0).then_some(bound));
        Ok(())
    }

    /// Binds a type 1 window to a part of a region, and returns its new key: the tag of the old one
    /// plus 1. A length of 0 unbinds it, and then `region` is not looked at.
    ///
    /// # Errors
    /// Why not; the window is as before.
    pub fn bind_type1(
        &mut self,
        domain: DomainId,
        window: Rkey,
        region: Lkey,
        (address, length): (u64, u64),
        access: Access,
    ) -> Result<Rkey, Denied> {
        let (owner, present) = self.find_window(window.0)?;
        let new_key = Rkey(with_next_tag(window.0));
        let fits = present.kind == WindowKind::Type1;
        let bound = if length == 0 {
            check(owner == domain, fits)?;
            None
        } else {
            let bind = Bind { window, new_key, region, address, length, access };
            Some(self.bound(owner == domain, fits, &bind, None)?)
        };
        self.set(window.0, new_key.0, bound);
        Ok(new_key)
    }

    /// Unbinds a type 2 window, on a peer's demand or the program's own. Its key opens nothing
    /// until it is bound again.
    ///
    /// # Errors
    /// There is no such window, it is not bound for this queue pair, or the key is one that cannot
    /// be taken out of use this way.
    pub fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), Denied> {
        let entry = self.find(rkey.0)?;
        let Kind::Window(window) = entry.kind else { return Err(Denied::NotPermitted) };
        if entry.domain != by.domain {
            return Err(Denied::WrongDomain);
        }
        match window.bound {
            Some(Bound { owner: Some(owner), .. }) if owner == by.qpn => {}
            Some(Bound { owner: Some(_), .. }) => return Err(Denied::WrongDomain),
            Some(Bound { owner: None, .. }) | None => return Err(Denied::NotPermitted),
        }
        self.set(rkey.0, rkey.0, None);
        Ok(())
    }

    /// Unbinds every type 2 window of a queue pair, as destroying or resetting it does.
    pub fn unbind_all_of(&mut self, qpn: Qpn) {
        while let Some(&(_, window)) = self.owned.range((qpn, 0)..=(qpn, u32::MAX)).next() {
            self.owned.remove(&(qpn, window));
            if let Some(key) = self.entries.get(&window).map(|entry| entry.key) {
                self.set(key, key, None);
            }
        }
    }

    /// What a window is to open, after all checks; `own` and `fits` are what the caller has found out
    /// about the window.
    fn bound(&self, own: bool, fits: bool, bind: &Bind, owner: Option<Qpn>) -> Result<Bound, Denied> {
        let (domain, region) = self.find_region(bind.region.0)?;
        let of_window = self.find(bind.window.0)?.domain;
        let writes = bind.access.intersects(PEER_WRITES);
        let allows = region.access.contains(Access::BIND_WINDOW)
            && (!writes || region.access.contains(Access::LOCAL_WRITE));
        check(own && domain == of_window, fits && allows)?;
        within((region.iova, region.len as u64), bind.address, bind.length)?;
        Ok(Bound {
            owner,
            region: handle(bind.region.0),
            start: bind.address,
            len: bind.length,
            access: bind.access,
        })
    }

    fn find_window(&self, key: u32) -> Result<(DomainId, Window), Denied> {
        match self.find(key)? {
            Entry { domain, kind: Kind::Window(window), .. } => Ok((*domain, *window)),
            Entry { kind: Kind::Region(_), .. } => Err(Denied::UnknownKey),
        }
    }

    /// Gives a window its key and what it opens, and keeps the books.
    fn set(&mut self, key: u32, new_key: u32, bound: Option<Bound>) {
        let id = handle(key);
        let Some(Entry { key, kind: Kind::Window(window), .. }) = self.entries.get_mut(&id) else { return };
        *key = new_key;
        let before = std::mem::replace(&mut window.bound, bound);
        if let Some(Bound { owner, region, .. }) = before {
            self.owned.remove(&(owner.unwrap_or_default(), id));
            if let Some(Entry { kind: Kind::Region(region), .. }) = self.entries.get_mut(&region) {
                region.windows -= 1;
            }
        }
        if let Some(Bound { owner, region, .. }) = bound {
            if let Some(owner) = owner {
                self.owned.insert((owner, id));
            }
            if let Some(Entry { kind: Kind::Region(region), .. }) = self.entries.get_mut(&region) {
                region.windows += 1;
            }
        }
    }
}

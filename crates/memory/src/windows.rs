//! Memory windows: a part of a region, opened for a while under a key of its own.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_transport::{Access, Accessor, Bind, Denied, DomainId};
use ferroce_wire::{Qpn, Rkey};

use super::error::MemoryError;
use super::keys::handle;
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
///
/// Work of a queue pair binds and invalidates windows while other engines read the table: so what
/// changes has a lock, and only accesses through a window pay for it. An access holds it until its bytes are
/// copied, and waits for nothing meanwhile: so a thread that changes a window knows that no access by the old
/// rule is under way any more.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    state: Mutex<WindowState>,
}

/// What changes about a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowState {
    /// Its present key.
    pub(super) key: u32,
    pub(super) bound: Option<Bound>,
}

/// A window that is held still.
pub(super) type WindowHold<'a> = MutexGuard<'a, WindowState>;

impl Window {
    /// As it is now, held still.
    pub(super) fn lock(&self) -> WindowHold<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an access through it is under way.
    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.state.try_lock().is_err()
    }
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
    /// Makes a window with nothing bound to it. The key that is returned opens nothing; its handle is the
    /// window's name for as long as it lives.
    ///
    /// # Errors
    /// The table is full.
    pub fn allocate_window(&mut self, domain: DomainId, kind: WindowKind) -> Result<Rkey, MemoryError> {
        if self.counts.windows >= MAX_WINDOWS {
            return Err(MemoryError::TooManyWindows { limit: MAX_WINDOWS });
        }
        let key = self.dealer().key();
        let state = Mutex::new(WindowState { key, bound: None });
        self.entries.insert(handle(key), Entry { key, domain, kind: Kind::Window(Window { kind, state }) });
        self.counts.windows += 1;
        Ok(Rkey(key))
    }

    /// Takes a window away, bound or not: the one with the name of this key.
    ///
    /// # Errors
    /// There is no such window.
    pub fn free_window(&mut self, name: Rkey) -> Result<(), MemoryError> {
        let id = handle(name.0);
        let (_, _, mut state) = self.window(id).map_err(|_| MemoryError::UnknownKey { key: name.0 })?;
        let key = state.key;
        self.set(id, &mut state, key, None);
        drop(state);
        self.entries.remove(&id);
        self.dealer().forget(id, key);
        self.counts.windows -= 1;
        Ok(())
    }

    /// The key of the next binding of a window, which is named by the key that it was made with.
    ///
    /// For type 1 it is a new one, promised to this window until it is freed; a window that was promised
    /// 32,768 others since then is not bound under it any more. For type 2 only the tag is new, which is none
    /// that was dealt for the window lately. If there is no such window, or no promise can be made, it is a
    /// key that no window can be bound under.
    #[must_use]
    pub fn next_window_key(&self, name: Rkey) -> Rkey {
        let id = handle(name.0);
        let Ok((_, kind, state)) = self.window(id) else { return name };
        let mut dealer = self.dealer();
        match kind {
            WindowKind::Type1 => dealer.promise(id).map_or(name, Rkey),
            WindowKind::Type2 => Rkey(dealer.with_other_tag(state.key)),
        }
    }

    /// Binds a window to a part of a region on behalf of a queue pair, or unbinds it with a length of 0, and
    /// then no region is looked at. Its key becomes the one in `bind`: for type 1 one that it was promised
    /// ([`next_window_key`](Self::next_window_key)), for type 2 its name with any tag.
    ///
    /// # Errors
    /// Why not; the window is as before.
    pub fn bind(&self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        let id = handle(bind.window.0);
        let (domain, kind, mut state) = self.window(id)?;
        let owner = (kind == WindowKind::Type2).then_some(by.qpn);
        let fits = state.bound.is_none_or(|bound| bound.owner == owner);
        let bound = self.opened((domain, by.domain == domain), fits, bind, owner)?;
        self.rekey(id, kind, &mut state, bind.new_key.0, bound)
    }

    /// The same of a type 1 window at once, without a queue pair.
    ///
    /// # Errors
    /// Why not; the window is as before.
    pub fn bind_at_once(&self, domain: DomainId, bind: &Bind) -> Result<(), Denied> {
        let id = handle(bind.window.0);
        let (owner, kind, mut state) = self.window(id)?;
        let fits = kind == WindowKind::Type1;
        let bound = self.opened((owner, owner == domain), fits, bind, None)?;
        self.rekey(id, kind, &mut state, bind.new_key.0, bound)
    }

    /// The present key of the window with the name of this one.
    #[must_use]
    pub fn window_key(&self, name: Rkey) -> Option<Rkey> {
        self.window(handle(name.0)).ok().map(|(_, _, state)| Rkey(state.key))
    }

    /// Unbinds a type 2 window, on a peer's demand or the program's own. Its key opens nothing
    /// until it is bound again.
    ///
    /// # Errors
    /// There is no such window, it is not bound for this queue pair, or the key is one that cannot
    /// be taken out of use this way.
    pub fn invalidate(&self, by: Accessor, rkey: Rkey) -> Result<(), Denied> {
        let entry = self.find(rkey.0)?;
        let Kind::Window(window) = &entry.kind else { return Err(Denied::NotPermitted) };
        if entry.domain != by.domain {
            return Err(Denied::WrongDomain);
        }
        let mut state = window.lock();
        match state.bound {
            // It may have been bound anew since it was found.
            _ if state.key != rkey.0 => return Err(Denied::UnknownKey),
            Some(Bound { owner: Some(owner), .. }) if owner == by.qpn => {}
            Some(Bound { owner: Some(_), .. }) => return Err(Denied::WrongDomain),
            Some(Bound { owner: None, .. }) | None => return Err(Denied::NotPermitted),
        }
        self.set(handle(rkey.0), &mut state, rkey.0, None);
        Ok(())
    }

    /// Unbinds every type 2 window of a queue pair, as destroying or resetting it does.
    pub fn unbind_all_of(&self, qpn: Qpn) {
        let next = || self.owned().range((qpn, 0)..=(qpn, u32::MAX)).next().copied();
        while let Some((_, id)) = next() {
            match self.entries.get(&id) {
                Some(Entry { kind: Kind::Window(window), .. }) => {
                    let mut state = window.lock();
                    let key = state.key;
                    self.set(id, &mut state, key, None);
                }
                _ => {
                    self.owned().remove(&(qpn, id));
                }
            }
        }
    }

    /// How often a region has lost its last window: engines that wait for that look again when it changes.
    #[must_use]
    pub fn unbindings(&self) -> u64 {
        self.unbindings.load(Ordering::Relaxed)
    }

    /// What a window is to open, or nothing with a length of 0.
    fn opened(
        &self,
        (of_window, own): (DomainId, bool),
        fits: bool,
        bind: &Bind,
        owner: Option<Qpn>,
    ) -> Result<Option<Bound>, Denied> {
        if bind.length == 0 {
            check(own, fits)?;
            return Ok(None);
        }
        self.bound((of_window, own), fits, bind, owner).map(Some)
    }

    /// What a window is to open, after all checks; its domain, whether that is the caller's own, and `fits` are
    /// what the caller has found out about the window.
    fn bound(
        &self,
        (of_window, own): (DomainId, bool),
        fits: bool,
        bind: &Bind,
        owner: Option<Qpn>,
    ) -> Result<Bound, Denied> {
        let (domain, region) = self.find_region(bind.region.0)?;
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

    /// The window of this name, held still: its domain, its kind, and its state.
    fn window(&self, id: u32) -> Result<(DomainId, WindowKind, WindowHold<'_>), Denied> {
        match self.entries.get(&id) {
            Some(Entry { domain, kind: Kind::Window(window), .. }) => {
                Ok((*domain, window.kind, window.lock()))
            }
            _ => Err(Denied::UnknownKey),
        }
    }

    /// Gives a window another key, if it may have that, and what it opens.
    fn rekey(
        &self,
        id: u32,
        kind: WindowKind,
        state: &mut WindowState,
        new_key: u32,
        bound: Option<Bound>,
    ) -> Result<(), Denied> {
        let allowed = match kind {
            WindowKind::Type1 => self.dealer().redeem(id, state.key, new_key),
            WindowKind::Type2 => handle(new_key) == id,
        };
        check(true, allowed)?;
        self.set(id, state, new_key, bound);
        Ok(())
    }

    /// Gives a window its key and what it opens, and keeps the books.
    fn set(&self, id: u32, state: &mut WindowState, new_key: u32, bound: Option<Bound>) {
        state.key = new_key;
        let before = std::mem::replace(&mut state.bound, bound);
        if let Some(Bound { owner, region, .. }) = before {
            if let Some(owner) = owner {
                self.owned().remove(&(owner, id));
            }
            if let Some(Entry { kind: Kind::Region(region), .. }) = self.entries.get(&region)
                && region.windows.fetch_sub(1, Ordering::Relaxed) == 1
            {
                self.unbindings.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(Bound { owner, region, .. }) = bound {
            if let Some(owner) = owner {
                self.owned().insert((owner, id));
            }
            if let Some(Entry { kind: Kind::Region(region), .. }) = self.entries.get(&region) {
                region.windows.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The list of windows that belong to queue pairs. A thread that holds a window still may take it, not
    /// the other way round.
    pub(super) fn owned(&self) -> MutexGuard<'_, BTreeSet<(Qpn, u32)>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

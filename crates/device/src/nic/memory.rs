//! Memory of a device: regions and windows.

use std::sync::Arc;

use ferroce_memory::{Allocation, MemoryError, MemoryTable, RegionKeys, RegionSpec, WindowKind};
use ferroce_record::Step;
use ferroce_transport::{Access, Bind, Denied, DomainId};
use ferroce_wire::{Lkey, Rkey};

use super::Nic;
use crate::error::NicCreateError;

impl Nic {
    /// Registers `len` bytes of an allocation from `offset` on. `iova` is the address that work
    /// and peers use for the first of them.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn register(
        &self,
        domain: DomainId,
        memory: &Arc<Allocation>,
        (offset, len): (usize, usize),
        iova: u64,
        access: Access,
    ) -> Result<(Lkey, Rkey), NicCreateError> {
        self.use_domain(domain)?;
        let memory = Arc::clone(memory);
        let spec = RegionSpec { domain, access, iova, memory, offset, len };
        let keys = self.engines().control_all(|all| {
            let keys = all.memory().register(spec.clone())?;
            all.record_region(Step::Made, keys, &spec);
            Ok(keys)
        });
        match keys {
            Ok(keys) => Ok((keys.lkey, keys.rkey)),
            Err(error) => {
                self.leave_domain(domain);
                Err(error)
            }
        }
    }

    /// Makes another region of this one: `change` says what is different. Its keys are new, and work that
    /// names it by the old ones fails. If it is refused, the region stays as it is.
    ///
    /// # Errors
    /// There is no such region or domain, a window is bound to the region, or what is wrong with the new one.
    pub fn reregister(
        &self,
        lkey: Lkey,
        change: impl FnOnce(&mut RegionSpec),
    ) -> Result<(Lkey, Rkey), NicCreateError> {
        self.replace(lkey, change, MemoryTable::reregister)
    }

    /// Makes another region of this one under the same keys, as C programs expect it: work that names them
    /// reaches the new region.
    ///
    /// # Errors
    /// As [`reregister`](Self::reregister).
    pub fn reregister_in_place(
        &self,
        lkey: Lkey,
        change: impl FnOnce(&mut RegionSpec),
    ) -> Result<(Lkey, Rkey), NicCreateError> {
        self.replace(lkey, change, MemoryTable::reregister_in_place)
    }

    fn replace(
        &self,
        lkey: Lkey,
        change: impl FnOnce(&mut RegionSpec),
        replace: fn(&mut MemoryTable, Lkey, RegionSpec) -> Result<RegionKeys, MemoryError>,
    ) -> Result<(Lkey, Rkey), NicCreateError> {
        self.check_ours()?;
        // All in one, so that of two threads that do this at once the second begins with what the first has
        // made, and the domain that is left is the one that the region had.
        let (keys, left, before) = self.engines().control_all(|all| {
            let table = all.memory();
            let before = table.region(lkey).ok_or(MemoryError::UnknownKey { key: lkey.0 })?;
            let mut spec = before.clone();
            change(&mut spec);
            let domain = spec.domain;
            self.use_domain(domain)?;
            let keys = replace(table, lkey, spec.clone());
            let left = if keys.is_ok() { before.domain } else { domain };
            if let Ok(keys) = keys {
                all.record_region(Step::Gone, RegionKeys { lkey, rkey: Rkey(lkey.0) }, &before);
                all.record_region(Step::Made, keys, &spec);
            }
            Ok::<_, NicCreateError>((keys, left, before))
        })?;
        self.leave_domain(left);
        // The old memory goes outside of the engine: it may be large.
        drop(before);
        Ok(keys.map(|keys| (keys.lkey, keys.rkey))?)
    }

    /// Deregisters a region at once: work that names it fails from now on, and nothing touches
    /// its memory any more.
    ///
    /// # Errors
    /// There is no such region, or a window is bound to it.
    pub fn deregister(&self, domain: DomainId, lkey: Lkey) -> Result<(), NicCreateError> {
        self.check_ours()?;
        let memory = self.engines().control_all(|all| {
            all.forget_region(lkey);
            all.deregister(lkey)
        })?;
        // The memory is given back outside of the engine: it may be large.
        drop(memory);
        self.leave_domain(domain);
        Ok(())
    }

    /// Deregisters a region as soon as no posted work names it.
    pub fn release(&self, domain: DomainId, lkey: Lkey) {
        if !self.is_ours() {
            return;
        }
        self.engines().control_all(|all| all.release_region(lkey));
        self.leave_domain(domain);
    }

    /// A memory window that opens nothing yet, and is named by the key that is returned for as long as it
    /// lives. Type 2 windows are bound by work of a queue pair.
    ///
    /// # Errors
    /// There is no such domain, or there are too many windows.
    pub fn allocate_window(&self, domain: DomainId, kind: WindowKind) -> Result<Rkey, NicCreateError> {
        self.use_domain(domain)?;
        let key = self.change_memory(|table| table.allocate_window(domain, kind));
        key.inspect_err(|_| self.leave_domain(domain))
    }

    /// Binds a type 1 window at once, or unbinds it with a length of 0.
    ///
    /// # Errors
    /// Why not; the window is as before.
    pub fn bind_window(&self, domain: DomainId, bind: &Bind) -> Result<(), Denied> {
        // In a child of the process that opened the device no key opens anything.
        self.check_ours().map_err(|_| Denied::UnknownKey)?;
        // In all engines: none of them is in the middle of an access that the window allowed until now.
        self.engines().control_all(|all| {
            all.memory().bind_at_once(domain, bind)?;
            all.record_binding(domain, bind);
            Ok(())
        })?;
        if bind.length == 0 {
            // A region may have waited for it.
            self.engines().release_regions();
        }
        Ok(())
    }

    /// The key that a memory window has now. Windows are named by the key that they were made with.
    #[must_use]
    pub fn window_key(&self, window: Rkey) -> Option<Rkey> {
        self.check_ours().ok()?;
        self.engines().control(0, |engine| engine.tables.memory.window_key(window))
    }

    /// A key for the next binding of a memory window, that nothing known of the last ones helps to guess
    /// ([`MemoryTable::next_window_key`]). In a child of the process that opened the device it opens nothing.
    #[must_use]
    pub fn next_window_key(&self, window: Rkey) -> Rkey {
        if self.check_ours().is_err() {
            return window;
        }
        self.engines().control(0, |engine| engine.tables.memory.next_window_key(window))
    }

    /// Gives a memory window back; from now on no key opens it, also none of bindings that wait for their
    /// turn.
    ///
    /// # Errors
    /// There is no such window.
    pub fn free_window(&self, domain: DomainId, window: Rkey) -> Result<(), NicCreateError> {
        self.check_ours()?;
        self.engines().control_all(|all| {
            let key = all.memory().window_key(window);
            all.memory().free_window(window)?;
            all.record_unbinding(domain, key.unwrap_or(window));
            Ok::<_, NicCreateError>(())
        })?;
        // A region may have waited for it.
        self.engines().release_regions();
        self.leave_domain(domain);
        Ok(())
    }

    /// Changes the memory table, while no engine uses it.
    fn change_memory<R>(
        &self,
        change: impl FnOnce(&mut MemoryTable) -> Result<R, MemoryError>,
    ) -> Result<R, NicCreateError> {
        Ok(self.engines().control_all(|all| change(all.memory()))?)
    }
}

//! Memory that finds keys in a small table, as a device does, and copies nothing.

use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, Receive, Sge, SharedQueueId,
};
use ferroce_wire::{Lkey, Qpn, Rkey};

/// A registered range.
#[derive(Clone, Copy)]
struct Region {
    key: u32,
    domain: DomainId,
    start: u64,
    end: u64,
    access: Access,
}

/// The table, and counts of what would have been copied and what was completed.
pub(crate) struct Table {
    regions: [Option<Region>; 16],
    pub(crate) copied: u64,
    pub(crate) completed: u64,
}

impl Table {
    /// The key of the region that is written.
    pub(crate) const KEY: u32 = 0x0500;

    /// Where it begins.
    pub(crate) const BASE: u64 = 0x7f00_0000_0000;

    pub(crate) fn new() -> Self {
        let mut regions = [None; 16];
        for (index, slot) in (0_u32..).zip(&mut regions) {
            let (start, key) = (Self::BASE + (u64::from(index.abs_diff(5)) << 32), index << 8);
            let (domain, access) = (DomainId(1), Access::all());
            *slot = Some(Region { key, domain, start, end: start + (1 << 24), access });
        }
        Self { regions, copied: 0, completed: 0 }
    }

    /// The high 24 bits of a key say where in the table it is; the low eight must match.
    fn check(
        &self,
        domain: DomainId,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<(), Denied> {
        let slot = self.regions.get((key >> 8) as usize);
        let Some(region) = slot.and_then(Option::as_ref).filter(|region| region.key == key) else {
            return Err(Denied::UnknownKey);
        };
        if region.domain != domain {
            return Err(Denied::WrongDomain);
        }
        if !region.access.contains(access) {
            return Err(Denied::NotPermitted);
        }
        let end = address.checked_add(len).ok_or(Denied::OutOfRange)?;
        if address >= region.start && end <= region.end { Ok(()) } else { Err(Denied::OutOfRange) }
    }
}

impl Host for Table {
    fn check_local(&mut self, domain: DomainId, sge: Sge, write: bool) -> Result<(), Denied> {
        let access = if write { Access::LOCAL_WRITE } else { Access::empty() };
        self.check(domain, sge.lkey.0, sge.address, u64::from(sge.length), access)
    }

    fn write_local(&mut self, _: Lkey, _: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.copied += bytes.len() as u64;
        Ok(())
    }

    fn read_local(&mut self, _: Lkey, _: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        self.copied += bytes.len() as u64;
        Ok(())
    }

    fn check_remote(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), Denied> {
        self.check(by.domain, rkey.0, address, u64::from(len), access)
    }

    fn write_remote(&mut self, by: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.check(by.domain, rkey.0, address, bytes.len() as u64, Access::REMOTE_WRITE)?;
        self.copied += bytes.len() as u64;
        Ok(())
    }

    fn atomic(&mut self, by: Accessor, rkey: Rkey, address: u64, _: AtomicOp) -> Result<u64, Denied> {
        self.check(by.domain, rkey.0, address, 8, Access::REMOTE_ATOMIC)?;
        Ok(0)
    }

    fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), Denied> {
        Err(Denied::NotPermitted)
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Err(Denied::NotPermitted)
    }

    fn take_shared(&mut self, _: SharedQueueId, _: &mut Receive) -> bool {
        false
    }

    fn peek_shared(&mut self, _: SharedQueueId, _: &mut Receive) -> bool {
        false
    }

    fn complete_send(&mut self, _: u32, _: Completion) {
        self.completed += 1;
    }

    fn complete_receive(&mut self, _: u32, _: Completion) {
        self.completed += 1;
    }

    fn event(&mut self, qpn: Qpn, event: Event) {
        panic!("queue pair {qpn:?}: {event:?}");
    }
}

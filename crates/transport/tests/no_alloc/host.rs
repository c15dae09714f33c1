//! Memory of a fixed size that counts completions and keeps none.

use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, Receive, Sge, SharedQueueId,
    Status,
};
use ferroce_wire::{Lkey, Qpn, Rkey};

/// One region, taken when it is made.
pub(crate) struct Fixed {
    memory: Box<[u8]>,
    completed: u64,
}

impl Fixed {
    /// The key of the region.
    pub(crate) const KEY: u32 = 0x100;

    /// Where it begins.
    pub(crate) const BASE: u64 = 0x10_0000;

    pub(crate) fn new() -> Self {
        Self { memory: vec![0; 1 << 16].into(), completed: 0 }
    }

    /// A range that was checked.
    pub(crate) fn bytes(&self, address: u64, len: usize) -> &[u8] {
        &self.memory[offset(address)..][..len]
    }

    fn check(&self, key: u32, address: u64, len: usize) -> Result<(), Denied> {
        if key != Self::KEY {
            return Err(Denied::UnknownKey);
        }
        let fits = address >= Self::BASE && offset(address) + len <= self.memory.len();
        if fits { Ok(()) } else { Err(Denied::OutOfRange) }
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        self.memory[offset(address)..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn offset(address: u64) -> usize {
    usize::try_from(address - Fixed::BASE).expect("64 bits")
}

impl Host for Fixed {
    fn check_local(&mut self, _: DomainId, sge: Sge, _: bool) -> Result<(), Denied> {
        self.check(sge.lkey.0, sge.address, sge.length as usize)
    }

    fn write_local(&mut self, _: Lkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.store(address, bytes);
        Ok(())
    }

    fn read_local(&mut self, _: Lkey, address: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        bytes.copy_from_slice(self.bytes(address, bytes.len()));
        Ok(())
    }

    fn check_remote(
        &mut self,
        _: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        _: Access,
    ) -> Result<(), Denied> {
        self.check(rkey.0, address, len as usize)
    }

    fn write_remote(&mut self, _: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.check(rkey.0, address, bytes.len())?;
        self.store(address, bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied> {
        self.check(rkey.0, address, 8)?;
        let mut word = [0; 8];
        word.copy_from_slice(self.bytes(address, 8));
        let original = u64::from_ne_bytes(word);
        let next = op.applied(original);
        self.store(address, &next.to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), Denied> {
        Ok(())
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Ok(())
    }

    fn take_shared(&mut self, _: SharedQueueId, _: &mut Receive) -> bool {
        false
    }

    fn peek_shared(&mut self, _: SharedQueueId, _: &mut Receive) -> bool {
        false
    }

    fn complete_send(&mut self, _: u32, completion: Completion) {
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        self.completed += 1;
    }

    fn complete_receive(&mut self, _: u32, completion: Completion) {
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        self.completed += 1;
    }

    fn event(&mut self, _: Qpn, event: Event) {
        panic!("{event:?}");
    }
}

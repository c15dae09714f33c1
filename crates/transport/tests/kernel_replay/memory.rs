//! The memory of a replayed responder: every key and address that the kernel's peer named, filled with
//! what the kernel was seen to answer.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, Receive, Sge, SharedQueueId,
};
use ferroce_wire::{Lkey, Qpn, Rkey};

/// Sparse memory. A byte is known once a request or an answer has shown it.
pub(crate) struct Memory {
    /// Keys that open everything.
    keys: BTreeSet<u32>,
    bytes: BTreeMap<u64, Byte>,
    /// Bytes of the kernel's answers that an earlier request had put there: these are compared in earnest.
    pub(crate) judged: usize,
}

#[derive(Clone, Copy)]
struct Byte {
    value: u8,
    /// A request of this conversation put it there, so that an answer with another value is wrong.
    placed: bool,
}

impl Memory {
    /// Memory that these keys open, wherever they are used.
    pub(crate) const fn new(keys: BTreeSet<u32>) -> Self {
        Self { keys, bytes: BTreeMap::new(), judged: 0 }
    }

    /// The kernel answered with these bytes: they were there, unless an earlier request says otherwise.
    pub(crate) fn seed(&mut self, address: u64, bytes: &[u8]) {
        for (address, &value) in (address..).zip(bytes) {
            let byte = self.bytes.entry(address).or_insert(Byte { value, placed: false });
            if byte.placed {
                self.judged += 1;
            } else {
                byte.value = value;
            }
        }
    }

    fn place(&mut self, address: u64, bytes: &[u8]) {
        for (address, &value) in (address..).zip(bytes) {
            self.bytes.insert(address, Byte { value, placed: true });
        }
    }

    /// These bytes; unknown ones are zero.
    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        (address..).take(len).map(|address| self.bytes.get(&address).map_or(0, |byte| byte.value)).collect()
    }

    fn check(&self, rkey: Rkey) -> Result<(), Denied> {
        if self.keys.contains(&rkey.0) { Ok(()) } else { Err(Denied::UnknownKey) }
    }
}

impl Host for Memory {
    fn check_local(&mut self, _: DomainId, _: Sge, _: bool) -> Result<(), Denied> {
        Ok(())
    }

    fn write_local(&mut self, _: Lkey, _: u64, _: &[u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn read_local(&mut self, _: Lkey, _: u64, _: &mut [u8]) -> Result<(), Denied> {
        Err(Denied::UnknownKey)
    }

    fn check_remote(&mut self, _: Accessor, rkey: Rkey, _: u64, _: u32, _: Access) -> Result<(), Denied> {
        self.check(rkey)
    }

    fn write_remote(&mut self, _: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.check(rkey)?;
        self.place(address, bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied> {
        self.check(rkey)?;
        let bytes = self.read(address, 8).try_into().expect("eight bytes");
        let original = u64::from_ne_bytes(bytes);
        let next = op.applied(original);
        self.place(address, &next.to_ne_bytes());
        Ok(original)
    }

    /// All keys of the captures are those of ordinary regions, which a peer cannot invalidate.
    fn invalidate(&mut self, _: Accessor, rkey: Rkey) -> Result<(), Denied> {
        self.check(rkey)?;
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

    fn complete_send(&mut self, _: u32, completion: Completion) {
        panic!("a responder completes no sends: {completion:?}");
    }

    fn complete_receive(&mut self, _: u32, _: Completion) {}

    fn event(&mut self, _: Qpn, _: Event) {}
}

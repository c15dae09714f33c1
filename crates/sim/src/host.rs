//! The device around the queue pairs of one simulated host: it answers at once, and writes down
//! everything that it was asked to do.

use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, Receive, ReceiveQueue, Sge,
    SharedQueueId,
};
use ferroce_wire::{Lkey, Qpn, Rkey};

use crate::memory::Memory;

/// One thing that a machine did to its host.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Bytes went into the program's own memory.
    WroteLocal {
        /// Where.
        address: u64,
        /// How many.
        len: usize,
    },
    /// Bytes of a peer went into memory that it has a key for.
    WroteRemote {
        /// On whose behalf.
        by: Accessor,
        /// Where.
        address: u64,
        /// How many.
        len: usize,
    },
    /// An atomic was done.
    Atomic {
        /// On whose behalf.
        by: Accessor,
        /// Where.
        address: u64,
        /// What.
        op: AtomicOp,
        /// The value before.
        original: u64,
    },
    /// A key was taken out of use.
    Invalidated(Rkey),
    /// A window was bound.
    Bound(Bind),
    /// A receive was taken from a shared queue.
    TookShared(SharedQueueId, u64),
    /// A send request ended.
    SendDone(Completion),
    /// A receive request ended.
    ReceiveDone(Completion),
    /// Something else happened.
    Event(Qpn, Event),
}

/// Memory, shared receive queues, and the log.
#[derive(Debug)]
pub struct Device {
    /// The host's memory.
    pub memory: Memory,
    /// Its shared receive queues; a [`SharedQueueId`] is an index.
    pub shared: Vec<ReceiveQueue>,
    log: Vec<Action>,
}

impl Device {
    /// A device over this memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, shared: Vec::new(), log: Vec::new() }
    }

    /// Moves what was done since the last call into `log`, oldest first.
    pub fn take_log(&mut self, log: &mut Vec<Action>) {
        log.append(&mut self.log);
    }
}

impl Host for Device {
    fn check_local(&mut self, domain: DomainId, sge: Sge, write: bool) -> Result<(), Denied> {
        self.memory.check_local(Some(domain), sge.lkey.0, sge.address, u64::from(sge.length), write)
    }

    fn write_local(&mut self, lkey: Lkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.memory.check_local(None, lkey.0, address, bytes.len() as u64, true)?;
        self.memory.write(address, bytes)?;
        self.log.push(Action::WroteLocal { address, len: bytes.len() });
        Ok(())
    }

    fn read_local(&mut self, lkey: Lkey, address: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        self.memory.check_local(None, lkey.0, address, bytes.len() as u64, false)?;
        self.memory.read(address, bytes)
    }

    fn check_remote(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), Denied> {
        self.memory.check_remote(by.domain, by.qpn, rkey, (address, u64::from(len)), access)
    }

    fn write_remote(&mut self, by: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        let range = (address, bytes.len() as u64);
        self.memory.check_remote(by.domain, by.qpn, rkey, range, Access::REMOTE_WRITE)?;
        self.memory.write(address, bytes)?;
        self.log.push(Action::WroteRemote { by, address, len: bytes.len() });
        Ok(())
    }

    fn atomic(&mut self, by: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied> {
        let access = match op {
            AtomicOp::Store(_) => Access::REMOTE_WRITE,
            AtomicOp::CompareSwap { .. } | AtomicOp::FetchAdd(_) => Access::REMOTE_ATOMIC,
        };
        self.memory.check_remote(by.domain, by.qpn, rkey, (address, 8), access)?;
        if !address.is_multiple_of(8) {
            return Err(Denied::Misaligned);
        }
        let original = self.memory.word(address);
        let next = applied(original, op);
        self.memory.write(address, &next.to_ne_bytes())?;
        self.log.push(Action::Atomic { by, address, op, original });
        Ok(original)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), Denied> {
        self.memory.invalidate(by.domain, by.qpn, rkey)?;
        self.log.push(Action::Invalidated(rkey));
        Ok(())
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.memory.bind(by.domain, by.qpn, bind)?;
        self.log.push(Action::Bound(*bind));
        Ok(())
    }

    fn take_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        let taken = self.shared.get_mut(queue.0 as usize).is_some_and(|queue| queue.pop_into(receive));
        if taken {
            self.log.push(Action::TookShared(queue, receive.id()));
        }
        taken
    }

    fn complete_send(&mut self, completion: Completion) {
        self.log.push(Action::SendDone(completion));
    }

    fn complete_receive(&mut self, completion: Completion) {
        self.log.push(Action::ReceiveDone(completion));
    }

    fn event(&mut self, qpn: Qpn, event: Event) {
        self.log.push(Action::Event(qpn, event));
    }
}

/// What an atomic leaves where it found `original`.
#[must_use]
pub(crate) const fn applied(original: u64, op: AtomicOp) -> u64 {
    match op {
        AtomicOp::CompareSwap { compare, swap } => {
            if original == compare {
                swap
            } else {
                original
            }
        }
        AtomicOp::FetchAdd(add) => original.wrapping_add(add),
        AtomicOp::Store(bytes) => u64::from_ne_bytes(bytes),
    }
}

//! The device around the queue pairs of one simulated host: it answers at once, and writes down
//! everything that it was asked to do.

use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, MaskedAdd, MaskedSwap,
    Receive, ReceiveQueue, Sge, SharedQueueId,
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
        self.memory.check_remote(by.domain, by.qpn, rkey, (address, 8), op.access())?;
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

    fn peek_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        self.shared.get(queue.0 as usize).is_some_and(|queue| queue.peek_into(receive))
    }

    fn complete_send(&mut self, _: u32, completion: Completion) {
        self.log.push(Action::SendDone(completion));
    }

    fn complete_receive(&mut self, _: u32, completion: Completion) {
        self.log.push(Action::ReceiveDone(completion));
    }

    fn event(&mut self, qpn: Qpn, event: Event) {
        self.log.push(Action::Event(qpn, event));
    }
}

/// What an atomic leaves where it found `original`. Masked ones go bit by bit here, so that the
/// formulas of the transport have something to be compared with.
#[must_use]
pub(crate) fn applied(original: u64, op: AtomicOp) -> u64 {
    match op {
        AtomicOp::CompareSwap { compare, swap } => {
            if original == compare {
                swap
            } else {
                original
            }
        }
        AtomicOp::FetchAdd(add) => original.wrapping_add(add),
        AtomicOp::MaskedCompareSwap(MaskedSwap { compare, compare_mask, swap, swap_mask }) => {
            let mut bit = 0;
            let mut next = 0;
            while bit < 64 {
                let chosen = |word: u64| word >> bit & 1;
                if chosen(compare_mask) == 1 && chosen(original) != chosen(compare) {
                    return original;
                }
                next |= (if chosen(swap_mask) == 1 { chosen(swap) } else { chosen(original) }) << bit;
                bit += 1;
            }
            next
        }
        AtomicOp::MaskedFetchAdd(MaskedAdd { add, boundaries }) => {
            let (mut bit, mut carry, mut next) = (0, 0, 0);
            while bit < 64 {
                let sum = (original >> bit & 1) + (add >> bit & 1) + carry;
                next |= (sum & 1) << bit;
                carry = if boundaries >> bit & 1 == 1 { 0 } else { sum >> 1 };
                bit += 1;
            }
            next
        }
        AtomicOp::Store(bytes) => u64::from_ne_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_formulas_of_masked_atomics_do_what_bit_by_bit_does(words: [u64; 5], sparse: u64) {
            let [original, first, second, third, fourth] = words;
            // Often something is found: then most bits agree, or few are asked about.
            let swap = MaskedSwap { compare: first, compare_mask: second & third, swap: fourth, swap_mask: third };
            let close = MaskedSwap { compare: original ^ (first & second & third & fourth & sparse), ..swap };
            for op in [swap, close].map(AtomicOp::MaskedCompareSwap) {
                prop_assert_eq!(op.applied(original), applied(original, op));
            }
            for boundaries in [first, first & sparse, 0, u64::MAX, 0x8080_8080_8080_8080, 1 << 63] {
                let op = AtomicOp::MaskedFetchAdd(MaskedAdd { add: second, boundaries });
                prop_assert_eq!(op.applied(original), applied(original, op));
            }
        }
    }

    #[test]
    fn a_carry_stops_at_a_boundary_and_nowhere_else() {
        let add = |original, add, boundaries| MaskedAdd { add, boundaries }.applied(original);
        assert_eq!(add(0xff_ff, 0x01_01, 0x80_80), 0);
        assert_eq!(add(0x00_ff, 0x00_01, 0x80_80), 0);
        assert_eq!(add(0x00_ff, 0x00_01, 0), 0x01_00);
        assert_eq!(add(u64::MAX, 1, 1 << 63), 0);
        assert_eq!(add(0b11, 0b11, u64::MAX), 0, "fields of one bit each: exclusive or");
    }
}

//! The queue pairs that complete into a queue, which are told how many of their completions the program has taken off.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use ferroce_wire::Qpn;

use crate::engine::qp_shared::QpShared;

/// The queue pairs that complete into a queue, by number.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    all: HashMap<u32, Arc<QpShared>, BuildHasherDefault<ByNumber>>,
    /// The one that was told last: most often it is told again.
    last: Option<(Qpn, Arc<QpShared>)>,
}

/// What is taken off, and of which queue pair: completions of one mostly come together, so that it is
/// told once of all of them.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) of: Qpn,
    pub(crate) sends: u32,
    pub(crate) receives: u32,
}

impl Heard {
    /// Nothing was taken off yet.
    pub(crate) const NONE: Self = Self { of: Qpn::SMI, sends: 0, receives: 0 };
}

impl Owners {
    /// Tells a queue pair of what was taken off, if it is still there.
    #[inline]
    pub(crate) fn tell(&mut self, heard: &Heard) {
        if heard.sends + heard.receives == 0 {
            return;
        }
        match &self.last {
            Some((last, shared)) if *last == heard.of => shared.heard(heard.sends, heard.receives),
            _ => self.tell_another(heard),
        }
    }

    #[inline(never)]
    fn tell_another(&mut self, heard: &Heard) {
        if let Some(shared) = self.all.get(&heard.of.get()) {
            shared.heard(heard.sends, heard.receives);
            self.last = Some((heard.of, Arc::clone(shared)));
        }
    }

    pub(crate) fn insert(&mut self, qpn: Qpn, shared: &Arc<QpShared>) {
        self.all.insert(qpn.get(), Arc::clone(shared));
        self.forget_last(qpn);
    }

    pub(crate) fn remove(&mut self, qpn: Qpn) {
        self.all.remove(&qpn.get());
        self.forget_last(qpn);
    }

    fn forget_last(&mut self, qpn: Qpn) {
        self.last.take_if(|(last, _)| *last == qpn);
    }
}

/// Queue pair numbers are dealt at random: they need no hashing, only spreading.
#[derive(Debug, Default)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ferroce_transport::{Caps, DomainId, PostRules, State};
    use ferroce_wire::{PathMtu, Service};

    use super::*;

    /// A queue pair that has posted so many sends.
    fn with_sends(sends: u32) -> Arc<QpShared> {
        let caps = Caps { max_send: 8, max_receive: 8, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
        let rules = PostRules {
            state: State::Rts,
            service: Service::Rc,
            caps,
            path_mtu: PathMtu::B1024,
            max_rd_atomic: 0,
            shared_queue: false,
        };
        let none = AtomicU32::default;
        Arc::new(QpShared {
            domain: DomainId(1),
            caps,
            shared_queue: None,
            rules: Mutex::new(rules),
            sends: AtomicU32::new(sends),
            receives: none(),
            most_sends: none(),
            most_receives: none(),
        })
    }

    #[test]
    fn a_number_that_is_dealt_again_does_not_mean_the_queue_pair_that_was_told_last() {
        let mut owners = Owners::default();
        let heard = Heard { of: Qpn::new(7), sends: 1, receives: 0 };
        let (first, second, other) = (with_sends(5), with_sends(5), with_sends(5));
        let left = |shared: &QpShared| shared.sends.load(Ordering::Relaxed);
        owners.insert(Qpn::new(7), &first);
        owners.insert(Qpn::new(8), &other);
        for _ in 0..2 {
            owners.tell(&heard);
        }
        owners.tell(&Heard { of: Qpn::new(8), sends: 2, receives: 0 });
        owners.tell(&heard);
        assert_eq!((left(&first), left(&other)), (2, 3));
        owners.insert(Qpn::new(7), &second);
        owners.tell(&heard);
        assert_eq!((left(&first), left(&second)), (2, 4));
        owners.remove(Qpn::new(7));
        owners.tell(&heard);
        assert_eq!((left(&first), left(&second), Arc::strong_count(&second)), (2, 4, 1), "it is gone");
    }
}

//! Packets from one engine of a process to another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::sender::Sender;

/// Bytes of packets that wait for an engine. As with a socket, what comes beyond is lost, and sent again
/// by reliable peers.
const LIMIT: usize = 4 << 20;

/// How many they may be.
const MOST: usize = 1 << 14;

/// Where other engines of the process leave packets, in order, to be taken out as a whole.
#[derive(Debug)]
pub(crate) struct Freight {
    waiting: Mutex<Load>,
    /// Whether packets wait. Written under the lock only, so it never falls behind.
    has: AtomicBool,
}

/// Packets, one behind the other. Its room is made once and changes hands when it is taken out, so that
/// packets cost no allocation; the system gives memory to those parts of it only that were ever used.
#[derive(Debug)]
pub(crate) struct Load {
    heads: Vec<(Sender, usize)>,
    bytes: Vec<u8>,
}

impl Freight {
    /// Makes all the room that will be needed.
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::new(Load::new()), has: AtomicBool::new(false) }
    }

    /// Leaves a packet; false if there is no room. The engine has to be called upon afterwards.
    pub(crate) fn push(&self, sender: &Sender, packet: &[u8]) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes.len() + packet.len() > LIMIT || waiting.heads.len() == MOST {
            return false;
        }
        waiting.heads.push((*sender, packet.len()));
        waiting.bytes.extend_from_slice(packet);
        self.has.store(true, Ordering::Release);
        true
    }

    /// Takes everything out, in exchange for an empty load.
    pub(crate) fn take(&self, into: &mut Load) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        into.clear();
        std::mem::swap(&mut *waiting, into);
        self.has.store(false, Ordering::Release);
    }

    /// Whether no packet waits. Costs one load.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has.load(Ordering::Acquire)
    }
}

impl Load {
    /// The load to take the first packets out with.
    pub(crate) fn new() -> Self {
        Self { heads: Vec::with_capacity(MOST), bytes: Vec::with_capacity(LIMIT) }
    }

    /// None, while the true one is worked through.
    pub(crate) const EMPTY: Self = Self { heads: Vec::new(), bytes: Vec::new() };

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Sender, &[u8])> {
        let mut rest = &self.bytes[..];
        self.heads.iter().map_while(move |(sender, len)| {
            let (packet, after) = rest.split_at_checked(*len)?;
            rest = after;
            Some((sender, packet))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use ferroce_fabric::Route;

    fn sender(last: u8) -> Sender {
        let (local, remote) = (IpAddr::from([127, 0, 0, last]), IpAddr::from([127, 0, 0, 1]));
        Sender::of(&Route { local, remote, source_port: 0, traffic_class: 0, hop_limit: 64, flow_label: 0 })
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let freight = Freight::new();
        let mut load = Load::new();
        for round in 0..3 {
            assert!(freight.is_empty());
            assert!(freight.push(&sender(round), b"one") && freight.push(&sender(round + 1), b""));
            assert!(freight.push(&sender(round), b"three"));
            assert!(!freight.is_empty());
            freight.take(&mut load);
            let all: Vec<_> = load.iter().map(|(sender, bytes)| (*sender, bytes)).collect();
            assert_eq!(
                all,
                [(sender(round), &b"one"[..]), (sender(round + 1), b""), (sender(round), b"three")]
            );
        }
    }

    #[test]
    fn there_is_a_limit() {
        let freight = Freight::new();
        let packet = vec![0; 1 << 20];
        assert!((0..4).all(|_| freight.push(&sender(1), &packet)));
        assert!(!freight.push(&sender(1), b"x"));
        freight.take(&mut Load::new());
        assert!(freight.push(&sender(1), b"x"));
    }
}

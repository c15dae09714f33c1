//! Messages for queue pair 1 of this process, and where they wait.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_fabric::Received;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::sync::lock;
use ferroce_wire::mad::MAD_LEN;
use ferroce_wire::{Body, Datagram, PKey, Packet, QKey, Qpn};

use super::forward::Arrival;

/// Messages that wait for this process, at most; more are dropped and counted.
pub(super) const QUEUE: usize = 4096;

/// Bytes of the longest packet with a management datagram: headers, immediate data and ICRC around it.
pub(super) const PACKET: usize = 12 + 8 + 4 + MAD_LEN + 4;

/// A message for queue pair 1 of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The address that it came from.
    pub remote: IpAddr,
    /// Which of our addresses it came to.
    pub local: IpAddr,
    /// The queue pair it was sent from: 1, as a rule.
    pub source_qp: Qpn,
    /// The partition.
    pub pkey: PKey,
    /// The datagram; [`CmMad::parse`](ferroce_wire::mad::CmMad::parse) reads it.
    pub bytes: [u8; MAD_LEN],
    /// How it came, for a capture.
    pub received: Received,
    /// The packet around it.
    pub packet: Sealed,
}

/// A packet with a management datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub(super) bytes: [u8; PACKET],
    pub(super) len: usize,
}

impl Sealed {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn copy_of(packet: &[u8]) -> Option<Self> {
        let mut bytes = [0; PACKET];
        bytes.get_mut(..packet.len())?.copy_from_slice(packet);
        Some(Self { bytes, len: packet.len() })
    }
}

/// Messages that wait for this process.
#[derive(Debug)]
pub(super) struct MadQueue {
    waiting: Mutex<VecDeque<Mad>>,
    /// Readable while some wait.
    pub(super) readable: EventFd,
    pub(super) dropped: AtomicU64,
}

impl MadQueue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { waiting: Mutex::default(), readable: EventFd::new()?, dropped: AtomicU64::new(0) })
    }

    /// Takes in a packet that was checked; false if it is none for queue pair 1.
    pub(super) fn push(&self, arrival: &Arrival<'_>) -> bool {
        let Ok(packet) = Packet::parse(arrival.bytes) else { return false };
        let Some(datagram) = general_service(&packet) else { return false };
        let Some(bytes) = datagram.payload.first_chunk() else { return false };
        let Received { source: (remote, _), local, .. } = arrival.received;
        let Some(sealed) = Sealed::copy_of(arrival.bytes) else { return false };
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= QUEUE {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let (source_qp, pkey) = (datagram.deth.source_qp, packet.pkey);
        let received = arrival.received;
        waiting.push_back(Mad { remote, local, source_qp, pkey, bytes: *bytes, received, packet: sealed });
        self.readable.signal();
        true
    }

    pub(super) fn pop(&self) -> Option<Mad> {
        let mut waiting = lock(&self.waiting);
        let mad = waiting.pop_front();
        if waiting.is_empty() {
            self.readable.clear();
        }
        mad
    }
}

/// A datagram for queue pair 1 with the key that such have, as long as a management datagram is.
pub(super) fn general_service<'a>(packet: &Packet<&'a [u8]>) -> Option<Datagram<&'a [u8]>> {
    match packet.body {
        Body::Ud(datagram) if packet.dest_qp == Qpn::GSI && datagram.deth.qkey == QKey::GSI => {
            (datagram.payload.len() == MAD_LEN).then_some(datagram)
        }
        _ => None,
    }
}

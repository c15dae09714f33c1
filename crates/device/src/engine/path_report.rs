//! What routers and hosts send back, as a program gets it.

use ferroce_fabric::PathError;
use ferroce_wire::Qpn;

/// A packet that a router or a host has sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// What was told.
    pub error: PathError,
    /// The queue pair that sent it, if enough of it came back to tell.
    pub from: Option<Qpn>,
    /// The beginning of what the program had sent.
    quoted: [u8; Self::QUOTED],
    len: u8,
}

impl PathReport {
    /// Bytes that are kept of what the program had sent.
    pub const QUOTED: usize = 64;

    /// As much of what the program had sent as came back, up to [`QUOTED`](Self::QUOTED).
    #[must_use]
    pub fn quoted(&self) -> &[u8] {
        &self.quoted[..usize::from(self.len)]
    }

    pub(super) fn new(error: PathError, packet: &[u8]) -> Self {
        // Of a datagram the base transport header, and the Q_Key and queue pair of its sender.
        let number = packet.get(17..20).and_then(|bytes| bytes.first_chunk::<3>());
        let from = number.map(|[high, middle, low]| Qpn::new(u32::from_be_bytes([0, *high, *middle, *low])));
        let sent = packet.get(20..).unwrap_or_default();
        let len = sent.len().min(Self::QUOTED);
        let mut quoted = [0; Self::QUOTED];
        quoted[..len].copy_from_slice(&sent[..len]);
        Self { error, from, quoted, len: u8::try_from(len).unwrap_or(0) }
    }
}

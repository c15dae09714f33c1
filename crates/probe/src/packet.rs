//! The packets: 40 bytes, numbers with their highest byte first, as the R-Pingmesh rebuild in Go has them.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | version | 1 |
//! | 1 | type | 0 probe, 1 ACK |
//! | 2 | ack | 0 in probes, 1 first ACK, 2 second ACK |
//! | 3 | flags | bit 0: the last four bytes are ports; bit 1: see below; other bits are not looked at |
//! | 4 | sequence | random epoch in the upper half, counter in the lower half |
//! | 12, 20, 28 | T1, T3, T4 | nanoseconds; T1 on the prober's clock, T3 and T4 on the responder's |
//! | 36 | ports | the port that this packet left from, and the port for answers; zero without the flag |
//!
//! With bit 1, the bytes of T4 are no time, but [how many probes came](Arrivals): zeros in a probe, which so asks
//! for it, and the count in its first ACK; the second ACK has T4 and not the bit.
//!
//! Ports and counts are additions of ours. The rebuild writes zeros there and looks at neither.

use thiserror::Error;

use crate::arrivals::Arrivals;
use crate::stamp::Stamp;

const VERSION: u8 = 1;
const TYPE_PROBE: u8 = 0;
const TYPE_ACK: u8 = 1;
const FLAG_PORTS: u8 = 1;
const FLAG_ARRIVALS: u8 = 2;

/// A probe or one of its two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// What it is.
    pub kind: Kind,
    /// Which probe it is, or answers.
    pub sequence: Sequence,
    /// When the probe was posted, on the prober's clock; ACKs repeat it.
    pub t1: Stamp,
    /// When the responder's card had received the probe, on its clock; zero in probes.
    pub t3: Stamp,
    /// When the responder's card had sent the first ACK, on its clock; zero before the second ACK.
    pub t4: Stamp,
    /// UDP source ports, where the sender tells them.
    pub ports: Option<Ports>,
    /// In a probe, asks how many came; in a first ACK, tells it in the place of T4. Second ACKs have none.
    pub arrivals: Option<Arrivals>,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A probe.
    Probe,
    /// The first ACK: it leaves at once, with T3.
    FirstAck,
    /// The second ACK: it leaves when T4 is known, with T3 and T4.
    SecondAck,
}

/// The number of a probe: a random epoch in the upper half, a counter in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Puts the halves together.
    #[must_use]
    pub const fn new(epoch: u32, counter: u32) -> Self {
        Self((epoch as u64) << 32 | counter as u64)
    }

    /// Drawn when the prober began.
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// One more with each probe.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn counter(self) -> u32 {
        self.0 as u32
    }
}

/// UDP source ports: they decide which way a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The port that this packet left from.
    pub sent: u16,
    /// In a probe, the port that its answers should leave from, 0 for any; in an ACK, the probe's port.
    pub reply: u16,
}

/// Why bytes are not a packet of a prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProbePacketError {
    /// Another length.
    #[error("{have} bytes, a packet of a prober has 40")]
    Length {
        /// Bytes that were there.
        have: usize,
    },
    /// A version that we do not know.
    #[error("version {0}, only 1 is known")]
    Version(u8),
    /// Type and ack do not belong together.
    #[error("type {kind} with ack {ack}, known are 0 with 0 (probe), 1 with 1 and 1 with 2 (ACKs)")]
    Kind {
        /// The type byte.
        kind: u8,
        /// The ack byte.
        ack: u8,
    },
}

impl Packet {
    /// Bytes of a packet.
    pub const LEN: usize = 40;

    /// The packet in bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, ack) = match self.kind {
            Kind::Probe => (TYPE_PROBE, 0),
            Kind::FirstAck => (TYPE_ACK, 1),
            Kind::SecondAck => (TYPE_ACK, 2),
        };
        let arrivals = self.arrivals.filter(|_| self.kind != Kind::SecondAck);
        let flags = if self.ports.is_some() { FLAG_PORTS } else { 0 }
            | if arrivals.is_some() { FLAG_ARRIVALS } else { 0 };
        let t4 = arrivals.map_or(self.t4.nanos(), Arrivals::to_bits);
        bytes[..4].copy_from_slice(&[VERSION, kind, ack, flags]);
        let numbers = [self.sequence.0, self.t1.nanos(), self.t3.nanos(), t4];
        for (place, number) in bytes[4..36].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        if let Some(Ports { sent, reply }) = self.ports {
            bytes[36..38].copy_from_slice(&sent.to_be_bytes());
            bytes[38..].copy_from_slice(&reply.to_be_bytes());
        }
        bytes
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// If they are no packet of a prober.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProbePacketError> {
        let bytes: &[u8; Self::LEN] =
            bytes.try_into().map_err(|_| ProbePacketError::Length { have: bytes.len() })?;
        if bytes[0] != VERSION {
            return Err(ProbePacketError::Version(bytes[0]));
        }
        let kind = match (bytes[1], bytes[2]) {
            (TYPE_PROBE, 0) => Kind::Probe,
            (TYPE_ACK, 1) => Kind::FirstAck,
            (TYPE_ACK, 2) => Kind::SecondAck,
            (kind, ack) => return Err(ProbePacketError::Kind { kind, ack }),
        };
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let has_ports = bytes[3] & FLAG_PORTS != 0;
        let has_arrivals = bytes[3] & FLAG_ARRIVALS != 0 && kind != Kind::SecondAck;
        let (t4, arrivals) = match number(bytes, 28) {
            count if has_arrivals => (0, Some(Arrivals::from_bits(count))),
            t4 => (t4, None),
        };
        Ok(Self {
            kind,
            sequence: Sequence(number(bytes, 4)),
            t1: Stamp::from_nanos(number(bytes, 12)),
            t3: Stamp::from_nanos(number(bytes, 20)),
            t4: Stamp::from_nanos(t4),
            ports: has_ports.then(|| Ports { sent: port(36), reply: port(38) }),
            arrivals,
        })
    }
}

fn number(bytes: &[u8; Packet::LEN], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

//! The packets: 40 bytes, numbers with their highest byte first, as the R-Pingmesh rebuild in Go has them.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | version | 1 |
//! | 1 | type | 0 probe, 1 ACK |
//! | 2 | ack | 0 in probes, 1 first ACK, 2 second ACK |
//! | 3 | flags | bit 0: the last four bytes are ports; other bits are not looked at |
//! | 4 | sequence | random epoch in the upper half, counter in the lower half |
//! | 12, 20, 28 | T1, T3, T4 | nanoseconds; T1 on the prober's clock, T3 and T4 on the responder's |
//! | 36 | ports | the port that this packet left from, and the port for answers; zero without the flag |
//!
//! The ports are an addition of ours. The rebuild writes zeros there and looks at neither flags nor ports.

use thiserror::Error;

use crate::stamp::Stamp;

const VERSION: u8 = 1;
const TYPE_PROBE: u8 = 0;
const TYPE_ACK: u8 = 1;
const FLAG_PORTS: u8 = 1;

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
        let flags = if self.ports.is_some() { FLAG_PORTS } else { 0 };
        bytes[..4].copy_from_slice(&[VERSION, kind, ack, flags]);
        let numbers = [self.sequence.0, self.t1.nanos(), self.t3.nanos(), self.t4.nanos()];
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
        Ok(Self {
            kind,
            sequence: Sequence(number(bytes, 4)),
            t1: Stamp::from_nanos(number(bytes, 12)),
            t3: Stamp::from_nanos(number(bytes, 20)),
            t4: Stamp::from_nanos(number(bytes, 28)),
            ports: has_ports.then(|| Ports { sent: port(36), reply: port(38) }),
        })
    }
}

fn number(bytes: &[u8; Packet::LEN], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

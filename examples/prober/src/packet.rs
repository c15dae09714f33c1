//! The packets: 40 bytes, numbers with their highest byte first.

use ferroce::Time;

/// A probe or one of its two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    /// Drawn when the prober began, in the upper half; then a counter.
    pub(crate) sequence: u64,
    /// When the probe was posted, on the prober's clock.
    pub(crate) t1: Time,
    /// When the responder's card had received the probe, on its clock; zero in probes.
    pub(crate) t3: Time,
    /// When the responder's card had sent the first answer, on its clock; zero before the second one.
    pub(crate) t4: Time,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Probe,
    /// Sent at once.
    FirstAnswer,
    /// Sent when it is known when the first one left.
    SecondAnswer,
}

const VERSION: u8 = 1;

impl Packet {
    pub(crate) const LEN: usize = 40;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, answer) = match self.kind {
            Kind::Probe => (1, 0),
            Kind::FirstAnswer => (2, 1),
            Kind::SecondAnswer => (2, 2),
        };
        bytes[..4].copy_from_slice(&[VERSION, kind, answer, 0]);
        let numbers = [self.sequence, self.t1.nanos(), self.t3.nanos(), self.t4.nanos()];
        for (place, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// What these bytes say; none if they are no packet of ours.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let kind = match bytes[..4] {
            [VERSION, 1, 0, 0] => Kind::Probe,
            [VERSION, 2, 1, 0] => Kind::FirstAnswer,
            [VERSION, 2, 2, 0] => Kind::SecondAnswer,
            _ => return None,
        };
        let number = |at: usize| bytes[at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let time = |at| number(at).map(Time::from_nanos);
        Some(Self { kind, sequence: number(8)?, t1: time(16)?, t3: time(24)?, t4: time(32)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_forty_bytes_and_say_what_they_are() {
        for (kind, start) in [
            (Kind::Probe, [1, 1, 0, 0]),
            (Kind::FirstAnswer, [1, 2, 1, 0]),
            (Kind::SecondAnswer, [1, 2, 2, 0]),
        ] {
            let time = Time::from_nanos;
            let packet = Packet {
                kind,
                sequence: 0x0102_0304_0506_0708,
                t1: time(1),
                t3: time(3),
                t4: time(u64::MAX),
            };
            let bytes = packet.emit();
            assert_eq!(bytes[..16], [&start[..], &[0; 4], &[1, 2, 3, 4, 5, 6, 7, 8]].concat());
            assert_eq!(bytes[23], 1);
            assert_eq!(Packet::parse(&bytes), Some(packet));
            assert_eq!(Packet::parse(&bytes[..39]), None);
        }
        assert_eq!(Packet::parse(&[0; 40]), None);
    }
}

//! ACK extended transport header (IBA 9.3.5): the answer of a responder.

use core::fmt;
use core::time::Duration;

use crate::bytes::{put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::num::Msn;

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Yes, not yet, or no.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed.
    pub msn: Msn,
}

impl Aeth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self { syndrome: Syndrome::from_byte(header[0]), msn: Msn::new(u24::<1, 4>(header)) }
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        header[0] = self.syndrome.byte();
        put_u24::<1, 4>(header, self.msn.get());
    }
}

/// What a responder answers (IBA 9.7.5.2, tables 44 to 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Everything up to this PSN has arrived.
    Ack(CreditCode),
    /// No receive was posted: try again after this time.
    RnrNak(RnrTimer),
    /// The request is refused.
    Nak(NakCode),
    /// A value that the IBA reserves, kept as it came.
    Reserved(ReservedSyndrome),
}

impl Syndrome {
    /// Reads the byte.
    #[inline]
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0b000 => Self::Ack(CreditCode(value)),
            0b001 => Self::RnrNak(RnrTimer(value)),
            0b011 => match NakCode::from_value(value) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(ReservedSyndrome(byte)),
            },
            _ => Self::Reserved(ReservedSyndrome(byte)),
        }
    }

    /// The byte on the wire.
    #[inline]
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(reserved) => reserved.0,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack(_) => "ACK",
            Self::RnrNak(_) => "RNR NAK",
            Self::Nak(NakCode::SequenceError) => "NAK PSN Sequence Error",
            Self::Nak(NakCode::InvalidRequest) => "NAK Invalid Request",
            Self::Nak(NakCode::RemoteAccess) => "NAK Remote Access Error",
            Self::Nak(NakCode::RemoteOperation) => "NAK Remote Operational Error",
            Self::Nak(NakCode::InvalidRdRequest) => "NAK Invalid RD Request",
            Self::Reserved(_) => "Reserved",
        }
    }
}

/// A syndrome that the IBA reserves. Only [`Syndrome::from_byte`] makes one, so it can
/// never stand for a syndrome that is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservedSyndrome(u8);

impl ReservedSyndrome {
    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet is missing: send again from the PSN of this NAK.
    SequenceError = 0,
    /// The request breaks the protocol or a limit of the responder.
    InvalidRequest = 1,
    /// The key does not give this access to this memory.
    RemoteAccess = 2,
    /// The responder failed for a reason of its own.
    RemoteOperation = 3,
    /// Only for reliable datagrams, which RoCE does not have.
    InvalidRdRequest = 4,
}

impl NakCode {
    const fn from_value(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::SequenceError),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccess),
            3 => Some(Self::RemoteOperation),
            4 => Some(Self::InvalidRdRequest),
            _ => None,
        }
    }
}

/// End-to-end credits of an ACK: how many receives are posted, coded in five bits (IBA 9.7.7.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CreditCode(u8);

impl CreditCode {
    /// The responder does not count credits: nothing holds the requester back.
    pub const UNCOUNTED: Self = Self(31);

    /// The low five bits of `code`.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code for the largest credit count that is not above `credits`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 63")]
    pub const fn at_most(credits: u32) -> Self {
        if credits < 4 {
            return Self(credits as u8);
        }
        // A power of two has an even code, and half as much again the odd one behind it.
        let power = credits.ilog2();
        let code = power as u8 * 2 + (credits >> (power - 1) & 1) as u8;
        Self(if code < 30 { code } else { 30 })
    }

    /// How many messages that need a receive may be sent, or `None` if they are not counted.
    #[must_use]
    pub const fn credits(self) -> Option<u32> {
        match self.0 {
            31 => None,
            code => Some(Self::count(code)),
        }
    }

    /// The five bits.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// 0, 1, 2, 3, 4, 6, 8, 12, 16 and so on: each power of two, then half as much again.
    const fn count(code: u8) -> u32 {
        match code {
            0..=3 => code as u32,
            _ if code.is_multiple_of(2) => 1 << (code / 2),
            _ => 3 << (code / 2 - 1),
        }
    }
}

/// How long a requester waits after an RNR NAK, coded in five bits (IBA 9.7.5.2.8, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The waiting time of each code in units of 10 microseconds.
    const TENS_OF_MICROS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// The low five bits of `code`. Code 0 is the longest time, not the shortest.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The five bits.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The waiting time: 10 microseconds to 655.36 milliseconds.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_micros(Self::TENS_OF_MICROS[self.0 as usize] as u64 * 10)
    }
}

impl Describe for Aeth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("aeth", "ACK Extended Transport Header", Self::LEN)?;
        let byte = self.syndrome.byte();
        visitor.field("syndrome", "Syndrome", Value::named(self.syndrome.name(), byte, 8))?;
        match self.syndrome {
            Syndrome::Ack(code) => {
                visitor.field("credits_counted", "Credits Counted", Value::Flag(code.credits().is_some()))?;
                if let Some(credits) = code.credits() {
                    visitor.field("credits", "Credits", Value::decimal(credits))?;
                }
            }
            Syndrome::RnrNak(timer) => {
                let micros = RnrTimer::TENS_OF_MICROS[timer.0 as usize] * 10;
                visitor.field("rnr_timer_us", "RNR Timer (us)", Value::decimal(micros))?;
            }
            Syndrome::Nak(_) | Syndrome::Reserved(_) => {}
        }
        visitor.field("msn", "Message Sequence Number", Value::hex(self.msn.get(), 24))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_comes_back() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn syndromes_seen_from_the_kernel() {
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack(CreditCode::UNCOUNTED));
        assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak(RnrTimer::new(12)));
        assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak(NakCode::SequenceError));
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x65), Syndrome::Reserved(ReservedSyndrome(0x65)));
        assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(ReservedSyndrome(0x40)));
    }

    #[test]
    fn credit_codes_are_the_table_of_the_iba() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, credits) in (0..31).zip(table) {
            assert_eq!(CreditCode::new(code).credits(), Some(credits));
            assert_eq!(CreditCode::at_most(credits), CreditCode::new(code));
        }
        assert_eq!(CreditCode::UNCOUNTED.credits(), None);
        assert_eq!(CreditCode::at_most(5).credits(), Some(4));
        assert_eq!(CreditCode::at_most(u32::MAX).credits(), Some(32768));
        for credits in 0..70_000 {
            let largest = table.iter().filter(|count| **count <= credits).max();
            assert_eq!(CreditCode::at_most(credits).credits(), largest.copied());
        }
    }

    #[test]
    fn rnr_timers_run_from_ten_microseconds_to_two_thirds_of_a_second() {
        assert_eq!(RnrTimer::new(0).duration(), Duration::from_micros(655_360));
        assert_eq!(RnrTimer::new(1).duration(), Duration::from_micros(10));
        assert_eq!(RnrTimer::new(12).duration(), Duration::from_micros(640));
        assert_eq!(RnrTimer::new(31).duration(), Duration::from_micros(491_520));
    }

    #[test]
    fn codes_are_the_five_bits_that_they_were_made_of() {
        for code in 0..=u8::MAX {
            assert_eq!(RnrTimer::new(code).code(), code & 0x1f);
            assert_eq!(CreditCode::new(code).code(), code & 0x1f);
        }
    }
}

//! How long the payload of an opcode may be.

use crate::mtu::PathMtu;

/// How much payload an operation carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None at all.
    Nothing,
    /// Exactly eight bytes: the operand of an ATOMIC WRITE.
    EightBytes,
    /// Exactly one path MTU: more of the message follows.
    FullMtu,
    /// One byte up to one path MTU: the rest of a message.
    OneToMtu,
    /// Nothing up to one path MTU: a whole message.
    UpToMtu,
}

impl PayloadRule {
    /// The rule for a packet of a SEND or WRITE that begins or ends its message.
    #[must_use]
    pub const fn of_position(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (_, false) => Self::FullMtu,
            (false, true) => Self::OneToMtu,
            (true, true) => Self::UpToMtu,
        }
    }

    /// Whether a packet with this length can be read and written at all: nothing, exactly
    /// the eight bytes of an ATOMIC WRITE, or not more than the longest path MTU.
    ///
    /// This lets through what breaks the rule on every connection, such as a First packet
    /// of five bytes or an empty Last one: a responder has to answer those with a NAK,
    /// so they must reach it, and [`permits_at`](Self::permits_at) refuses them there.
    #[must_use]
    pub const fn permits(self, len: usize) -> bool {
        match self {
            Self::Nothing => len == 0,
            Self::EightBytes => len == 8,
            Self::FullMtu | Self::OneToMtu | Self::UpToMtu => len <= PathMtu::B4096.bytes(),
        }
    }

    /// Whether a connection with this path MTU allows this length (IBA 9.7.4.1.6, 9.8.2.2).
    #[must_use]
    pub const fn permits_at(self, len: usize, mtu: PathMtu) -> bool {
        match self {
            Self::Nothing | Self::EightBytes => self.permits(len),
            Self::FullMtu => len == mtu.bytes(),
            Self::OneToMtu => len >= 1 && len <= mtu.bytes(),
            Self::UpToMtu => len <= mtu.bytes(),
        }
    }

    /// The rule in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::EightBytes => "exactly 8",
            Self::FullMtu => "exactly one path MTU (at most 4096)",
            Self::OneToMtu => "1 to one path MTU (at most 4096)",
            Self::UpToMtu => "0 to one path MTU (at most 4096)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_path_mtu() {
        let mtu = PathMtu::B1024;
        assert!(PayloadRule::FullMtu.permits_at(1024, mtu));
        assert!(!PayloadRule::FullMtu.permits_at(512, mtu));
        assert!(!PayloadRule::OneToMtu.permits_at(0, mtu));
        assert!(PayloadRule::OneToMtu.permits_at(1, mtu));
        assert!(PayloadRule::UpToMtu.permits_at(0, mtu));
        assert!(!PayloadRule::UpToMtu.permits_at(1025, mtu));
    }

    #[test]
    fn without_a_connection_only_the_longest_and_the_fixed_lengths_are_known() {
        for rule in [PayloadRule::FullMtu, PayloadRule::OneToMtu, PayloadRule::UpToMtu] {
            assert!(rule.permits(0) && rule.permits(5) && rule.permits(4096) && !rule.permits(4097));
        }
        assert!(PayloadRule::Nothing.permits(0) && !PayloadRule::Nothing.permits(1));
        let eight = PayloadRule::EightBytes;
        assert!(eight.permits(8) && !eight.permits(0) && !eight.permits(7) && !eight.permits(9));
    }
}

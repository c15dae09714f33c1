//! What the network tells of packets that have left.

use std::net::IpAddr;

/// News of a packet that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiding<'a> {
    /// It was given to the interface.
    Left {
        /// What its run was called.
        ticket: u32,
        /// When, in nanoseconds since 1970 on the machine's clock.
        at: u64,
    },
    /// A router or a host has sent it back; the beginning of it, from its base transport header on.
    SentBack(PathError, &'a [u8]),
}

/// A packet that a router or a host did not pass on, as it was told (ICMP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The router or host that says so.
    pub offender: IpAddr,
    /// Where the packet was sent to.
    pub remote: IpAddr,
    /// The source port that it left from.
    pub source_port: u16,
    /// Why it was not passed on.
    pub kind: PathErrorKind,
}

/// Why a packet was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathErrorKind {
    /// It had made all the hops that it was allowed.
    HopLimit,
    /// No way leads to its network.
    NoRoute,
    /// The host does not answer.
    NoHost,
    /// The host is there, but its port of RoCEv2 is closed.
    NoPort,
    /// A rule forbids it.
    Forbidden,
    /// It is longer than the next link carries: so many bytes.
    TooLong(u32),
    /// Another reason, with the type and the code of the message.
    Other {
        /// The type of the ICMP message.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl std::fmt::Display for PathErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HopLimit => f.write_str("hop limit reached"),
            Self::NoRoute => f.write_str("no route to the network"),
            Self::NoHost => f.write_str("the host does not answer"),
            Self::NoPort => f.write_str("the port of RoCEv2 is closed"),
            Self::Forbidden => f.write_str("forbidden by a rule"),
            Self::TooLong(most) => write!(f, "longer than the {most} bytes that the next link carries"),
            Self::Other { kind, code } => write!(f, "ICMP type {kind}, code {code}"),
        }
    }
}

impl PathErrorKind {
    /// What type and code of ICMP over IPv4 mean; `mtu` is what the message says of the next link.
    #[must_use]
    pub const fn of_v4(kind: u8, code: u8, mtu: u32) -> Self {
        match (kind, code) {
            (11, 0) => Self::HopLimit,
            (3, 0 | 6 | 11) => Self::NoRoute,
            (3, 1 | 7 | 12) => Self::NoHost,
            (3, 3) => Self::NoPort,
            (3, 4) => Self::TooLong(mtu),
            (3, 9 | 10 | 13) => Self::Forbidden,
            _ => Self::Other { kind, code },
        }
    }

    /// What type and code of ICMPv6 mean.
    #[must_use]
    pub const fn of_v6(kind: u8, code: u8, mtu: u32) -> Self {
        match (kind, code) {
            (3, 0) => Self::HopLimit,
            (1, 0) => Self::NoRoute,
            (1, 3) => Self::NoHost,
            (1, 4) => Self::NoPort,
            (2, _) => Self::TooLong(mtu),
            (1, 1 | 5 | 6) => Self::Forbidden,
            _ => Self::Other { kind, code },
        }
    }
}

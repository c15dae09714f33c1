//! The numbers of RoCEv2, one type each, so that a PSN can never be passed for a QPN.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::{Add, AddAssign, Sub};

const MASK_24: u32 = 0x00ff_ffff;

/// Packet sequence number: 24 bits that wrap.
///
/// There is deliberately no `Ord`: on a circle "smaller" has no meaning. Ask for
/// the signed [`distance_from`](Psn::distance_from) another PSN instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// How many PSNs there are.
    pub const COUNT: u32 = 1 << 24;

    /// Half of the circle: PSNs this far apart or further cannot be ordered.
    pub const HALF: u32 = 1 << 23;

    /// The next PSN on the circle.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// The previous PSN on the circle.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// How far this PSN lies after `origin`: negative if it lies before it.
    ///
    /// The result is in `-2^23 ..= 2^23 - 1`; exactly half a circle counts as before.
    #[must_use]
    pub const fn distance_from(self, origin: Self) -> i32 {
        // Shifting the 24-bit difference to the top of an i32 and back copies its sign bit.
        ((self.0.wrapping_sub(origin.0) << 8).cast_signed()) >> 8
    }

    /// Whether this PSN lies before `other` on the shorter way round.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether this PSN lies after `other` on the shorter way round.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// Whether this PSN is one of the `len` PSNs that begin with `start`.
    #[must_use]
    pub const fn is_within(self, start: Self, len: u32) -> bool {
        (self.0.wrapping_sub(start.0) & MASK_24) < len
    }
}

impl Add<u32> for Psn {
    type Output = Self;
    fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }
}

impl AddAssign<u32> for Psn {
    fn add_assign(&mut self, packets: u32) {
        *self = *self + packets;
    }
}

impl Sub<u32> for Psn {
    type Output = Self;
    fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }
}

/// Message sequence number: how many messages a responder has completed, modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Msn(u32);

impl Msn {
    /// The MSN after one more message.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// How many messages lie between `origin` and this MSN: negative if it lies before.
    #[must_use]
    pub const fn distance_from(self, origin: Self) -> i32 {
        Psn(self.0).distance_from(Psn(origin.0))
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Subnet management: unused on Ethernet.
    pub const SMI: Self = Self(0);

    /// General services: connection management lives here.
    pub const GSI: Self = Self(1);

    /// The destination of every multicast packet.
    pub const MULTICAST: Self = Self(MASK_24);
}

/// Number of a shared receive queue as XRC packets carry it, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Srqn(u32);

/// Gives a number of 24 bits its two ends.
macro_rules! twenty_four_bits {
    ($($name:ident),*) => {$(
        impl $name {
            /// The number in the low 24 bits of `value`.
            #[must_use]
            pub const fn new(value: u32) -> Self {
                Self(value & MASK_24)
            }

            /// The 24-bit value.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
        }
    )*};
}

twenty_four_bits!(Psn, Msn, Qpn, Srqn);

/// Key by which a peer names memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rkey(pub u32);

/// Key by which the owner of a queue pair names its own memory. Never on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lkey(pub u32);

/// Key that a datagram must show to be delivered to a UD queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QKey(pub u32);

impl QKey {
    /// The Q_Key of queue pair 1 on every node.
    pub const GSI: Self = Self(0x8001_0000);

    /// Whether only privileged software may send with it (its top bit is set).
    #[must_use]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// Partition key: 15 bits of partition and one of membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PKey(pub u16);

impl PKey {
    /// Full membership of the default partition: the only P_Key most RoCE networks use.
    pub const DEFAULT: Self = Self(0xffff);

    /// The bits that say which partition it is; the highest says whether its owner is a full member.
    pub const PARTITION: u16 = 0x7fff;

    /// Whether this is full (not limited) membership.
    #[must_use]
    pub const fn is_full_member(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Whether packets with this key reach an owner of `other`: the same
    /// partition, and at least one of the two a full member (IBA 10.9.3).
    #[must_use]
    pub const fn admits(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::PARTITION == 0
            && self.0 & Self::PARTITION != 0
            && (self.is_full_member() || other.is_full_member())
    }
}

impl Default for PKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Global identifier: on RoCEv2 the IP address of a port, IPv4 as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that this GID stands for.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Self(ip.octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// Gives each number the hexadecimal form in which RDMA people write it.
macro_rules! hexadecimal {
    ($($name:ident, $get:expr, $digits:literal;)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value: fn(&$name) -> u32 = $get;
                write!(f, concat!("0x{:0", $digits, "x}"), value(self))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

hexadecimal! {
    Psn, |psn| psn.0, "6";
    Msn, |msn| msn.0, "6";
    Qpn, |qpn| qpn.0, "6";
    Srqn, |srqn| srqn.0, "6";
    Rkey, |key| key.0, "8";
    Lkey, |key| key.0, "8";
    QKey, |key| key.0, "8";
    PKey, |key| u32::from(key.0), "4";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_wraps_and_keeps_its_order_across_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).prev(), last);
        assert_eq!(last + 3, Psn::new(2));
        assert_eq!(Psn::new(2) - 3, last);
        assert_eq!(Psn::new(2).distance_from(last), 3);
        assert_eq!(last.distance_from(Psn::new(2)), -3);
        assert!(last.is_before(Psn::new(0)));
        assert!(Psn::new(0).is_after(last));
        assert!(Psn::new(1).is_within(last, 3));
        assert!(!Psn::new(2).is_within(last, 3));
        assert!(!last.prev().is_within(last, 3));
    }

    #[test]
    fn half_a_circle_counts_as_before() {
        let origin = Psn::new(5);
        assert_eq!((origin + Psn::HALF).distance_from(origin), -(1 << 23));
        assert_eq!((origin + (Psn::HALF - 1)).distance_from(origin), (1 << 23) - 1);
    }

    #[test]
    fn controlled_keys_have_their_top_bit_set() {
        assert!(QKey::GSI.is_controlled() && QKey(0x8000_0000).is_controlled());
        assert!(!QKey(0x7fff_ffff).is_controlled() && !QKey(0x0123_4567).is_controlled());
    }

    #[test]
    fn limited_members_cannot_talk_to_each_other() {
        let (full, limited) = (PKey(0x8001), PKey(0x0001));
        assert!(full.admits(full));
        assert!(full.admits(limited));
        assert!(limited.admits(full));
        assert!(!limited.admits(limited));
        assert!(!full.admits(PKey(0x8002)));
        assert!(!PKey(0x8000).admits(PKey(0x8000)), "partition 0 is invalid");
        // All keys against one of each kind, and against themselves: as the IBA has it, bit by bit.
        for key in (0..=u16::MAX).map(PKey) {
            for other in [full, limited, PKey::DEFAULT, PKey(0x7fff), PKey(0x8000), PKey(0), key] {
                let same = key.0 << 1 == other.0 << 1 && key.0 << 1 != 0;
                let one_is_full = (key.0 | other.0) >> 15 == 1;
                assert_eq!(key.admits(other), same && one_is_full, "{key:?} {other:?}");
                assert_eq!(key.admits(other), other.admits(key));
            }
        }
    }

    #[test]
    fn gid_stands_for_an_ip_address() {
        let v4: IpAddr = Ipv4Addr::new(10, 77, 0, 2).into();
        assert_eq!(Gid::from(v4).ip(), v4);
        assert_eq!(Gid::from(v4).0[10..], [0xff, 0xff, 10, 77, 0, 2]);
        let v6: IpAddr = "fd77::2".parse::<Ipv6Addr>().unwrap().into();
        assert_eq!(Gid::from(v6).ip(), v6);
    }
}

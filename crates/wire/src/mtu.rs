//! Path MTU: how much payload a full packet carries.

use core::fmt;

use crate::header::{AtomicEth, Bth, Xrceth};
use crate::icrc::ICRC_LEN;
use crate::net::{Ipv6, Udp};

/// The five payload sizes that InfiniBand and RoCE allow for full packets (IBA 9.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes: what fits a 1500-byte Ethernet MTU.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes: what fits jumbo frames and the loopback interface.
    B4096 = 5,
}

impl PathMtu {
    /// All of them, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// What an interface must have room for beside the payload: IPv6, UDP, and the longest
    /// transport headers of the IBA with the ICRC, 96 bytes.
    ///
    /// Eight of them are never used: the longest headers end in an AtomicETH, and such a
    /// packet has no payload. The Linux kernel counts them all the same. Both ends of a
    /// link must come to the same path MTU, or one proposes what the other refuses, so
    /// we count as it does.
    pub const MAX_OVERHEAD: usize = Ipv6::LEN + Udp::LEN + Bth::LEN + Xrceth::LEN + AtomicEth::LEN + ICRC_LEN;

    /// The MTU with this code in a queue pair attribute or a CM message.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Its code, 1 to 5.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Payload bytes of a full packet.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self.code()
    }

    /// The largest path MTU whose packets fit into IP packets of `interface_mtu` bytes.
    #[must_use]
    pub fn fitting(interface_mtu: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() + Self::MAX_OVERHEAD <= interface_mtu)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_sizes_agree() {
        for (mtu, bytes) in PathMtu::ALL.into_iter().zip([256, 512, 1024, 2048, 4096]) {
            assert_eq!(mtu.bytes(), bytes);
            assert_eq!(PathMtu::from_code(mtu.code()), Some(mtu));
        }
        assert_eq!(PathMtu::from_code(0), None);
        assert_eq!(PathMtu::from_code(6), None);
    }

    #[test]
    fn the_path_mtu_follows_the_interface() {
        assert_eq!(PathMtu::fitting(1500), Some(PathMtu::B1024));
        assert_eq!(PathMtu::fitting(9000), Some(PathMtu::B4096));
        assert_eq!(PathMtu::fitting(65536), Some(PathMtu::B4096));
        assert_eq!(PathMtu::fitting(300), None);
    }

    /// The rule of `iboe_get_mtu` in the Linux kernel.
    #[test]
    fn the_steps_lie_where_linux_has_them() {
        for mtu in PathMtu::ALL {
            assert_eq!(PathMtu::fitting(mtu.bytes() + 96), Some(mtu));
            assert_ne!(PathMtu::fitting(mtu.bytes() + 95), Some(mtu));
        }
    }
}

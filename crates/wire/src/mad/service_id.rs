//! What a connection request asks for.

use core::fmt;

/// Service ID: the 64-bit address on which a service listens (IBA 12.6.5, A3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ServiceId(pub u64);

/// The IP port spaces that service IDs are made from, by their IP protocol number, or by one that no protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortSpace {
    /// Connected services: what RC queue pairs listen on.
    Tcp = 0x06,
    /// Datagram services: what UD queue pairs listen on.
    Udp = 0x11,
    /// Services of `RDMA_PS_IB`, which may be of either kind.
    Ib = 0x3f,
}

/// The first five bytes of every service ID made from an IP port (IBA A11.2).
const RDMA_IP_PREFIX: u64 = 1;

impl ServiceId {
    /// The service ID of an IP port (IBA A11.2).
    #[must_use]
    pub const fn rdma_ip(space: PortSpace, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        Self(RDMA_IP_PREFIX << 24 | u64::from_be_bytes([0, 0, 0, 0, 0, space as u8, high, low]))
    }

    /// The IP port that this service ID is made from, if it is.
    #[must_use]
    pub const fn as_rdma_ip(self) -> Option<(PortSpace, u16)> {
        let [.., protocol, high, low] = self.0.to_be_bytes();
        let space = match protocol {
            0x06 => PortSpace::Tcp,
            0x11 => PortSpace::Udp,
            0x3f => PortSpace::Ib,
            _ => return None,
        };
        if self.0 >> 24 == RDMA_IP_PREFIX { Some((space, u16::from_be_bytes([high, low]))) } else { None }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_ports_have_service_ids() {
        let rping = ServiceId::rdma_ip(PortSpace::Tcp, 7174);
        assert_eq!(rping, ServiceId(0x0000_0000_0106_1c06));
        assert_eq!(rping.as_rdma_ip(), Some((PortSpace::Tcp, 7174)));
        let udaddy = ServiceId::rdma_ip(PortSpace::Udp, 0xfffe);
        assert_eq!(udaddy, ServiceId(0x0000_0000_0111_fffe));
        assert_eq!(udaddy.as_rdma_ip(), Some((PortSpace::Udp, 0xfffe)));
        let either = ServiceId::rdma_ip(PortSpace::Ib, 7);
        assert_eq!(either, ServiceId(0x0000_0000_013f_0007));
        assert_eq!(either.as_rdma_ip(), Some((PortSpace::Ib, 7)));
    }

    #[test]
    fn other_service_ids_are_no_ip_ports() {
        for other in [0, 0x0000_0000_0206_1c06, 0x1000_0000_0106_1c06, 0x0000_0000_0107_1c06] {
            assert_eq!(ServiceId(other).as_rdma_ip(), None);
        }
    }
}

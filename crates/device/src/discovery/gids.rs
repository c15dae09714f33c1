//! The addresses of a device, as RDMA programs number them.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_wire::Gid;

use super::DeviceInfo;

/// The GID table of a device: its addresses, IPv4 before IPv6.
///
/// Every address of 127.0.0.0/8 belongs to the loopback interface without being listed there. Such
/// an address gets an entry when it is first asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidTable {
    addresses: Vec<IpAddr>,
    whole_loopback: bool,
}

impl GidTable {
    /// Entries that a table may have: what a peer or a program can make us keep.
    pub const MAX_LEN: usize = 256;

    /// The table of this device.
    #[must_use]
    pub fn new(info: &DeviceInfo) -> Self {
        let mut addresses = Vec::with_capacity(Self::MAX_LEN);
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) =
            info.addresses.iter().map(IpAddr::to_canonical).partition(IpAddr::is_ipv4);
        for address in v4.into_iter().chain(v6) {
            if addresses.len() < Self::MAX_LEN && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Self { addresses, whole_loopback: info.loopback }
    }

    /// A table that has this address and never another.
    #[must_use]
    pub fn restricted_to(address: IpAddr) -> Self {
        Self { addresses: vec![address.to_canonical()], whole_loopback: false }
    }

    /// The entry at this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Gid> {
        self.addresses.get(index).copied().map(Gid::from)
    }

    /// The index of this address. One of 127.0.0.0/8 is added on the loopback device, as long as
    /// there is room.
    pub fn index_of(&mut self, address: IpAddr) -> Option<usize> {
        let address = address.to_canonical();
        let found = self.addresses.iter().position(|entry| *entry == address);
        if found.is_some() || !self.is_unlisted_loopback(address) || self.addresses.len() >= Self::MAX_LEN {
            return found;
        }
        self.addresses.push(address);
        Some(self.addresses.len() - 1)
    }

    /// Whether this address is ours: listed, or one of 127.0.0.0/8 on an unrestricted loopback device.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.addresses.contains(&address) || self.is_unlisted_loopback(address)
    }

    /// The entries, by index.
    pub fn iter(&self) -> impl Iterator<Item = Gid> {
        self.addresses.iter().copied().map(Gid::from)
    }

    /// How many entries there are now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there are no GIDs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Whether an address is one of 127.0.0.0/8 that counts without being listed. The last of them does not:
    /// it is the broadcast address.
    fn is_unlisted_loopback(&self, address: IpAddr) -> bool {
        const BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
        match address {
            IpAddr::V4(v4) => self.whole_loopback && v4.is_loopback() && v4 != BROADCAST,
            IpAddr::V6(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::tests::device;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ipv4_comes_first_and_the_order_is_kept() {
        let info = device("eth0", &["fe80::1", "192.0.2.2", "fd00::2", "192.0.2.1", "192.0.2.2"]);
        let mut table = GidTable::new(&info);
        let addresses: Vec<IpAddr> = table.iter().map(Gid::ip).collect();
        assert_eq!(addresses, ["192.0.2.2", "192.0.2.1", "fe80::1", "fd00::2"].map(ip));
        assert_eq!(table.get(1), Some(Gid::from(ip("192.0.2.1"))));
        assert_eq!(table.get(4), None);
        assert_eq!(table.index_of(ip("fd00::2")), Some(3));
        assert_eq!(table.index_of(ip("::ffff:192.0.2.1")), Some(1));
        for stranger in ["127.0.0.1", "192.0.2.3", "::1"] {
            assert_eq!(table.index_of(ip(stranger)), None);
            assert!(!table.has(ip(stranger)));
        }
    }

    #[test]
    fn loopback_addresses_are_added_when_asked_for() {
        let mut table = GidTable::new(&device("lo", &["127.0.0.1", "::1"]));
        assert!(table.has(ip("127.0.0.2")));
        assert_eq!((table.len(), table.is_empty()), (2, false));
        assert_eq!(table.index_of(ip("127.0.0.2")), Some(2));
        assert_eq!(table.index_of(ip("127.9.8.7")), Some(3));
        assert_eq!(table.index_of(ip("127.0.0.2")), Some(2));
        assert_eq!(table.get(3), Some(Gid::from(ip("127.9.8.7"))));
        assert_eq!(table.index_of(ip("127.255.255.255")), None);
        assert!(!table.has(ip("127.255.255.255")));
    }

    #[test]
    fn a_full_table_grows_no_more() {
        let mut table = GidTable::new(&device("lo", &["127.0.0.1"]));
        for index in 0..1000_u32 {
            let address = IpAddr::V4(Ipv4Addr::from_bits(0x7f00_0001 + index));
            assert_eq!(table.index_of(address).is_some(), index < 256);
            assert!(table.has(address));
        }
        assert_eq!(table.len(), GidTable::MAX_LEN);
    }

    #[test]
    fn a_restricted_table_has_one_address() {
        let mut table = GidTable::restricted_to(ip("127.0.0.5"));
        assert_eq!(table.index_of(ip("127.0.0.5")), Some(0));
        assert_eq!(table.index_of(ip("127.0.0.1")), None);
        assert!(!table.has(ip("127.0.0.1")));
        assert_eq!(table.len(), 1);
    }
}

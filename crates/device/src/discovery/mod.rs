//! Which interfaces of this machine can be devices, and which of them are opened.
//!
//! RDMA exposes memory to every program that can send a packet, so only the loopback interface becomes a
//! device unless the user names others ([`Opening`]).

mod gids;
mod opening;

use std::io;
use std::net::IpAddr;

use ferroce_sys::interfaces::Interface;
use ferroce_wire::PathMtu;

pub use gids::GidTable;
pub use opening::{DiscoveryError, Opening, select};

/// A device that this machine could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's own name: `ferroce_` and the name of the interface.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The number that the kernel gave to the interface.
    pub index: u32,
    /// Bytes of the longest IP packet that the interface carries.
    pub mtu: u32,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Whether it leads nowhere but back to this machine.
    pub loopback: bool,
    /// Its addresses, in the order in which the kernel lists them.
    pub addresses: Vec<IpAddr>,
    /// Its hardware address; zeros if it has none of six bytes, as the loopback interface.
    pub mac: [u8; 6],
}

/// The interfaces that can be devices, in the kernel's order: those with at least one IP address
/// and room for the smallest path MTU.
///
/// # Errors
/// The kernel does not tell.
pub fn interfaces() -> io::Result<Vec<DeviceInfo>> {
    let all = ferroce_sys::interfaces::interfaces()?;
    Ok(all.into_iter().map(DeviceInfo::from).filter(DeviceInfo::is_usable).collect())
}

impl From<Interface> for DeviceInfo {
    fn from(interface: Interface) -> Self {
        let Interface { name: interface, index, mtu, up, loopback, addresses, mac } = interface;
        let name = format!("{}{interface}", Self::PREFIX);
        Self { name, interface, index, mtu, up, loopback, addresses, mac }
    }
}

impl DeviceInfo {
    /// What stands in front of the interface's name in a device's name.
    pub const PREFIX: &str = "ferroce_";

    /// The largest path MTU that the interface carries, headers included. The smallest one
    /// if it carries none: [`interfaces`] leaves such an interface out.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.path_mtu().unwrap_or(PathMtu::B256)
    }

    /// The device's number in the world: EUI-64 of its hardware address, the way Linux makes it
    /// (the bit for a local number is flipped). Without a hardware address, that of
    /// a local address made from the interface's name, so that it is the same at every start.
    #[must_use]
    pub fn node_guid(&self) -> u64 {
        let mac = if self.mac == [0; 6] { local_mac(&self.interface) } else { self.mac };
        let [a, b, c, d, e, f] = mac;
        u64::from_be_bytes([a ^ 0x02, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Whether it can be a device: it has an address, and room for the smallest path MTU.
    fn is_usable(&self) -> bool {
        !self.addresses.is_empty() && self.path_mtu().is_some()
    }

    fn path_mtu(&self) -> Option<PathMtu> {
        PathMtu::fitting(usize::try_from(self.mtu).unwrap_or(usize::MAX))
    }
}

/// A locally administered unicast address from a name (FNV-1a).
fn local_mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    [0x02, a, b, c, d, e]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An interface with these addresses, loopback if it is called `lo`.
    pub(crate) fn device(interface: &str, addresses: &[&str]) -> DeviceInfo {
        DeviceInfo {
            name: format!("ferroce_{interface}"),
            interface: interface.to_owned(),
            index: 1,
            mtu: 1500,
            up: true,
            loopback: interface == "lo",
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            mac: [0; 6],
        }
    }

    #[test]
    fn the_loopback_interface_is_a_device_with_its_address() {
        let infos = interfaces().unwrap();
        let lo = infos.iter().find(|info| info.loopback).expect("a loopback interface that is up");
        assert_eq!(lo.name, format!("ferroce_{}", lo.interface));
        assert!(lo.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{lo:?}");
        assert!(lo.up && lo.index > 0 && lo.mtu >= 352, "{lo:?}");
        assert_eq!(lo.mac, [0; 6]);
        assert!(infos.iter().all(|info| !info.addresses.is_empty()));
    }

    #[test]
    fn the_active_mtu_leaves_room_for_headers() {
        for (mtu, bytes) in
            [(0, 256), (351, 256), (352, 256), (1400, 1024), (1500, 1024), (9000, 4096), (65_536, 4096)]
        {
            let info = DeviceInfo { mtu, ..device("eth0", &["192.0.2.1"]) };
            assert_eq!(info.active_mtu().bytes(), bytes, "interface MTU {mtu}");
            assert_eq!(info.is_usable(), mtu >= 352, "interface MTU {mtu}");
        }
        assert!(!device("eth0", &[]).is_usable());
    }

    #[test]
    fn the_node_guid_is_the_eui_64_of_the_hardware_address() {
        let mac = [0x00, 0x1b, 0x21, 0x3c, 0x9d, 0xf8];
        let info = DeviceInfo { mac, ..device("eth0", &[]) };
        assert_eq!(info.node_guid(), 0x021b_21ff_fe3c_9df8);
    }

    #[test]
    fn without_hardware_address_the_node_guid_is_local_and_follows_the_name() {
        let guid = device("lo", &[]).node_guid();
        assert_eq!(guid, device("lo", &["127.0.0.1"]).node_guid());
        assert_ne!(guid, device("tun0", &[]).node_guid());
        assert_eq!(guid >> 56, 0, "in this form of EUI-64 a local number has the bit clear");
        assert_eq!(guid >> 24 & 0xffff, 0xfffe);
    }
}

//! Asking the kernel for its interfaces.

use std::ffi::CStr;
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::ptr;

/// A network interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What the kernel calls it.
    pub name: String,
    /// The number that the kernel gave to it.
    pub index: u32,
    /// Bytes of the longest IP packet that it carries.
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

/// All interfaces, in the order of their numbers.
///
/// # Errors
/// The kernel does not tell.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let list = AddressList::get()?;
    // Any socket may ask for an MTU. This kind has no port and no address, and exists everywhere.
    let socket = UnixDatagram::unbound()?;
    let mut infos: Vec<Interface> = list
        .entries()
        .filter_map(|entry| interface_of(entry, &socket).transpose())
        .collect::<io::Result<_>>()?;
    for entry in list.entries() {
        let name = name_of(entry);
        if let Some(info) = infos.iter_mut().find(|info| info.name == name) {
            info.addresses.extend(ip_of(entry));
        }
    }
    infos.sort_by_key(|info| info.index);
    Ok(infos)
}

/// All addresses of this machine, on whatever interface.
///
/// # Errors
/// The kernel does not tell.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    Ok(AddressList::get()?.entries().filter_map(ip_of).collect())
}

/// Which network namespace this thread is in, by the number that the kernel gave to it; `None` if it is not told.
/// Threads of one process may be in different ones.
#[must_use]
pub fn network_namespace() -> Option<u64> {
    std::fs::metadata("/proc/thread-self/ns/net").ok().map(|namespace| namespace.ino())
}

/// What the kernel knows of interfaces: one entry for each interface, and one for each of its addresses.
struct AddressList(*mut libc::ifaddrs);

impl AddressList {
    fn get() -> io::Result<Self> {
        let mut first = ptr::null_mut();
        // SAFETY: getifaddrs writes one pointer, to a place that lives until it returns.
        let failed = unsafe { libc::getifaddrs(&raw mut first) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(Self(first)) }
    }

    fn entries(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: null, or an entry of the list, which stays unchanged until `drop` frees it.
        let first = unsafe { self.0.as_ref() };
        iter::successors(first, |entry| {
            // SAFETY: as for the first entry; getifaddrs ends the list with null.
            unsafe { entry.ifa_next.as_ref() }
        })
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: the list came from getifaddrs, and is freed here alone; entries borrow from `self`.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// The interface that this entry describes; nothing if it is an address, or if the interface
/// has gone since.
fn interface_of(entry: &libc::ifaddrs, socket: &UnixDatagram) -> io::Result<Option<Interface>> {
    if family_of(entry) != Some(libc::AF_PACKET) {
        return Ok(None);
    }
    // SAFETY: getifaddrs gives an address of the family AF_PACKET as a sockaddr_ll; reading
    // unaligned asks for no alignment.
    let link = unsafe { entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned() };
    let name = name_of(entry);
    let mtu = match mtu_of(&name, socket) {
        Ok(mtu) => mtu,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let [a, b, c, d, e, f, ..] = link.sll_addr;
    let on_and_connected = (libc::IFF_UP | libc::IFF_RUNNING).cast_unsigned();
    Ok(Some(Interface {
        name,
        index: link.sll_ifindex.cast_unsigned(),
        mtu,
        up: entry.ifa_flags & on_and_connected == on_and_connected,
        loopback: entry.ifa_flags & libc::IFF_LOOPBACK.cast_unsigned() != 0,
        addresses: Vec::new(),
        mac: if link.sll_halen == 6 { [a, b, c, d, e, f] } else { [0; 6] },
    }))
}

/// The name of the interface. An address may have a label such as `eth0:1`; the
/// interface is what stands before the colon, which no interface has in its name.
fn name_of(entry: &libc::ifaddrs) -> String {
    // SAFETY: getifaddrs gives every entry a name that ends with a zero byte and lives as long as the entry.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
    name.split(':').next().unwrap_or_default().to_owned()
}

fn family_of(entry: &libc::ifaddrs) -> Option<libc::c_int> {
    // SAFETY: null, or an address that lives as long as the entry and begins with its family.
    let address = unsafe { entry.ifa_addr.as_ref() };
    address.map(|address| libc::c_int::from(address.sa_family))
}

fn ip_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    match family_of(entry)? {
        libc::AF_INET => {
            // SAFETY: getifaddrs gives an address of the family AF_INET as a sockaddr_in; reading
            // unaligned asks for no alignment.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: getifaddrs gives an address of the family AF_INET6 as a sockaddr_in6; reading
            // unaligned asks for no alignment.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The kernel's own answer: the files under /sys may show another network namespace.
fn mtu_of(interface: &str, socket: &UnixDatagram) -> io::Result<u32> {
    // The number is that of SIOCGIFMTU; its type there is not the one that every C library takes.
    const GET_MTU: libc::Ioctl = 0x8921;

    let mut request =
        libc::ifreq { ifr_name: [0; 16], ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 } };
    // Its last byte stays zero, and ends the name.
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: this request takes an ifreq with a name that ends with a zero byte, and writes its MTU into it.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), GET_MTU, &raw mut request) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a number was stored here above, and the kernel has replaced it by another.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(mtu.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_told_once() {
        let all = interfaces().unwrap();
        assert!(all.iter().all(|interface| !interface.name.contains(':')));
        assert!(all.is_sorted_by(|a, b| a.index < b.index), "{all:?}");
        let lo = all.iter().find(|interface| interface.loopback).expect("a loopback interface");
        assert!(lo.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{lo:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_mtu() {
        let socket = UnixDatagram::unbound().unwrap();
        let error = mtu_of("no_such_netdev_here", &socket).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}

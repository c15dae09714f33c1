//! Asking the kernel for its interfaces.

use std::ffi::CStr;
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::ptr;

use super::DeviceInfo;

/// The interfaces that can be devices, in the kernel's order: those with at least one IP address
/// and room for the smallest path MTU.
///
/// # Errors
/// The kernel does not tell.
pub fn interfaces() -> io::Result<Vec<DeviceInfo>> {
    let list = AddressList::get()?;
    // Any socket may ask for an MTU. This kind has no port and no address, and exists everywhere.
    let socket = UnixDatagram::unbound()?;
    let mut infos: Vec<DeviceInfo> = list
        .entries()
        .filter_map(|entry| device_of(entry, &socket).transpose())
        .collect::<io::Result<_>>()?;
    for entry in list.entries() {
        let interface = interface_of(entry);
        if let Some(info) = infos.iter_mut().find(|info| info.interface == interface) {
            info.addresses.extend(ip_of(entry));
        }
    }
    infos.retain(DeviceInfo::is_usable);
    infos.sort_by_key(|info| info.index);
    Ok(infos)
}

/// All addresses of this machine, on whatever interface.
///
/// # Errors
/// The kernel does not tell.
pub(crate) fn addresses() -> io::Result<Vec<IpAddr>> {
    Ok(AddressList::get()?.entries().filter_map(ip_of).collect())
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
fn device_of(entry: &libc::ifaddrs, socket: &UnixDatagram) -> io::Result<Option<DeviceInfo>> {
    if family_of(entry) != Some(libc::AF_PACKET) {
        return Ok(None);
    }
    // SAFETY: getifaddrs gives an address of the family AF_PACKET as a sockaddr_ll; reading
    // unaligned asks for no alignment.
    let link = unsafe { entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned() };
    let interface = interface_of(entry);
    let mtu = match mtu_of(&interface, socket) {
        Ok(mtu) => mtu,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let [a, b, c, d, e, f, ..] = link.sll_addr;
    let on_and_connected = (libc::IFF_UP | libc::IFF_RUNNING).cast_unsigned();
    Ok(Some(DeviceInfo {
        name: format!("{}{interface}", DeviceInfo::PREFIX),
        interface,
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
fn interface_of(entry: &libc::ifaddrs) -> String {
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
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_loopback_interface_is_found_with_its_address() {
        let infos = interfaces().unwrap();
        let lo = infos.iter().find(|info| info.loopback).expect("a loopback interface that is up");
        assert_eq!(lo.name, format!("ferroce_{}", lo.interface));
        assert!(lo.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{lo:?}");
        assert!(lo.up && lo.index > 0 && lo.mtu >= 352, "{lo:?}");
        assert_eq!(lo.mac, [0; 6]);
    }

    #[test]
    fn every_interface_is_told_once_and_has_an_address() {
        let infos = interfaces().unwrap();
        assert!(infos.iter().all(|info| !info.addresses.is_empty() && !info.interface.contains(':')));
        assert!(infos.is_sorted_by(|a, b| a.index < b.index), "{infos:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_mtu() {
        let socket = UnixDatagram::unbound().unwrap();
        let error = mtu_of("no_such_netdev_here", &socket).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}

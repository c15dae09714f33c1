//! Ports of others: what another user can bind.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_device::fabric::PORT;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

/// Tries to bind the port at each of these addresses and at all addresses, and every other port that is used
/// there, in every way; how often it was tried, and how often refused.
pub(crate) fn try_all(addresses: impl Iterator<Item = IpAddr>) -> String {
    let addresses: Vec<_> = addresses.collect();
    let mut doors: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, PORT)).collect();
    doors.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT));
    doors.push(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT));
    doors.extend(used().into_iter().filter(|door| addresses.contains(&door.ip()) && door.port() != PORT));
    let (mut tried, mut refused) = (0, 0);
    for door in doors {
        for (address, port) in [(false, false), (true, false), (false, true), (true, true)] {
            tried += 1;
            refused += u64::from(is_closed(door, address, port));
        }
    }
    format!("{tried} {refused}")
}

/// Whether the system refuses this address and port to this user.
fn is_closed(door: SocketAddr, reuse_address: bool, reuse_port: bool) -> bool {
    let family = if door.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::DGRAM, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, reuse_address).expect("an option");
    sockopt::set_socket_reuseport(&socket, reuse_port).expect("an option");
    bind(&socket, &door).is_err()
}

/// Ports in use, as the system shows them to all of its users.
fn used() -> Vec<SocketAddr> {
    let list = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let place = |line: &str| {
        let (address, port) = line.split_whitespace().nth(1)?.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(SocketAddr::new(Ipv4Addr::from(address.to_ne_bytes()).into(), port))
    };
    list.lines().filter_map(place).collect()
}

//! A socket beside those of a device: as another process of the same user could have it.

use std::net::{SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// A socket on a port that sockets of this user may be on already. From there a test sends what looks as if a device
/// had sent it; what comes to the port reaches the device and not this socket.
///
/// # Panics
/// The system refuses.
#[must_use]
pub fn beside_a_device(address: SocketAddr) -> UdpSocket {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("a shared port");
    bind(&socket, &address).expect("the port is of this user, or free");
    socket.into()
}

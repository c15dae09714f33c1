//! A socket beside those of a device: as another process of the same user could have it.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

/// A socket on a port of the loopback interface that sockets of this user may be on already. From there a test sends
/// what looks as if a device had sent it; what comes to the port reaches the device and not this socket.
///
/// # Panics
/// The system refuses.
#[must_use]
pub fn beside_a_device(address: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).expect("a socket");
    // A socket of another kind would stand beside the group instead of in it, and get what is for the group.
    socket.bind_device(Some(b"lo")).expect("an interface");
    socket.set_reuse_port(true).expect("a shared port");
    socket.bind(&address.into()).expect("the port is of this user, or free");
    socket.into()
}

//! Why the sockets of a device could not be opened.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

/// Why a [`UdpFabric`](super::UdpFabric) could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another program has the port.
    #[error(
        "UDP port {port} of {} is taken by another program; see which it is with \
         `ss -lunp 'sport = {port}'` and stop it, or give each process its own loopback address \
         with FERROCE_ADDRESS (such as 127.0.0.2)",
        place(interface, *address)
    )]
    PortTaken {
        /// The port that was wanted.
        port: u16,
        /// The interface that was wanted.
        interface: String,
        /// The address that was wanted, if not all of the interface.
        address: Option<IpAddr>,
    },
    /// There is no interface of this name.
    #[error("there is no network interface {interface:?}; `ip link` lists the names that exist")]
    NoSuchInterface {
        /// The name that was given.
        interface: String,
    },
    /// The address is none of this machine's, or not ready yet.
    #[error(
        "{address} is not an address of this machine; `ip address show dev {interface}` lists those of \
         {interface}, and on lo every address of 127.0.0.0/8 will do"
    )]
    NoSuchAddress {
        /// The address that was given.
        address: IpAddr,
        /// The interface that was given.
        interface: String,
    },
    /// The system does not allow this program to do it.
    #[error(
        "the system does not permit to {step} for interface {interface}, UDP port {port} (ports below 1024, and \
         interfaces before Linux 5.7, need CAP_NET_BIND_SERVICE or CAP_NET_RAW, and a container's rules may \
         forbid sockets)"
    )]
    NotPermitted {
        /// What was tried.
        step: &'static str,
        /// The interface that was wanted.
        interface: String,
        /// The port that was wanted.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else that the system refused.
    #[error(
        "could not {step} for interface {interface}, UDP port {port} (this needs Linux 4.18 or newer with UDP \
         sockets)"
    )]
    System {
        /// What was tried.
        step: &'static str,
        /// The interface that was wanted.
        interface: String,
        /// The port that was wanted.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
}

impl SocketError {
    /// The error of the system behind it.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::PortTaken { .. } => libc::EADDRINUSE,
            Self::NoSuchInterface { .. } => libc::ENODEV,
            Self::NoSuchAddress { .. } => libc::EADDRNOTAVAIL,
            Self::NotPermitted { source, .. } | Self::System { source, .. } => {
                source.raw_os_error().unwrap_or(0)
            }
        }
    }
}

/// Names what was asked for: an interface, or one address of it.
fn place(interface: &str, address: Option<IpAddr>) -> String {
    address.map_or_else(|| format!("interface {interface}"), |address| format!("{address} on {interface}"))
}

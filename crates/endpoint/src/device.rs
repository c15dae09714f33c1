//! Which device has an address, and which leads to one.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use ferroce_verbs::{Context, OpenError, devices};

use crate::error::AddressError;

/// The first address that a name means.
pub(crate) fn first(address: impl ToSocketAddrs) -> Result<SocketAddr, AddressError> {
    let mut found = address.to_socket_addrs().map_err(AddressError::Unknown)?;
    found.next().ok_or(AddressError::Empty)
}

/// The device that has this address.
pub(crate) fn open_own(address: IpAddr) -> Result<Context, AddressError> {
    for info in devices()? {
        if info.loopback && address.is_loopback() {
            // Others may be a device of their own.
            return Ok(Context::builder(&info.name).address(address).open()?);
        }
        if address.is_unspecified() || info.addresses.contains(&address) {
            return Ok(Context::open(&info.name)?);
        }
    }
    Err(AddressError::NoDevice { address })
}

/// The device that leads to this address: the loopback device to its own addresses, otherwise the first that
/// is none.
pub(crate) fn open_towards(peer: IpAddr) -> Result<Context, AddressError> {
    let named = std::env::var_os("FERROCE_ADDRESS").is_some_and(|address| !address.is_empty());
    for info in devices()? {
        if info.loopback != peer.is_loopback() {
            continue;
        }
        // On loopback, all that is not told otherwise meets at the address of the listener.
        return Ok(match info.loopback && !named {
            true => Context::builder(&info.name).address(peer).open()?,
            false => Context::open(&info.name)?,
        });
    }
    Err(AddressError::NoDevice { address: peer })
}

/// An address of the device of the same family as the peer's.
pub(crate) fn source(context: &Context, peer: IpAddr) -> Option<IpAddr> {
    let mut index = 0;
    while let Some(gid) = context.gid(index) {
        if gid.ip().is_ipv4() == peer.is_ipv4() {
            return Some(gid.ip());
        }
        index += 1;
    }
    None
}

impl From<OpenError> for AddressError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

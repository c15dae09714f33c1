//! Which device has an address, and which leads to one.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use ferroce_verbs::{
    Context, DeviceInfo, OpenError, ProviderChoice, devices, open_card_towards, open_cards_at,
};

use crate::error::AddressError;

/// The first address that a name means.
pub(crate) fn first(address: impl ToSocketAddrs) -> Result<SocketAddr, AddressError> {
    let mut found = address.to_socket_addrs().map_err(AddressError::Unknown)?;
    found.next().ok_or(AddressError::Empty)
}

/// The device that has this address; for all addresses, one or several. A soft device that is open to programs comes before a
/// card, but for all addresses cards come first: where there are some, that is what they are for.
pub(crate) fn open_own(address: IpAddr) -> Result<Vec<Context>, AddressError> {
    let choice = ProviderChoice::from_env()?;
    if address.is_unspecified() {
        let cards = open_cards_at(address)?;
        if !cards.is_empty() {
            return Ok(cards);
        }
    }
    let soft = if choice == ProviderChoice::System { Vec::new() } else { devices()? };
    for info in soft {
        if address.is_unspecified() {
            return open_all(&info, address);
        }
        if info.loopback && address.is_loopback() {
            // Others may be a device of their own.
            return Ok(vec![open_at(&info, address)?]);
        }
        if info.addresses.contains(&address) {
            return Ok(vec![Context::open(&info.name)?]);
        }
    }
    let cards = open_cards_at(address)?;
    if cards.is_empty() { Err(AddressError::NoDevice { address }) } else { Ok(cards) }
}

/// The device that leads to this address: the loopback device to its own addresses, otherwise the first soft device that
/// is none; if there is none, a card.
pub(crate) fn open_towards(peer: IpAddr) -> Result<Context, AddressError> {
    let named = std::env::var_os("FERROCE_ADDRESS").is_some_and(|address| !address.is_empty());
    let choice = ProviderChoice::from_env()?;
    let soft = if choice == ProviderChoice::System { Vec::new() } else { devices()? };
    for info in soft {
        if info.loopback != peer.is_loopback() {
            continue;
        }
        // On loopback, all that is not told otherwise meets at the address of the listener.
        return Ok(match info.loopback && !named {
            true => open_at(&info, peer)?,
            false => Context::open(&info.name)?,
        });
    }
    open_card_towards(peer)?.ok_or(AddressError::NoDevice { address: peer })
}

/// A device at one address; or, if one of this user has all addresses of the interface, that one.
fn open_at(info: &DeviceInfo, address: IpAddr) -> Result<Context, OpenError> {
    let opened = Context::builder(&info.name).address(address).open();
    match opened {
        Err(error) if error.overlaps() => Context::open(&info.name).map_err(|_| error),
        opened => opened,
    }
}

/// A device with all addresses of an interface; or, if some of them are devices of their own, one for each.
fn open_all(info: &DeviceInfo, address: IpAddr) -> Result<Vec<Context>, AddressError> {
    let overlap = match Context::open(&info.name) {
        Ok(context) => return Ok(vec![context]),
        Err(error) if error.overlaps() => error,
        Err(error) => return Err(error.into()),
    };
    let mut all = Context::opened_here(&info.name);
    for own in info.addresses.iter().filter(|own| own.is_ipv4() == address.is_ipv4()) {
        // One that another process has is left to that.
        let opened = Context::builder(&info.name).address(*own).open();
        if let Ok(context) = opened
            && !all.iter().any(|known| known.gid(0) == context.gid(0))
        {
            all.push(context);
        }
    }
    all.retain(|context| source(context, address).is_some());
    if all.is_empty() { Err(overlap.into()) } else { Ok(all) }
}

/// An address of the device of the same family as the peer's.
pub(crate) fn source(context: &Context, peer: IpAddr) -> Option<IpAddr> {
    context.addresses().into_iter().find(|own| own.is_ipv4() == peer.is_ipv4())
}

impl From<OpenError> for AddressError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

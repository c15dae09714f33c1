//! Multicast groups of a card.
//!
//! A card that a queue pair is attached by takes the group's packets when they come. That they come is for the host to ask: switches
//! send them where a member has said so (IGMP, MLD), and the kernel loops them back only if the host is one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Arc, Mutex, Weak};

use super::{OpenCard, lock};
use crate::error::CreateError;

/// The groups that this host is a member of for a card.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<IpAddr, Weak<Membership>>>);

/// Keeps the host a member of a group. No packet of the group reaches the socket: they go to another port.
#[derive(Debug)]
pub(crate) struct Membership {
    _socket: Option<UdpSocket>,
}

impl Groups {
    /// Makes the host a member on the interfaces of the card, if it is not one already.
    pub(crate) fn join(&self, card: &OpenCard, group: IpAddr) -> Result<Arc<Membership>, CreateError> {
        let mut known = lock(&self.0);
        if let Some(member) = known.get(&group).and_then(Weak::upgrade) {
            return Ok(member);
        }
        known.retain(|_, member| member.strong_count() > 0);
        let refused = |error: io::Error| CreateError::GroupRefused { group, kind: error.kind() };
        // Our own library joins by itself.
        let socket =
            if card.system.library().is_ours() { None } else { Some(socket(card, group).map_err(refused)?) };
        let member = Arc::new(Membership { _socket: socket });
        known.insert(group, Arc::downgrade(&member));
        Ok(member)
    }
}

fn socket(card: &OpenCard, group: IpAddr) -> io::Result<UdpSocket> {
    let here: IpAddr = match group {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((here, 0))?;
    let mut joined = Vec::new();
    for (own, interface) in card.own_addresses() {
        let joins = match (group, own) {
            (IpAddr::V4(group), IpAddr::V4(own)) => socket.join_multicast_v4(&group, &own),
            (IpAddr::V6(group), _) if !joined.contains(&interface) => {
                joined.push(interface);
                socket.join_multicast_v6(&group, interface)
            }
            _ => continue,
        };
        match joins {
            // Two addresses of one interface.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => other?,
        }
    }
    Ok(socket)
}

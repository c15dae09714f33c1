//! Where peers are: address vectors, address handles, and the source ports of paths.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_fabric::PathPolicy;
use ferroce_fabric::{PORT, PortRefusal, Route};
use ferroce_wire::{Gid, Qpn};

use crate::engine::Engine;
use crate::engine::handles::{Handle, PLACE, place_of};
use crate::engine::qps::Way;
use crate::error::{NicCreateError, RouteError};
use crate::limits::Limits;
use crate::nic::Nic;

/// The address of a peer, as a program gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer's GID: its IP address.
    pub gid: Gid,
    /// Which of our GIDs packets come from.
    pub sgid_index: usize,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that a packet may take; 0 means 64.
    pub hop_limit: u8,
    /// The flow label, 20 bits: over IPv6 packets carry it. It also decides the UDP source port, and with it the
    /// way through a network; 0 lets the device choose the port, and packets carry none.
    pub flow_label: u32,
    /// The UDP source port itself, which decides the way through a network. To peers on the same machine, and to
    /// multicast groups, packets leave from the port of RoCEv2 all the same: from this machine nothing else is taken.
    pub source_port: SourcePort,
    /// What the way carries in kilobits per second, 0 for any rate: a connection sends no faster. Datagrams are not
    /// slowed down.
    pub static_rate: u32,
}

impl AddressVector {
    /// The peer at this address, from our GID of this index, with nothing special.
    #[must_use]
    pub const fn new(gid: Gid, sgid_index: usize) -> Self {
        Self {
            gid,
            sgid_index,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            source_port: SourcePort::Any,
            static_rate: 0,
        }
    }

    /// The way to the peer, and whether it leads back to this device. To a group it does on a loopback device:
    /// copies are made there, and nothing is sent to the group's address.
    pub(crate) fn resolve(&self, nic: &Nic, chosen_label: u32, to: To) -> Result<(Way, bool), RouteError> {
        let (given, len) = (self.sgid_index, nic.gid_count());
        let local = nic.gid(given).ok_or(RouteError::NoSuchGid { given, len })?.ip();
        let remote = self.gid.ip();
        let not_a_host = match remote {
            IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
        };
        match to {
            To::Group => {
                group_of(self.gid)?;
            }
            To::Host if not_a_host => return Err(RouteError::NotAHost(remote)),
            To::Host if nic.info().loopback && !remote.is_loopback() => {
                return Err(RouteError::BeyondLoopback { local, remote });
            }
            To::Host => {}
        }
        let label = if self.flow_label == 0 { chosen_label } else { self.flow_label };
        // On this machine only what comes from our port is taken, and a group may have members here.
        let near = to == To::Group || nic.member().locals().asked_anew(remote);
        let wanted = || self.source_port.wanted().unwrap_or_else(|| source_port(label));
        let route = Route {
            local,
            remote,
            source_port: if near { PORT } else { wanted() },
            traffic_class: self.traffic_class,
            hop_limit: if self.hop_limit == 0 { 64 } else { self.hop_limit },
            flow_label: if local.is_ipv6() { self.flow_label & FLOW_LABEL } else { 0 },
        };
        let mut way = Way::new(route).ok_or(RouteError::Families { local, remote })?;
        if let SourcePort::Require(port) = self.source_port {
            if port != route.source_port {
                return Err(RouteError::SourcePort {
                    port,
                    why: PortRefusal::Fixed { port: route.source_port },
                });
            }
            way.must = true;
        }
        let ours = if to == To::Group { nic.info().loopback } else { nic.has_address(remote) };
        Ok((way, ours))
    }
}

/// The UDP port that packets leave from. Routers choose between equal ways by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SourcePort {
    /// Any will do: it follows from the flow label.
    #[default]
    Any,
    /// This one if it can be had, else that of RoCEv2.
    Prefer(u16),
    /// This one and no other: without it nothing leaves.
    Require(u16),
}

impl SourcePort {
    /// This one is preferred, if it is one.
    #[must_use]
    pub const fn prefer(port: Option<u16>) -> Self {
        match port {
            Some(port) => Self::Prefer(port),
            None => Self::Any,
        }
    }

    /// The port, if it matters.
    #[must_use]
    pub const fn wanted(self) -> Option<u16> {
        match self {
            Self::Any => None,
            Self::Prefer(port) | Self::Require(port) => Some(port),
        }
    }
}

/// The bits of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// What an address is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// A host.
    Host,
    /// A multicast group.
    Group,
}

/// The multicast group of this GID, if it is one.
pub(crate) fn group_of(group: Gid) -> Result<IpAddr, RouteError> {
    let group = group.ip();
    if group.is_multicast() { Ok(group) } else { Err(RouteError::NotAGroup(group)) }
}

/// The UDP source port of a flow label, folded as other network cards do it: 20 bits into 14.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "14 bits are left")]
pub const fn source_port(label: u32) -> u16 {
    let label = label & FLOW_LABEL;
    0xc000 | ((label & 0x3fff) ^ (label >> 14)) as u16
}

/// The flow label of a connection that was given none: both sides choose the same.
#[must_use]
pub const fn connection_label(ours: Qpn, theirs: Qpn) -> u32 {
    let mut label = ours.get() as u64 * theirs.get() as u64;
    label ^= label >> 20;
    label ^= label >> 40;
    (label & 0xf_ffff) as u32
}

/// An address for datagrams.
#[derive(Debug)]
pub struct AddressHandle {
    nic: Nic,
    number: u32,
    vector: AddressVector,
}

impl AddressHandle {
    /// A handle for this address.
    ///
    /// # Errors
    /// The address leads nowhere, or there are too many handles.
    pub fn new(nic: &Nic, vector: AddressVector) -> Result<Arc<Self>, NicCreateError> {
        nic.check_ours()?;
        let to = if vector.gid.ip().is_multicast() { To::Group } else { To::Host };
        let (way, ours) = vector.resolve(nic, DATAGRAM_LABEL, to)?;
        let policy = if nic.has_middleware() { PathPolicy::Forbid } else { nic.config().path };
        // Every engine has one of its own, at the same place, because each has its own sockets to send from.
        let number = nic.engines().control_all(|all| {
            let mut number = 0;
            for engine in all.visits.iter_mut().map(|inside| &mut **inside) {
                if engine.handles.len() >= Limits::ADDRESS_HANDLES {
                    let allowed = Limits::ADDRESS_HANDLES;
                    return Err(NicCreateError::TooMany { what: "address handles", allowed });
                }
                if way.must {
                    let (port, local) = (way.wanted_port, way.route.local);
                    let had = engine.port.fabric.require_port(port, local);
                    had.map_err(|why| RouteError::SourcePort { port, why })?;
                }
                // Work that outlives its handle must not go where a later one leads.
                engine.handles_made = engine.handles_made.wrapping_add(1);
                let entry = engine.handles.vacant_entry();
                let place = u32::try_from(entry.key()).unwrap_or(0) & PLACE;
                number = place | engine.handles_made << PLACE.count_ones();
                entry.insert(Handle { number, way, ours, policy });
            }
            Ok(number)
        })?;
        Ok(Arc::new(Self { nic: nic.clone(), number, vector }))
    }

    /// The number that work requests name the handle by.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The source port that datagrams of the handle left from last, or would leave from, in the first engine.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        let place = place_of(self.number);
        self.nic.engines().control(0, |engine| {
            let Engine { handles, port, .. } = engine;
            handles.get_mut(place).map_or(0, |handle| {
                let _ = handle.way.is_ready(&mut *port.fabric);
                handle.way.route.source_port
            })
        })
    }

    /// Where the handle leads.
    #[must_use]
    pub const fn vector(&self) -> &AddressVector {
        &self.vector
    }

    /// The device.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }
}

/// The flow label of datagrams whose handle gives none.
const DATAGRAM_LABEL: u32 = 0x1_2345;

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if !self.nic.is_ours() {
            return;
        }
        // Datagrams that are posted still need the way: a turn without anything else sends them.
        let engines = self.nic.engines();
        engines.control_all(|_| ());
        engines.control_all(|all| {
            for engine in &mut all.visits {
                engine.handles.try_remove(place_of(self.number));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_those_that_linux_was_seen_to_use() {
        let port = |ours, theirs| source_port(connection_label(Qpn::new(ours), Qpn::new(theirs)));
        assert_eq!(port(0x13, 0x77), 51_413);
        assert_eq!(port(0x13, 0x77), port(0x77, 0x13));
        assert!((0..0x10_0000).step_by(977).all(|label| source_port(label) >= 0xc000));
    }
}

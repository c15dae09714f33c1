//! Where a packet comes from.

use std::net::IpAddr;

use ferroce_fabric::{Received, Route};
use ferroce_switchboard::Arrival;
use ferroce_transport::Envelope;
use ferroce_wire::Grh;
use ferroce_wire::header::DatagramPrefix;
use ferroce_wire::net::{Ipv4, Ipv6, Udp};

use super::qps::Way;

/// How a packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// From a queue pair of this process.
    Here,
    /// Through memory, from the process that has this slot.
    Lane(u8),
    /// Over the network.
    Wire,
}

/// Where a packet comes from, and how it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) flow_label: u32,
    pub(super) source_port: u16,
    pub(super) identification: u16,
    /// When the kernel got it, in nanoseconds since 1970; 0 if that is not known.
    pub(super) stamp: u64,
    pub(super) came: Came,
}

impl Sender {
    /// The sender of a packet that never leaves the process.
    pub(super) const fn of(route: &Route) -> Self {
        Self {
            remote: route.local,
            local: route.remote,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            flow_label: route.flow_label,
            source_port: route.source_port,
            identification: 0,
            stamp: 0,
            came: Came::Here,
        }
    }

    /// The sender of a packet that came from another process of this machine, of which no more is known than its queue pair tells.
    pub(super) const fn near(address: IpAddr, came: Came) -> Self {
        Self {
            remote: address,
            local: address,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            source_port: 0,
            identification: 0,
            stamp: 0,
            came,
        }
    }

    /// The sender of what came from the network.
    pub(super) const fn of_datagram(datagram: &Received) -> Self {
        let Received { source: (remote, source_port), local, .. } = *datagram;
        let Received { traffic_class, hop_limit, flow_label, stamp, .. } = *datagram;
        let (identification, came) = (0, Came::Wire);
        Self { remote, local, traffic_class, hop_limit, flow_label, source_port, identification, stamp, came }
    }

    /// The address that the packet was sent to.
    pub(super) const fn local(&self) -> IpAddr {
        self.local
    }

    /// Whether the packet came from the other end of this way, and not from this process.
    pub(super) fn came_along(&self, way: &Way) -> bool {
        match self.came {
            Came::Here => false,
            Came::Lane(slot) => way.lane == Some(slot),
            Came::Wire => self.remote == way.route.remote && self.local == way.route.local,
        }
    }

    /// Whether the packet was sent to a multicast group.
    pub(super) const fn is_to_group(&self) -> bool {
        self.local.is_multicast()
    }

    /// The sender of a packet that another process has checked and forwarded.
    pub(crate) fn forwarded(arrival: &Arrival<'_>) -> Self {
        let identification = u16::try_from(arrival.place).unwrap_or(0);
        Self { identification, ..Self::of_datagram(&arrival.received) }
    }

    /// The packet as another process gets it.
    pub(super) fn arrival<'a>(&self, bytes: &'a [u8]) -> Arrival<'a> {
        let received = Received {
            len: bytes.len(),
            segment: bytes.len().max(1),
            source: (self.remote, self.source_port),
            local: self.local,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            stamp: self.stamp,
        };
        Arrival { received, place: self.identification.into(), bytes }
    }

    /// What the receiver of a datagram is told: what stands before it in its buffer, and the port.
    pub(super) fn envelope(&self, packet_len: usize) -> Envelope {
        let mut bytes = [0; Grh::LEN];
        let len = u16::try_from(packet_len + Udp::LEN).unwrap_or(u16::MAX);
        match (self.remote, self.local) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                let (tos, id, ttl) = (self.traffic_class, self.identification, self.hop_limit);
                let ip = Ipv4 { tos, id, dont_fragment: true, ttl, source, dest };
                DatagramPrefix::V4(ip, len).emit(&mut bytes);
            }
            (IpAddr::V6(source), IpAddr::V6(dest)) => {
                let Self { traffic_class, flow_label, hop_limit, .. } = *self;
                let ip = Ipv6 { traffic_class, flow_label, hop_limit, source, dest };
                DatagramPrefix::V6(Grh::from((ip, len))).emit(&mut bytes);
            }
            _ => {}
        }
        Envelope { header: bytes, source_port: self.source_port, came: None }
    }
}

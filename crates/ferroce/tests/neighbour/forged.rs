//! A forged source: the address of another, and the very port that it uses.
//!
//! The system keeps other users from binding a port that is taken, but it lets a socket that is bound to a
//! free address send from any address of the machine (`IP_PKTINFO`). So neither address nor port say which
//! user sent a packet.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::fabric::udp::{SocketError, UdpConfig, UdpFabric};
use ferroce_device::fabric::{Fabric, Outbox, PORT, Route, Toward};
use ferroce_testkit::neighbour::Target;
use ferroce_wire::Flow;

/// A socket that sends from a port, and from whichever address it likes.
pub(crate) struct Forged {
    fabric: UdpFabric,
    outbox: Outbox,
    port: u16,
}

impl Forged {
    /// At a free address, with the port that packets are to come from.
    pub(crate) fn open(own: IpAddr, port: u16) -> Result<Self, SocketError> {
        let config = UdpConfig { address: Some(own), port, segmentation: false, ..UdpConfig::new("lo") };
        Ok(Self { fabric: UdpFabric::open(&config)?, outbox: Outbox::new(1 << 16, 16), port })
    }

    /// The way of packets to a target, in the name of its peer.
    pub(crate) fn flow(&self, target: &Target) -> Flow {
        let from = SocketAddr::new(target.peer, self.port);
        Flow::new(from, SocketAddr::new(target.address, PORT)).expect("one family")
    }

    /// Sends one packet in the name of the target's peer; how many the system took.
    pub(crate) fn send(&mut self, target: &Target, bytes: &[u8]) -> u64 {
        let route = Route {
            local: target.peer,
            remote: target.address,
            source_port: self.port,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let to = Toward { route: &route, slot: 0, is_known: false };
        let room = self.outbox.room(bytes.len()).expect("one packet fits");
        room.copy_from_slice(bytes);
        self.outbox.commit(to, bytes.len(), 0);
        self.fabric.send(&mut self.outbox).packets
    }
}

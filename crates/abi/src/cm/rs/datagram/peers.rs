//! The peers of a socket: where their queue pairs are, and how long ago that was heard.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::AddressHandle;
use ferroce_transport::Time;
use ferroce_wire::Qpn;

/// How many peers a socket knows. Of one that is forgotten it learns again when it sends there.
const MOST: usize = 1024;

/// How long a queue pair is taken to be there after something was heard of it: the peer may have gone, and another
/// process may have its address. The next message asks again.
const FRESH: Duration = Duration::from_secs(1);

/// A peer.
pub(super) struct Peer {
    /// The address of ours that it knows us by.
    pub(super) local: IpAddr,
    /// Which of our ports leads there.
    pub(super) port: usize,
    pub(super) qpn: Option<Qpn>,
    heard: Time,
    pub(super) handle: Option<Arc<AddressHandle>>,
}

impl Peer {
    pub(super) const fn new(local: IpAddr, port: usize) -> Self {
        Self { local, port, qpn: None, heard: Time::from_nanos(0), handle: None }
    }

    /// It has told of its queue pair.
    pub(super) const fn tells(&mut self, qpn: Qpn, now: Time) {
        (self.qpn, self.heard) = (Some(qpn), now);
    }

    /// A message came from a queue pair.
    pub(super) fn speaks(&mut self, qpn: Qpn, now: Time) {
        if self.qpn == Some(qpn) {
            self.heard = now;
        }
    }

    /// Its queue pair, if it is still there as far as we know.
    pub(super) fn fresh(&self, now: Time) -> Option<Qpn> {
        self.qpn.filter(|_| now.since(self.heard) < FRESH)
    }
}

/// All peers of a socket. Anyone can make itself one, so there is an end to it: the oldest is forgotten.
#[derive(Default)]
pub(super) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(super) fn get(&mut self, address: &SocketAddr) -> Option<&mut Peer> {
        self.known.get_mut(address)
    }

    pub(super) fn insert(&mut self, address: SocketAddr, peer: Peer) {
        if !self.known.contains_key(&address) {
            if self.order.len() >= MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(address);
        }
        self.known.insert(address, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_socket_knows_only_so_many_peers() {
        let mut peers = Peers::default();
        let address = |number: u32| SocketAddr::from((std::net::Ipv4Addr::from_bits(number), 7));
        for number in 0..3000 {
            peers.insert(address(number), Peer::new(HERE, 0));
            peers.insert(address(number), Peer::new(HERE, 0));
        }
        assert_eq!((peers.known.len(), peers.order.len()), (MOST, MOST));
        assert!(peers.get(&address(2999)).is_some());
        assert!(peers.get(&address(2999 - 1024)).is_none());
    }

    #[test]
    fn what_was_not_heard_for_a_second_is_asked_again() {
        let mut peer = Peer::new(HERE, 0);
        let at = |milliseconds: u64| Time::from_nanos(0) + Duration::from_millis(milliseconds);
        assert_eq!(peer.fresh(at(0)), None);
        peer.tells(Qpn::new(7), at(500));
        assert_eq!(peer.fresh(at(1499)), Some(Qpn::new(7)));
        assert_eq!(peer.fresh(at(1500)), None);
        peer.speaks(Qpn::new(8), at(1400));
        assert_eq!(peer.fresh(at(1500)), None);
        peer.speaks(Qpn::new(7), at(1400));
        assert_eq!(peer.fresh(at(1500)), Some(Qpn::new(7)));
    }
}

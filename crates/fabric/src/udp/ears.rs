//! Sockets that only hear what routers and hosts say of packets from a port that is required.
//!
//! Another process of this user may send from the same port, and the kernel tells of a packet that came back to one socket
//! of a port only, whichever that is. A socket that has the address of the packet too comes before those that have all
//! addresses. It sends nothing, since one of IPv4 could not send over IPv6.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_sys::fork::Record;

use super::news::News;
use super::outgoing::Outgoing;
use super::socket::{Binding, Sharing, Socket};

/// How many there are at most; beyond, all of them give way to those that are needed now.
const MOST: usize = 512;

/// What the marks of such sockets begin at, beyond all ports.
const FIRST: u64 = 1 << 16;

/// The sockets by port and address.
#[derive(Debug, Default)]
pub(super) struct Ears {
    /// The mark of each; of one that could not be opened, too, so that it is not tried for each packet.
    marks: HashMap<(u16, IpAddr), u64>,
    open: HashMap<u64, (u16, Outgoing)>,
    next: u64,
}

impl Ears {
    /// Hears what becomes of packets from this port of this address from now on, if news are followed.
    pub(super) fn listen(
        &mut self,
        binding: &Binding,
        record: Option<&'static Record>,
        news: &News,
        port: u16,
        local: IpAddr,
    ) {
        // A fabric of one address has sockets of that address only.
        if binding.address.is_some() || !news.follows() || self.marks.contains_key(&(port, local)) {
            return;
        }
        if self.marks.len() >= MOST {
            self.marks.clear();
            self.open.clear();
        }
        self.next += 1;
        let mark = FIRST + self.next;
        self.marks.insert((port, local), mark);
        let binding = Binding { address: Some(local.to_canonical()), ..binding.clone() };
        let opened = Socket::open_for(record, &binding, port, Sharing::Shared);
        // Without it the news come to one of all addresses, as long as no other process has the port.
        let Some(socket) = opened.ok().filter(|socket| socket.prepare_to_ignore().is_ok()) else { return };
        let mut outgoing = Outgoing::new(socket);
        if news.follow_marked(&mut outgoing, mark).is_ok() {
            self.open.insert(mark, (port, outgoing));
        }
    }

    /// The socket with this mark, and its port.
    pub(super) fn get_mut(&mut self, mark: u64) -> Option<(u16, &mut Outgoing)> {
        self.open.get_mut(&mark).map(|(port, outgoing)| (*port, outgoing))
    }
}

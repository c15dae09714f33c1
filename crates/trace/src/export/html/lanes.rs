//! The lines of a sequence diagram: queue pairs, and the peers that have no record.

use std::net::IpAddr;

use ferroce_wire::Qpn;

use super::pack::json;
use crate::export::follow::{PacketRow, Route};
use crate::export::hash::Quick;

/// Where an arrow begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stand {
    /// At a queue pair of a record.
    Known(usize, Qpn),
    /// At a queue pair at an address: a known one has it, or no record.
    Address(Option<IpAddr>, Option<Qpn>),
}

/// The lines, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    known: Vec<Stand>,
    is_known: Quick<Stand, ()>,
    /// Where known queue pairs are.
    addresses: Quick<(Option<IpAddr>, Option<Qpn>), Stand>,
    address_of: Quick<Stand, IpAddr>,
}

impl Lanes {
    /// The line of a queue pair.
    pub(super) fn of(&mut self, source: usize, qpn: Qpn) -> Stand {
        self.note(Stand::Known(source, qpn))
    }

    fn note(&mut self, stand: Stand) -> Stand {
        if self.is_known.insert(stand, ()).is_none() {
            self.known.push(stand);
        }
        stand
    }

    /// The line of the queue pair that recorded a packet.
    pub(super) fn here(&mut self, row: &PacketRow) -> Stand {
        let stand = self.of(row.source, row.packet.qpn);
        if let Some(Route { from, to, .. }) = row.route {
            let address = if row.is_out() { from } else { to };
            self.addresses.entry((Some(address), Some(row.packet.qpn))).or_insert(stand);
            self.address_of.entry(stand).or_insert(address);
        }
        stand
    }

    /// The line of its other end.
    pub(super) fn there(&mut self, row: &PacketRow) -> Stand {
        if let Some(other) = row.other {
            return self.of(other.source, other.qpn);
        }
        let address = row.route.map(|route| if row.is_out() { route.to } else { route.from });
        self.note(Stand::Address(address, row.far_qpn()))
    }

    /// The place of each line in the page, when all are known.
    pub(super) fn places(&self) -> Quick<Stand, u16> {
        let drawn: Quick<Stand, u16> = self.drawn().zip(0..).collect();
        let place = |stand: &Stand| drawn.get(&self.resolved(*stand)).copied().unwrap_or(u16::MAX);
        self.known.iter().map(|stand| (*stand, place(stand))).collect()
    }

    /// An address at which a known queue pair is, is that.
    fn resolved(&self, stand: Stand) -> Stand {
        match stand {
            Stand::Address(address, qpn) => self.addresses.get(&(address, qpn)).copied().unwrap_or(stand),
            Stand::Known(..) => stand,
        }
    }

    fn drawn(&self) -> impl Iterator<Item = Stand> {
        self.known.iter().copied().filter(|stand| self.resolved(*stand) == *stand)
    }

    /// The lines for the page.
    pub(super) fn json(&self, processes: &[String]) -> String {
        let lane = |stand: Stand| {
            let (process, qpn, address) = match stand {
                Stand::Known(source, qpn) => {
                    let process = processes.get(source).map_or("", String::as_str);
                    (process, Some(qpn), self.address_of.get(&stand).copied())
                }
                Stand::Address(address, qpn) => ("", qpn, address),
            };
            let qpn = qpn.map_or_else(|| "unknown".to_owned(), |qpn| qpn.to_string());
            let address = address.map_or_else(String::new, |address| address.to_string());
            format!("[{},{},{}]", json(process), json(&qpn), json(&address))
        };
        format!("[{}]", self.drawn().map(lane).collect::<Vec<_>>().join(","))
    }
}

//! What is told of a process and of its queue pairs, and how it looks between processes.

use std::net::{IpAddr, Ipv6Addr};

use ferroce_fabric::Path;
use ferroce_transport::{State, Time};
use ferroce_wire::{Qpn, Service};

use super::Group;
use super::refusals::Refusals;

/// Bytes of what is told of a queue pair: six short fields, the peer's address, four short counters and long ones.
pub(super) const ROW: usize = 12 + 16 + 16 + 8 * COUNTS + 4;

/// Counters that are told.
const COUNTS: usize = 9;

/// A process, and what its queue pairs have done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    /// Its number.
    pub pid: u32,
    /// What its program is called.
    pub program: String,
    /// Which switchboard it is on: a process may be on several.
    pub group: Group,
    /// Engines that it has there.
    pub engines: u8,
    /// Those of them that were at work all the time: of their queue pairs nothing is told.
    pub busy: u8,
    /// What it has refused there.
    pub refused: Refusals,
    /// Queue pairs that it has there; more than are told if there are very many.
    pub queue_pairs: u32,
    /// When it looked, by its own clock.
    pub time: Time,
    /// Its queue pairs.
    pub rows: Vec<QpStats>,
}

/// What a queue pair has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStats {
    /// Its number.
    pub qpn: Qpn,
    /// Which engine it is in.
    pub engine: u8,
    /// Its service.
    pub service: Service,
    /// Its state.
    pub state: State,
    /// Which way its packets take, if it is connected.
    pub path: Option<Path>,
    /// The queue pair that it is connected to, and the address of that.
    pub peer: Option<(Qpn, IpAddr)>,
    /// Sends that were posted. It wraps, as the next three do.
    pub sends_posted: u32,
    /// Sends that are done.
    pub sends_done: u32,
    /// Receives that were posted to its own queue.
    pub receives_posted: u32,
    /// Those that were taken by messages.
    pub receives_done: u32,
    /// Packets that it sent.
    pub packets_sent: u64,
    /// Packets that it took.
    pub packets_received: u64,
    /// Messages that were done directly at a peer in the same process, or by one here.
    pub direct: u64,
    /// Packets that it sent again.
    pub retransmitted: u64,
    /// Times that its peer had no receive posted.
    pub rnr_received: u64,
    /// Times that it had none itself.
    pub rnr_sent: u64,
    /// Times that its peer did not answer in time.
    pub timeouts: u64,
    /// Requests that were refused, here or by the peer, and messages that were dropped.
    pub errors: u64,
    /// Times that it waited for its window, credits, depth or rate.
    pub waits: u64,
}

impl QpStats {
    fn counts(&self) -> [u64; COUNTS] {
        let Self { packets_sent, packets_received, direct, retransmitted, .. } = *self;
        let Self { rnr_received, rnr_sent, timeouts, errors, waits, .. } = *self;
        [
            packets_sent,
            packets_received,
            direct,
            retransmitted,
            rnr_received,
            rnr_sent,
            timeouts,
            errors,
            waits,
        ]
    }

    pub(super) fn emit(&self) -> [u8; ROW] {
        let mut bytes = [0; ROW];
        let (peer, remote) = self.peer.unwrap_or((Qpn::SMI, Ipv6Addr::UNSPECIFIED.into()));
        bytes[..4].copy_from_slice(&self.qpn.get().to_ne_bytes());
        bytes[4..8].copy_from_slice(&peer.get().to_ne_bytes());
        bytes[8] = self.engine;
        bytes[9] = code(&SERVICES, self.service);
        bytes[10] = code(&STATES, self.state) | if self.peer.is_some() { HAS_PEER } else { 0 };
        bytes[11] = self.path.map_or(0, |path| code(&PATHS, path) + 1);
        bytes[12..28].copy_from_slice(&wide(remote));
        let short = [self.sends_posted, self.sends_done, self.receives_posted, self.receives_done];
        for (to, count) in bytes[28..44].as_chunks_mut().0.iter_mut().zip(short) {
            *to = count.to_ne_bytes();
        }
        for (to, count) in bytes[48..].as_chunks_mut().0.iter_mut().zip(self.counts()) {
            *to = count.to_ne_bytes();
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; ROW]) -> Option<Self> {
        let short = |at: usize| bytes[at..].first_chunk().copied().map(u32::from_ne_bytes);
        let long = |at: usize| bytes[48 + 8 * at..].first_chunk().copied().map(u64::from_ne_bytes);
        let peer = (Qpn::new(short(4)?), narrow(*bytes[12..].first_chunk()?));
        Some(Self {
            qpn: Qpn::new(short(0)?),
            engine: bytes[8],
            service: *SERVICES.get(usize::from(bytes[9]))?,
            state: *STATES.get(usize::from(bytes[10] & !HAS_PEER))?,
            path: match bytes[11].checked_sub(1) {
                None => None,
                Some(code) => Some(*PATHS.get(usize::from(code))?),
            },
            peer: (bytes[10] & HAS_PEER != 0).then_some(peer),
            sends_posted: short(28)?,
            sends_done: short(32)?,
            receives_posted: short(36)?,
            receives_done: short(40)?,
            packets_sent: long(0)?,
            packets_received: long(1)?,
            direct: long(2)?,
            retransmitted: long(3)?,
            rnr_received: long(4)?,
            rnr_sent: long(5)?,
            timeouts: long(6)?,
            errors: long(7)?,
            waits: long(8)?,
        })
    }
}

/// Added to the code of a state if there is a peer.
const HAS_PEER: u8 = 0x80;

const SERVICES: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];
const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];
const PATHS: [Path; 2] = [Path::Local, Path::Wire];

/// The place of a value in a list of all there are.
fn code<T: PartialEq>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|known| *known == one);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

pub(super) fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub(super) fn narrow(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of the same version exchange rows of this length; a longer one would only be sent for nothing.
    #[test]
    fn a_row_is_as_long_as_what_is_told() {
        assert_eq!((ROW, COUNTS), (120, 9));
    }
}

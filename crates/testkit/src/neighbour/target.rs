//! What lies aim at, and how much of it the liar knows.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ferroce_wire::mad::CommId;
use ferroce_wire::{Psn, QKey, Qpn, Rkey};
use rand_core::Rng;

/// A live queue pair, with everything that can be known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub address: IpAddr,
    /// Its number.
    pub qpn: Qpn,
    /// Where the other end of its connection is.
    pub peer: IpAddr,
    /// The number of the other end.
    pub peer_qpn: Qpn,
    /// The next request that it expects.
    pub expects: Psn,
    /// The next request that it sends: answers to those before it are believable.
    pub asks: Psn,
    /// An address in memory that its peer may write and read.
    pub place: u64,
    /// The key of that memory.
    pub rkey: Rkey,
    /// The key of its datagrams.
    pub qkey: QKey,
    /// Its own name for the connection.
    pub name: CommId,
    /// The peer's name for the connection.
    pub peer_name: CommId,
    /// A port on which its process listens.
    pub listens: u16,
}

impl Target {
    /// What is left of it for a liar that knows only so much. The rest is guessed, and sequence numbers are
    /// guessed wrongly: one guess in sixteen million would be right, and a test must not fail that seldom.
    #[must_use]
    pub fn known(&self, knowledge: Knowledge, random: &mut impl Rng) -> Self {
        if knowledge == Knowledge::Everything {
            return *self;
        }
        let mut wrong = |known: Psn| known + (1 + random.next_u32() % 0xff_fff0);
        let (expects, asks) = (wrong(self.expects), wrong(self.asks));
        // A communication id begins with a slot, which whatever counts sockets could see.
        let name = |known: CommId, guess: u32| CommId(known.0 & 0xff00_0000 | guess & 0xff_ffff);
        let numbers = Self {
            expects,
            asks,
            place: random.next_u64() & 0x7fff_ffff_fff8,
            rkey: Rkey(random.next_u32()),
            qkey: QKey(random.next_u32()),
            name: name(self.name, random.next_u32()),
            peer_name: name(self.peer_name, random.next_u32()),
            ..*self
        };
        if knowledge == Knowledge::Numbers {
            return numbers;
        }
        let mut number = |known: Qpn| Qpn::new(known.get() & 0xff_0000 | random.next_u32() & 0xffff);
        Self { qpn: number(self.qpn), peer_qpn: number(self.peer_qpn), ..numbers }
    }
}

/// How much a liar knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Addresses, ports and slots: what the system shows to all of its users.
    Addresses,
    /// The numbers of the queue pairs besides.
    Numbers,
    /// All: sequence numbers, keys, and the names of connections.
    Everything,
}

impl Knowledge {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Addresses, Self::Numbers, Self::Everything];
}

impl fmt::Display for Target {
    /// One line, which [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, qpn, peer, peer_qpn, expects, asks, place, rkey, qkey, name, peer_name, listens } =
            self;
        let numbers = [qpn.get(), peer_qpn.get(), expects.get(), asks.get(), rkey.0, qkey.0];
        write!(f, "{address} {peer} {place} {listens} {} {}", name.0, peer_name.0)?;
        numbers.iter().try_for_each(|number| write!(f, " {number}"))
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or_else(|| format!("too short for a target: {line}"));
        let wrong = |word: &str| format!("{word:?} does not fit in {line:?}");
        let (address, peer, place, listens) = (next()?, next()?, next()?, next()?);
        let mut numbers = [0; 8];
        for number in &mut numbers {
            let word = next()?;
            *number = word.parse().map_err(|_| wrong(word))?;
        }
        let [name, peer_name, qpn, peer_qpn, expects, asks, rkey, qkey] = numbers;
        Ok(Self {
            address: address.parse().map_err(|_| wrong(address))?,
            qpn: Qpn::new(qpn),
            peer: peer.parse().map_err(|_| wrong(peer))?,
            peer_qpn: Qpn::new(peer_qpn),
            expects: Psn::new(expects),
            asks: Psn::new(asks),
            place: place.parse().map_err(|_| wrong(place))?,
            rkey: Rkey(rkey),
            qkey: QKey(qkey),
            name: CommId(name),
            peer_name: CommId(peer_name),
            listens: listens.parse().map_err(|_| wrong(listens))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_told_in_one_line() {
        let target = Target {
            address: [127, 0, 0, 1].into(),
            qpn: Qpn::new(0x01_0203),
            peer: [127, 0, 0, 2].into(),
            peer_qpn: Qpn::new(0x02_0304),
            expects: Psn::new(7),
            asks: Psn::new(0xff_ffff),
            place: u64::MAX,
            rkey: Rkey(5),
            qkey: QKey(6),
            name: CommId(0x0100_0001),
            peer_name: CommId(0x0200_0001),
            listens: 7471,
        };
        assert_eq!(target.to_string().parse(), Ok(target));
        assert!("127.0.0.1 127.0.0.2 1 2 3".parse::<Target>().is_err());
    }
}

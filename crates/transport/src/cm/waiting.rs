//! Requests that wait at one listener, by the address that they came from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_wire::mad::CommId;

/// Requests that wait for an answer of the program.
///
/// Each address has a share in the places that there are: while places are free, an address may have all of them; when
/// none is, the address with the most has to give one up for an address that has fewer.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// Of each address, oldest first.
    of: BTreeMap<IpAddr, Vec<CommId>>,
    len: usize,
}

impl Waiting {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A request begins to wait, or waits no more.
    pub(super) fn note(&mut self, address: IpAddr, id: CommId, enters: bool) {
        if enters {
            self.of.entry(address).or_default().push(id);
            self.len += 1;
            return;
        }
        let Some(waiting) = self.of.get_mut(&address) else { return };
        let Some(place) = waiting.iter().position(|waits| *waits == id) else { return };
        waiting.remove(place);
        self.len -= 1;
        if waiting.is_empty() {
            self.of.remove(&address);
        }
    }

    /// The request that has to go so that one of this address can wait: the newest of the address with the most. `None`
    /// if no address has so many that the other one would still have fewer, or as many.
    pub(super) fn makes_room_for(&self, address: IpAddr) -> Option<CommId> {
        let have = self.of.get(&address).map_or(0, Vec::len);
        let most = self.of.values().max_by_key(|waiting| waiting.len())?;
        if most.len() > have + 1 { most.last().copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn only_an_address_with_more_makes_room() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.makes_room_for(address(1)), None);
        for (from, id) in [(1, 10), (1, 11), (1, 12), (2, 20)] {
            waiting.note(address(from), CommId(id), true);
        }
        assert_eq!(waiting.len(), 4);
        assert_eq!(waiting.makes_room_for(address(1)), None);
        assert_eq!(waiting.makes_room_for(address(2)), Some(CommId(12)));
        assert_eq!(waiting.makes_room_for(address(3)), Some(CommId(12)));
        waiting.note(address(1), CommId(12), false);
        assert_eq!(waiting.makes_room_for(address(2)), None, "two and one are as even as three can be");
        assert_eq!(waiting.makes_room_for(address(3)), Some(CommId(11)));
        waiting.note(address(1), CommId(10), false);
        assert_eq!((waiting.makes_room_for(address(3)), waiting.len()), (None, 2));
        waiting.note(address(1), CommId(10), false);
        waiting.note(address(9), CommId(1), false);
        assert_eq!(waiting.len(), 2, "what does not wait leaves nothing");
    }
}

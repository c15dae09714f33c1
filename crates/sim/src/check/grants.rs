//! Which request may write where: every range of memory that a request names is granted to it alone.

use std::collections::BTreeMap;

/// What a granted range is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Bytes that a request sends: no request writes here.
    Source,
    /// Target of a WRITE or ATOMIC WRITE: message `message` of end `end`, from byte `offset` of it.
    Target {
        /// The requester.
        end: usize,
        /// Number of its message.
        message: usize,
        /// Where in the message this range begins.
        offset: u32,
    },
    /// Target of a READ, or of the value that an atomic found.
    Sink {
        /// The requester, which is also the end that writes.
        end: usize,
        /// Number of its message.
        message: usize,
        /// Where in the message this range begins.
        offset: u32,
    },
    /// Part of a receive.
    Receive {
        /// Its id.
        id: u64,
        /// Where in the receive this range begins.
        offset: u32,
    },
}

/// A granted range.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Bytes of it.
    pub len: u32,
    /// What it is for.
    pub owner: Owner,
    arena: usize,
    block: (u64, u64),
}

/// The grants of one host.
#[derive(Debug, Default)]
pub struct Grants {
    ranges: BTreeMap<u64, Grant>,
}

/// Memory that grants are cut from.
#[derive(Debug)]
pub struct Arena {
    /// The host that it is on.
    pub host: usize,
    /// Key of the region over it.
    pub key: u32,
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub len: u64,
    free: BTreeMap<u64, u64>,
}

impl Arena {
    /// An arena with nothing granted yet.
    #[must_use]
    pub fn new(host: usize, key: u32, start: u64, len: u64) -> Self {
        Self { host, key, start, len, free: BTreeMap::from([(start, len)]) }
    }

    /// A block of `len` bytes, from the first gap that holds it.
    fn take(&mut self, len: u64) -> Option<u64> {
        let (&start, &size) = self.free.iter().find(|(_, size)| **size >= len)?;
        self.free.remove(&start);
        if size > len {
            self.free.insert(start + len, size - len);
        }
        Some(start)
    }

    fn give_back(&mut self, (start, len): (u64, u64)) {
        let mut block = (start, len);
        if let Some((&before, &size)) = self.free.range(..start).next_back()
            && before + size == start
        {
            self.free.remove(&before);
            block = (before, size + len);
        }
        if let Some(&size) = self.free.get(&(start + len)) {
            self.free.remove(&(start + len));
            block.1 += size;
        }
        self.free.insert(block.0, block.1);
    }
}

/// Bytes that separate grants, so that a write past the end of one hits nothing that is granted.
const GAP: u64 = 8;

impl Grants {
    /// Cuts `len` bytes that lie `skew` bytes after a multiple of 8 from an arena.
    pub fn cut(
        &mut self,
        arenas: &mut [Arena],
        arena: usize,
        (len, skew): (u32, u64),
        owner: Owner,
    ) -> Option<u64> {
        let size = (u64::from(len) + skew).next_multiple_of(8) + GAP;
        let block = arenas[arena].take(size)?;
        let start = block + skew;
        self.ranges.insert(start, Grant { len, owner, arena, block: (block, size) });
        Some(start)
    }

    /// The grant at exactly this address.
    #[must_use]
    pub fn at(&self, start: u64) -> Option<&Grant> {
        self.ranges.get(&start)
    }

    /// The grant that holds all of these bytes, and where in it they begin.
    #[must_use]
    pub fn holding(&self, address: u64, len: usize) -> Option<(u32, &Grant)> {
        let (start, grant) = self.ranges.range(..=address).next_back()?;
        let at = address - start;
        (at + len as u64 <= u64::from(grant.len)).then(|| (u32::try_from(at).unwrap_or(u32::MAX), grant))
    }

    /// Ends a grant: from now on no request may write there.
    pub fn end(&mut self, arenas: &mut [Arena], start: u64) {
        if let Some(grant) = self.ranges.remove(&start) {
            arenas[grant.arena].give_back(grant.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_cut_again() {
        let mut arenas = [Arena::new(0, 1, 0x1000, 256)];
        let mut grants = Grants::default();
        let cut = |grants: &mut Grants, arenas: &mut [Arena]| grants.cut(arenas, 0, (100, 3), Owner::Source);
        let first = cut(&mut grants, &mut arenas).unwrap();
        let second = cut(&mut grants, &mut arenas).unwrap();
        assert_eq!((first, second), (0x1003, 0x1003 + 112));
        assert_eq!(cut(&mut grants, &mut arenas), None);
        assert_eq!(grants.holding(first + 10, 90).unwrap().0, 10);
        assert!(grants.holding(first + 10, 91).is_none());
        grants.end(&mut arenas, first);
        assert!(grants.holding(first, 1).is_none());
        grants.end(&mut arenas, second);
        assert_eq!(grants.cut(&mut arenas, 0, (240, 0), Owner::Source), Some(0x1000));
    }
}

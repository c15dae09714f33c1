//! The partitions that a port belongs to.

use thiserror::Error;

use crate::num::PKey;

/// The P_Keys of a port (IBA 10.9.2). The first is always [`PKey::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PKeyTable {
    keys: [PKey; Self::MOST],
    len: usize,
}

/// Why P_Keys make no table. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PKeyTableError {
    /// There are more than fit.
    #[error("{given} P_Keys beside the default one, and there is room for {}", PKeyTable::MOST - 1)]
    TooMany {
        /// How many.
        given: usize,
    },
    /// The low 15 bits are the partition, and there is none with the number 0.
    #[error("P_Key {:#06x} is of partition 0, which does not exist", .0.0)]
    NoPartition(PKey),
    /// One stands there twice.
    #[error("P_Key {:#06x} is there already", .0.0)]
    Twice(PKey),
}

impl PKeyTable {
    /// P_Keys that a table has room for.
    pub const MOST: usize = 16;

    /// The default P_Key and no other.
    pub const DEFAULT: Self = Self { keys: [PKey::DEFAULT; Self::MOST], len: 1 };

    /// The default P_Key, and these behind it.
    ///
    /// # Errors
    /// They are too many, one is of no partition, or one is there twice.
    pub fn new(others: &[PKey]) -> Result<Self, PKeyTableError> {
        let mut table = Self::DEFAULT;
        for &key in others {
            if key.0 & PKey::PARTITION == 0 {
                return Err(PKeyTableError::NoPartition(key));
            }
            if table.iter().any(|known| known == key) {
                return Err(PKeyTableError::Twice(key));
            }
            let place = table.keys.get_mut(table.len);
            *place.ok_or(PKeyTableError::TooMany { given: others.len() })? = key;
            table.len += 1;
        }
        Ok(table)
    }

    /// The P_Key at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<PKey> {
        self.iter().nth(index)
    }

    /// How many there are: at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = PKey> + '_ {
        self.keys.iter().copied().take(self.len)
    }

    /// The index of a P_Key that packets with this one reach, and whose packets reach their sender: the very
    /// same one if it is there and of a full member, else the first that matches.
    #[must_use]
    pub fn index_for(&self, key: PKey) -> Option<usize> {
        let same = self.iter().position(|known| known == key && known.admits(key));
        same.or_else(|| self.iter().position(|known| known.admits(key)))
    }

    /// Whether any of them matches a packet with this one (IBA 10.9.4: so it is for queue pair 1).
    #[must_use]
    pub fn admits(&self, key: PKey) -> bool {
        self.index_for(key).is_some()
    }
}

impl Default for PKeyTable {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_begins_with_the_default_key_and_keeps_the_order() {
        let table = PKeyTable::new(&[PKey(0x8001), PKey(0x0001), PKey(0x0002)]).unwrap();
        let mut keys = table.iter();
        assert_eq!(keys.next(), Some(PKey::DEFAULT));
        assert!(keys.eq([PKey(0x8001), PKey(0x0001), PKey(0x0002)]));
        assert_eq!((table.len(), table.get(3), table.get(4)), (4, Some(PKey(0x0002)), None));
    }

    #[test]
    fn what_makes_no_table() {
        let refused = |keys: &[PKey]| PKeyTable::new(keys).unwrap_err();
        assert_eq!(refused(&[PKey(0x8000)]), PKeyTableError::NoPartition(PKey(0x8000)));
        assert_eq!(refused(&[PKey(0)]), PKeyTableError::NoPartition(PKey(0)));
        assert_eq!(refused(&[PKey(7), PKey(7)]), PKeyTableError::Twice(PKey(7)));
        assert_eq!(refused(&[PKey::DEFAULT]), PKeyTableError::Twice(PKey::DEFAULT));
        let many = core::array::from_fn::<_, 16, _>(|at| PKey(u16::try_from(at).unwrap() + 1));
        assert_eq!(refused(&many), PKeyTableError::TooMany { given: 16 });
        assert_eq!(PKeyTable::new(&many[..15]).unwrap().len(), 16);
    }

    #[test]
    fn the_key_for_a_peer_is_one_that_admits_it() {
        let table = PKeyTable::new(&[PKey(0x0001), PKey(0x8001), PKey(0x0002)]).unwrap();
        assert_eq!(table.index_for(PKey(0x8001)), Some(2), "the very same");
        assert_eq!(table.index_for(PKey(0x0001)), Some(2), "two limited members do not meet");
        assert_eq!(table.index_for(PKey(0x8002)), Some(3));
        assert_eq!(table.index_for(PKey(0x0002)), None);
        assert_eq!(table.index_for(PKey(0x7fff)), Some(0));
        assert!(table.admits(PKey(0x7fff)) && !table.admits(PKey(0x8003)) && !table.admits(PKey(0)));
    }
}

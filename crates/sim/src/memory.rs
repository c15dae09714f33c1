//! The memory of one simulated host: a flat run of bytes, regions over it, and windows over those.

use std::collections::BTreeMap;

use ferroce_transport::{Access, Bind, Denied, DomainId};
use ferroce_wire::{Qpn, Rkey};

/// Bytes, and the keys that open them.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    bytes: Vec<u8>,
    keys: BTreeMap<u32, Key>,
    next_key: u32,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug)]
enum Key {
    Region(Region),
    Window(Window),
}

/// A registered range.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    len: u64,
    access: Access,
    domain: DomainId,
}

/// A type 2 memory window; nothing is bound to it while it has no owner.
#[derive(Clone, Copy, Debug)]
struct Window {
    domain: DomainId,
    bound: Option<Bound>,
}

/// What a window opens, and to which queue pair.
#[derive(Clone, Copy, Debug)]
struct Bound {
    qpn: Qpn,
    region: u32,
    start: u64,
    len: u64,
    access: Access,
}

/// How far keys lie apart: the low eight bits are a tag that binding a window changes.
const KEY_STEP: u32 = 0x100;

impl Memory {
    /// `len` zero bytes that begin at address `base`.
    #[must_use]
    pub fn new(base: u64, len: usize) -> Self {
        Self { base, bytes: vec![0; len], keys: BTreeMap::new(), next_key: KEY_STEP }
    }

    /// Appends zero bytes and returns the address of the first.
    pub fn grow(&mut self, len: usize) -> u64 {
        let start = self.base + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + len, 0);
        start
    }

    /// Registers a range and returns its key, which serves as local and as remote key.
    pub fn register(&mut self, domain: DomainId, start: u64, len: u64, access: Access) -> u32 {
        let key = self.next_key;
        self.next_key += KEY_STEP;
        self.keys.insert(key, Key::Region(Region { start, len, access, domain }));
        key
    }

    /// Makes a memory window with nothing bound to it and returns its key.
    pub fn make_window(&mut self, domain: DomainId) -> u32 {
        let key = self.next_key;
        self.next_key += KEY_STEP;
        self.keys.insert(key, Key::Window(Window { domain, bound: None }));
        key
    }

    /// Takes a region or a window out of the table. False if there is none with this key.
    pub fn deregister(&mut self, key: u32) -> bool {
        self.keys.remove(&key).is_some()
    }

    /// The bytes of a range that exists.
    ///
    /// # Panics
    /// The range is not in this memory.
    #[must_use]
    pub fn slice(&self, address: u64, len: usize) -> &[u8] {
        self.get(address, len).unwrap_or_else(|| panic!("no {len} bytes at 0x{address:x} in this memory"))
    }

    /// The same, to be changed: by the program that owns the memory.
    ///
    /// # Panics
    /// The range is not in this memory.
    pub fn slice_mut(&mut self, address: u64, len: usize) -> &mut [u8] {
        self.get_mut(address, len).unwrap_or_else(|| panic!("no {len} bytes at 0x{address:x} in this memory"))
    }

    /// The eight bytes at an address, as a number of this machine.
    ///
    /// # Panics
    /// The range is not in this memory.
    #[must_use]
    pub fn word(&self, address: u64) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.slice(address, 8));
        u64::from_ne_bytes(word)
    }

    fn offset(&self, address: u64) -> Option<usize> {
        usize::try_from(address.checked_sub(self.base)?).ok()
    }

    fn get(&self, address: u64, len: usize) -> Option<&[u8]> {
        let at = self.offset(address)?;
        self.bytes.get(at..at.checked_add(len)?)
    }

    fn get_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let at = self.offset(address)?;
        self.bytes.get_mut(at..at.checked_add(len)?)
    }

    /// Whether a local key gives a domain this access.
    ///
    /// # Errors
    /// Why not.
    pub fn check_local(
        &self,
        domain: Option<DomainId>,
        key: u32,
        address: u64,
        len: u64,
        write: bool,
    ) -> Result<(), Denied> {
        let Some(Key::Region(region)) = self.keys.get(&key) else { return Err(Denied::UnknownKey) };
        if domain.is_some_and(|domain| domain != region.domain) {
            return Err(Denied::WrongDomain);
        }
        within(region.start, region.len, address, len)?;
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(Denied::NotPermitted);
        }
        Ok(())
    }

    /// Whether a remote key gives a queue pair this access.
    ///
    /// # Errors
    /// Why not.
    pub fn check_remote(
        &self,
        domain: DomainId,
        qpn: Qpn,
        rkey: Rkey,
        (address, len): (u64, u64),
        access: Access,
    ) -> Result<(), Denied> {
        let (owner, start, size, given) = match self.keys.get(&rkey.0) {
            None | Some(Key::Window(Window { bound: None, .. })) => return Err(Denied::UnknownKey),
            Some(Key::Region(region)) => (region.domain, region.start, region.len, region.access),
            Some(Key::Window(Window { domain, bound: Some(bound) })) => {
                if bound.qpn != qpn {
                    return Err(Denied::WrongDomain);
                }
                if !self.keys.contains_key(&bound.region) {
                    return Err(Denied::UnknownKey);
                }
                (*domain, bound.start, bound.len, bound.access)
            }
        };
        if owner != domain {
            return Err(Denied::WrongDomain);
        }
        if !given.contains(access) {
            return Err(Denied::NotPermitted);
        }
        within(start, size, address, len)
    }

    /// Copies into a range that a check has allowed.
    ///
    /// # Errors
    /// The range is not in this memory.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.get_mut(address, bytes.len()).ok_or(Denied::OutOfRange)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies out of a range that a check has allowed.
    ///
    /// # Errors
    /// The range is not in this memory.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        bytes.copy_from_slice(self.get(address, bytes.len()).ok_or(Denied::OutOfRange)?);
        Ok(())
    }

    /// Binds a window, or unbinds it with a length of 0.
    ///
    /// # Errors
    /// Why not.
    pub fn bind(&mut self, domain: DomainId, qpn: Qpn, bind: &Bind) -> Result<(), Denied> {
        let Some(Key::Window(window)) = self.keys.get(&bind.window.0).copied() else {
            return Err(Denied::UnknownKey);
        };
        let Some(Key::Region(region)) = self.keys.get(&bind.region.0).copied() else {
            return Err(Denied::UnknownKey);
        };
        if window.domain != domain || region.domain != domain {
            return Err(Denied::WrongDomain);
        }
        let writes = bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !region.access.contains(Access::BIND_WINDOW)
            || writes && !region.access.contains(Access::LOCAL_WRITE)
            || (bind.window.0 ^ bind.new_key.0) >= KEY_STEP
            || window.bound.is_some_and(|bound| bound.qpn != qpn)
        {
            return Err(Denied::NotPermitted);
        }
        within(region.start, region.len, bind.address, bind.length)?;
        let bound = (bind.length > 0).then_some(Bound {
            qpn,
            region: bind.region.0,
            start: bind.address,
            len: bind.length,
            access: bind.access,
        });
        self.keys.remove(&bind.window.0);
        self.keys.insert(bind.new_key.0, Key::Window(Window { domain, bound }));
        Ok(())
    }

    /// Unbinds a window.
    ///
    /// # Errors
    /// There is no such window, or it is not bound for this queue pair.
    pub fn invalidate(&mut self, domain: DomainId, qpn: Qpn, rkey: Rkey) -> Result<(), Denied> {
        match self.keys.get_mut(&rkey.0) {
            Some(Key::Window(window)) if window.domain != domain => Err(Denied::WrongDomain),
            Some(Key::Window(window)) => match window.bound {
                Some(bound) if bound.qpn == qpn => {
                    window.bound = None;
                    Ok(())
                }
                Some(_) => Err(Denied::WrongDomain),
                None => Err(Denied::NotPermitted),
            },
            Some(Key::Region(_)) => Err(Denied::NotPermitted),
            None => Err(Denied::UnknownKey),
        }
    }

    /// Unbinds every window of a queue pair, as destroying or resetting it does.
    pub fn unbind_all(&mut self, qpn: Qpn) {
        for key in self.keys.values_mut() {
            if let Key::Window(window) = key
                && window.bound.is_some_and(|bound| bound.qpn == qpn)
            {
                window.bound = None;
            }
        }
    }
}

fn within(start: u64, size: u64, address: u64, len: u64) -> Result<(), Denied> {
    let inside =
        address >= start && address.checked_add(len).is_some_and(|end| end <= start.saturating_add(size));
    if inside { Ok(()) } else { Err(Denied::OutOfRange) }
}

/// The content of everything that is sent: byte `offset` of the message with this tag. Neighbouring
/// tags and offsets share nothing, so a byte in the wrong place shows.
pub(crate) fn fill(tag: u64, offset: u64, bytes: &mut [u8]) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = mixed(tag ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
        let skip = usize::try_from(at % 8).unwrap_or(0);
        let count = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(count);
        now.copy_from_slice(&word[skip..skip + count]);
        at += count as u64;
        rest = later;
    }
}

/// Where `bytes` first differ from what [`fill`] would have put there.
#[must_use]
pub(crate) fn first_difference(tag: u64, offset: u64, bytes: &[u8]) -> Option<usize> {
    let mut wanted = [0; 512];
    for (index, chunk) in bytes.chunks(wanted.len()).enumerate() {
        let start = index * wanted.len();
        fill(tag, offset + start as u64, &mut wanted[..chunk.len()]);
        if let Some(at) = chunk.iter().zip(&wanted).position(|(seen, wanted)| seen != wanted) {
            return Some(start + at);
        }
    }
    None
}

/// A bijection that spreads every bit over the word (the finaliser of `SplitMix64`).
pub(crate) const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_does_not_depend_on_how_it_is_cut() {
        let mut whole = [0; 100];
        fill(7, 3, &mut whole);
        let mut cut = [0; 100];
        fill(7, 3, &mut cut[..11]);
        fill(7, 14, &mut cut[11..]);
        assert_eq!(whole, cut);
        assert_eq!(first_difference(7, 3, &whole), None);
        whole[60] ^= 1;
        assert_eq!(first_difference(7, 3, &whole), Some(60));
    }

    #[test]
    fn a_window_opens_its_range_to_its_queue_pair_only() {
        let (domain, qpn) = (DomainId(1), Qpn::new(5));
        let mut memory = Memory::new(0x1000, 256);
        let all = Access::all();
        let region = memory.register(domain, 0x1000, 256, all);
        let window = memory.make_window(domain);
        let bind = Bind {
            window: Rkey(window),
            new_key: Rkey(window + 1),
            region: ferroce_wire::Lkey(region),
            address: 0x1010,
            length: 16,
            access: Access::REMOTE_WRITE,
        };
        memory.bind(domain, qpn, &bind).unwrap();
        let write = Access::REMOTE_WRITE;
        let key = Rkey(window + 1);
        assert_eq!(memory.check_remote(domain, qpn, key, (0x1010, 16), write), Ok(()));
        assert_eq!(memory.check_remote(domain, qpn, key, (0x1011, 16), write), Err(Denied::OutOfRange));
        assert_eq!(
            memory.check_remote(domain, Qpn::new(6), key, (0x1010, 1), write),
            Err(Denied::WrongDomain)
        );
        memory.invalidate(domain, qpn, key).unwrap();
        assert_eq!(memory.check_remote(domain, qpn, key, (0x1010, 16), write), Err(Denied::UnknownKey));
    }
}

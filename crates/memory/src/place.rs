//! Memory that was allowed just now.

use std::fmt;
use std::marker::PhantomData;

use ferroce_transport::{AtomicOp, Denied};

use super::copy::{Fold, Passes, atomic_u64, copy_between, copy_in, copy_in_folding, copy_out};
use super::table::MemoryTable;
use super::windows::WindowHold;

/// A range that a key has opened, with the rights that were asked for.
///
/// It borrows the table that allowed it, so it cannot outlive the region: the table has to be
/// asked again after every change.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    first: *mut u8,
    len: usize,
    /// What work and peers call the first byte: an atomic must be aligned in their eyes too.
    address: u64,
    writable: bool,
    table: PhantomData<&'a MemoryTable>,
}

/// A place that a peer's key has opened. If it came through a window, that is held still for as long: a
/// thread that binds the window anew, in another engine, waits until the access is over.
pub struct Opened<'a> {
    place: Place<'a>,
    _window: Option<WindowHold<'a>>,
}

impl<'a> Opened<'a> {
    /// A place that no window has opened.
    #[inline]
    #[must_use]
    pub const fn plain(place: Place<'a>) -> Self {
        Self { place, _window: None }
    }

    /// A place that this window has opened.
    pub(super) const fn through(place: Place<'a>, window: WindowHold<'a>) -> Self {
        Self { place, _window: Some(window) }
    }
}

impl<'a> std::ops::Deref for Opened<'a> {
    type Target = Place<'a>;

    #[inline]
    fn deref(&self) -> &Place<'a> {
        &self.place
    }
}

impl<'a> Place<'a> {
    /// No bytes: what an access of length 0 gets, which needs no key.
    pub const EMPTY: Place<'static> =
        Place { first: std::ptr::dangling_mut(), len: 0, address: 0, writable: true, table: PhantomData };

    /// A place of `len` bytes.
    ///
    /// # Safety
    /// For the lifetime `'a`, `first` is valid for reads of `len` bytes, and for writes if `writable`,
    /// and Rust code reaches them by atomics or raw pointers only.
    pub(super) const unsafe fn new(first: *mut u8, len: usize, address: u64, writable: bool) -> Self {
        Self { first, len, address, writable, table: PhantomData }
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte and how many there are, for a system call that gathers. The bytes may change
    /// under the call; what leaves is then a mixture, as with any network card.
    #[must_use]
    pub const fn as_raw(&self) -> (*const u8, usize) {
        (self.first, self.len)
    }

    /// A part of it.
    ///
    /// # Errors
    /// The part is not inside.
    pub fn part(&self, offset: usize, len: usize) -> Result<Place<'a>, Denied> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Denied::OutOfRange);
        }
        let address = self.address.wrapping_add(offset as u64);
        Ok(Place { first: self.first.wrapping_add(offset), len, address, ..*self })
    }

    /// Places bytes at its beginning, rising, the last ones last.
    ///
    /// # Errors
    /// It is too short, or was not opened for writing. Nothing was written.
    #[inline]
    pub fn write(&self, bytes: &[u8]) -> Result<(), Denied> {
        let to = self.checked(bytes.len(), true)?;
        // SAFETY: the place has these bytes and may be written, as `new` was promised.
        unsafe { copy_out(to, bytes) };
        Ok(())
    }

    /// Copies bytes from its beginning.
    ///
    /// # Errors
    /// It is too short. Nothing was read.
    #[inline]
    pub fn read(&self, into: &mut [u8]) -> Result<(), Denied> {
        let from = self.checked(into.len(), false)?;
        // SAFETY: the place has these bytes, as `new` was promised.
        unsafe { copy_in(from, into) };
        Ok(())
    }

    /// Copies bytes from its beginning and folds them for a CRC that has come to `register`. `None` if they are not folded
    /// with so many passes: then nothing was read.
    ///
    /// # Errors
    /// It is too short. Nothing was read.
    #[inline]
    pub fn read_folding(
        &self,
        into: &mut [u8],
        register: u32,
        passes: Passes,
    ) -> Result<Option<Fold>, Denied> {
        let from = self.checked(into.len(), false)?;
        // SAFETY: the place has these bytes, as `new` was promised.
        Ok(unsafe { copy_in_folding(from, into, register, passes) })
    }

    /// Copies all of it to the beginning of another place. The two may overlap.
    ///
    /// # Errors
    /// The other one is too short, or was not opened for writing. Nothing was written.
    #[inline]
    pub fn copy_to(&self, to: &Place<'_>) -> Result<(), Denied> {
        let target = to.checked(self.len, true)?;
        // SAFETY: both places have these bytes and the target may be written, as `new` was promised.
        unsafe { copy_between(target, self.first, self.len) };
        Ok(())
    }

    /// Does an atomic on its first eight bytes and returns what was there before.
    ///
    /// # Errors
    /// It has less than eight bytes, was not opened for writing, or is not aligned: both the
    /// address that the peer used and the one in this process have to be a multiple of 8.
    pub fn atomic(&self, op: AtomicOp) -> Result<u64, Denied> {
        let at = self.checked(8, true)?;
        if !self.address.is_multiple_of(8) || !at.addr().is_multiple_of(8) {
            return Err(Denied::Misaligned);
        }
        // SAFETY: the place has eight writable bytes, as `new` was promised, and they are aligned.
        Ok(unsafe { atomic_u64(at, op) })
    }

    /// The first byte, if there are `len` of them and they may be used so.
    #[inline]
    const fn checked(&self, len: usize, write: bool) -> Result<*mut u8, Denied> {
        if write && !self.writable {
            return Err(Denied::NotPermitted);
        }
        if len <= self.len { Ok(self.first) } else { Err(Denied::OutOfRange) }
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = if self.writable { "rw" } else { "r" };
        write!(f, "Place({} bytes at 0x{:x}, {rights})", self.len, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Allocation;
    use super::*;

    /// A place in a whole allocation, under another address.
    fn place(memory: &Allocation, address: u64, writable: bool) -> Place<'_> {
        // SAFETY: the allocation lives as long as the borrow and can be written.
        unsafe { Place::new(memory.as_ptr(), memory.len(), address, writable) }
    }

    #[test]
    fn a_place_is_written_and_read_within_its_length() {
        let memory = Allocation::zeroed(16).unwrap();
        let all = place(&memory, 0x1000, true);
        all.part(4, 4).unwrap().write(&[1, 2, 3, 4]).unwrap();
        let mut bytes = [9; 8];
        all.read(&mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(all.part(4, 4).unwrap().write(&[0; 5]), Err(Denied::OutOfRange));
        assert_eq!(all.read(&mut [0; 17]), Err(Denied::OutOfRange));
        assert!(all.part(9, 8).is_err());
        assert!(all.part(usize::MAX, 2).is_err());
        assert_eq!(all.part(16, 0).unwrap().len(), 0);
        assert_eq!(Place::EMPTY.write(&[]), Ok(()));
    }

    #[test]
    fn a_place_opened_for_reading_is_never_written() {
        let memory = Allocation::zeroed(16).unwrap();
        let (from, to) = (place(&memory, 0, true), place(&memory, 0, false));
        assert_eq!(to.write(&[1]), Err(Denied::NotPermitted));
        assert_eq!(to.atomic(AtomicOp::FetchAdd(1)), Err(Denied::NotPermitted));
        assert_eq!(from.copy_to(&to), Err(Denied::NotPermitted));
        assert_eq!(memory.load_u64(0), Ok(0));
    }

    #[test]
    fn atomics_are_aligned_in_the_eyes_of_both_sides() {
        let memory = Allocation::zeroed(24).unwrap();
        let all = place(&memory, 0x1000, true);
        assert_eq!(all.atomic(AtomicOp::FetchAdd(3)), Ok(0));
        assert_eq!(all.part(8, 8).unwrap().atomic(AtomicOp::Store([1; 8])), Ok(0));
        assert_eq!(all.part(4, 8).unwrap().atomic(AtomicOp::FetchAdd(1)), Err(Denied::Misaligned));
        assert_eq!(all.part(0, 7).unwrap().atomic(AtomicOp::FetchAdd(1)), Err(Denied::OutOfRange));
        let skewed = place(&memory, 0x1004, true);
        assert_eq!(skewed.atomic(AtomicOp::FetchAdd(1)), Err(Denied::Misaligned), "the peer's address");
        let skewed = skewed.part(4, 8).unwrap();
        assert_eq!(skewed.atomic(AtomicOp::FetchAdd(1)), Err(Denied::Misaligned), "our address");
        assert_eq!(memory.load_u64(0), Ok(3));
    }

    #[test]
    fn a_copy_between_places_needs_room() {
        let memory = Allocation::from_boxed((0..16).collect());
        let all = place(&memory, 0, true);
        all.part(0, 12).unwrap().copy_to(&all.part(4, 12).unwrap()).unwrap();
        assert_eq!(all.copy_to(&all.part(0, 15).unwrap()), Err(Denied::OutOfRange));
        assert_eq!(*memory.into_boxed().unwrap(), [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}

//! Memory that regions are made of.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_transport::AtomicOp;

use super::copy::{atomic_u64, copy_in, copy_out, load_u8, load_u64, store_u64};
use super::error::{AccessError, MemoryError};

/// A stretch of memory that peers may read and write while the program uses it.
///
/// It is a place, not a slice: its bytes may change at any moment, so they are copied in and out
/// and never borrowed. The memory lives as long as any [`Arc`] of it, and every region made of it
/// holds one.
#[derive(Debug)]
pub struct Allocation {
    first: NonNull<u8>,
    len: usize,
    writable: bool,
    origin: Origin,
}

/// Where memory came from, which says how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Mapped by us, with this many bytes.
    Mapped(usize),
    /// The bytes of a box.
    Boxed,
    /// Kept alive by the program.
    Borrowed,
}

// SAFETY: the memory belongs to no thread; it is reached through `copy` only, which bears races.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Zero bytes from the system, at the beginning of a page. A length of 0 is allowed: then no
    /// byte can be reached.
    ///
    /// # Errors
    /// The system has no memory to give.
    pub fn zeroed(len: usize) -> Result<Arc<Self>, MemoryError> {
        let mapped = len.max(1);
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing
        // that exists.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let first = (first != libc::MAP_FAILED).then(|| NonNull::new(first.cast())).flatten();
        let first = first.ok_or(MemoryError::NoMemory { len, code })?;
        Ok(Arc::new(Self { first, len, writable: true, origin: Origin::Mapped(mapped) }))
    }

    /// Takes over bytes that the program has. [`into_boxed`](Self::into_boxed) gives them back.
    #[must_use]
    pub fn from_boxed(bytes: Box<[u8]>) -> Arc<Self> {
        let len = bytes.len();
        let first = NonNull::from(Box::leak(bytes)).cast();
        Arc::new(Self { first, len, writable: true, origin: Origin::Boxed })
    }

    /// Memory that the program keeps, and may read and write by itself at any time. Null is memory
    /// of no bytes.
    ///
    /// # Safety
    /// Until the last [`Arc`] of it is gone, `first` is valid for reads and writes of `len` bytes,
    /// and Rust code reaches them through atomics or raw pointers only while work or peers may
    /// touch them.
    #[must_use]
    pub unsafe fn from_raw(first: *mut u8, len: usize) -> Arc<Self> {
        Arc::new(Self::borrowed(first, len, true))
    }

    /// The same for memory that can only be read. No region of it may be written.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), but for reads only.
    #[must_use]
    pub unsafe fn from_raw_read_only(first: *const u8, len: usize) -> Arc<Self> {
        Arc::new(Self::borrowed(first.cast_mut(), len, false))
    }

    fn borrowed(first: *mut u8, len: usize, writable: bool) -> Self {
        let (first, len) = NonNull::new(first).map_or((NonNull::dangling(), 0), |first| (first, len));
        Self { first, len, writable, origin: Origin::Borrowed }
    }

    /// The bytes back, if they came [from a box](Self::from_boxed) and this is the last to hold them.
    ///
    /// # Errors
    /// The allocation itself: it is held elsewhere too, or it did not come from a box.
    pub fn into_boxed(self: Arc<Self>) -> Result<Box<[u8]>, Arc<Self>> {
        if self.origin != Origin::Boxed {
            return Err(self);
        }
        let mut owned = Arc::try_unwrap(self)?;
        owned.origin = Origin::Borrowed;
        let bytes = std::ptr::slice_from_raw_parts_mut(owned.as_ptr(), owned.len);
        // SAFETY: `from_boxed` took these bytes from a box of this length. We were the only holder,
        // and as borrowed memory they are not freed again by `drop`.
        Ok(unsafe { Box::from_raw(bytes) })
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.first.as_ptr().addr() as u64
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it can be written at all.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether nothing else lies in its pages.
    #[must_use]
    pub const fn owns_pages(&self) -> bool {
        matches!(self.origin, Origin::Mapped(_))
    }

    /// The first byte, for callers that are prepared for the bytes to change at any moment.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        let from = self.range(offset, bytes.len())?;
        // SAFETY: the range is inside memory that lives as long as `self`.
        unsafe { copy_in(from, bytes) };
        Ok(())
    }

    /// Copies bytes into it, the last ones last.
    ///
    /// # Errors
    /// The range is not inside, or the memory is read-only; nothing was copied.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let to = self.writable_range(offset, bytes.len())?;
        // SAFETY: the range is inside writable memory that lives as long as `self`.
        unsafe { copy_out(to, bytes) };
        Ok(())
    }

    /// Sets a range to one byte.
    ///
    /// # Errors
    /// The range is not inside, or the memory is read-only; nothing was set.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<(), AccessError> {
        let to = self.writable_range(offset, len)?;
        let chunk = [byte; 512];
        let mut done = 0;
        while done < len {
            let count = chunk.len().min(len - done);
            // SAFETY: `done` + `count` <= `len`, which is inside writable memory that lives as long
            // as `self`.
            unsafe { copy_out(to.wrapping_add(done), &chunk[..count]) };
            done += count;
        }
        Ok(())
    }

    /// One byte, to wait for: a thread that sees it change sees what was placed before it (Acquire).
    ///
    /// # Errors
    /// The byte is not inside.
    pub fn load_u8(&self, offset: usize) -> Result<u8, AccessError> {
        let at = self.range(offset, 1)?;
        // SAFETY: the byte is inside memory that lives as long as `self`.
        Ok(unsafe { load_u8(at) })
    }

    /// A number of this machine at a multiple of 8, to wait for (Acquire).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        let at = aligned(self.range(offset, 8)?)?;
        // SAFETY: the word is aligned and inside memory that lives as long as `self`.
        Ok(unsafe { load_u64(at) })
    }

    /// Stores a number at a multiple of 8, after all that was written before (Release).
    ///
    /// # Errors
    /// The eight bytes are not inside, not aligned, or read-only.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        let at = aligned(self.writable_range(offset, 8)?)?;
        // SAFETY: the word is aligned and inside writable memory that lives as long as `self`.
        unsafe { store_u64(at, value) };
        Ok(())
    }

    /// Adds to a number at a multiple of 8, wrapping around, and returns what was there. It is
    /// atomic also with a peer's atomics.
    ///
    /// # Errors
    /// The eight bytes are not inside, not aligned, or read-only.
    pub fn fetch_add_u64(&self, offset: usize, value: u64) -> Result<u64, AccessError> {
        let at = aligned(self.writable_range(offset, 8)?)?;
        // SAFETY: the word is aligned and inside writable memory that lives as long as `self`.
        Ok(unsafe { atomic_u64(at, AtomicOp::FetchAdd(value)) })
    }

    /// The beginning of a range, if all of it is inside.
    fn range(&self, offset: usize, len: usize) -> Result<*mut u8, AccessError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.as_ptr().wrapping_add(offset)),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.len }),
        }
    }

    fn writable_range(&self, offset: usize, len: usize) -> Result<*mut u8, AccessError> {
        if self.writable { self.range(offset, len) } else { Err(AccessError::ReadOnly) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.origin {
            Origin::Mapped(mapped) => {
                // SAFETY: `zeroed` mapped exactly this range, and nothing holds it any more.
                let result = unsafe { libc::munmap(self.as_ptr().cast(), mapped) };
                debug_assert_eq!(result, 0, "a mapping of our own can be taken back");
            }
            Origin::Boxed => {
                let bytes = std::ptr::slice_from_raw_parts_mut(self.as_ptr(), self.len);
                // SAFETY: `from_boxed` took these bytes from a box of this length, and nothing
                // holds them any more.
                drop(unsafe { Box::from_raw(bytes) });
            }
            Origin::Borrowed => {}
        }
    }
}

fn aligned(at: *mut u8) -> Result<*mut u8, AccessError> {
    let address = at.addr();
    if address.is_multiple_of(8) { Ok(at) } else { Err(AccessError::Misaligned { address: address as u64 }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_memory_is_zero_and_begins_a_page() {
        let memory = Allocation::zeroed(10_000).unwrap();
        assert_eq!(memory.address() % 4096, 0);
        let mut bytes = vec![1; 10_000];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        assert_eq!(Allocation::zeroed(0).unwrap().load_u8(0), Err(out_of_bounds(0, 1, 0)));
    }

    #[test]
    fn only_memory_of_our_own_mapping_has_its_pages_for_itself() {
        assert!(Allocation::zeroed(10).unwrap().owns_pages());
        assert!(!Allocation::from_boxed(Box::new([0; 10])).owns_pages());
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        let error = Allocation::zeroed(isize::MAX.unsigned_abs() & !0xffff).unwrap_err();
        assert!(matches!(error, MemoryError::NoMemory { code: libc::ENOMEM, .. }), "{error}");
    }

    #[test]
    fn a_box_comes_back_from_its_last_holder() {
        let memory = Allocation::from_boxed(Box::new([7; 9]));
        let other = Arc::clone(&memory);
        let memory = memory.into_boxed().unwrap_err();
        other.write(8, &[8]).unwrap();
        drop(other);
        assert_eq!(*memory.into_boxed().unwrap(), [7, 7, 7, 7, 7, 7, 7, 7, 8]);
        assert!(Allocation::zeroed(1).unwrap().into_boxed().is_err());
        assert_eq!(Allocation::from_boxed(Box::default()).into_boxed().unwrap().len(), 0);
    }

    #[test]
    fn only_what_is_inside_can_be_reached() {
        let memory = Allocation::zeroed(32).unwrap();
        memory.fill(1, 31, 9).unwrap();
        assert_eq!(memory.load_u8(0), Ok(0));
        assert_eq!(memory.load_u8(31), Ok(9));
        assert_eq!(memory.write(30, &[1, 2, 3]), Err(out_of_bounds(30, 3, 32)));
        assert_eq!(memory.read(usize::MAX, &mut [0; 2]), Err(out_of_bounds(usize::MAX, 2, 32)));
        assert_eq!(memory.fill(33, 0, 1), Err(out_of_bounds(33, 0, 32)));
        assert_eq!(memory.load_u8(31), Ok(9));
        assert_eq!(memory.write(32, &[]), Ok(()));
    }

    #[test]
    fn numbers_are_aligned() {
        let memory = Allocation::zeroed(32).unwrap();
        memory.store_u64(8, 5).unwrap();
        assert_eq!(memory.fetch_add_u64(8, u64::MAX), Ok(5));
        assert_eq!(memory.load_u64(8), Ok(4));
        assert_eq!(memory.load_u64(4), Err(AccessError::Misaligned { address: memory.address() + 4 }));
        assert_eq!(memory.store_u64(25, 0), Err(out_of_bounds(25, 8, 32)));
    }

    #[test]
    fn read_only_memory_is_never_written() {
        static BYTES: [u8; 8] = [3; 8];
        // SAFETY: a static lives for ever and can be read.
        let memory = unsafe { Allocation::from_raw_read_only(BYTES.as_ptr(), BYTES.len()) };
        let mut bytes = [0; 8];
        memory.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, BYTES);
        assert_eq!(memory.write(0, &[1]), Err(AccessError::ReadOnly));
        assert_eq!(memory.fill(0, 1, 1), Err(AccessError::ReadOnly));
        assert_eq!(memory.store_u64(0, 1), Err(AccessError::ReadOnly));
        assert_eq!(memory.fetch_add_u64(0, 1), Err(AccessError::ReadOnly));
    }

    fn out_of_bounds(offset: usize, len: usize, size: usize) -> AccessError {
        AccessError::OutOfBounds { offset, len, size }
    }
}

//! The one way to touch memory that others may write at any moment.
//!
//! The program, its threads and its peers share registered memory without asking us, so there is never a
//! `&[u8]` or `&mut [u8]` into it, and everything that reads or writes a byte of it does so here: copies,
//! numbers, and the atomics of peers. Whatever races with us may see old and new bytes mixed; nothing can
//! make a copy undefined.
//!
//! **Why assembly.** One byte is written as a part of eight and read by itself, because a program waits for
//! the last byte of a message. Rust's memory model, which is that of C++, knows atomics of one size at one
//! place: two that overlap, have different sizes and race, one of them a store, are undefined behaviour, even
//! if each is atomic. The processor's model is made for this. On x86-64 every access of up to eight bytes
//! that does not cross their alignment is done at once, loads keep their order, stores keep theirs, and a
//! locked instruction is a full barrier, whatever the sizes. So bytes move by the processor's own
//! instructions (`x86_64`), in assembly that the compiler may not look into: it has to take each block for
//! something that reads and writes all memory that it can reach, and neither tears an access apart nor moves
//! others across it.
//!
//! **Elsewhere** (`portable`), on other processors and under Miri, the same is done by atomics in their
//! natural sizes. These races of mixed sizes have no meaning in the language there; what they rely on is that
//! a compiler makes one instruction of each. A processor that is to be trusted gets a file of its own beside
//! `x86_64`.
//!
//! Programs wait for a message by watching its last byte. So the end of every placement is stored
//! after all the rest, rising, in naturally aligned pieces of up to eight bytes with Release: a thread
//! that sees the last byte (or the aligned number that ends there) sees the whole message.

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

use ferroce_transport::AtomicOp;
#[cfg(any(miri, not(target_arch = "x86_64")))]
use portable as bulk;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as bulk;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::onward;

/// Places bytes in registered memory, rising, the end last.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes until this returns, and no reference of this
/// process points into that range, other than to atomics.
#[inline]
pub(crate) unsafe fn copy_out(to: *mut u8, bytes: &[u8]) {
    let (body, end) = bytes.split_at(bytes.len() - end_len(to, bytes.len()));
    // SAFETY: the body is the first part of the range that the caller vouches for.
    unsafe { bulk::out(to, body) };
    // SAFETY: the end is the rest of the same range.
    unsafe { store_end(to.wrapping_add(body.len()), end) };
}

/// Copies from registered memory, or from any that a program may change meanwhile, into our own.
///
/// # Safety
/// `from` is valid for reads of `bytes.len()` bytes until this returns, and `bytes` is not
/// registered memory.
#[inline]
pub unsafe fn copy_in(from: *const u8, bytes: &mut [u8]) {
    // SAFETY: the caller vouches for the source; the slice vouches for the target.
    unsafe { bulk::into(bytes, from) };
}

/// Bytes that are folded at a time.
pub(crate) const FOLD: usize = 128;

/// What a CRC-32 has to know of bytes that were copied: fewer bytes that give the same.
///
/// A CRC is a remainder, so that bytes may be moved on by multiplying, 128 of them onto the 128 that follow, and the
/// remainder stays what it was. In the end there are 128 left: a CRC that begins at zero and takes them is where it would
/// be had it taken all that were copied.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The bytes that are left.
    pub block: [u8; FOLD],
    /// So many bytes of the copy they stand for, from its beginning; a CRC has to take the others itself.
    pub len: usize,
}

/// How a payload is copied into a packet, and its CRC computed: in two passes, or in one that folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Never on a machine that cannot.
    folds: bool,
}

impl Passes {
    /// It is copied, and then the CRC reads the copy.
    pub const TWO: Self = Self { folds: false };

    /// It is folded as it is copied, if this machine can do that.
    #[must_use]
    pub fn one() -> Self {
        Self { folds: bulk::can_fold() }
    }

    /// The faster way on this machine: two passes where 64 bytes are multiplied without carry at once, since the CRC of
    /// bytes in a cache takes less than half of the time of the copy there.
    #[must_use]
    pub fn faster() -> Self {
        if bulk::is_wide() { Self::TWO } else { Self::one() }
    }

    /// Whether so many bytes are folded.
    #[must_use]
    #[inline]
    pub const fn folds(self, len: usize) -> bool {
        self.folds && len >= WORTH_FOLDING
    }
}

/// As [`copy_in`]; and folds the bytes. `register` is where the CRC is when they begin. `None` if this is no machine for
/// that or they are few: then nothing is copied.
///
/// # Safety
/// As for [`copy_in`].
#[inline]
pub(crate) unsafe fn copy_in_folding(
    from: *const u8,
    bytes: &mut [u8],
    register: u32,
    passes: Passes,
) -> Option<Fold> {
    // SAFETY: the caller vouches for the source; there is a block, and this machine can fold.
    passes.folds(bytes.len()).then(|| unsafe { bulk::into_folding(bytes, from, register) })
}

/// From here on one pass takes less time than two.
const WORTH_FOLDING: usize = 1024;

/// Copies from registered memory to registered memory. The two may overlap: what arrives is what
/// was at the source before. Where they do not, the end is stored last, as by [`copy_out`].
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes until this returns, and no
/// reference of this process points into either, other than to atomics.
#[inline]
pub(crate) unsafe fn copy_between(to: *mut u8, from: *const u8, len: usize) {
    if to.addr().abs_diff(from.addr()) < len {
        // SAFETY: the caller vouches for both ranges; this form may overlap.
        unsafe { bulk::overlapping(to, from, len) };
        return;
    }
    let end = end_len(to, len);
    let body = len - end;
    // SAFETY: the body is the first part of ranges that the caller vouches for; they lie apart.
    unsafe { bulk::between(to, from, body) };
    if end == WORD {
        // SAFETY: the end is the rest of the source, and has eight bytes.
        let last = unsafe { bulk::word(from.wrapping_add(body)) };
        // SAFETY: it is the rest of the target too, which ends at a multiple of 8.
        unsafe { bulk::store_8(to.wrapping_add(body), last) };
        return;
    }
    let mut last = [0; WORD];
    let last = &mut last[..end];
    // SAFETY: the end is the rest of the source.
    unsafe { bulk::into(last, from.wrapping_add(body)) };
    // SAFETY: the end is the rest of the target.
    unsafe { store_end(to.wrapping_add(body), last) };
}

/// One byte, before all that is read after it (Acquire).
///
/// # Safety
/// `from` is valid for a read until this returns.
#[inline]
pub(crate) unsafe fn load_u8(from: *const u8) -> u8 {
    // SAFETY: the caller vouches for the byte.
    unsafe { bulk::load_1(from) }
}

/// A number of this machine, before all that is read after it (Acquire).
///
/// # Safety
/// `from` is a multiple of 8 and valid for reads of eight bytes until this returns.
#[inline]
pub(crate) unsafe fn load_u64(from: *const u8) -> u64 {
    // SAFETY: the caller vouches for the bytes.
    unsafe { bulk::load_8(from) }
}

/// Stores a number of this machine after all that was written before (Release).
///
/// # Safety
/// `to` is a multiple of 8 and valid for writes of eight bytes until this returns, and no reference of this
/// process points into them, other than to atomics.
#[inline]
pub(crate) unsafe fn store_u64(to: *mut u8, value: u64) {
    // SAFETY: the caller vouches for the bytes.
    unsafe { bulk::store_8(to, value) };
}

/// Does an atomic and returns what was there before. It is atomic to all of this machine, because
/// it is the processor's own.
///
/// # Safety
/// `at` is a multiple of 8 and valid for reads and writes of eight bytes until this returns, and
/// no reference of this process points into them, other than to atomics.
pub(crate) unsafe fn atomic_u64(at: *mut u8, op: AtomicOp) -> u64 {
    match op {
        // SAFETY: the caller vouches for alignment, life and the absence of other references.
        AtomicOp::CompareSwap { compare, swap } => unsafe { bulk::compare_swap(at, compare, swap) },
        // SAFETY: as above.
        AtomicOp::FetchAdd(add) => unsafe { bulk::fetch_add(at, add) },
        AtomicOp::MaskedCompareSwap(_) | AtomicOp::MaskedFetchAdd(_) => {
            // SAFETY: as above.
            let mut now = unsafe { bulk::load_8(at) };
            loop {
                // SAFETY: as above.
                let before = unsafe { bulk::compare_swap(at, now, op.applied(now)) };
                if before == now {
                    return before;
                }
                now = before;
            }
        }
        // SAFETY: as above.
        AtomicOp::Store(bytes) => unsafe { bulk::swap(at, u64::from_ne_bytes(bytes)) },
    }
}

/// Bytes of the largest piece that is stored at once.
const WORD: usize = 8;

/// How many bytes at the end of a placement are stored last: those in its last aligned word.
#[inline]
fn end_len(to: *mut u8, len: usize) -> usize {
    let past = to.addr().wrapping_add(len) % WORD;
    len.min(if past == 0 { WORD } else { past })
}

/// Stores the end of a placement: one word if it is whole, else rising pieces of one.
///
/// # Safety
/// As for [`copy_out`]; eight bytes come at a multiple of 8.
#[inline]
unsafe fn store_end(to: *mut u8, end: &[u8]) {
    if end.len() == WORD {
        // SAFETY: the caller vouches for range and alignment.
        unsafe { store_piece(to, end) };
    } else {
        // SAFETY: the caller vouches for the range.
        unsafe { store_rising(to, end) };
    }
}

/// The largest naturally aligned piece that begins at this address; some byte is left.
#[inline]
const fn piece(address: usize, left: usize) -> usize {
    let aligned = (address | WORD).trailing_zeros();
    let fits = left.ilog2();
    1 << if aligned < fits { aligned } else { fits }
}

/// Stores bytes one aligned piece after the other.
///
/// # Safety
/// As for [`copy_out`].
#[inline]
unsafe fn store_rising(to: *mut u8, bytes: &[u8]) {
    let mut rest = bytes;
    let mut at = to;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece(at.addr(), rest.len()));
        // SAFETY: the piece is inside the caller's range, and aligned to its own length.
        unsafe { store_piece(at, now) };
        at = at.wrapping_add(now.len());
        rest = later;
    }
}

/// Stores one piece at once, after all that was written before (Release).
///
/// # Safety
/// As for [`copy_out`]; the piece has 8, 4, 2 or 1 bytes and `to` is a multiple of that.
#[inline]
unsafe fn store_piece(to: *mut u8, bytes: &[u8]) {
    match *bytes {
        [a, b, c, d, e, f, g, h] => {
            // SAFETY: the caller vouches for range and alignment.
            unsafe { bulk::store_8(to, u64::from_ne_bytes([a, b, c, d, e, f, g, h])) };
        }
        [a, b, c, d] => {
            // SAFETY: the caller vouches for range and alignment.
            unsafe { bulk::store_4(to, u32::from_ne_bytes([a, b, c, d])) };
        }
        [a, b] => {
            // SAFETY: the caller vouches for range and alignment.
            unsafe { bulk::store_2(to, u16::from_ne_bytes([a, b])) };
        }
        [a] => {
            // SAFETY: the caller vouches for the range.
            unsafe { bulk::store_1(to, a) };
        }
        _ => debug_assert!(false, "a piece has 8, 4, 2 or 1 bytes"),
    }
}

#[cfg(test)]
mod tests;

//! Memory that others write too, by atomics: for other processors, and for Miri.
//!
//! The sizes of these mix; what that means is said in the module above.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{FOLD, Fold, WORD, piece};

/// Copies into registered memory.
///
/// # Safety
/// As for [`copy_out`](super::copy_out).
pub(super) unsafe fn out(to: *mut u8, bytes: &[u8]) {
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

/// Whether [`into_folding`] may be called: it saves nothing here, but Miri is to see the code around it.
pub(super) const fn can_fold() -> bool {
    cfg!(miri)
}

/// Whether the CRC of bytes that lie in a cache is faster than their copy: not known.
pub(super) const fn is_wide() -> bool {
    false
}

/// Copies out of registered memory, and folds one block.
///
/// # Safety
/// As for [`copy_in`](super::copy_in), and there is at least one [`FOLD`] of bytes.
pub(super) unsafe fn into_folding(bytes: &mut [u8], from: *const u8, register: u32) -> Fold {
    // SAFETY: the caller vouches for the source.
    unsafe { into(bytes, from) };
    let mut fold = Fold { block: [0; FOLD], len: FOLD };
    fold.block.copy_from_slice(&bytes[..FOLD]);
    for (byte, before) in fold.block.iter_mut().zip(register.to_le_bytes()) {
        *byte ^= before;
    }
    fold
}

/// Defines a function that loads a number, before all that is read after it.
macro_rules! load {
    ($name:ident, $type:ty, $atomic:ty) => {
        /// # Safety
        /// The number at `from` can be read, and lies at a multiple of its size.
        #[inline]
        pub(super) unsafe fn $name(from: *const u8) -> $type {
            // SAFETY: the caller vouches for the bytes.
            unsafe { <$atomic>::from_ptr(from.cast_mut().cast()) }.load(Ordering::Acquire)
        }
    };
}

load!(load_1, u8, AtomicU8);
load!(load_8, u64, AtomicU64);

/// Defines a function that stores a number at once, after all that was written before.
macro_rules! store {
    ($name:ident, $type:ty, $atomic:ty) => {
        /// # Safety
        /// The bytes at `to` can be written, and lie at a multiple of their number.
        #[inline]
        pub(super) unsafe fn $name(to: *mut u8, value: $type) {
            // SAFETY: the caller vouches for the bytes.
            unsafe { <$atomic>::from_ptr(to.cast()) }.store(value, Ordering::Release);
        }
    };
}

store!(store_1, u8, AtomicU8);
store!(store_2, u16, AtomicU16);
store!(store_4, u32, AtomicU32);
store!(store_8, u64, AtomicU64);

/// Adds to a word, wrapping around; what was there before.
///
/// # Safety
/// The word at `at` can be read and written, and is aligned.
pub(super) unsafe fn fetch_add(at: *mut u8, add: u64) -> u64 {
    // SAFETY: the caller vouches for the word.
    unsafe { AtomicU64::from_ptr(at.cast()) }.fetch_add(add, Ordering::SeqCst)
}

/// Puts a word in the place of another; what was there before.
///
/// # Safety
/// As for [`fetch_add`].
pub(super) unsafe fn swap(at: *mut u8, new: u64) -> u64 {
    // SAFETY: the caller vouches for the word.
    unsafe { AtomicU64::from_ptr(at.cast()) }.swap(new, Ordering::SeqCst)
}

/// Puts a word in the place of another if that is `compare`; what was there before.
///
/// # Safety
/// As for [`fetch_add`].
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, new: u64) -> u64 {
    // SAFETY: the caller vouches for the word.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    match word.compare_exchange(compare, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(before) | Err(before) => before,
    }
}

/// Copies out of registered memory.
///
/// # Safety
/// As for [`copy_in`](super::copy_in).
pub(super) unsafe fn into(bytes: &mut [u8], from: *const u8) {
    let mut rest = bytes;
    let mut at = from;
    while !rest.is_empty() {
        let (now, later) = rest.split_at_mut(piece(at.addr(), rest.len()));
        // SAFETY: the piece is inside the caller's range, and aligned to its own length.
        unsafe { load_piece(at, now) };
        at = at.wrapping_add(now.len());
        rest = later;
    }
}

/// Eight bytes, at any address.
///
/// # Safety
/// `from` is valid for reads of eight bytes.
pub(super) unsafe fn word(from: *const u8) -> u64 {
    let mut bytes = [0; WORD];
    // SAFETY: the caller vouches for the bytes.
    unsafe { into(&mut bytes, from) };
    u64::from_ne_bytes(bytes)
}

/// Copies between ranges that do not overlap.
///
/// # Safety
/// As for [`copy_between`](super::copy_between).
pub(super) unsafe fn between(to: *mut u8, from: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        let both = to.addr().wrapping_add(at) | from.addr().wrapping_add(at);
        let size = piece(both, len - at);
        // SAFETY: the piece is inside the caller's ranges, and aligned on both sides.
        unsafe { move_piece(to, from, at, size) };
        at += size;
    }
}

/// Copies between ranges that may overlap, so that what was at the source arrives.
///
/// # Safety
/// As for [`copy_between`](super::copy_between).
pub(super) unsafe fn overlapping(to: *mut u8, from: *const u8, len: usize) {
    if to.addr() <= from.addr() {
        // SAFETY: the caller vouches for both ranges; a piece is read before a piece further
        // down overwrites it.
        unsafe { between(to, from, len) };
        return;
    }
    let mut left = len;
    while left > 0 {
        let both = to.addr().wrapping_add(left) | from.addr().wrapping_add(left);
        let size = piece(both, left);
        left -= size;
        // SAFETY: the piece is inside the caller's ranges, and its end, so its beginning too, is
        // aligned on both sides.
        unsafe { move_piece(to, from, left, size) };
    }
}

/// # Safety
/// The piece at offset `at` is inside both ranges and aligned to its size on both sides.
unsafe fn move_piece(to: *mut u8, from: *const u8, at: usize, size: usize) {
    let mut bytes = [0; WORD];
    let bytes = &mut bytes[..size];
    // SAFETY: the caller vouches for the piece of the source.
    unsafe { load_piece(from.wrapping_add(at), bytes) };
    // SAFETY: the caller vouches for the piece of the target.
    unsafe { store_piece(to.wrapping_add(at), bytes) };
}

/// Loads one piece at once.
///
/// # Safety
/// As for [`copy_in`](super::copy_in); the piece has 8, 4, 2 or 1 bytes and `from` is a multiple
/// of that.
unsafe fn load_piece(from: *const u8, bytes: &mut [u8]) {
    let from = from.cast_mut();
    match bytes.len() {
        8 => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU64::from_ptr(from.cast()) };
            bytes.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
        }
        4 => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU32::from_ptr(from.cast()) };
            bytes.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
        }
        2 => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU16::from_ptr(from.cast()) };
            bytes.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
        }
        1 => {
            // SAFETY: the caller vouches for the range.
            let place = unsafe { AtomicU8::from_ptr(from) };
            bytes.copy_from_slice(&[place.load(Ordering::Relaxed)]);
        }
        _ => debug_assert!(false, "a piece has 8, 4, 2 or 1 bytes"),
    }
}

/// Stores one piece at once.
///
/// # Safety
/// As for [`copy_out`](super::copy_out); the piece has 8, 4, 2 or 1 bytes and `to` is a multiple of that.
unsafe fn store_piece(to: *mut u8, bytes: &[u8]) {
    match *bytes {
        [a, b, c, d, e, f, g, h] => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU64::from_ptr(to.cast()) };
            place.store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed);
        }
        [a, b, c, d] => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU32::from_ptr(to.cast()) };
            place.store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed);
        }
        [a, b] => {
            // SAFETY: the caller vouches for range and alignment.
            let place = unsafe { AtomicU16::from_ptr(to.cast()) };
            place.store(u16::from_ne_bytes([a, b]), Ordering::Relaxed);
        }
        [a] => {
            // SAFETY: the caller vouches for the range.
            let place = unsafe { AtomicU8::from_ptr(to) };
            place.store(a, Ordering::Relaxed);
        }
        _ => debug_assert!(false, "a piece has 8, 4, 2 or 1 bytes"),
    }
}

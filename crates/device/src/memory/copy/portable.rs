//! Bulk copies by relaxed atomics: for other processors, and for Miri.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{WORD, piece, store_piece, store_rising};

/// Copies into registered memory.
///
/// # Safety
/// As for [`copy_out`](super::copy_out).
pub(super) unsafe fn out(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller vouches for the range.
    unsafe { store_rising(to, bytes, Ordering::Relaxed) };
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
    unsafe { store_piece(to.wrapping_add(at), bytes, Ordering::Relaxed) };
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

//! Reading fixed-size pieces off a slice, without panics and without copies.

use crate::error::ParseError;

/// Splits the first `N` bytes off, or says which header they were meant for.
#[inline]
pub(crate) fn take<'a, const N: usize>(
    bytes: &mut &'a [u8],
    what: &'static str,
) -> Result<&'a [u8; N], ParseError> {
    let too_short = ParseError::TooShort { what, need: N, have: bytes.len() };
    let (head, rest) = bytes.split_first_chunk().ok_or(too_short)?;
    *bytes = rest;
    Ok(head)
}

/// A field of `N` bytes at a fixed place of a fixed-size header.
///
/// `AT + N <= LEN` is checked when the caller is compiled.
#[inline]
pub(crate) const fn field<const AT: usize, const N: usize, const LEN: usize>(header: &[u8; LEN]) -> [u8; N] {
    const { assert!(AT + N <= LEN) };
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = header[AT + i];
        i += 1;
    }
    out
}

/// Writes a field of `N` bytes at a fixed place of a fixed-size header.
#[inline]
pub(crate) const fn put<const AT: usize, const N: usize, const LEN: usize>(
    header: &mut [u8; LEN],
    value: [u8; N],
) {
    const { assert!(AT + N <= LEN) };
    let mut i = 0;
    while i < N {
        header[AT + i] = value[i];
        i += 1;
    }
}

/// The big-endian number of 24 bits at a fixed place.
#[inline]
pub(crate) const fn u24<const AT: usize, const LEN: usize>(header: &[u8; LEN]) -> u32 {
    let [a, b, c] = field::<AT, 3, LEN>(header);
    u32::from_be_bytes([0, a, b, c])
}

/// Writes the low 24 bits of `value`, big-endian, at a fixed place.
#[inline]
pub(crate) const fn put_u24<const AT: usize, const LEN: usize>(header: &mut [u8; LEN], value: u32) {
    let [_, a, b, c] = value.to_be_bytes();
    put::<AT, 3, LEN>(header, [a, b, c]);
}

//! Bytes that connection management carries without knowing what they mean.

use core::fmt;

use crate::error::BufferTooSmall;

/// `N` bytes at the end of a message whose meaning is not ours, such as private data.
///
/// The wire has no length for them: what is not used is zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opaque<const N: usize>(pub [u8; N]);

impl<const N: usize> Opaque<N> {
    /// How many bytes there are.
    pub const LEN: usize = N;

    /// `bytes`, followed by zeros; fails if they are more than `N`.
    pub fn new(bytes: &[u8]) -> Result<Self, BufferTooSmall> {
        let mut all = [0; N];
        let too_small = BufferTooSmall { need: bytes.len(), have: N };
        all.get_mut(..bytes.len()).ok_or(too_small)?.copy_from_slice(bytes);
        Ok(Self(all))
    }

    /// The bytes without the zeros at their end.
    #[must_use]
    pub fn trimmed(&self) -> &[u8] {
        trim(&self.0)
    }
}

impl<const N: usize> Default for Opaque<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for Opaque<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opaque<{N}>(")?;
        self.trimmed().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// `bytes` without the zeros at their end.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.get(..used).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_fill_up_and_are_trimmed() {
        let some = Opaque::<8>::new(&[1, 0, 2]).unwrap();
        assert_eq!(some.0, [1, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(some.trimmed(), [1, 0, 2]);
        assert_eq!(Opaque::<8>::default().trimmed(), []);
        assert_eq!(Opaque::<2>::new(&[1, 2, 3]), Err(BufferTooSmall { need: 3, have: 2 }));
    }
}

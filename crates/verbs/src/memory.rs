//! Memory that can be registered.

use std::sync::Arc;

use ferroce_device::memory::{Allocation, MemoryError};

/// Memory that peers may read and write while the program uses it, so it is copied in and out and
/// never borrowed. Clones are the same memory; it is freed with the last of them and of its regions.
///
/// It is made from a `Vec<u8>` or a `Box<[u8]>`, and turns back into one.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Allocation>);

impl Memory {
    /// Bytes of zeros, from the beginning of a page.
    ///
    /// # Errors
    /// The system has no memory to give.
    pub fn zeroed(len: usize) -> Result<Self, MemoryError> {
        Allocation::zeroed(len).map(Self)
    }

    /// The bytes back, if they came from a `Vec` or a `Box` and this is the last handle: no clone
    /// and no region of it is left.
    ///
    /// # Errors
    /// The memory itself.
    pub fn into_boxed(self) -> Result<Box<[u8]>, Self> {
        self.0.into_boxed().map_err(Self)
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of the first byte, as work and peers use it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    pub(crate) const fn as_device(&self) -> &Arc<Allocation> {
        &self.0
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.into_boxed_slice().into()
    }
}

impl From<Box<[u8]>> for Memory {
    fn from(bytes: Box<[u8]>) -> Self {
        Self(Allocation::from_boxed(bytes))
    }
}

impl From<Arc<Allocation>> for Memory {
    fn from(allocation: Arc<Allocation>) -> Self {
        Self(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back() {
        let memory = Memory::from(vec![1, 2, 3]);
        let other = memory.clone();
        let memory = memory.into_boxed().unwrap_err();
        drop(other);
        assert_eq!(*memory.into_boxed().unwrap(), [1, 2, 3]);
    }
}

//! Words that two processes share: in a mapping, or with `--cfg loom` on the heap.

#[cfg(loom)]
pub(crate) use self::modelled::Exchange;
#[cfg(not(loom))]
pub(crate) use self::real::Exchange;

#[cfg(not(loom))]
mod real {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use crate::doors::{DoorWords, HandWord};
    use crate::line::Words;
    use crate::sealed::Mapping;

    /// Atomics and nothing else.
    ///
    /// # Safety
    /// Every bit pattern is a value, and there is no way to what is in it but by atomics.
    pub(crate) unsafe trait Atomics {}

    // SAFETY: it is made of `AtomicU64`, all of whose bit patterns are values.
    unsafe impl Atomics for Words {}
    // SAFETY: as above.
    unsafe impl Atomics for DoorWords {}
    // SAFETY: as above.
    unsafe impl Atomics for HandWord {}

    /// Words in a mapping.
    #[derive(Debug)]
    pub(crate) struct Exchange<T> {
        words: NonNull<T>,
        _mapping: Arc<Mapping>,
    }

    // SAFETY: it is a mapping, which belongs to no thread, and a place in it; all there is done by atomics.
    unsafe impl<T: Atomics> Send for Exchange<T> {}
    // SAFETY: as above.
    unsafe impl<T: Atomics> Sync for Exchange<T> {}

    impl<T: Atomics> Exchange<T> {
        /// The words that begin at this byte of a mapping.
        pub(crate) fn new(mapping: Arc<Mapping>, at: usize) -> Self {
            let len = mapping.len();
            assert!(at <= len && size_of::<T>() <= len - at, "{len} bytes have no such words at {at}");
            assert!(at.is_multiple_of(align_of::<T>()), "{at} is no place for these words");
            // SAFETY: it is inside of the mapping, as was just asserted.
            let words = unsafe { mapping.base().add(at) }.cast();
            Self { words, _mapping: mapping }
        }

        #[inline]
        pub(crate) fn get(&self) -> &T {
            // SAFETY: `new` has asserted that the words are inside of the mapping, which `self` keeps, and that they are aligned
            // in it, as it is to a page; every bit pattern is a value, and all that is done to them is atomic: both are what
            // `Atomics` promises.
            unsafe { self.words.as_ref() }
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::Arc;

    /// Words on the heap.
    #[derive(Debug)]
    pub(crate) struct Exchange<T>(Arc<T>);

    impl<T> Exchange<T> {
        pub(crate) fn new(words: T) -> Self {
            Self(Arc::new(words))
        }

        pub(crate) fn get(&self) -> &T {
            &self.0
        }
    }

    impl<T> Clone for Exchange<T> {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0))
        }
    }
}

//! The memory of a line: a mapping, or with `--cfg loom` words on the heap.

#[cfg(loom)]
pub(crate) use self::modelled::Exchange;
#[cfg(not(loom))]
pub(crate) use self::real::{Exchange, LEN};

#[cfg(not(loom))]
mod real {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use crate::line::Words;
    use crate::sealed::Mapping;

    /// Bytes of the file of a line.
    pub(crate) const LEN: usize = 4096;

    /// Where the words are, behind what is never changed.
    const WORDS_AT: usize = 128;

    /// The words of a line, in a mapping.
    #[derive(Debug)]
    pub(crate) struct Exchange {
        words: NonNull<Words>,
        _mapping: Arc<Mapping>,
    }

    // SAFETY: it is a mapping, which belongs to no thread, and a place in it; all there is done by atomics.
    unsafe impl Send for Exchange {}
    // SAFETY: as above.
    unsafe impl Sync for Exchange {}

    impl Exchange {
        pub(crate) fn new(mapping: Arc<Mapping>) -> Self {
            assert!(WORDS_AT + size_of::<Words>() <= mapping.len(), "{} bytes are no line", mapping.len());
            // SAFETY: it is inside of the mapping, as was just asserted.
            let words = unsafe { mapping.base().add(WORDS_AT) }.cast();
            Self { words, _mapping: mapping }
        }

        #[inline]
        pub(crate) fn get(&self) -> &Words {
            // SAFETY: `new` has asserted that the words are inside of the mapping, which `self` keeps; they are aligned,
            // as the mapping is to a page, and `WORDS_AT` is a multiple of their alignment; every bit pattern is a value
            // of atomics, and all that is done to them is atomic.
            unsafe { self.words.as_ref() }
        }
    }

    const _: () = assert!(WORDS_AT.is_multiple_of(align_of::<Words>()));
}

#[cfg(loom)]
mod modelled {
    use loom::sync::Arc;

    use crate::line::Words;

    /// The words of a line.
    #[derive(Clone, Debug)]
    pub(crate) struct Exchange(Arc<Words>);

    impl Exchange {
        pub(crate) fn new() -> Self {
            Self(Arc::new(Words::new()))
        }

        pub(crate) fn get(&self) -> &Words {
            &self.0
        }
    }
}

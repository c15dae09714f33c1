//! The memory of a ring: a mapping, or with `--cfg loom` words on the heap that the model watches.

#[cfg(loom)]
pub(crate) use self::modelled::Memory;
#[cfg(not(loom))]
pub(crate) use self::real::Memory;

#[cfg(not(loom))]
mod real {
    use std::io;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::layout::{HEAD_AT, HEADER_PAGE, TAIL_AT, WORD};
    use crate::sealed::Mapping;

    /// What both sides of a ring share, as one of them sees it.
    ///
    /// Whatever it is asked for, it answers with memory inside of the mapping: positions that lead elsewhere end the
    /// program, so that no mistake above this type reads or writes what is not the ring's.
    #[derive(Debug)]
    pub(crate) struct Memory {
        /// The first byte of the ring; `ring` bytes from here on are in the mapping.
        ring: NonNull<u8>,
        /// Bytes of the ring: whole pages.
        len: usize,
        mapping: Arc<Mapping>,
    }

    // SAFETY: it is a mapping, which belongs to no thread, and where the ring in it begins.
    unsafe impl Send for Memory {}
    // SAFETY: by a shared reference words are read by atomics, and bytes as `bytes` says.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// One side of the ring in this mapping.
        pub(crate) fn new(mapping: Arc<Mapping>) -> Self {
            let len = mapping.len() - HEADER_PAGE;
            assert!(len.is_multiple_of(HEADER_PAGE) && len >= HEADER_PAGE, "{len} bytes are no ring");
            // SAFETY: the mapping is longer than a page, as was just seen.
            let ring = unsafe { mapping.base().add(HEADER_PAGE) };
            Self { ring, len, mapping }
        }

        /// Bytes of the ring.
        #[inline]
        pub(crate) const fn len(&self) -> usize {
            self.len
        }

        #[inline]
        pub(crate) fn head(&self) -> &AtomicU64 {
            self.mapping.word(HEAD_AT)
        }

        #[inline]
        pub(crate) fn tail(&self) -> &AtomicU64 {
            self.mapping.word(TAIL_AT)
        }

        /// The word before a record, read once.
        #[inline]
        pub(crate) fn mark(&self, at: usize) -> u64 {
            self.word_at(at).load(Ordering::Relaxed)
        }

        #[inline]
        pub(crate) fn set_mark(&mut self, at: usize, mark: u64) {
            self.word_at(at).store(mark, Ordering::Relaxed);
        }

        #[inline]
        fn word_at(&self, at: usize) -> &AtomicU64 {
            assert!(at < self.len && at.is_multiple_of(WORD), "{at} is no word of the ring");
            // SAFETY: it is inside of the ring, as was just asserted.
            let word = unsafe { self.ring.add(at) };
            // SAFETY: it is aligned, as the ring is to pages and `at` was asserted to be, and lives as long as the
            // mapping, which `self` keeps; every bit pattern is a number. Slices of this side never cover a word that is
            // taken here at that time: `&mut self` stands for the room of the producer, and marks lie between records.
            unsafe { word.cast().as_ref() }
        }

        /// Bytes of a record, to be read.
        #[inline]
        pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
            let first = self.piece(at, len);
            // SAFETY: `piece` asserts that they are inside of the mapping, which `self` keeps; all values are bytes.
            // That they stay as they are is a promise of the process at the other end. One that breaks it changes bytes
            // under a reader: see the words on trust in `Record`.
            unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
        }

        /// Copies bytes of a record, each of which is read once, whatever the other process does meanwhile.
        #[inline]
        pub(crate) fn copy(&self, at: usize, into: &mut [u8]) {
            // A record has its room in whole words.
            let words = self.words(at, into.len().div_ceil(WORD));
            let mut pieces = into.chunks_exact_mut(WORD);
            let mut words = words.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            for (piece, word) in pieces.by_ref().zip(words.by_ref()) {
                piece.copy_from_slice(&word);
            }
            let [a, b, c, d, last @ ..] = words.next().unwrap_or_default();
            let rest = pieces.into_remainder();
            if let Some((half, behind)) = rest.split_first_chunk_mut() {
                *half = [a, b, c, d];
                behind.iter_mut().zip(last).for_each(|(byte, last)| *byte = last);
            } else {
                rest.iter_mut().zip([a, b, c]).for_each(|(byte, last)| *byte = last);
            }
        }

        /// Words of a record, to be read one by one.
        #[inline]
        fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
            let first = self.piece(at, count * WORD);
            assert!(at.is_multiple_of(WORD), "{at} is no word of the ring");
            // SAFETY: they are inside of the mapping, which `self` keeps, as `piece` asserts, and aligned, as the ring is to pages and
            // `at` was asserted to be; every bit pattern is a number, and all that is done to them is atomic.
            unsafe { std::slice::from_raw_parts(first.cast().as_ptr(), count) }
        }

        /// Bytes of a record that is being made.
        #[inline]
        pub(crate) fn room(&mut self, at: usize, len: usize) -> &mut [u8] {
            let first = self.piece(at, len);
            // SAFETY: as for `bytes`. This process has no other reference to them: there is one producer, of which the
            // caller has the only borrow, and the consumer takes nothing that is not published.
            unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
        }

        /// What was handed out by `room` is written. Only models want to know.
        #[inline]
        pub(crate) const fn written(&mut self, _at: usize, _len: usize) {}

        #[inline]
        fn piece(&self, at: usize, len: usize) -> NonNull<u8> {
            assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} are not in the ring");
            // SAFETY: it is inside of the ring, as was just asserted.
            unsafe { self.ring.add(at) }
        }

        /// Gives the pages of the ring back to the system.
        pub(crate) fn forget(&mut self) -> io::Result<()> {
            self.mapping.forget_from(HEADER_PAGE)
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::cell::UnsafeCell;

    use ferroce_sys::sync::prim::AtomicU64;
    use loom::cell::UnsafeCell as Watch;
    use loom::sync::Arc;

    use crate::layout::WORD;

    /// What both sides of a ring share. Each eight bytes have a watch: two sides at them at once, or one that has not yet
    /// seen what the other did, end the model.
    #[derive(Debug)]
    pub(crate) struct Memory {
        words: Arc<Words>,
        len: usize,
    }

    #[derive(Debug)]
    struct Words {
        head: AtomicU64,
        tail: AtomicU64,
        ring: Box<[UnsafeCell<u64>]>,
        watches: Box<[Watch<()>]>,
    }

    // SAFETY: the watches find every access to the ring that another one races with.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl Memory {
        pub(crate) fn pair(len: usize) -> [Self; 2] {
            let words = Arc::new(Words {
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                ring: (0..len / WORD).map(|_| UnsafeCell::new(0)).collect(),
                watches: (0..len / WORD).map(|_| Watch::new(())).collect(),
            });
            [Self { words: Arc::clone(&words), len }, Self { words, len }]
        }

        pub(crate) const fn len(&self) -> usize {
            self.len
        }

        pub(crate) fn head(&self) -> &AtomicU64 {
            &self.words.head
        }

        pub(crate) fn tail(&self) -> &AtomicU64 {
            &self.words.tail
        }

        pub(crate) fn mark(&self, at: usize) -> u64 {
            let mut mark = [0; WORD];
            self.copy(at, &mut mark);
            u64::from_ne_bytes(mark)
        }

        pub(crate) fn set_mark(&mut self, at: usize, mark: u64) {
            self.room(at, WORD).copy_from_slice(&mark.to_ne_bytes());
        }

        pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
            for watch in self.watches(at, len) {
                watch.with(|_| ());
            }
            // SAFETY: `first` asserts that they are inside of the ring; the watches see that no writer is at them.
            unsafe { std::slice::from_raw_parts(self.first(at, len), len) }
        }

        pub(crate) fn copy(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(self.bytes(at, into.len()));
        }

        pub(crate) fn room(&mut self, at: usize, len: usize) -> &mut [u8] {
            self.written(at, len);
            // SAFETY: `first` asserts that they are inside of the ring; the watches see that no reader is at them.
            unsafe { std::slice::from_raw_parts_mut(self.first(at, len), len) }
        }

        pub(crate) fn written(&mut self, at: usize, len: usize) {
            for watch in self.watches(at, len) {
                watch.with_mut(|_| ());
            }
        }

        fn watches(&self, at: usize, len: usize) -> &[Watch<()>] {
            &self.words.watches[at / WORD..(at + len).div_ceil(WORD)]
        }

        fn first(&self, at: usize, len: usize) -> *mut u8 {
            assert!(at + len <= self.len, "{len} bytes at {at} are not in the ring");
            let ring = self.words.ring.as_ptr().cast::<u8>().cast_mut();
            // SAFETY: it is inside of the ring, as was just asserted.
            unsafe { ring.add(at) }
        }
    }
}

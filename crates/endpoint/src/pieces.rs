//! Bytes that lie in several places, to be sent one after the other.

use std::io::IoSlice;

/// Bytes in several places. Copies name the same bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a> {
    list: &'a [IoSlice<'a>],
    /// Bytes of the first that are passed.
    passed: usize,
    len: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(list: &'a [IoSlice<'a>]) -> Self {
        Self { list, passed: 0, len: list.iter().map(|piece| piece.len()).sum() }
    }

    /// Bytes, all together.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The first bytes, at most so many.
    pub(crate) fn first(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// What comes after the first bytes.
    pub(crate) fn after(self, count: usize) -> Self {
        let Self { mut list, mut passed, len } = self;
        let mut count = count.min(len);
        let left = len - count;
        while let [first, rest @ ..] = list
            && count >= first.len() - passed
        {
            count -= first.len() - passed;
            (list, passed) = (rest, 0);
        }
        Self { list, passed: passed + count, len: left }
    }

    /// The first bytes, if so many of them lie in one place.
    pub(crate) fn in_one(self, len: usize) -> Option<&'a [u8]> {
        let list: &'a [IoSlice<'a>] = self.list;
        let first = list.first()?.get(self.passed..)?;
        first.get(..len).filter(|_| len <= self.len)
    }

    /// The bytes, place by place.
    pub(crate) fn places(self) -> impl Iterator<Item = &'a [u8]> {
        let (mut passed, mut left) = (self.passed, self.len);
        self.list.iter().map_while(move |piece: &'a IoSlice<'a>| {
            let piece: &'a [u8] = &piece[std::mem::take(&mut passed)..];
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            (left > 0 || !piece.is_empty()).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: Pieces<'_>) -> Vec<u8> {
        pieces.places().flatten().copied().collect()
    }

    #[test]
    fn every_cut_of_several_places_has_its_bytes() {
        let bytes: Vec<u8> = (0..10).collect();
        let cuts = [&bytes[..0], &bytes[..3], &bytes[3..3], &bytes[3..4], &bytes[4..], &bytes[10..]];
        let list = cuts.map(IoSlice::new);
        let pieces = Pieces::new(&list);
        assert_eq!((pieces.len(), all(pieces)), (10, bytes.clone()));
        for start in 0..=11 {
            let rest = pieces.after(start);
            assert_eq!(all(rest), bytes[start.min(10)..], "after {start}");
            assert_eq!(rest.len(), 10 - start.min(10));
            for end in 0..=11 {
                let part = rest.first(end);
                assert_eq!(all(part), bytes[start.min(10)..(start + end).min(10)], "{end} after {start}");
                for more in 0..=10 {
                    assert_eq!(all(part.after(more)), all(part)[more.min(part.len())..]);
                }
            }
        }
    }

    #[test]
    fn what_lies_in_one_place_is_found_there() {
        let list = [IoSlice::new(b"ab"), IoSlice::new(b"cdef")];
        let pieces = Pieces::new(&list);
        assert_eq!((pieces.in_one(2), pieces.in_one(3)), (Some(&b"ab"[..]), None));
        assert_eq!(pieces.after(2).in_one(4), Some(&b"cdef"[..]));
        assert_eq!(pieces.after(3).in_one(3), Some(&b"def"[..]));
        assert_eq!(pieces.first(1).in_one(2), None);
    }
}

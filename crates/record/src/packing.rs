//! Fields of an event, put one after the other into its words and taken out again.

/// Words of the part of an event that differs from kind to kind.
pub(crate) const BODY: usize = 6;

/// The body of an event.
pub(crate) type Body = [u64; BODY];

/// Puts fields one after the other; a field lies in one word, and leaves the rest of a word empty if it does not fit.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    body: Body,
    bit: usize,
}

/// Takes fields out in the same order.
#[derive(Debug)]
pub(crate) struct Unpacker<'a> {
    body: &'a Body,
    bit: usize,
}

/// The word and the place in it of a field of so many bits, which comes after so many.
#[inline]
const fn place(bit: usize, bits: usize) -> (usize, usize) {
    let (word, at) = (bit / 64, bit % 64);
    if at + bits > 64 { (word + 1, 0) } else { (word, at) }
}

impl Packer {
    #[inline]
    fn put(mut self, value: u64, bits: usize) -> Self {
        let (word, at) = place(self.bit, bits);
        self.body[word] |= value << at;
        self.bit = word * 64 + at + bits;
        self
    }

    #[inline]
    pub(crate) fn u8(self, value: u8) -> Self {
        self.put(u64::from(value), 8)
    }

    #[inline]
    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(u64::from(value), 16)
    }

    #[inline]
    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(u64::from(value), 32)
    }

    #[inline]
    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(value, 64)
    }

    #[inline]
    pub(crate) const fn done(self) -> Body {
        self.body
    }
}

impl<'a> Unpacker<'a> {
    pub(crate) const fn new(body: &'a Body) -> Self {
        Self { body, bit: 0 }
    }

    fn take(&mut self, bits: usize) -> u64 {
        let (word, at) = place(self.bit, bits);
        self.bit = word * 64 + at + bits;
        self.body[word] >> at & u64::MAX >> (64 - bits)
    }

    #[expect(clippy::cast_possible_truncation, reason = "so many bits were taken")]
    pub(crate) fn u8(&mut self) -> u8 {
        self.take(8) as u8
    }

    #[expect(clippy::cast_possible_truncation, reason = "so many bits were taken")]
    pub(crate) fn u16(&mut self) -> u16 {
        self.take(16) as u16
    }

    #[expect(clippy::cast_possible_truncation, reason = "so many bits were taken")]
    pub(crate) fn u32(&mut self) -> u32 {
        self.take(32) as u32
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.take(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_put() {
        let body = Packer::default().u8(0xab).u16(0xcdef).u32(0x1234_5678).u64(u64::MAX - 1).u8(7).done();
        assert_eq!(body[0], 0x12_3456_78cd_efab, "the first field is in the lowest bits");
        let mut from = Unpacker::new(&body);
        assert_eq!((from.u8(), from.u16(), from.u32()), (0xab, 0xcdef, 0x1234_5678));
        assert_eq!((from.u64(), from.u8()), (u64::MAX - 1, 7));
    }

    #[test]
    fn a_field_that_does_not_fit_begins_the_next_word() {
        let body = Packer::default().u32(1).u64(2).u32(3).u16(4).u32(5).done();
        assert_eq!(body, [1, 2, 3 | 4 << 32, 5, 0, 0]);
    }
}

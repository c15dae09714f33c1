//! What is posted and not done yet: the caller's name of each request, and the objects that must not go before it is done.
//!
//! A card tells of work by one number of 64 bits, the one that it was posted with. That number is ours: it says which
//! queue, and which place in it ([`Tag`]). The place holds what the caller called the work, and keeps alive what the
//! card may still use. Nothing here calls the library, and nothing here is unsafe.
#![forbid(unsafe_code)]

mod pool;
mod regulars;
mod ring;

use ferroce_transport::WorkKind;

pub(crate) use pool::Pool;
pub(crate) use ring::Ring;

/// What a completion says of the work itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    /// The caller's name for it.
    pub(crate) id: u64,
    /// What it is. Cards do not say it of work that failed.
    pub(crate) kind: WorkKind,
}

/// The number that work is posted with: the queue, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) queue: u32,
    pub(crate) place: u32,
}

impl Tag {
    /// As the card gets it.
    pub(crate) fn to_wr_id(self) -> u64 {
        u64::from(self.queue) << 32 | u64::from(self.place)
    }

    /// As the card gives it back.
    #[expect(clippy::cast_possible_truncation, reason = "each half is one of the two numbers")]
    pub(crate) const fn of(wr_id: u64) -> Self {
        Self { queue: (wr_id >> 32) as u32, place: wr_id as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_to_the_card_and_comes_back() {
        let tag = Tag { queue: 0xfeed_0001, place: 0x8000_0002 };
        assert_eq!(tag.to_wr_id(), 0xfeed_0001_8000_0002);
        assert_eq!(Tag::of(tag.to_wr_id()), tag);
    }
}

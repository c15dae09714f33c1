//! Parts of our own memory, as work names them.

use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_device::Limits;
use ferroce_system::Piece;
use ferroce_transport::Sge;
use ferroce_wire::Lkey;

use crate::error::{PostError, PostTarget};
use crate::memory_region::MemoryRegion;
use crate::protection_domain::Domain;
use crate::ranges::bounds;

/// A part of a memory region. It borrows the region, which so outlives the posting of work.
#[derive(Clone, Copy, Debug)]
#[must_use = "a slice does nothing until work that names it is posted"]
pub struct LocalSlice<'a> {
    region: &'a MemoryRegion,
    start: usize,
    end: usize,
}

impl<'a> LocalSlice<'a> {
    #[inline]
    pub(crate) const fn new(region: &'a MemoryRegion, start: usize, end: usize) -> Self {
        Self { region, start, end }
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of this part.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let (start, end) = bounds(&range, self.len());
        Self {
            region: self.region,
            start: self.start.saturating_add(start),
            end: self.start.saturating_add(end),
        }
    }

    /// The address of the first byte, as peers use it.
    pub(crate) fn address(&self) -> u64 {
        self.region.address().wrapping_add(self.start as u64)
    }

    /// Key, address and length, if it is inside its region and the region in this domain.
    pub(crate) fn to_range(
        self,
        domain: &Arc<Domain>,
        by: PostTarget,
    ) -> Result<(Lkey, u64, u64), PostError> {
        let len = self.inside(domain, by)?;
        Ok((self.region.lkey(), self.address(), len as u64))
    }

    /// As the device wants it, if it is inside its region and the region in this domain.
    pub(crate) fn to_sge(self, domain: &Arc<Domain>, by: PostTarget) -> Result<Sge, PostError> {
        let len = self.inside(domain, by)?;
        let length = u32::try_from(len).map_err(|_| PostError::PieceTooLong { len })?;
        Ok(Sge { address: self.address(), length, lkey: self.region.lkey() })
    }

    /// As a card wants it, if it is inside its region and the region in this domain, which is one of a card.
    pub(crate) fn to_piece(self, domain: &Arc<Domain>, by: PostTarget) -> Result<Piece<'a>, PostError> {
        let len = self.inside(domain, by)?;
        u32::try_from(len).map_err(|_| PostError::PieceTooLong { len })?;
        let region = self.region.as_card().ok_or(PostError::OtherDomain { by })?;
        Ok(region.piece(self.start..self.end))
    }

    /// The same without a look at where it is: the card's library is handed no other.
    #[inline(always)]
    pub(crate) fn as_piece(&self) -> Option<Piece<'a>> {
        Some(self.region.as_card()?.piece(self.start..self.end))
    }

    /// The region, and which bytes of it.
    pub(crate) const fn parts(&self) -> (&'a MemoryRegion, usize, usize) {
        (self.region, self.start, self.end)
    }

    /// Its length, if it is inside its region and the region in this domain.
    fn inside(self, domain: &Arc<Domain>, by: PostTarget) -> Result<usize, PostError> {
        let Self { region, start, end } = self;
        let size = region.len();
        if start > end || end > size {
            return Err(PostError::OutsideRegion { start, end, size });
        }
        if !Arc::ptr_eq(region.domain(), domain) {
            return Err(PostError::OtherDomain { by });
        }
        Ok(end - start)
    }
}

/// The pieces of a request: one [`LocalSlice`], a list of them, or a whole region.
///
/// Programs do not name this type: methods take whatever turns into it.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a>(List<'a>);

#[derive(Clone, Copy, Debug)]
enum List<'a> {
    One(LocalSlice<'a>),
    Many(&'a [LocalSlice<'a>]),
}

impl<'a> Pieces<'a> {
    /// Hands the pieces to `use_them` as the device wants them.
    pub(crate) fn with_sges<R>(
        &self,
        domain: &Arc<Domain>,
        by: PostTarget,
        use_them: impl FnOnce(&[Sge]) -> Result<R, PostError>,
    ) -> Result<R, PostError> {
        match self.0 {
            List::One(slice) => use_them(&[slice.to_sge(domain, by)?]),
            List::Many(slices) => {
                let mut sges = [Sge::default(); Limits::SGE as usize];
                let (given, allowed) = (slices.len(), Limits::SGE);
                let room = sges.get_mut(..given).ok_or(PostError::TooManyPieces { given, allowed })?;
                for (place, slice) in room.iter_mut().zip(slices) {
                    *place = slice.to_sge(domain, by)?;
                }
                use_them(room)
            }
        }
    }
}

impl<'a> Pieces<'a> {
    /// The only piece, if there is one.
    #[inline(always)]
    pub(crate) const fn the_only_one(&self) -> Option<&LocalSlice<'a>> {
        match &self.0 {
            List::One(one) | List::Many([one]) => Some(one),
            List::Many(_) => None,
        }
    }

    /// Hands the pieces to `use_them` as a card wants them.
    #[inline]
    pub(crate) fn with_card_pieces<R>(
        &self,
        domain: &Arc<Domain>,
        by: PostTarget,
        use_them: impl FnOnce(&[Piece<'a>]) -> Result<R, PostError>,
    ) -> Result<R, PostError> {
        match self.0 {
            List::One(slice) => use_them(&[slice.to_piece(domain, by)?]),
            List::Many([]) => use_them(&[]),
            // Those that are longer are rare, and the room for them is large.
            List::Many([one]) => use_them(&[one.to_piece(domain, by)?]),
            List::Many([one, other]) => use_them(&[one.to_piece(domain, by)?, other.to_piece(domain, by)?]),
            List::Many(slices @ [first, ..]) => {
                let mut pieces = [first.to_piece(domain, by)?; Limits::SGE as usize];
                let (given, allowed) = (slices.len(), Limits::SGE);
                let room = pieces.get_mut(..given).ok_or(PostError::TooManyPieces { given, allowed })?;
                for (place, slice) in room.iter_mut().zip(slices) {
                    *place = slice.to_piece(domain, by)?;
                }
                use_them(room)
            }
        }
    }
}

impl<'a> From<LocalSlice<'a>> for Pieces<'a> {
    #[inline]
    fn from(slice: LocalSlice<'a>) -> Self {
        Self(List::One(slice))
    }
}

impl<'a> From<&'a [LocalSlice<'a>]> for Pieces<'a> {
    #[inline]
    fn from(slices: &'a [LocalSlice<'a>]) -> Self {
        Self(List::Many(slices))
    }
}

impl<'a, const N: usize> From<&'a [LocalSlice<'a>; N]> for Pieces<'a> {
    #[inline]
    fn from(slices: &'a [LocalSlice<'a>; N]) -> Self {
        Self(List::Many(slices))
    }
}

impl<'a> From<&'a MemoryRegion> for Pieces<'a> {
    #[inline]
    fn from(region: &'a MemoryRegion) -> Self {
        region.slice(..).into()
    }
}

//! Address handles as an engine knows them.

use ferroce_fabric::PathPolicy;

use super::qps::Way;

/// An address handle: where datagrams go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    /// The number that work calls it by: its place, and how often the place was used before.
    pub(crate) number: u32,
    pub(crate) way: Way,
    /// The address is of this device.
    pub(crate) ours: bool,
    pub(crate) policy: PathPolicy,
}

/// The bits of a handle's number that say where it is.
pub(crate) const PLACE: u32 = 0xf_ffff;

/// Where the handle of this number is, if it is still there.
pub(crate) const fn place_of(number: u32) -> usize {
    (number & PLACE) as usize
}

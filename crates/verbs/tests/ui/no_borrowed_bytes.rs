//! Registered memory has no slice to borrow: peers may change it at any moment.

use ferroce_verbs::MemoryRegion;

fn borrow(region: &MemoryRegion) -> &[u8] {
    &region[..8]
}

fn main() {}

//! A slice cannot be kept beyond its region.

use ferroce_verbs::{Access, LocalSlice, ProtectionDomain};

fn keep(pd: &ProtectionDomain) -> LocalSlice<'static> {
    let region = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    region.slice(..8)
}

fn main() {}

//! Work that is described and then forgotten is noticed.
#![deny(unused_must_use)]

use ferroce_verbs::{MemoryRegion, QueuePair};

fn forget(qp: &QueuePair, region: &MemoryRegion) {
    qp.send(region).id(1);
    qp.receive(region);
}

fn main() {}

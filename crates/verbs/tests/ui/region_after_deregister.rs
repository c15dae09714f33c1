//! Memory that was taken back cannot be used by work any more.

use ferroce_verbs::{MemoryRegion, QueuePair};

fn use_after_deregister(qp: &QueuePair, region: MemoryRegion) {
    let _memory = region.deregister();
    let _ = qp.send(region.slice(..)).post();
}

fn main() {}

//! Between describing work and posting it, its region cannot go.

use ferroce_verbs::{MemoryRegion, QueuePair, RemoteRegion};

fn drop_too_early(qp: &QueuePair, region: MemoryRegion, remote: RemoteRegion) {
    let work = qp.write(region.slice(..8), remote);
    drop(region);
    let _ = work.post();
}

fn main() {}

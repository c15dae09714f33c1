//! The kernel against itself: shows that what we put down to it is its own.
//!
//! Both sides are `interop/peer.c` on the guest's one device, so no packet of ours is involved.

use std::net::IpAddr;

use ferroce_verbs::{PathMtu, QpAddress, RemoteRegion, Service, Status};

use crate::Result;
use crate::far::{Far, FarCompletion, FarSpec};
use crate::lab::Family;
use crate::pair::LIMIT;

/// Repeats what differs from our expectations, and says in words what came out.
pub(crate) fn differences(guest: IpAddr) -> Result<Vec<String>> {
    Ok(vec![invalidate_window(guest)?, invalidate_region(guest)?])
}

/// A SEND that invalidates a memory window: how is it marked in the receiver's completion?
fn invalidate_window(guest: IpAddr) -> Result<String> {
    let mut two = Two::meet(guest)?;
    let key = two.right.window(0, 64)?.0;
    let (_, received) = two.send_invalidating(key)?;
    Ok(format!(
        "Two queue pairs of the kernel, SEND with invalidation of a memory window: completion flags {:#x}, key {}.",
        received.flags,
        if received.extra == u64::from(key) { "right" } else { "wrong" },
    ))
}

/// The same with the key of a region.
fn invalidate_region(guest: IpAddr) -> Result<String> {
    let mut two = Two::meet(guest)?;
    let (sent, received) = two.send_invalidating(two.memory.rkey.0)?;
    Ok(format!(
        "Two queue pairs of the kernel, SEND with invalidation of a region: the sender has {}, the receiver {}.",
        status(sent),
        status(received),
    ))
}

/// Two queue pairs of the kernel, connected to each other.
struct Two {
    left: Far,
    right: Far,
    /// The right one's.
    memory: RemoteRegion,
}

impl Two {
    fn meet(guest: IpAddr) -> Result<Self> {
        let spec = FarSpec {
            service: Service::Rc,
            gid_index: Family::V4.far_gid_index(),
            len: 4096,
            retry_count: 6,
            timeout: 14,
        };
        let create = || -> Result<(Far, QpAddress, RemoteRegion)> {
            let mut far = Far::connect(guest)?;
            let (address, memory) = far.create(&spec)?;
            Ok((far, address, memory))
        };
        let (mut left, left_address, _) = create()?;
        let (mut right, right_address, memory) = create()?;
        left.join(&right_address, PathMtu::B1024)?;
        right.join(&left_address, PathMtu::B1024)?;
        Ok(Self { left, right, memory })
    }

    /// The completions of both sides.
    fn send_invalidating(&mut self, key: u32) -> Result<(FarCompletion, FarCompletion)> {
        self.right.receive(1, 1024, 64)?;
        self.left.post(1, "send_inv", (0, 64), &[0, 0, key.into()])?;
        let sent = self.left.wait(LIMIT)?.ok_or("the sender has no completion")?;
        let received = self.right.wait(LIMIT)?.ok_or("the receiver has no completion")?;
        Ok((sent, received))
    }
}

fn status(completion: FarCompletion) -> String {
    let known = u8::try_from(completion.status).ok().and_then(Status::from_code);
    known.map_or_else(|| format!("status {}", completion.status), |status| format!("\"{status}\""))
}

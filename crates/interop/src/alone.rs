//! The kernel against itself: shows that what we put down to it is its own.
//!
//! Both sides are `interop/peer.c` on the guest's one device, so no packet of ours is involved.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::{Gid, PathMtu, Psn, QpAddress, Qpn, RemoteRegion, Service, Status};

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

/// SENDs of many packets over UC, to a queue pair that is not there: no peer answers and none needs to. Each
/// is done when its last packet was handed to the network card, so nothing can hold it up but the kernel
/// itself.
pub(crate) fn stall(guest: IpAddr) -> Result<String> {
    let (messages, len, patience) = (400, 128 << 10, Duration::from_secs(10));
    let absent = QpAddress {
        qpn: Qpn::new(0xbad),
        psn: Psn::new(0),
        mtu: PathMtu::B1024,
        gid: Gid::from(std::net::Ipv4Addr::new(10, 77, 0, 1)),
    };
    let spec = FarSpec {
        service: Service::Uc,
        gid_index: Family::V4.far_gid_index(),
        len,
        retry_count: 7,
        timeout: 14,
    };
    let mut stopped = 0;
    let mut far = None;
    for number in 0..messages {
        let mut sender = match far.take() {
            Some(far) => far,
            None => {
                let mut far = Far::connect(guest)?;
                far.create(&spec)?;
                far.join(&absent, PathMtu::B1024)?;
                far
            }
        };
        sender.post(number, "send", (0, len), &[])?;
        match sender.wait(patience)? {
            Some(_) => far = Some(sender),
            // It stays as it is; a new one goes on.
            None => stopped += 1,
        }
    }
    Ok(format!(
        "A queue pair of the kernel, {messages} UC SENDs of {len} bytes to a queue pair that is not there: {stopped} were not done after {} s.",
        patience.as_secs()
    ))
}

/// Two queue pairs of the kernel, connected to each other.
pub(crate) struct Two {
    pub(crate) left: Far,
    pub(crate) right: Far,
    /// The right one's.
    pub(crate) memory: RemoteRegion,
    pub(crate) right_qpn: Qpn,
}

impl Two {
    fn meet(guest: IpAddr) -> Result<Self> {
        Self::meet_as(guest, Service::Rc)
    }

    pub(crate) fn meet_as(guest: IpAddr, service: Service) -> Result<Self> {
        let spec = FarSpec {
            service,
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
        Ok(Self { left, right, memory, right_qpn: right_address.qpn })
    }

    /// The completions of both sides.
    pub(crate) fn send_invalidating(&mut self, key: u32) -> Result<(FarCompletion, FarCompletion)> {
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

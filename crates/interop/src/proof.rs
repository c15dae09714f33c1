//! What the kernel's device does otherwise than the IBA wants, shown by the kernel alone: a C program at both ends, and its own
//! library. What cannot be shown so any more is not a reason any more.

use std::net::IpAddr;

use ferroce_conformance::known::{BOUNDS, Difference, INVALIDATION, OWNER, STATUS};
use ferroce_verbs::{Service, Status};

use crate::Result;
use crate::alone::Two;
use crate::far::FarCompletion;
use crate::pair::LIMIT;

/// Shows something.
type Proof = fn(IpAddr) -> Result<bool>;

/// What the kernel alone shows. Some things only our own cases show.
static PROOFS: &[(&Difference, Proof)] =
    &[(&STATUS, general_status), (&INVALIDATION, invalidation), (&BOUNDS, bounds), (&OWNER, owner)];

/// The key of datagrams of the C program.
const QKEY: u64 = 0x1111_1111;

/// Whether the kernel alone still does so.
pub(crate) fn is_shown(difference: &Difference, guest: IpAddr) -> Result<bool> {
    let proof = PROOFS.iter().find(|(known, _)| std::ptr::eq(*known, difference));
    proof.map_or(Ok(true), |(_, shown)| shown(guest))
}

fn is(completion: FarCompletion, status: Status) -> bool {
    u8::try_from(completion.status).ok().and_then(Status::from_code) == Some(status)
}

/// A message, and a datagram, that are longer than the receive.
fn general_status(guest: IpAddr) -> Result<bool> {
    let mut two = Two::meet_as(guest, Service::Rc)?;
    two.right.receive(1, 0, 16)?;
    two.left.post(2, "send", (0, 64), &[])?;
    let sent = two.left.wait(LIMIT)?.ok_or("the sender has no completion")?;
    let received = two.right.wait(LIMIT)?.ok_or("the receiver has no completion")?;
    let message = is(sent, Status::RemoteOperation) && is(received, Status::LocalQpOperation);
    let mut two = Two::meet_as(guest, Service::Ud)?;
    two.right.receive(1, 0, 44)?;
    let to = u64::from(two.right_qpn.get());
    two.left.post(2, "send", (0, 64), &[to, QKEY])?;
    let received = two.right.wait(LIMIT)?.ok_or("the receiver of a datagram has no completion")?;
    Ok(message && is(received, Status::LocalQpOperation))
}

fn invalidation(guest: IpAddr) -> Result<bool> {
    let mut two = Two::meet_as(guest, Service::Rc)?;
    let (sent, received) = two.send_invalidating(two.memory.rkey.0)?;
    Ok(is(sent, Status::Success) && !is(received, Status::Success))
}

fn bounds(guest: IpAddr) -> Result<bool> {
    let mut two = Two::meet_as(guest, Service::Rc)?;
    let key = two.right.window(1000, 64)?;
    two.left.post(1, "write", (0, 8), &[two.memory.address + 1064, key.0.into()])?;
    Ok(is(two.left.wait(LIMIT)?.ok_or("the writer has no completion")?, Status::Success))
}

/// The two are processes with domains of their own.
fn owner(guest: IpAddr) -> Result<bool> {
    let mut two = Two::meet_as(guest, Service::Rc)?;
    let key = two.right.window(0, 64)?;
    two.left.post(1, "local_inv", (0, 0), &[0, 0, key.0.into()])?;
    Ok(is(two.left.wait(LIMIT)?.ok_or("the other queue pair has no completion")?, Status::Success))
}

//! Cases in which something is wrong, and both sides must say what.

use std::time::Duration;

use ferroce_verbs::{Counters, RemoteRegion, Rkey, Service, Status, WaitError, WorkKind};

use crate::Result;
use crate::lab::Lab;
use crate::pair::{Asks, LIMIT, Pair, PairSpec, check};

/// What makes a key wrong.
const WRONG: u32 = 0x00a5_a500;

pub(super) fn bad_rkey_write(lab: &mut Lab, asks: Asks) -> Result<()> {
    bad_rkey(lab, asks, "write")
}

pub(super) fn bad_rkey_read(lab: &mut Lab, asks: Asks) -> Result<()> {
    bad_rkey(lab, asks, "read")
}

fn bad_rkey(lab: &Lab, asks: Asks, verb: &str) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    let id = pair.next();
    match asks {
        Asks::We => {
            let rkey = Rkey(pair.remote.rkey.0 ^ WRONG);
            let wrong = RemoteRegion { rkey, ..pair.remote };
            let local = pair.region.slice(..64);
            let work =
                if verb == "read" { pair.near.read(local, wrong) } else { pair.near.write(local, wrong) };
            work.id(id).post()?;
            pair.near_fails(Status::RemoteAccess)
        }
        Asks::Kernel => {
            let key = pair.region.rkey().0 ^ WRONG;
            pair.far.post(id, verb, (0, 64), &[pair.region.address(), key.into()])?;
            pair.far_fails(Status::RemoteAccess)?;
            check("remote access NAKs of ours", pair.near.counters().nak_remote_access_sent, 1)
        }
    }
}

/// The receive is posted when the responder has said that it has none.
pub(super) fn rnr(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    let (id, at) = (pair.next(), pair.target);
    match asks {
        Asks::We => {
            pair.near.send(pair.region.slice(..64)).id(id).post()?;
            until(&pair, |counters| counters.rnr_received > 0)?;
            pair.far.receive(id, at, 64)?;
            pair.near_done(id, WorkKind::Send)?;
            pair.far_done(id, WorkKind::Receive)?;
        }
        Asks::Kernel => {
            pair.far.post(id, "send", (0, 64), &[])?;
            until(&pair, |counters| counters.rnr_sent > 0)?;
            pair.near.receive(pair.region.slice(at..at + 64)).id(id).post()?;
            pair.near_done(id, WorkKind::Receive)?;
            pair.far_done(id, WorkKind::Send)?;
        }
    }
    Ok(())
}

/// Three retries of 16 ms, and then it is over.
pub(super) fn wrong_qpn(lab: &mut Lab, asks: Asks) -> Result<()> {
    let spec =
        PairSpec { wrong_qpn: 0x800, retry_count: 3, timeout: 12, near_timeout: 12, ..lab.spec(Service::Rc) };
    let unknown = lab.counters().unknown_qp;
    let mut pair = Pair::new(&lab.context, spec)?;
    let id = pair.next();
    match asks {
        Asks::We => {
            pair.near.send(pair.region.slice(..64)).id(id).post()?;
            pair.near_fails(Status::RetryExceeded)
        }
        Asks::Kernel => {
            pair.far.post(id, "send", (0, 64), &[])?;
            pair.far_fails(Status::RetryExceeded)?;
            check("packets to no queue pair", lab.counters().unknown_qp > unknown, true)
        }
    }
}

/// Waits until the counters of our queue pair say so. No completion may come before.
fn until(pair: &Pair, reached: fn(&Counters) -> bool) -> Result<()> {
    let step = Duration::from_millis(5);
    for _ in 0..LIMIT.as_millis() / step.as_millis() {
        if reached(&pair.near.counters()) {
            return Ok(());
        }
        match pair.queue.wait(step) {
            Err(WaitError::TimedOut(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(early) => return Err(format!("a completion too early: {early:?}").into()),
        }
    }
    Err("the responder never said that it has no receive".into())
}

//! One case for each status: what an honest program does, by mistake or not.

use ferroce::{Access, ConnectOptions, MemoryRegion, PathMtu, Status, WindowKind};

use crate::hosts::{End, Hosts};
use crate::story::{Story, Wqe, sge};

/// How a status comes about.
pub(crate) struct Case {
    pub(crate) status: Status,
    /// What helps in this very case.
    pub(crate) here: &'static str,
    pub(crate) provoke: fn(&Hosts) -> anyhow::Result<Story>,
}

/// All of them, in the order of their numbers.
pub(crate) const CASES: [Case; 13] = [
    Case {
        status: Status::Success,
        here: "nothing is to be done; to tell Bob's program, write with immediate data",
        provoke: success,
    },
    Case {
        status: Status::LocalLength,
        here: "Bob posts receives as long as Ann's longest message",
        provoke: local_length,
    },
    Case {
        status: Status::LocalQpOperation,
        here: "Ann deregisters the region instead, or binds a window and invalidates that",
        provoke: local_qp_operation,
    },
    Case {
        status: Status::LocalProtection,
        here: "Bob registers the memory with LOCAL_WRITE",
        provoke: local_protection,
    },
    Case {
        status: Status::Flushed,
        here: "Ann resets the queue pair, both connect again, and Ann posts the receive anew",
        provoke: flushed,
    },
    Case {
        status: Status::WindowBind,
        here: "Ann registers the region with BIND_WINDOW",
        provoke: window_bind,
    },
    Case {
        status: Status::BadResponse,
        here: "both leave path_mtu unset, or set the same",
        provoke: bad_response,
    },
    Case {
        status: Status::LocalAccess,
        here: "Ann invalidates only keys of windows that Bob has bound and told",
        provoke: local_access,
    },
    Case {
        status: Status::RemoteInvalidRequest,
        here: "Ann sends at most 8 bytes, or writes the message into Bob's memory instead",
        provoke: remote_invalid_request,
    },
    Case {
        status: Status::RemoteAccess,
        here: "Bob registers the memory with REMOTE_WRITE and LOCAL_WRITE, if Ann shall write there",
        provoke: remote_access,
    },
    Case {
        status: Status::RemoteOperation,
        here: "Bob repairs its receives: nothing on Ann's side helps",
        provoke: remote_operation,
    },
    Case { status: Status::RetryExceeded, here: "both connect again", provoke: retry_exceeded },
    Case {
        status: Status::RnrRetryExceeded,
        here: "Bob posts receives before Ann sends, or Ann sets rnr_retry to 7, which is for ever",
        provoke: rnr_retry_exceeded,
    },
];

/// The names of Ann's and Bob's work.
const ANNS: u64 = 1;
const BOBS: u64 = 2;

/// A WQE without memory of its own.
fn plain(by: &'static str, opcode: &'static str) -> Wqe {
    let id = if by == BOB { BOBS } else { ANNS };
    Wqe { by, id, opcode, memory: None, remote: None }
}

const ANN: &str = "Ann";
const BOB: &str = "Bob";

/// The first bytes of a region, as the remote part of a WQE.
const fn remote(region: &MemoryRegion, length: u64) -> Option<(u64, u64, u32)> {
    Some((region.address(), length, region.rkey().0))
}

fn success(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    ann.region.write_at(0, b"hello")?;
    ann.qp.write(ann.region.slice(..5), bob.region.remote().slice(..5)).id(ANNS).post()?;
    let done = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 5), remote: remote(&bob.region, 5), ..plain(ANN, "RDMA WRITE") };
    let what = "Ann writes 5 bytes into Bob's memory, which is open for it. Bob's program does nothing.";
    Ok(Story::new(what, wqe, done, (&ann.qp, &bob.qp)))
}

/// Ann sends nine bytes to a receive of eight.
fn too_long(hosts: &Hosts) -> anyhow::Result<(End, End)> {
    let (ann, bob) = hosts.pair()?;
    bob.qp.receive(bob.region.slice(..8)).id(BOBS).post()?;
    ann.qp.send(ann.region.slice(..9)).id(ANNS).post()?;
    Ok((ann, bob))
}

fn local_length(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = too_long(hosts)?;
    let (failed, peer) = (bob.ended(BOBS)?, ann.ended(ANNS)?);
    let wqe = Wqe { memory: sge(&bob, 8), ..plain(BOB, "RECEIVE") };
    let what = "Bob has posted a receive of 8 bytes, and Ann sends a message of 9.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)).with_peer(ANN, peer))
}

fn remote_invalid_request(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = too_long(hosts)?;
    let (peer, failed) = (bob.ended(BOBS)?, ann.ended(ANNS)?);
    let wqe = Wqe { memory: sge(&ann, 9), ..plain(ANN, "SEND") };
    let what =
        "Ann sends a message of 9 bytes, and Bob's receive has 8: the same as LocalLength, seen by Ann.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)).with_peer(BOB, peer))
}

fn local_qp_operation(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    ann.qp.local_invalidate(ann.region.rkey()).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let what = "Ann invalidates the key of a region. Only memory windows can be invalidated.";
    Ok(Story::new(what, plain(ANN, "LOCAL INVALIDATE"), failed, (&ann.qp, &bob.qp)))
}

/// Ann sends to a receive in memory that cannot be written.
fn into_frozen(hosts: &Hosts) -> anyhow::Result<(End, End, MemoryRegion)> {
    let (ann, bob) = hosts.pair()?;
    let frozen = bob.pd.register(vec![0; 64], Access::empty())?;
    bob.qp.receive(&frozen).id(BOBS).post()?;
    ann.qp.send(ann.region.slice(..5)).id(ANNS).post()?;
    Ok((ann, bob, frozen))
}

fn local_protection(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob, frozen) = into_frozen(hosts)?;
    let (failed, peer) = (bob.ended(BOBS)?, ann.ended(ANNS)?);
    let memory = Some((frozen.address(), frozen.len(), frozen.lkey().0));
    let wqe = Wqe { memory, ..plain(BOB, "RECEIVE") };
    let what =
        "Bob has posted a receive into memory that was registered without LOCAL_WRITE, and Ann sends to it.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)).with_peer(ANN, peer))
}

fn remote_operation(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob, _frozen) = into_frozen(hosts)?;
    let (peer, failed) = (bob.ended(BOBS)?, ann.ended(ANNS)?);
    let wqe = Wqe { memory: sge(&ann, 5), ..plain(ANN, "SEND") };
    let what = "Bob's receive is in memory that cannot be written: the same as LocalProtection, seen by Ann, which did\n\
                nothing wrong.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)).with_peer(BOB, peer))
}

fn flushed(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    ann.qp.receive(ann.region.slice(..64)).id(ANNS).post()?;
    ann.qp.flush()?;
    let flushed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 64), ..plain(ANN, "RECEIVE") };
    let what = "Ann has a receive posted, and takes its queue pair to the error state. After a failure the same happens\n\
                to everything behind it.";
    Ok(Story::new(what, wqe, flushed, (&ann.qp, &bob.qp)))
}

fn window_bind(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    let window = ann.pd.memory_window(WindowKind::Type2)?;
    ann.qp.bind_window(window.bind(ann.region.slice(..64), Access::REMOTE_READ)).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 64), ..plain(ANN, "BIND WINDOW") };
    let what = "Ann binds a memory window to a region that was registered without BIND_WINDOW.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)))
}

fn bad_response(hosts: &Hosts) -> anyhow::Result<Story> {
    let with = |mtu| ConnectOptions { path_mtu: Some(mtu), ..ConnectOptions::default() };
    let (ann, bob) = hosts.pair_with(&with(PathMtu::B4096), &with(PathMtu::B1024))?;
    ann.qp.read(ann.region.slice(..2048), bob.region.remote().slice(..2048)).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 2048), remote: remote(&bob.region, 2048), ..plain(ANN, "RDMA READ") };
    let what = "Ann has a path MTU of 4096 and Bob one of 1024. Ann reads 2048 bytes: one packet for Ann, two for Bob.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)))
}

fn local_access(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    bob.qp.receive(bob.region.slice(..64)).id(BOBS).post()?;
    ann.qp.send(ann.region.slice(..5)).invalidate(bob.region.rkey()).id(ANNS).post()?;
    let (failed, peer) = (bob.ended(BOBS)?, ann.ended(ANNS)?);
    let wqe = Wqe { memory: sge(&bob, 64), ..plain(BOB, "RECEIVE") };
    let what = "Bob has a receive posted. Ann's message takes it, and then wants to invalidate the key of Bob's region,\n\
                which no message can.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)).with_peer(ANN, peer))
}

fn remote_access(hosts: &Hosts) -> anyhow::Result<Story> {
    let (ann, bob) = hosts.pair()?;
    let closed = bob.pd.register(vec![0; 64], Access::REMOTE_READ)?;
    ann.qp.write(ann.region.slice(..5), closed.remote().slice(..5)).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 5), remote: remote(&closed, 5), ..plain(ANN, "RDMA WRITE") };
    let what = "Ann writes into memory that Bob has registered for reading only.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)))
}

fn retry_exceeded(hosts: &Hosts) -> anyhow::Result<Story> {
    // 4.096 us * 2^8 is a millisecond.
    let options = ConnectOptions { timeout: 8, retry_count: 2, ..ConnectOptions::default() };
    let (ann, bob) = hosts.pair_with(&options, &options)?;
    // The peer's queue pair forgets the connection, as if its program had started anew.
    bob.qp.reset()?;
    ann.qp.write(ann.region.slice(..5), bob.region.remote().slice(..5)).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 5), remote: remote(&bob.region, 5), ..plain(ANN, "RDMA WRITE") };
    let what = "Bob's queue pair was reset, so it is silent. Ann tries again twice, with a time-out of a millisecond.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)))
}

fn rnr_retry_exceeded(hosts: &Hosts) -> anyhow::Result<Story> {
    // Code 1 of the timer is 0.01 ms.
    let options = ConnectOptions { rnr_retry: 2, min_rnr_timer: 1, ..ConnectOptions::default() };
    let (ann, bob) = hosts.pair_with(&options, &options)?;
    ann.qp.send(ann.region.slice(..5)).id(ANNS).post()?;
    let failed = ann.ended(ANNS)?;
    let wqe = Wqe { memory: sge(&ann, 5), ..plain(ANN, "SEND") };
    let what = "Bob has no receive posted. Ann is told so (RNR: receiver not ready), and tries again twice.";
    Ok(Story::new(what, wqe, failed, (&ann.qp, &bob.qp)))
}

//! What a peer refuses, and a peer that does not answer.

use ferroce_transport::{Remote, SendOp};
use ferroce_verbs::*;

use crate::rig::{End, OPEN, Rig, Shape};
use crate::waiting::until;

const EVERYTHING: MaskedSwap =
    MaskedSwap { compare: 0, compare_mask: u64::MAX, swap: 1, swap_mask: u64::MAX };

/// Every request that reaches for a peer's memory.
fn reaching(remote: Remote) -> [SendOp; 7] {
    [
        SendOp::Write(remote),
        SendOp::Read(remote),
        SendOp::CompareSwap { remote, compare: 0, swap: 1 },
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::MaskedCompareSwap { remote, swap: EVERYTHING },
        SendOp::MaskedFetchAdd { remote, add: MaskedAdd { add: 1, boundaries: 0 } },
        SendOp::AtomicWrite(remote),
    ]
}

/// What a peer must be allowed for each of them.
const NEEDED: [Access; 7] = [
    Access::REMOTE_WRITE,
    Access::REMOTE_READ,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_WRITE,
];

/// Posts a request of eight bytes, which the peer must refuse with this status.
fn is_refused(rig: &Rig, (a, b): &(End, End), op: SendOp, status: Status) {
    let needed = match op {
        SendOp::MaskedCompareSwap { .. } | SendOp::MaskedFetchAdd { .. } => Some(Capability::MaskedAtomics),
        SendOp::AtomicWrite(_) => Some(Capability::AtomicWrites),
        _ => None,
    };
    if needed.is_some_and(|needed| !rig.a.context.can(needed)) {
        return;
    }
    a.region.fill(.., 0x77).unwrap();
    a.post_raw(3, op, &[a.sge(0, 8)]).unwrap();
    let failed = a.ended();
    assert_eq!(failed.id, 3, "{op:?}");
    rig.assert_refused(&failed, status);
    assert_eq!((a.qp.state(), b.qp.state()), (State::Err, State::Err), "{op:?}");
    assert_eq!(a.region.to_vec(..8).unwrap(), [0x77; 8], "no answer: {op:?}");
    if !rig.counts() {
        return;
    }
    let counters = b.qp.counters();
    let (access, invalid) = (counters.nak_remote_access_sent, counters.nak_invalid_request_sent);
    let wanted = if status == Status::RemoteAccess { (1, 0) } else { (0, 1) };
    assert_eq!((access, invalid), wanted, "{op:?}");
}

fn untouched(region: &MemoryRegion) {
    assert!(region.to_vec(..).unwrap().iter().all(|byte| *byte == 0));
}

pub(crate) fn unknown_remote_key(rig: &Rig) {
    for index in 0..7 {
        let pair = rig.rc();
        let remote = pair.1.at(0);
        let op = reaching(Remote { rkey: Rkey(remote.rkey.0 ^ 0x0100_0000), ..remote })[index];
        is_refused(rig, &pair, op, Status::RemoteAccess);
        untouched(&pair.1.region);
    }
}

pub(crate) fn remote_range_outside(rig: &Rig) {
    for index in 0..7 {
        let pair = rig.rc();
        let end = pair.1.region.len() as u64;
        let before = 0_u64.wrapping_sub(8);
        let offset = [end - 7, end - 7, before, end, before, end, end][index];
        is_refused(rig, &pair, reaching(pair.1.at(offset))[index], Status::RemoteAccess);
        untouched(&pair.1.region);
    }
    // One byte too long is too long, however long it is.
    let (a, b) = rig.rc();
    let len = u32::try_from(a.region.len()).unwrap();
    a.post_raw(1, SendOp::Write(b.at(1)), &[a.sge(0, len)]).unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
    let (a, b) = rig.rc();
    a.post_raw(1, SendOp::Read(b.at(1)), &[a.sge(0, len)]).unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
    let (a, b) = rig.rc();
    let wrapping = Remote { address: u64::MAX - 3, ..b.at(0) };
    a.post_raw(1, SendOp::Write(wrapping), &[a.sge(0, 8)]).unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
}

pub(crate) fn remote_key_without_permission(rig: &Rig) {
    use Access as A;
    let all = A::REMOTE_WRITE.union(A::REMOTE_READ).union(A::REMOTE_ATOMIC);
    for (index, needed) in NEEDED.into_iter().enumerate() {
        let pair = rig.rc();
        let access = A::LOCAL_WRITE.union(all.difference(needed));
        let region = pair.1.pd.allocate(64, access).unwrap();
        let remote = Remote { address: region.address(), rkey: region.rkey() };
        is_refused(rig, &pair, reaching(remote)[index], Status::RemoteAccess);
        untouched(&region);
    }
}

pub(crate) fn remote_key_of_another_domain(rig: &Rig) {
    let elsewhere = rig.b.context.protection_domain().unwrap().allocate(64, OPEN).unwrap();
    let remote = Remote { address: elsewhere.address(), rkey: elsewhere.rkey() };
    for op in reaching(remote) {
        is_refused(rig, &rig.rc(), op, Status::RemoteAccess);
        untouched(&elsewhere);
    }
}

pub(crate) fn remote_key_that_is_gone(rig: &Rig) {
    let gone = rig.b.pd.register(vec![0; 64], OPEN).unwrap();
    let remote = Remote { address: gone.address(), rkey: gone.rkey() };
    let memory = gone.deregister().unwrap();
    for op in reaching(remote) {
        is_refused(rig, &rig.rc(), op, Status::RemoteAccess);
    }
    assert!(memory.into_boxed().unwrap().iter().all(|byte| *byte == 0));
}

pub(crate) fn queue_pair_without_permission(rig: &Rig) {
    for (index, needed) in NEEDED.into_iter().enumerate() {
        let access = ConnectOptions::ALL_ACCESS.difference(needed);
        let pair = rig.rc_with(&Shape::with(|options| options.access = access));
        is_refused(rig, &pair, reaching(pair.1.at(0))[index], Status::RemoteInvalidRequest);
        untouched(&pair.1.region);
    }
}

pub(crate) fn misaligned_atomics(rig: &Rig) {
    for index in 2..7 {
        let pair = rig.rc();
        let op = reaching(pair.1.at(4))[index];
        if !rig.counts() && index < 4 {
            // The library of a card may see it before the card does: then it says so at once, and nothing has changed.
            let (a, b) = &pair;
            let address = b.at(4).address;
            match a.post_raw(3, op, &[a.sge(0, 8)]) {
                Ok(()) => rig.assert_refused(&a.ended(), Status::RemoteInvalidRequest),
                Err(error) => {
                    assert_eq!(error, PostRefusal::Misaligned { address });
                    a.still_works(b);
                }
            }
            assert_eq!(b.region.to_vec(..16).unwrap(), [0; 16]);
            continue;
        }
        is_refused(rig, &pair, op, Status::RemoteInvalidRequest);
        untouched(&pair.1.region);
    }
}

pub(crate) fn send_with_a_key_that_cannot_be_invalidated(rig: &Rig) {
    let (a, b) = rig.rc();
    b.qp.receive(&b.region).id(1).post().unwrap();
    a.qp.send_inline(b"x").invalidate(b.region.rkey()).id(2).post().unwrap();
    let failed = a.ended();
    assert_eq!(failed.id, 2);
    rig.assert_refused(&failed, Status::RemoteAccess);
    assert_ne!(b.receive_ended().status, Status::Success);
    assert_eq!((a.qp.state(), b.qp.state()), (State::Err, State::Err));
    // The region is as open as before.
    let (a, other) = rig.rc();
    a.qp.write_inline(b"open", b.region.remote()).post().unwrap();
    a.sent();
    assert_eq!(other.qp.state(), State::Rts);
}

pub(crate) fn peer_is_gone(rig: &Rig) {
    let shape = Shape::with(|options| {
        options.timeout = 8;
        options.retry_count = 2;
    });
    let (a, b) = rig.rc_with(&shape);
    let remote = b.region.remote();
    drop(b.qp);
    for id in 0..3 {
        a.qp.write_inline(b"hello?", remote).id(id).post().unwrap();
    }
    let (first, second, third) = (a.ended(), a.ended(), a.ended());
    assert_eq!((first.id, first.status), (0, Status::RetryExceeded));
    assert_eq!((second.status, third.status), (Status::Flushed, Status::Flushed));
    assert_eq!(a.qp.state(), State::Err);
    if rig.counts() {
        until(|| rig.counters().1.unknown_qp > 0);
    }
}

pub(crate) fn peer_never_posts_a_receive(rig: &Rig) {
    for with_data in [false, true] {
        let (a, b) = rig.rc_with(&Shape::with(|options| options.rnr_retry = 2));
        let work = match with_data {
            false => a.qp.send_inline(b"listen!"),
            true => a.qp.write_inline(b"listen!", b.region.remote()).imm(1),
        };
        work.id(1).post().unwrap();
        let failed = a.ended();
        assert_eq!((failed.id, failed.status), (1, Status::RnrRetryExceeded));
        assert_eq!((a.qp.state(), b.qp.state()), (State::Err, State::Rts));
        assert!(!rig.counts() || b.qp.counters().rnr_sent >= 3, "{:?}", b.qp.counters());
        untouched(&b.region);
    }
}

pub(crate) fn a_failure_stays_with_its_connection(rig: &Rig) {
    let (good, other) = rig.rc();
    let pair = rig.rc();
    is_refused(rig, &pair, SendOp::Write(Remote { rkey: Rkey(1), ..pair.1.at(0) }), Status::RemoteAccess);
    good.still_works(&other);
    other.still_works(&good);
}

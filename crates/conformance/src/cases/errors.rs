//! What fails on the side that posted it, and what becomes of the rest.

use ferroce_transport::{Bind, SendOp, Sge};
use ferroce_verbs::*;

use crate::rig::{OPEN, Rig, pattern};

/// Posts each request on a connection of its own, and expects this status and a queue pair in error.
fn each_fails(rig: &Rig, requests: &[(SendOp, Sge)], status: Status) {
    for (op, sge) in requests {
        let (a, b) = rig.rc();
        b.qp.receive(&b.region).post().unwrap();
        b.region.fill(.., 0x5a).unwrap();
        let op = match op {
            SendOp::Write(_) => SendOp::Write(b.at(0)),
            SendOp::Read(_) => SendOp::Read(b.at(0)),
            SendOp::FetchAdd { add, .. } => SendOp::FetchAdd { remote: b.at(0), add: *add },
            op => *op,
        };
        a.post_raw(3, op, &[*sge]).unwrap();
        let failed = a.ended();
        assert_eq!((failed.id, failed.status), (3, status), "{op:?}");
        assert_eq!(a.qp.state(), State::Err, "{op:?}");
        if !matches!(op, SendOp::FetchAdd { .. }) {
            assert_eq!(b.region.to_vec(..100).unwrap(), [0x5a; 100], "{op:?}");
        }
        assert_eq!(b.qp.state(), State::Rts, "the peer does not notice");
    }
}

const NOWHERE: ferroce_transport::Remote = ferroce_transport::Remote { address: 0, rkey: Rkey(0) };

pub(crate) fn unknown_local_key(rig: &Rig) {
    rig.without_traffic();
    let gone = rig.a.pd.allocate(64, OPEN).unwrap();
    let sge = Sge { address: gone.address(), length: 16, lkey: gone.lkey() };
    drop(gone.deregister().unwrap());
    let other = Sge { lkey: Lkey(sge.lkey.0 ^ 0x1234_5600), ..sge };
    each_fails(
        rig,
        &[(SendOp::Send, sge), (SendOp::Write(NOWHERE), sge), (SendOp::Send, other)],
        Status::LocalProtection,
    );
}

pub(crate) fn local_key_of_another_domain(rig: &Rig) {
    rig.without_traffic();
    let pd = rig.a.context.protection_domain().unwrap();
    let region = pd.register(pattern(64, 1), OPEN).unwrap();
    let sge = Sge { address: region.address(), length: 16, lkey: region.lkey() };
    each_fails(rig, &[(SendOp::Send, sge), (SendOp::Write(NOWHERE), sge)], Status::LocalProtection);
}

pub(crate) fn local_range_outside(rig: &Rig) {
    rig.without_traffic();
    let region = rig.a.pd.allocate(64, OPEN).unwrap();
    let lkey = region.lkey();
    for sge in [
        Sge { address: region.address() + 60, length: 5, lkey },
        Sge { address: region.address() - 1, length: 5, lkey },
        Sge { address: u64::MAX - 2, length: 5, lkey },
    ] {
        each_fails(rig, &[(SendOp::Send, sge), (SendOp::Write(NOWHERE), sge)], Status::LocalProtection);
    }
}

/// Memory that no request may write.
fn read_only(pd: &ProtectionDomain) -> (MemoryRegion, Sge) {
    let region = pd.register(vec![7; 64], Access::empty()).unwrap();
    let sge = Sge { address: region.address(), length: 8, lkey: region.lkey() };
    (region, sge)
}

pub(crate) fn read_into_read_only_memory(rig: &Rig) {
    rig.without_traffic();
    let (region, sge) = read_only(&rig.a.pd);
    each_fails(rig, &[(SendOp::Read(NOWHERE), sge)], Status::LocalProtection);
    assert_eq!(region.to_vec(..).unwrap(), [7; 64]);
}

pub(crate) fn atomic_into_read_only_memory(rig: &Rig) {
    rig.without_traffic();
    let (region, sge) = read_only(&rig.a.pd);
    each_fails(rig, &[(SendOp::FetchAdd { remote: NOWHERE, add: 1 }, sge)], Status::LocalProtection);
    assert_eq!(region.to_vec(..).unwrap(), [7; 64]);
}

pub(crate) fn receive_into_read_only_memory(rig: &Rig) {
    let (a, b) = rig.rc();
    let (region, _) = read_only(&b.pd);
    b.qp.receive(&region).id(1).post().unwrap();
    b.qp.receive(&b.region).id(2).post().unwrap();
    a.qp.send_inline(b"x").id(3).post().unwrap();
    let (failed, flushed, refused) = (b.receive_ended(), b.receive_ended(), a.ended());
    // First: what a driver calls the error may be known of it, and what it does to memory never is.
    assert_eq!(region.to_vec(..).unwrap(), [7; 64]);
    assert_eq!((failed.id, failed.status), (1, Status::LocalProtection));
    assert_eq!((flushed.id, flushed.status), (2, Status::Flushed));
    assert_eq!(refused.id, 3);
    rig.assert_refused(&refused, Status::RemoteOperation);
    assert_eq!((a.qp.state(), b.qp.state()), (State::Err, State::Err));
}

pub(crate) fn message_longer_than_the_receive(rig: &Rig) {
    // In one packet, and in several.
    let both = [17, 20_000].map(|len| {
        let (a, b) = rig.rc();
        b.region.fill(.., 0x5a).unwrap();
        b.qp.receive(b.region.slice(8..24)).id(1).post().unwrap();
        b.qp.receive(&b.region).id(2).post().unwrap();
        a.qp.send(a.region.slice(..len)).id(3).post().unwrap();
        let ends = [b.receive_ended(), b.receive_ended(), a.ended()];
        // Of both, before any status: what a driver calls the error may be known of it, and what it does to memory never is.
        assert_eq!(b.region.to_vec(24..1000).unwrap(), [0x5a; 976], "nothing is written behind a receive");
        assert_eq!(b.region.to_vec(..8).unwrap(), [0x5a; 8]);
        (len, ends, (a.qp.state(), b.qp.state()))
    });
    for (len, [failed, flushed, refused], states) in both {
        assert_eq!((failed.id, failed.status), (1, Status::LocalLength), "{len} bytes");
        assert_eq!(flushed.status, Status::Flushed);
        rig.assert_refused(&refused, Status::RemoteInvalidRequest);
        assert_eq!(states, (State::Err, State::Err));
    }
}

pub(crate) fn failed_work_flushes_the_rest(rig: &Rig) {
    let (a, b) = rig.rc();
    for id in 10..14 {
        a.qp.receive(&a.region).id(id).post().unwrap();
    }
    let mut beyond = b.region.remote();
    beyond.length += 64;
    let mut batch = a.qp.batch();
    batch.add(a.qp.write_inline(b"first", b.region.remote()).id(0));
    batch.add(a.qp.write_inline(b"bad", beyond.slice(b.region.len() as u64..)).id(1));
    for id in 2..6 {
        batch.add(a.qp.write_inline(b"never", b.region.remote().slice(100..)).id(id));
    }
    batch.post().unwrap();
    assert_eq!(a.sent().id, 0);
    let failed = a.ended();
    assert_eq!(failed.id, 1);
    rig.assert_refused(&failed, Status::RemoteAccess);
    for id in 2..6 {
        let flushed = a.ended();
        assert_eq!((flushed.id, flushed.status), (id, Status::Flushed));
    }
    for id in 10..14 {
        let flushed = a.receive_ended();
        assert_eq!((flushed.id, flushed.status), (id, Status::Flushed));
    }
    assert_eq!(a.qp.state(), State::Err);
    assert_eq!(b.region.to_vec(..5).unwrap(), b"first");
    assert_eq!(b.region.to_vec(100..105).unwrap(), [0; 5], "what follows a failure is not done");
    a.qp.write_inline(b"later", b.region.remote()).id(6).post().unwrap();
    a.qp.receive(&a.region).id(14).post().unwrap();
    assert_eq!((a.ended().status, a.receive_ended().status), (Status::Flushed, Status::Flushed));
}

pub(crate) fn flush_ends_both_queues(rig: &Rig) {
    let (a, b) = rig.rc();
    for id in 0..5 {
        a.qp.receive(&a.region).id(id).post().unwrap();
        // The peer has no receive, so these wait.
        a.qp.send_inline(b"waits").id(id).post().unwrap();
    }
    b.until_not_ready(0);
    a.qp.flush().unwrap();
    assert_eq!(a.qp.state(), State::Err);
    for id in 0..5 {
        let (send, receive) = (a.ended(), a.receive_ended());
        assert_eq!((send.id, send.status), (id, Status::Flushed));
        assert_eq!((receive.id, receive.status), (id, Status::Flushed));
    }
    assert!(a.sends.poll_one().is_none() && a.receives.poll_one().is_none(), "each ends once");
    assert_eq!(b.qp.state(), State::Rts);
}

pub(crate) fn binding_a_window_that_is_none(rig: &Rig) {
    rig.without_traffic();
    let (a, _b) = rig.rc();
    let bind = Bind {
        window: Rkey(0x4711),
        new_key: Rkey(0x4712),
        region: a.region.lkey(),
        address: a.region.address(),
        length: 8,
        access: Access::REMOTE_READ,
    };
    a.post_raw(1, SendOp::BindWindow(bind), &[]).unwrap();
    let failed = a.ended();
    assert_eq!((failed.id, failed.status, failed.kind), (1, Status::WindowBind, WorkKind::BindWindow));
    assert_eq!(a.qp.state(), State::Err);
}

pub(crate) fn invalidating_what_is_no_window(rig: &Rig) {
    rig.without_traffic();
    let (a, _b) = rig.rc();
    a.qp.local_invalidate(a.region.rkey()).id(1).post().unwrap();
    let failed = a.ended();
    assert_eq!((failed.id, failed.kind), (1, WorkKind::LocalInvalidate));
    assert_eq!(failed.status, Status::LocalQpOperation);
    assert_eq!(a.qp.state(), State::Err);
}

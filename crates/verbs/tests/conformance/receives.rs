//! Receives: waiting for them, and sharing them.

use ferroce_verbs::*;

use super::rig::{End, Host, Rig, Shape, until};

pub(crate) fn rnr_then_success(rig: &Rig) {
    let (a, b) = rig.rc();
    for round in 0..5_u8 {
        let before = b.qp.counters().rnr_sent;
        a.qp.send_inline(&[round; 40]).id(round.into()).post().unwrap();
        until(|| b.qp.counters().rnr_sent > before);
        assert!(a.sends.poll_one().is_none());
        b.qp.receive(b.region.slice(..100)).post().unwrap();
        assert_eq!(a.sent().id, u64::from(round));
        assert_eq!(b.received().byte_len, 40);
        assert_eq!(b.region.to_vec(..40).unwrap(), [round; 40]);
    }
}

pub(crate) fn rnr_for_a_write_with_immediate(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = super::rig::pattern(10_000, 8);
    a.region.write_at(0, &bytes).unwrap();
    a.qp.write(a.region.slice(..10_000), b.region.remote()).imm(9).post().unwrap();
    until(|| b.qp.counters().rnr_sent > 0);
    b.qp.receive(&[]).post().unwrap();
    a.sent();
    let got = b.received();
    assert_eq!((got.imm, got.byte_len, got.kind), (Some(9), 10_000, WorkKind::ReceiveWithImm));
    assert_eq!(b.region.to_vec(..10_000).unwrap(), bytes);
}

/// An end whose receives come from a shared queue.
pub(crate) fn sharing(host: &Host, srq: &SharedReceiveQueue) -> End {
    let end = host.end(Service::Rc, &Shape::depth(16));
    let qp = host
        .pd
        .queue_pair(Service::Rc)
        .send_queue(&end.sends, 16)
        .receive_queue(&end.receives, 16)
        .shared_receive_queue(srq)
        .address(host.address)
        .build()
        .unwrap();
    End { qp, ..end }
}

pub(crate) fn three_share_a_queue(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(64, 1).unwrap();
    let buffer = rig.b.pd.allocate(64 * 64, Access::LOCAL_WRITE).unwrap();
    for slot in 0..30_usize {
        srq.receive(buffer.slice(64 * slot..64 * slot + 64)).id(slot as u64).post().unwrap();
    }
    assert_eq!(srq.len(), 30);
    let pairs: Vec<(End, End)> = (0..3)
        .map(|_| {
            let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
            rig.connect(&a.qp, &b.qp, &Shape::default().options);
            (a, b)
        })
        .collect();
    for number in 0..10_u8 {
        for (who, (a, _)) in (0_u8..).zip(&pairs) {
            a.qp.send_inline(&[who, number]).post().unwrap();
        }
    }
    let mut slots = Vec::new();
    for (who, (a, b)) in (0_u8..).zip(&pairs) {
        for number in 0..10_u8 {
            a.sent();
            let got = b.received();
            assert_eq!((got.byte_len, got.qpn), (2, b.qp.qpn()), "each hears of its own");
            let slot = usize::try_from(got.id).unwrap();
            assert_eq!(buffer.to_vec(64 * slot..64 * slot + 2).unwrap(), [who, number], "in order");
            slots.push(slot);
        }
    }
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..30), "each receive is used once");
    assert!(srq.is_empty());
}

pub(crate) fn shared_queue_runs_low(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    for id in 0..4 {
        srq.receive(&b.region).id(id).post().unwrap();
    }
    srq.set_limit(3).unwrap();
    let limit = AsyncEvent::SharedQueueLimit(srq.id());
    let send = |id: u64| {
        a.qp.send_inline(b"one less").id(id).post().unwrap();
        a.sent();
        assert_eq!(b.received().id, id);
    };
    send(0);
    assert_eq!(rig.b.context.events().poll(), None, "three are left");
    send(1);
    rig.b.event(limit);
    send(2);
    assert_eq!(rig.b.context.events().poll(), None, "told once");
    srq.set_limit(1).unwrap();
    send(3);
    rig.b.event(limit);
    assert!(srq.set_limit(9).is_err());
}

pub(crate) fn shared_queue_runs_dry(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    a.qp.send_inline(b"early").post().unwrap();
    until(|| b.qp.counters().rnr_sent > 0);
    srq.receive(&b.region).id(5).post().unwrap();
    a.sent();
    assert_eq!((b.received().id, srq.len()), (5, 0));
}

pub(crate) fn last_receive_reached(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    srq.receive(&b.region).id(5).post().unwrap();
    srq.receive(&b.region).id(6).post().unwrap();
    a.qp.send_inline(b"x").post().unwrap();
    a.sent();
    assert_eq!(b.received().id, 5);
    b.qp.flush().unwrap();
    rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::LastWorkRequestReached));
    assert!(b.receives.poll_one().is_none(), "what is in the shared queue stays there");
    assert_eq!(srq.len(), 1);
    // The rest is for others.
    let (a, other) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &other.qp, &Shape::default().options);
    a.qp.send_inline(b"y").post().unwrap();
    a.sent();
    assert_eq!(other.received().id, 6);
}

pub(crate) fn receives_posted_one_by_one(rig: &Rig) {
    let (a, b) = rig.rc();
    for id in 0..30_u8 {
        a.qp.send_inline(&[id; 9]).id(id.into()).post().unwrap();
    }
    // One receive at a time: the sender has a credit for one message, or has to wait for it.
    for id in 0..30_u8 {
        b.qp.receive(b.region.slice(..16)).id(id.into()).post().unwrap();
        assert_eq!(b.received().id, u64::from(id));
        assert_eq!(b.region.to_vec(..9).unwrap(), [id; 9]);
        assert_eq!(a.sent().id, u64::from(id));
    }
}

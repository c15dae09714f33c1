//! Receives: waiting for them, and sharing them.

use ferroce_verbs::*;

use crate::rig::{End, Host, Rig, Shape};

pub(crate) fn rnr_then_success(rig: &Rig) {
    let (a, b) = rig.rc();
    for round in 0..5_u8 {
        let before = b.qp.counters().rnr_sent;
        a.qp.send_inline(&[round; 40]).id(round.into()).post().unwrap();
        b.until_not_ready(before);
        assert!(a.sends.poll_one().is_none());
        b.qp.receive(b.region.slice(..100)).post().unwrap();
        assert_eq!(a.sent().id, u64::from(round));
        assert_eq!(b.received().byte_len, 40);
        assert_eq!(b.region.to_vec(..40).unwrap(), [round; 40]);
    }
}

pub(crate) fn rnr_for_a_write_with_immediate(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = crate::rig::pattern(10_000, 8);
    a.region.write_at(0, &bytes).unwrap();
    a.qp.write(a.region.slice(..10_000), b.region.remote()).imm(9).post().unwrap();
    b.until_not_ready(0);
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
        for (from, (a, _)) in (0_u8..).zip(&pairs) {
            a.qp.send_inline(&[from, number]).post().unwrap();
        }
    }
    let mut slots = Vec::new();
    for (from, (a, b)) in (0_u8..).zip(&pairs) {
        for number in 0..10_u8 {
            a.sent();
            let got = b.received();
            assert_eq!((got.byte_len, got.qpn), (2, b.qp.qpn()), "each hears of its own");
            let slot = usize::try_from(got.id).unwrap();
            assert_eq!(buffer.to_vec(64 * slot..64 * slot + 2).unwrap(), [from, number], "in order");
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
    assert!(srq.set_limit(srq.depth() + 1).is_err());
}

pub(crate) fn shared_queue_runs_dry(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    a.qp.send_inline(b"early").post().unwrap();
    b.until_not_ready(0);
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
    if rig.a.context.can(Capability::PeerEvents) {
        rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::LastWorkRequestReached));
    }
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

/// A piece of a region for each message of a list.
fn slot(region: &MemoryRegion, place: u8) -> LocalSlice<'_> {
    let start = 16 * usize::from(place);
    region.slice(start..start + 16)
}

pub(crate) fn receives_in_one_list(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape::depth(100));
    for round in 0..3_u8 {
        // Longer than what reaches the device at once.
        let mut batch = b.qp.receive_batch();
        assert!(batch.is_empty());
        for place in 0..100 {
            batch.add(b.qp.receive(slot(&b.region, place)).id(place.into()));
        }
        assert_eq!(batch.len(), 100);
        batch.post().unwrap();
        for place in 0..100 {
            a.qp.send_inline(&[place, round]).id(place.into()).post().unwrap();
        }
        for place in 0..100 {
            assert_eq!(a.sent().id, u64::from(place));
            assert_eq!(b.received().id, u64::from(place), "in the order of the list");
            let start = 16 * usize::from(place);
            assert_eq!(b.region.to_vec(start..start + 2).unwrap(), [place, round]);
        }
    }
    // Several pieces each, or none.
    let pieces = [b.region.slice(..2), b.region.slice(1000..1002)];
    let mut batch = b.qp.receive_batch();
    batch.add(b.qp.receive(&[]).id(1));
    batch.add(b.qp.receive(&pieces).id(2));
    batch.post().unwrap();
    a.qp.send_inline(b"").post().unwrap();
    a.qp.send_inline(b"wxyz").post().unwrap();
    let got = [b.received(), b.received()].map(|got| (got.id, got.byte_len));
    assert_eq!(got, [(1, 0), (2, 4)]);
    assert_eq!(b.region.to_vec(..2).unwrap(), b"wx");
    assert_eq!(b.region.to_vec(1000..1002).unwrap(), b"yz");
    b.qp.receive_batch().post().unwrap();
}

pub(crate) fn a_list_of_receives_is_taken_as_far_as_it_goes(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape::depth(70));
    let by = PostTarget::QueuePair(b.qp.qpn());
    let size = b.region.len();
    let mut batch = b.qp.receive_batch();
    batch.add(b.qp.receive(slot(&b.region, 0)).id(0));
    batch.add(b.qp.receive(b.region.slice(size - 1..=size)).id(77));
    batch.add(b.qp.receive(slot(&b.region, 1)).id(78));
    let error = batch.post().unwrap_err();
    let outside = PostError::OutsideRegion { start: size - 1, end: size + 1, size };
    assert_eq!(error, BatchError { taken: 1, given: 3, error: outside });

    let mut batch = b.qp.receive_batch();
    batch.add(a.qp.receive(slot(&a.region, 0)));
    let other = PostError::OtherQueue { work: PostTarget::QueuePair(a.qp.qpn()), batch: by };
    assert_eq!(batch.post(), Err(BatchError { taken: 0, given: 1, error: other }));

    // What the queue pair itself refuses.
    let five = [b.region.slice(..1); 5];
    let mut batch = b.qp.receive_batch();
    batch.add(b.qp.receive(slot(&b.region, 1)).id(1));
    batch.add(b.qp.receive(&five).id(79));
    batch.add(b.qp.receive(slot(&b.region, 2)).id(80));
    let error = batch.post().unwrap_err();
    let too_many = PostError::Refused { by, error: PostRefusal::TooManyPieces { given: 5, allowed: 4 } };
    assert_eq!(error, BatchError { taken: 1, given: 3, error: too_many });

    // Two wait, so there is room for 68 of these.
    let mut batch = b.qp.receive_batch();
    for place in 2..90 {
        batch.add(b.qp.receive(slot(&b.region, place)).id(place.into()));
    }
    let full = PostError::Refused { by, error: PostRefusal::QueueFull { what: "receive", depth: 70 } };
    assert_eq!(batch.post(), Err(BatchError { taken: 68, given: 88, error: full }));

    // Those that were taken are the first ones, and nothing else is there.
    for place in 0..70 {
        a.qp.send_inline(&[place]).post().unwrap();
    }
    for place in 0..70 {
        a.sent();
        assert_eq!(b.received().id, u64::from(place));
        assert_eq!(b.region.load_u8(16 * usize::from(place)), Ok(place));
    }
    let before = b.qp.counters().rnr_sent;
    a.qp.send_inline(b"one more").post().unwrap();
    b.until_not_ready(before);
    b.qp.receive(&b.region).id(99).post().unwrap();
    a.sent();
    assert_eq!(b.received().id, 99);
}

pub(crate) fn a_shared_queue_takes_a_list(rig: &Rig) {
    // As much as there is: a card may give more than was asked for, but all have queues of a power of two but one.
    let srq = rig.b.pd.shared_receive_queue(7, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    let by = PostTarget::SharedReceiveQueue(srq.id().0);
    let refused = |error| PostError::Refused { by, error };
    let clone = srq.clone();

    let mut batch = srq.receive_batch();
    for place in 0..3 {
        // A clone is the same queue.
        batch.add(clone.receive(slot(&b.region, place)).id(place.into()));
    }
    batch.post().unwrap();
    assert_eq!(srq.len(), 3);

    let two = [b.region.slice(..1); 2];
    let mut batch = srq.receive_batch();
    batch.add(srq.receive(slot(&b.region, 3)).id(3));
    batch.add(srq.receive(&two).id(77));
    batch.add(srq.receive(slot(&b.region, 4)).id(78));
    let too_many = refused(PostRefusal::TooManyPieces { given: 2, allowed: 1 });
    assert_eq!(batch.post(), Err(BatchError { taken: 1, given: 3, error: too_many }));

    let mut batch = srq.receive_batch();
    for place in 4..14 {
        batch.add(srq.receive(slot(&b.region, place)).id(place.into()));
    }
    let full = refused(PostRefusal::QueueFull { what: "shared receive", depth: 7 });
    assert_eq!(batch.post(), Err(BatchError { taken: 3, given: 10, error: full }));
    assert_eq!(srq.len(), 7);

    let mut batch = srq.receive_batch();
    batch.add(a.qp.receive(&a.region));
    let other = PostError::OtherQueue { work: PostTarget::QueuePair(a.qp.qpn()), batch: by };
    assert_eq!(batch.post(), Err(BatchError { taken: 0, given: 1, error: other }));
    let other = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let mut batch = srq.receive_batch();
    batch.add(other.receive(&b.region));
    assert!(matches!(batch.post().unwrap_err().error, PostError::OtherQueue { .. }));
    assert!(other.is_empty());

    for place in 0..7 {
        a.qp.send_inline(&[place]).post().unwrap();
    }
    for place in 0..7 {
        a.sent();
        assert_eq!(b.received().id, u64::from(place));
        assert_eq!(b.region.load_u8(16 * usize::from(place)), Ok(place));
    }
    assert!(srq.is_empty());
}

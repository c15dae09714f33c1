//! Posts that are refused: with a reason, and without a trace.

use ferroce_transport::{Bind, SendOp};
use ferroce_verbs::*;

use crate::rig::{End, OPEN, Rig, Shape};
use crate::waiting::until;

/// What was refused must leave no trace: no completion, no byte, no state.
fn nothing_happened(a: &End, b: &End) {
    assert!(a.sends.poll_one().is_none() && a.receives.poll_one().is_none());
    assert_eq!(a.qp.state(), State::Rts);
    for end in [a, b] {
        assert!(end.region.to_vec(..).unwrap().iter().all(|byte| *byte == 0x11));
    }
}

fn filled(rig: &Rig, shape: &Shape) -> (End, End) {
    let (a, b) = rig.rc_with(shape);
    a.region.fill(.., 0x11).unwrap();
    b.region.fill(.., 0x11).unwrap();
    (a, b)
}

fn why(error: PostError) -> PostRefusal {
    match error {
        PostError::Refused { error, .. } => error,
        other => panic!("{other}"),
    }
}

pub(crate) fn bad_sends_change_nothing(rig: &Rig) {
    let (a, b) = filled(rig, &Shape::default());
    let (own, remote) = (&a.region, b.region.remote());
    let size = own.len();
    let end = size as u64;
    let outside = |work: Work<'_>| matches!(work.post(), Err(PostError::OutsideRegion { .. }));
    let beyond = own.slice(size - 4..size + 4);
    assert!(outside(a.qp.send(beyond)));
    assert!(outside(a.qp.write(beyond, remote)));
    assert!(outside(a.qp.read(beyond, remote)));
    assert!(outside(a.qp.fetch_add(beyond, remote, 1)));
    assert!(outside(a.qp.compare_swap(beyond, remote, 1, 2)));
    assert!(outside(a.qp.atomic_write(beyond, remote)));
    let outside = |work: Work<'_>| matches!(work.post(), Err(PostError::OutsideRemote { .. }));
    let beyond = remote.slice(end - 4..end + 4);
    assert!(outside(a.qp.write(own.slice(..8), beyond)));
    assert!(outside(a.qp.write_inline(b"12345678", beyond)));
    assert!(outside(a.qp.read(own.slice(..8), beyond)));
    assert!(outside(a.qp.fetch_add(own.slice(..8), beyond, 1)));
    assert!(outside(a.qp.compare_swap(own.slice(..8), beyond, 1, 2)));
    assert!(outside(a.qp.atomic_write_inline(b"12345678", beyond)));
    let short = |work: Work<'_>| matches!(work.post(), Err(PostError::RemoteTooShort { .. }));
    assert!(short(a.qp.write(own.slice(..8), remote.slice(..7))));
    assert!(short(a.qp.read(own.slice(..8), remote.slice(..7))));
    assert!(short(a.qp.fetch_add(own.slice(..8), remote.slice(..7), 1)));

    let wrong = |len| PostRefusal::WrongLength { given: len, needed: 8 };
    assert_eq!(why(a.qp.fetch_add(own.slice(..7), remote, 1).post().unwrap_err()), wrong(7));
    assert_eq!(why(a.qp.compare_swap(own.slice(..9), remote, 1, 2).post().unwrap_err()), wrong(9));
    assert_eq!(why(a.qp.atomic_write(own.slice(..0), remote).post().unwrap_err()), wrong(0));
    let long = [0; 65];
    let inline = PostRefusal::InlineTooLong { given: 65, allowed: 64 };
    assert_eq!(why(a.qp.send_inline(&long).post().unwrap_err()), inline);
    assert_eq!(why(a.qp.write_inline(&long, remote).post().unwrap_err()), inline);
    let five = [own.slice(..1); 5];
    let pieces = PostRefusal::TooManyPieces { given: 5, allowed: 4 };
    assert_eq!(why(a.qp.send(&five).post().unwrap_err()), pieces);
    assert_eq!(why(a.qp.write(&five, remote).post().unwrap_err()), pieces);
    assert_eq!(why(a.qp.read(&five, remote).post().unwrap_err()), pieces);

    let elsewhere = rig.a.context.protection_domain().unwrap().allocate(64, OPEN).unwrap();
    let by = PostTarget::QueuePair(a.qp.qpn());
    assert_eq!(a.qp.send(&elsewhere).post(), Err(PostError::OtherDomain { by }));
    assert_eq!(a.qp.read(&elsewhere, remote).post(), Err(PostError::OtherDomain { by }));
    for work in [a.qp.read(own.slice(..8), remote).imm(1), a.qp.fetch_add(own.slice(..8), remote, 1).imm(1)] {
        assert!(matches!(work.post(), Err(PostError::NotCarried { .. })));
    }
    let work = a.qp.write(own.slice(..8), remote).invalidate(Rkey(1));
    assert!(matches!(work.post(), Err(PostError::NotCarried { .. })));
    let there = rig.a.handle_to(&rig.b);
    let work = a.qp.send_inline_to(&there, b.qp.qpn(), QKey(1), b"not a datagram");
    assert_eq!(why(work.post().unwrap_err()), PostRefusal::WrongAddress);
    nothing_happened(&a, &b);
    a.still_works(&b);
}

pub(crate) fn bad_receives_change_nothing(rig: &Rig) {
    let (a, b) = filled(rig, &Shape::default());
    let size = a.region.len();
    let error = a.qp.receive(a.region.slice(size - 4..size + 4)).post().unwrap_err();
    assert_eq!(error, PostError::OutsideRegion { start: size - 4, end: size + 4, size });
    let five = [a.region.slice(..1); 5];
    let error = why(a.qp.receive(&five).post().unwrap_err());
    assert_eq!(error, PostRefusal::TooManyPieces { given: 5, allowed: 4 });
    let elsewhere = rig.a.context.protection_domain().unwrap().allocate(64, OPEN).unwrap();
    let by = PostTarget::QueuePair(a.qp.qpn());
    assert_eq!(a.qp.receive(&elsewhere).post(), Err(PostError::OtherDomain { by }));
    let srq = rig.a.pd.shared_receive_queue(2, 1).unwrap();
    let two = [a.region.slice(..1); 2];
    let error = why(srq.receive(&two).post().unwrap_err());
    assert_eq!(error, PostRefusal::TooManyPieces { given: 2, allowed: 1 });
    assert!(srq.receive(&elsewhere).post().is_err());
    assert!(srq.is_empty());
    nothing_happened(&a, &b);

    // None of these became a receive: the next message meets the next good one.
    a.qp.receive(a.region.slice(..8)).id(5).post().unwrap();
    b.qp.send_inline(b"found it").post().unwrap();
    b.sent();
    assert_eq!(a.received().id, 5);
}

pub(crate) fn full_queues_say_so(rig: &Rig) {
    let (a, b) = filled(rig, &Shape::depth(4));
    for id in 0..4 {
        a.qp.receive(&a.region).id(id).post().unwrap();
        // The peer has no receive yet, so these stay.
        a.qp.send_inline(b"queued").id(id).post().unwrap();
    }
    let full = PostRefusal::QueueFull { what: "receive", depth: 4 };
    assert_eq!(why(a.qp.receive(&a.region).post().unwrap_err()), full);
    let full = PostRefusal::QueueFull { what: "send", depth: 4 };
    assert_eq!(why(a.qp.send_inline(b"no room").post().unwrap_err()), full);
    let mut batch = a.qp.batch();
    batch.add(a.qp.send_inline(b"no room"));
    assert_eq!(batch.post().unwrap_err().taken, 0);
    let srq = rig.a.pd.shared_receive_queue(2, 1).unwrap();
    // A card may give more than was asked for.
    let depth = srq.depth();
    assert!(depth == 2 || !rig.counts() && depth > 2);
    for _ in 0..depth {
        srq.receive(&a.region).post().unwrap();
    }
    let full = PostRefusal::QueueFull { what: "shared receive", depth };
    assert_eq!(why(srq.receive(&a.region).post().unwrap_err()), full);

    for _ in 0..4 {
        b.qp.receive(&b.region).post().unwrap();
    }
    for id in 0..4 {
        assert_eq!(a.sent().id, id);
        assert_eq!(b.received().byte_len, 6);
    }
    // There is room again.
    a.still_works(&b);
}

/// A request is under way until its completion was taken off: that is why a completion queue as large as the
/// queues that complete into it never overruns.
pub(crate) fn a_place_is_free_when_its_completion_is_polled(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape { completions: 16, ..Shape::depth(8) });
    let remote = b.region.remote();
    b.region.fill(100..108, 0x22).unwrap();
    for id in 0..7 {
        a.qp.write_inline(b"x", remote).id(id).post().unwrap();
    }
    a.qp.read(a.region.slice(..8), remote.slice(100..108)).id(7).post().unwrap();
    // When its bytes are here, all are done, but no completion has been polled.
    until(|| a.region.load_u8(7) == Ok(0x22));
    let full = PostRefusal::QueueFull { what: "send", depth: 8 };
    assert_eq!(a.qp.write_inline(b"x", remote).post().map_err(why), Err(full));
    assert!(!a.sends.is_overrun());
    for id in 0..8 {
        assert_eq!(a.sent().id, id);
    }
    a.still_works(&b);
}

pub(crate) fn each_service_refuses_what_it_cannot(rig: &Rig) {
    rig.without_traffic();
    let (a, b) = rig.uc();
    let remote = b.region.remote();
    let own = a.region.slice(..8);
    for work in [
        a.qp.read(own, remote),
        a.qp.fetch_add(own, remote, 1),
        a.qp.compare_swap(own, remote, 1, 2),
        a.qp.send(own).invalidate(Rkey(5)),
    ] {
        assert!(matches!(why(work.post().unwrap_err()), PostRefusal::NotOfService { service: "UC", .. }));
    }
    if rig.a.context.can(Capability::AtomicWrites) {
        let atomic = a.qp.atomic_write(own, remote);
        assert!(matches!(why(atomic.post().unwrap_err()), PostRefusal::NotOfService { service: "UC", .. }));
    }
    if rig.a.context.can(Capability::MaskedAtomics) {
        let masked = a.qp.masked_fetch_add(own, remote, MaskedAdd { add: 1, boundaries: 0 });
        assert!(matches!(why(masked.post().unwrap_err()), PostRefusal::NotOfService { service: "UC", .. }));
    }
    let (a, b) = rig.ud(QKey(7));
    let there = rig.a.handle_to(&rig.b);
    let own = a.region.slice(..8);
    for work in [a.qp.read(own, remote), a.qp.write(own, remote), a.qp.write(own, remote).imm(1)] {
        assert!(matches!(why(work.post().unwrap_err()), PostRefusal::NotOfService { service: "UD", .. }));
    }
    assert_eq!(why(a.qp.send(own).post().unwrap_err()), PostRefusal::WrongAddress);
    a.qp.send_to(&there, b.qp.qpn(), QKey(7), own).post().unwrap();
    a.sent();
    assert_eq!((a.qp.state(), b.qp.state()), (State::Rts, State::Rts));
}

pub(crate) fn limits_are_named(rig: &Rig) {
    let shape = Shape::with(|options| options.max_rd_atomic = 0);
    let (a, b) = filled(rig, &shape);
    let (own, remote) = (a.region.slice(..8), b.region.remote());
    for work in [a.qp.read(own, remote), a.qp.fetch_add(own, remote, 1)] {
        assert_eq!(why(work.post().unwrap_err()), PostRefusal::NoReadDepth);
    }
    let bind = Bind {
        window: Rkey(1),
        new_key: Rkey(1),
        region: a.region.lkey(),
        address: 0,
        length: 0,
        access: Access::empty(),
    };
    let wrong = PostRefusal::WrongLength { given: 8, needed: 0 };
    assert_eq!(a.post_raw(1, SendOp::BindWindow(bind), &[a.sge(0, 8)]), Err(wrong));
    let huge = [a.sge(0, u32::MAX), a.sge(0, 1)];
    let wrong = PostRefusal::TooLong { given: 1 << 32, allowed: 1 << 31 };
    assert_eq!(a.post_raw(1, SendOp::Write(b.at(0)), &huge), Err(wrong));
    nothing_happened(&a, &b);
    a.still_works(&b);
    let (full, limits) = (rig.a.context.query(), &rig.a);
    assert!(limits.context.completion_queue(full.max_completions + 1).is_err());
    assert!(limits.context.completion_queue(0).is_err());
    assert!(limits.pd.shared_receive_queue(full.max_queue_depth + 1, 1).is_err());
}

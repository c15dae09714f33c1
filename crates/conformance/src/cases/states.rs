//! The life of a queue pair.

use std::time::Duration;

use ferroce_verbs::*;

use crate::rig::{Rig, Shape, pattern};
use crate::waiting::until;

pub(crate) fn attributes_come_back(rig: &Rig) {
    rig.without_traffic();
    let options = ConnectOptions {
        path_mtu: Some(PathMtu::B512),
        timeout: 17,
        retry_count: 5,
        rnr_retry: 6,
        min_rnr_timer: 9,
        max_rd_atomic: 3,
        max_dest_rd_atomic: 4,
        access: Access::REMOTE_READ,
        traffic_class: 0x20,
        hop_limit: 9,
        flow_label: 0x12345,
        ..ConnectOptions::default()
    };
    let (a, b) = rig.rc_with(&Shape { options, ..Shape::depth(20) });
    let known = a.qp.query().unwrap();
    let QpState { attributes, address, caps, .. } = known;
    assert_eq!(attributes.state, State::Rts);
    assert_eq!((attributes.path_mtu, attributes.timeout), (PathMtu::B512, 17));
    assert_eq!((attributes.retry_count, attributes.rnr_retry, attributes.min_rnr_timer), (5, 6, 9));
    let reads = (attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
    // A card may round them, but never has more under way than was said, nor room for fewer.
    assert!(reads == (3, 4) || !rig.counts() && (1..=3).contains(&reads.0) && reads.1 >= 4, "{reads:?}");
    assert_eq!((attributes.access, attributes.port, attributes.pkey_index), (Access::REMOTE_READ, 1, 0));
    assert_eq!((attributes.dest_qpn, attributes.rq_psn), (b.qp.qpn(), b.qp.local_address().psn));
    assert_eq!(attributes.sq_psn, a.qp.local_address().psn);
    let address = address.unwrap();
    assert_eq!((address.gid, address.traffic_class, address.hop_limit), (rig.b.address.into(), 0x20, 9));
    assert_eq!(address.flow_label, 0x12345);
    assert_eq!((caps.max_send, caps.max_receive), (20, 20));

    let change = Attributes::to(State::Rts).with_min_rnr_timer(3).with_access(Access::REMOTE_WRITE);
    a.qp.modify(&change, None).unwrap();
    let attributes = a.qp.query().unwrap().attributes;
    assert_eq!((attributes.min_rnr_timer, attributes.access), (3, Access::REMOTE_WRITE));
    assert_eq!(attributes.timeout, 17, "the rest stays");
}

pub(crate) fn work_waits_for_its_state(rig: &Rig) {
    let shape = Shape::default();
    let (a, b) = (rig.a.end(Service::Rc, &shape), rig.b.end(Service::Rc, &shape));
    a.qp.modify(&Attributes::to(State::Reset), None).unwrap();
    assert_eq!(a.qp.state(), State::Reset);
    let refused = |error: PostError, state| {
        assert!(
            matches!(error, PostError::Refused { error: PostRefusal::WrongState { state: seen, .. }, .. } if seen == state),
            "{error}"
        );
    };
    refused(a.qp.receive(&a.region).post().unwrap_err(), State::Reset);
    refused(a.qp.send_inline(b"x").post().unwrap_err(), State::Reset);
    a.qp.reset().unwrap();
    assert_eq!(a.qp.state(), State::Init);
    refused(a.qp.send_inline(b"x").post().unwrap_err(), State::Init);
    a.qp.receive(&a.region).id(1).post().unwrap();
    rig.connect(&a.qp, &b.qp, &shape.options);
    assert!(a.sends.poll_one().is_none() && a.receives.poll_one().is_none());
    b.qp.send_inline(b"for the receive of INIT").post().unwrap();
    b.sent();
    assert_eq!(a.received().id, 1);
}

pub(crate) fn draining_is_told(rig: &Rig) {
    let (a, b) = rig.rc();
    a.region.write_at(0, &pattern(60_000, 1)).unwrap();
    for id in 0..4 {
        a.qp.write(a.region.slice(..60_000), b.region.remote()).id(id).post().unwrap();
    }
    a.qp.modify(&Attributes::to(State::Sqd).with_notify_drained(true), None).unwrap();
    rig.a.event(AsyncEvent::QueuePair(a.qp.qpn(), Event::SendQueueDrained));
    assert_eq!(a.qp.state(), State::Sqd);
    // What was begun is done, what was not waits, and so does what is posted now.
    a.qp.write_inline(b"waits", b.region.remote().slice(60_000..)).id(4).post().unwrap();
    let mut done = 0;
    while let Some(completion) = a.sends.poll_one() {
        assert_eq!((completion.id, completion.status), (done, Status::Success));
        done += 1;
    }
    assert_eq!(b.region.to_vec(60_000..60_005).unwrap(), [0; 5]);
    assert!(done <= 4);
    // Receiving goes on.
    a.qp.receive(a.region.slice(60_000..)).post().unwrap();
    b.qp.send_inline(b"hello").post().unwrap();
    b.sent();
    assert_eq!(a.received().byte_len, 5);
    a.qp.modify(&Attributes::to(State::Sqd).with_timeout(15), None).unwrap();
    a.qp.modify(&Attributes::to(State::Rts), None).unwrap();
    for id in done..=4 {
        assert_eq!(a.sent().id, id);
    }
    assert_eq!(b.region.to_vec(..60_000).unwrap(), pattern(60_000, 1));
    assert_eq!(b.region.to_vec(60_000..60_005).unwrap(), b"waits");
}

pub(crate) fn nothing_changes_while_draining(rig: &Rig) {
    // So slow that it is still sending when it is asked to drain.
    let (a, b) = rig.rc_with(&Shape::with(|options| options.rate_limit = 8000));
    for id in 0..2 {
        a.qp.write(a.region.slice(..60_000), b.region.remote()).id(id).post().unwrap();
    }
    a.qp.modify(&Attributes::to(State::Sqd).with_notify_drained(true), None).unwrap();
    if rig.path() == Path::Wire {
        // On the local path a message is done at once or not begun.
        assert!(a.qp.query().unwrap().attributes.draining);
        let early = a.qp.modify(&Attributes::to(State::Sqd).with_timeout(15), None);
        let attributes = AttributeMask::TIMEOUT;
        assert_eq!(early, Err(QpError::Modify(ModifyError::Draining { attributes })));
        let early = a.qp.modify(&Attributes::to(State::Rts).with_min_rnr_timer(3), None);
        let attributes = AttributeMask::MIN_RNR_TIMER;
        assert_eq!(early, Err(QpError::Modify(ModifyError::Draining { attributes })));
        assert_eq!(a.qp.state(), State::Sqd);
    }
    rig.a.event(AsyncEvent::QueuePair(a.qp.qpn(), Event::SendQueueDrained));
    let known = a.qp.query().unwrap().attributes;
    assert!(!known.draining && known.timeout != 15);
    assert_eq!(a.sent().id, 0);
    let change = Attributes::to(State::Sqd)
        .with_timeout(15)
        .with_retry_count(3)
        .with_rnr_retry(2)
        .with_max_rd_atomic(1)
        .with_max_dest_rd_atomic(2)
        .with_min_rnr_timer(4)
        .with_access(ConnectOptions::ALL_ACCESS);
    a.qp.modify(&change, None).unwrap();
    let known = a.qp.query().unwrap().attributes;
    assert_eq!((known.timeout, known.retry_count, known.rnr_retry), (15, 3, 2));
    assert_eq!((known.max_rd_atomic, known.max_dest_rd_atomic, known.min_rnr_timer), (1, 2, 4));
    a.qp.modify(&Attributes::to(State::Rts).with_current_state(State::Sqd), None).unwrap();
    a.qp.set_rate_limit(0).unwrap();
    assert_eq!(a.sent().id, 1);
    b.qp.fetch_add(b.region.slice(..8), a.region.remote().slice(..8), 1).post().unwrap();
    b.sent();
    a.still_works(&b);
}

pub(crate) fn what_the_device_does_not_have(rig: &Rig) {
    let (a, b) = rig.rc();
    let modify = |attributes: &Attributes| match a.qp.modify(attributes, None) {
        Err(QpError::Modify(error)) => error,
        other => panic!("{other:?}"),
    };
    for attributes in [AttributeMask::ALT_PATH, AttributeMask::PATH_MIG_STATE] {
        let error = modify(&Attributes::to(State::Rts).with(attributes));
        assert_eq!(error, ModifyError::NotSupported { attributes });
    }
    a.still_works(&b);
    let (a, _) = rig.rc();
    let init = Attributes::to(State::Init).with_access(Access::empty());
    a.qp.modify(&Attributes::to(State::Reset), None).unwrap();
    let modify = |attributes: &Attributes| match a.qp.modify(attributes, None) {
        Err(QpError::Modify(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(modify(&init.with_pkey_index(0).with_port(2)), ModifyError::NoSuchPort { given: 2 });
    assert_eq!(modify(&init.with_pkey_index(0).with_port(0)), ModifyError::NoSuchPort { given: 0 });
    assert_eq!(modify(&init.with_pkey_index(1).with_port(1)), ModifyError::NoSuchPKey { given: 1, len: 1 });
    assert_eq!(a.qp.state(), State::Reset);
}

pub(crate) fn the_rate_limit_is_kept(rig: &Rig) {
    rig.needs(Capability::Timestamps);
    rig.needs(Capability::RateLimits);
    // 80 Mbit/s are 10,000 bytes in a millisecond.
    let rate = 80_000;
    for service in [Service::Rc, Service::Uc] {
        let (a, b) = rig.connected(service, &Shape::with(|options| options.rate_limit = rate));
        assert_eq!(a.qp.query().unwrap().attributes.rate_limit, rate);
        let began = rig.a.context.clock_now();
        for id in 0..20 {
            a.qp.write(a.region.slice(..10_000), b.region.remote()).id(id).post().unwrap();
        }
        let mut last = began;
        for id in 0..20 {
            let done = a.sent();
            assert_eq!(done.id, id);
            last = done.time;
        }
        // A millisecond's worth, and what is sent last, may go at once.
        let took = last.since(began);
        assert!(took >= Duration::from_millis(17), "{service:?}: 200,000 bytes in {took:?}");
        assert!(!rig.counts() || a.qp.counters().rate_waits > 0);
        // Without a limit it does not wait any more.
        a.qp.set_rate_limit(0).unwrap();
        let waits = a.qp.counters().rate_waits;
        for id in 0..20 {
            a.qp.write(a.region.slice(..10_000), b.region.remote()).id(id).post().unwrap();
        }
        for id in 0..20 {
            assert_eq!(a.sent().id, id);
        }
        assert_eq!((a.qp.counters().rate_waits, a.qp.query().unwrap().attributes.rate_limit), (waits, 0));
        if !rig.is_lossy() {
            assert_eq!(a.qp.counters().timeouts, 0, "waiting is no silence of the peer");
        }
    }
}

pub(crate) fn datagrams_keep_the_rate_limit(rig: &Rig) {
    rig.needs(Capability::Timestamps);
    rig.needs(Capability::RateLimits);
    let (a, b) = rig.ud(QKey(7));
    a.qp.set_rate_limit(80_000).unwrap();
    let there = rig.a.handle_to(&rig.b);
    let began = rig.a.context.clock_now();
    for id in 0..60 {
        let from = a.region.slice(..1000);
        a.qp.send_to(&there, b.qp.qpn(), QKey(7), from).id(id).post().unwrap();
    }
    let last = (0..60).map(|id| {
        let done = a.sent();
        assert_eq!(done.id, id);
        done.time
    });
    let took = last.last().unwrap().since(began);
    assert!(took >= Duration::from_millis(4), "60,000 bytes in {took:?}");
    // They are sent, but no completion says that they arrived.
    if rig.counts() && rig.path() == Path::Wire {
        until(|| rig.counters().1.packets_received > 0);
    }
}

pub(crate) fn the_traffic_class_goes_along_and_can_change(rig: &Rig) {
    let marked = |rig: &Rig| rig.counters().1.ecn_marked;
    for service in [Service::Rc, Service::Uc] {
        let (a, b) = rig.connected(service, &Shape::with(|options| options.traffic_class = 0x20));
        let before = marked(rig);
        // What is not acknowledged may be lost: it is written until it is there.
        let arrives = |byte: u8| {
            until(|| {
                a.qp.write_inline(&[byte], b.region.remote()).post().unwrap();
                a.sent();
                b.region.load_u8(0) == Ok(byte)
            });
        };
        arrives(1);
        assert_eq!(marked(rig), before);
        // The two low bits of the class are the mark of congestion, which the peer's device counts.
        let known = a.qp.query().unwrap().address.unwrap();
        assert_eq!(known.traffic_class, 0x20);
        let other = AddressVector { traffic_class: 0x2b, ..known };
        a.qp.modify(&Attributes::to(State::Sqd), None).unwrap();
        // Changes are for a queue pair that has drained (IBA 10.3.1.5). The soft device's has, since it was idle.
        until(|| rig.counts() || !a.qp.query().unwrap().attributes.draining);
        let changed = a.qp.modify(&Attributes::to(State::Sqd).with(AttributeMask::AV), Some(&other));
        a.qp.modify(&Attributes::to(State::Rts), None).unwrap();
        if service == Service::Uc && !rig.counts() && changed.is_err() {
            // Linux names the port, too, when a program changes the address alone, and refuses that for UC.
            assert!(matches!(changed, Err(QpError::Card(_))), "{changed:?}");
            assert_eq!(a.qp.query().unwrap().address, Some(known));
            arrives(2);
            continue;
        }
        changed.unwrap();
        assert_eq!(a.qp.query().unwrap().address, Some(other));
        arrives(2);
        assert_eq!(marked(rig) > before, rig.path() == Path::Wire);
    }
}

pub(crate) fn completions_are_timed(rig: &Rig) {
    rig.needs(Capability::Timestamps);
    let (a, b) = rig.rc();
    let (context, clock) = (&rig.a.context, rig.a.context.clock());
    assert_eq!((context.query().core_clock_khz, context.query().timestamp_mask), (1_000_000, u64::MAX));
    let mut last = context.clock_now();
    for _ in 0..3 {
        b.qp.receive(&b.region).post().unwrap();
        a.qp.send_inline(b"what time is it?").post().unwrap();
        let (sent, got) = (a.sent(), b.received());
        let now = context.clock_now();
        assert!(last <= got.time && got.time <= now && last <= sent.time && sent.time <= now);
        let passed = clock.wall_at(got.time).duration_since(clock.wall).unwrap();
        assert_eq!(passed, got.time.since(clock.device));
        last = now;
    }
    assert_eq!(clock.device_at(clock.wall_at(last)), last);
}

pub(crate) fn first_packet_establishes(rig: &Rig) {
    let shape = Shape::default();
    let (a, b) = (rig.a.end(Service::Rc, &shape), rig.b.end(Service::Rc, &shape));
    let index = rig.b.context.gid_index(rig.b.address).unwrap();
    let peer = a.qp.local_address();
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(peer.mtu)
        .with_dest_qpn(peer.qpn)
        .with_rq_psn(peer.psn)
        .with_max_dest_rd_atomic(4)
        .with_min_rnr_timer(1);
    b.qp.modify(&rtr, Some(&AddressVector::new(peer.gid, index))).unwrap();
    b.qp.receive(&b.region).id(1).post().unwrap();
    a.qp.connect_with(&b.qp.local_address(), &shape.options).unwrap();
    a.qp.send_inline(b"ready to use").post().unwrap();
    a.sent();
    assert_eq!(b.received().id, 1, "RTR receives");
    if rig.a.context.can(Capability::PeerEvents) {
        rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::Established));
    }
    let error = b.qp.send_inline(b"too early").post().unwrap_err();
    assert!(matches!(
        error,
        PostError::Refused { error: PostRefusal::WrongState { state: State::Rtr, .. }, .. }
    ));
    let rts = Attributes::to(State::Rts)
        .with_sq_psn(b.qp.local_address().psn)
        .with_timeout(14)
        .with_retry_count(7)
        .with_rnr_retry(7)
        .with_max_rd_atomic(4);
    b.qp.modify(&rts, None).unwrap();
    b.still_works(&a);
}

pub(crate) fn reset_and_connect_again(rig: &Rig) {
    let (a, b) = rig.rc();
    for round in 0..3_u8 {
        a.qp.receive(&a.region).post().unwrap();
        a.qp.send_inline(b"never met").post().unwrap();
        let psn = a.qp.local_address().psn;
        a.qp.flush().unwrap();
        until(|| a.receives.poll_one().is_some());
        assert_eq!(a.ended().status, Status::Flushed);
        a.qp.reset().unwrap();
        b.qp.reset().unwrap();
        assert_ne!(a.qp.local_address().psn, psn, "late packets are of another time");
        assert_eq!((a.qp.state(), a.qp.path()), (State::Init, None));
        rig.connect(&a.qp, &b.qp, &Shape::default().options);
        b.qp.receive(&b.region).post().unwrap();
        a.qp.send_inline(&[round]).post().unwrap();
        a.sent();
        assert_eq!(b.received().byte_len, 1);
        assert_eq!(b.region.load_u8(0), Ok(round));
        a.still_works(&b);
        b.still_works(&a);
    }
}

pub(crate) fn illegal_changes_change_nothing(rig: &Rig) {
    let (a, b) = rig.rc();
    let before = a.qp.query().unwrap().attributes;
    let illegal = [
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::empty()),
        Attributes::to(State::Rtr),
        Attributes::to(State::Rts).with_timeout(1),
        Attributes::to(State::Rts).with_current_state(State::Sqd),
        Attributes::to(State::Sqe),
        Attributes::new().with_path_mtu(PathMtu::B256),
        Attributes::to(State::Rts).with_min_rnr_timer(32),
        Attributes::to(State::Sqd).with(AttributeMask::AV),
    ];
    for change in illegal {
        let Err(error) = a.qp.modify(&change, None) else { panic!("{change:?}") };
        assert!(matches!(error, QpError::Modify(_) | QpError::NoAddress), "{error}");
        assert_eq!(a.qp.query().unwrap().attributes, before, "{change:?}");
    }
    a.still_works(&b);
}

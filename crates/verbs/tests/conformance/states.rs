//! The life of a queue pair.

use ferroce_verbs::*;

use super::rig::{Rig, Shape, pattern, until};

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
    assert_eq!((attributes.max_rd_atomic, attributes.max_dest_rd_atomic), (3, 4));
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
            matches!(error, PostError::Refused { error: RefusedError::WrongState { state: seen, .. }, .. } if seen == state),
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
    rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::Established));
    let error = b.qp.send_inline(b"too early").post().unwrap_err();
    assert!(matches!(
        error,
        PostError::Refused { error: RefusedError::WrongState { state: State::Rtr, .. }, .. }
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
        let error = a.qp.modify(&change, None).unwrap_err();
        assert!(matches!(error, QpError::Modify(_) | QpError::NoAddress), "{error}");
        assert_eq!(a.qp.query().unwrap().attributes, before, "{change:?}");
    }
    a.still_works(&b);
}

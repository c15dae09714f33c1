//! Objects that change while they are in use: regions registered anew, queues of another size, groups.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;

use ferroce_verbs::*;

use super::receives::sharing;
use crate::rig::{End, OPEN, Rig, SOON, Shape, pattern};
use crate::waiting::{reported, until};

fn reading(rig: &Rig, a: &End, remote: RemoteRegion, status: Status) {
    a.qp.read(a.region.slice(..8), remote).post().unwrap();
    let ended = a.ended();
    if status == Status::Success {
        assert!(ended.is_success(), "{ended:?}");
    } else {
        rig.assert_refused(&ended, status);
    }
}

pub(crate) fn a_region_changes_its_access(rig: &Rig) {
    let (a, b) = rig.rc();
    let mut region = b.pd.allocate(4096, OPEN).unwrap();
    let old = region.remote();
    reading(rig, &a, old, Status::Success);
    let change = Reregistration::new().access(Access::LOCAL_WRITE | Access::REMOTE_READ);
    assert!(region.reregister(change).unwrap().is_none());
    let new = region.remote();
    assert_ne!(old.rkey, new.rkey);
    assert_eq!((old.address, old.length), (new.address, new.length));
    reading(rig, &a, new, Status::Success);
    a.qp.write_inline(b"x", new).post().unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
    let (a, _b) = rig.rc();
    reading(rig, &a, old, Status::RemoteAccess);
    // As the program's own it works under its new key.
    let (a, b) = rig.rc();
    b.qp.receive(&region).id(3).post().unwrap();
    a.qp.send_inline(b"hello").post().unwrap();
    a.sent();
    assert_eq!((b.received().id, region.to_vec(..5).unwrap()), (3, b"hello".to_vec()));
}

pub(crate) fn a_reregistered_region_cannot_be_opened_by_guessing_from_its_old_key(rig: &Rig) {
    let (friend, b) = rig.rc();
    let mut region = b.pd.allocate(4096, OPEN).unwrap();
    for step in [1, 2, 255] {
        let old = region.remote();
        region.reregister(Reregistration::new()).unwrap();
        // A guess costs a queue pair.
        let (guesser, _b) = rig.rc();
        let guess = Rkey(old.rkey.0 & !0xff | old.rkey.0.wrapping_add(step) & 0xff);
        reading(rig, &guesser, RemoteRegion { rkey: guess, ..old }, Status::RemoteAccess);
        reading(rig, &friend, region.remote(), Status::Success);
        assert_ne!(old.rkey.0 >> 8, region.remote().rkey.0 >> 8);
    }
}

pub(crate) fn a_region_changes_its_domain(rig: &Rig) {
    let (a, b) = rig.rc();
    let mut region = b.pd.allocate(4096, OPEN).unwrap();
    let other = rig.b.context.protection_domain().unwrap();
    region.reregister(Reregistration::new().domain(&other)).unwrap();
    let error = b.qp.send(&region).post().unwrap_err();
    assert!(matches!(error, PostError::OtherDomain { .. }), "{error}");
    reading(rig, &a, region.remote(), Status::RemoteAccess);
    let (c, d) =
        (rig.a.end(Service::Rc, &Shape::default()), rig.b.end_in(&other, Service::Rc, &Shape::default()));
    rig.connect(&c.qp, &d.qp, &Shape::default().options);
    reading(rig, &c, region.remote(), Status::Success);
    // And back, which lets the other domain go.
    region.reregister(Reregistration::new().domain(&b.pd)).unwrap();
    reading(rig, &c, region.remote(), Status::RemoteAccess);
}

pub(crate) fn a_region_changes_its_memory(rig: &Rig) {
    let (a, b) = rig.rc();
    let mut region = b.pd.register(pattern(4096, 1), OPEN).unwrap();
    let other = Memory::from(pattern(9000, 2));
    // Cards map whole pages.
    let chosen = 0x7000_0000 + (other.address() + 1000) % 4096;
    let change = Reregistration::new().memory(other, 1000..6000).address(chosen);
    let old = region.reregister(change).unwrap().unwrap();
    assert_eq!(*old.into_boxed().unwrap(), *pattern(4096, 1));
    assert_eq!((region.len(), region.address()), (5000, chosen));
    a.qp.read(a.region.slice(..5000), region.remote()).post().unwrap();
    a.sent();
    assert_eq!(a.region.to_vec(..5000).unwrap(), pattern(9000, 2)[1000..6000]);
    // All of it in one step.
    let other = rig.b.context.protection_domain().unwrap();
    let change = Reregistration::new().memory(vec![7; 64], ..).domain(&other).access(Access::REMOTE_READ);
    region.reregister(change).unwrap();
    assert_eq!((region.len(), region.access()), (64, Access::REMOTE_READ));
    reading(rig, &a, region.remote(), Status::RemoteAccess);
}

pub(crate) fn a_refused_change_changes_nothing(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let (a, b) = rig.rc();
    let mut region = b.pd.allocate(4096, OPEN | Access::BIND_WINDOW).unwrap();
    let before = region.remote();
    assert!(region.reregister(Reregistration::new().access(Access::REMOTE_WRITE)).is_err());
    assert!(region.reregister(Reregistration::new().memory(vec![0; 10], 5..11)).is_err());
    let change = Reregistration::new().memory(vec![0; 10], ..).address(u64::MAX - 3);
    assert!(region.reregister(change).is_err());
    let foreign = Context::builder("ferroce_lo").address([127, 0, 59, 200]).open();
    if let Ok(foreign) = foreign {
        let elsewhere = foreign.protection_domain().unwrap();
        let refused = region.reregister(Reregistration::new().domain(&elsewhere));
        assert_eq!(refused.unwrap_err(), CreateError::OtherDevice { what: "protection domain" });
    }
    let window = b.pd.memory_window(WindowKind::Type1).unwrap();
    window.bind_now(region.slice(..64), Access::REMOTE_READ).unwrap();
    assert!(region.reregister(Reregistration::new().access(OPEN)).is_err(), "a window is bound to it");
    assert_eq!((region.remote(), region.access()), (before, OPEN | Access::BIND_WINDOW));
    reading(rig, &a, before, Status::Success);
    drop(window);
    region.reregister(Reregistration::new().access(OPEN)).unwrap();
}

pub(crate) fn a_region_changes_under_load(rig: &Rig) {
    let (a, b) = rig.rc();
    let mut region = b.pd.allocate(60_000, OPEN).unwrap();
    let old = region.remote();
    for id in 0..40 {
        a.qp.write(a.region.slice(..60_000), old).id(id).post().unwrap();
    }
    assert!(a.sent().is_success());
    region.reregister(Reregistration::new()).unwrap();
    let mut failed = false;
    for _ in 1..40 {
        let ended = a.ended();
        match (failed, ended.status) {
            (false, Status::Success) => {}
            (false, _) => {
                rig.assert_refused(&ended, Status::RemoteAccess);
                failed = true;
            }
            (true, status) => assert_eq!(status, Status::Flushed),
        }
    }
    // And what our own work names.
    let (a, _b) = rig.rc();
    let mut own = a.pd.allocate(1000, OPEN).unwrap();
    a.qp.send(&own).post().unwrap();
    own.reregister(Reregistration::new()).unwrap();
    // The peer has no receive, so it is sent again, and its memory is not there under this key.
    assert_eq!(a.ended().status, Status::LocalProtection);
}

pub(crate) fn a_shared_queue_changes_its_size(rig: &Rig) {
    // As much as there is: a card may give more than was asked for, but has queues of a power of two but one.
    let srq = rig.b.pd.shared_receive_queue(3, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    let post = |id: u64| srq.receive(b.region.slice(..64)).id(id).post();
    for id in 0..3 {
        post(id).unwrap();
    }
    let full = |error| matches!(error, PostError::Refused { error: PostRefusal::QueueFull { .. }, .. });
    assert!(full(post(3).unwrap_err()));
    srq.resize(7).unwrap();
    assert_eq!((srq.depth(), srq.len()), (7, 3));
    for id in 3..7 {
        post(id).unwrap();
    }
    assert!(full(post(7).unwrap_err()));
    let arrive = |id: u64| {
        a.qp.send_inline(b"next").post().unwrap();
        a.sent();
        assert_eq!(b.received().id, id, "in order over every change of size");
    };
    arrive(0);
    let small = CreateError::OutOfBounds {
        what: "requests of a shared receive queue",
        given: 3,
        least: 6,
        most: u64::from(rig.b.context.query().max_queue_depth),
    };
    assert_eq!(srq.resize(3), Err(small));
    assert_eq!((srq.depth(), srq.len()), (7, 6));
    for id in 1..4 {
        arrive(id);
    }
    srq.resize(3).unwrap();
    assert!(full(post(7).unwrap_err()));
    srq.set_limit(3).unwrap();
    assert!(srq.resize(1).is_err(), "less than its limit");
    assert!(srq.resize(0).is_err() && srq.resize(u32::MAX).is_err());
    for id in 4..7 {
        arrive(id);
    }
    rig.b.event(AsyncEvent::SharedQueueLimit(srq.id()));
    srq.resize(1).unwrap();
    post(9).unwrap();
    arrive(9);
}

pub(crate) fn a_completion_queue_changes_its_size(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape { completions: 8, depth: 8, ..Shape::default() });
    let remote = b.region.remote();
    for round in 1..4 {
        b.region.fill(100..108, round).unwrap();
        for id in 0..7 {
            a.qp.write_inline(b"x", remote).id(id).post().unwrap();
        }
        a.qp.read(a.region.slice(..8), remote.slice(100..108)).id(7).post().unwrap();
        // When its bytes are here, all eight are done and wait in the queue.
        until(|| a.region.load_u8(7) == Ok(round));
        let capacity = a.sends.capacity();
        assert!(a.sends.resize(7).is_err(), "there are eight");
        assert_eq!(a.sends.capacity(), capacity);
        let other = [64, 8, 1000][usize::from(round) - 1];
        a.sends.resize(other).unwrap();
        let has = a.sends.capacity();
        // A card may give more than was asked for.
        assert!(has == other || !rig.counts() && has > other, "{has} for {other}");
        for id in 0..8 {
            assert_eq!(a.sent().id, id);
        }
    }
    a.sends.resize(8).unwrap();
    assert!(a.sends.resize(0).is_err() && a.sends.resize(u32::MAX).is_err());
    assert!(!a.sends.is_overrun());
    a.still_works(&b);
}

pub(crate) fn events_wait_for_several_completions(rig: &Rig) {
    rig.needs(Capability::Moderation);
    let channel = rig.b.context.completion_channel().unwrap();
    let receives = channel.completion_queue(64).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), rig.b.end(Service::Rc, &Shape::default()));
    let qp = rig.b.pd.queue_pair(Service::Rc).send_queue(&b.sends, 16).receive_queue(&receives, 32);
    let qp = qp.address(rig.b.address).build().unwrap();
    let b = End { qp, receives, ..b };
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    for id in 0..16 {
        b.qp.receive(&b.region).id(id).post().unwrap();
    }
    let period = Duration::from_millis(60);
    assert!(b.receives.moderate(65, period).is_err(), "more than it holds");
    assert!(b.receives.moderate(2, Duration::from_secs(1)).is_err());
    b.receives.moderate(4, period).unwrap();
    b.receives.arm(Notify::Any);
    let clock = || rig.b.context.clock_now();
    let began = clock();
    for _ in 0..3 {
        a.qp.send_inline(b"quiet").post().unwrap();
        a.sent();
    }
    let told = channel.poll().is_some();
    assert!(!told || clock().since(began) >= period, "three of four");
    a.qp.send_inline(b"loud").post().unwrap();
    a.sent();
    if !told {
        assert_eq!(reported(&channel), b.receives);
    }
    let first = b.received();
    for _ in 0..3 {
        b.received();
    }
    assert_eq!(first.id, 0);
    // Too few for the count: the time brings the event, with no thread looking.
    b.receives.moderate(64, period).unwrap();
    b.receives.arm(Notify::Any);
    assert!(b.receives.poll_one().is_none());
    a.qp.send_inline(b"alone").post().unwrap();
    a.sent();
    assert!(ferroce_device::wait_readable(channel.as_fd(), Some(SOON)).unwrap());
    let woken = clock();
    assert_eq!(reported(&channel), b.receives);
    let alone = b.received();
    assert!(woken.since(alone.time) >= period || told, "{:?}", woken.since(alone.time));
    b.receives.moderate(0, Duration::ZERO).unwrap();
    b.receives.arm(Notify::Any);
    a.qp.send_inline(b"at once").post().unwrap();
    a.sent();
    assert_eq!(reported(&channel), b.receives);
}

pub(crate) fn a_group_gets_copies(rig: &Rig) {
    const QKEY: QKey = QKey(0x77);
    rig.without_traffic();
    let host = &rig.b;
    let group: Gid = match host.address {
        IpAddr::V4(_) => IpAddr::from([239, 1, 2, 3]).into(),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 9)).into(),
    };
    let ends: Vec<End> = (0..4).map(|_| host.end(Service::Ud, &Shape::default())).collect();
    for end in &ends {
        end.qp.activate(QKEY).unwrap();
    }
    let index = host.context.gid_index(host.address).unwrap();
    let address = AddressVector { traffic_class: 0x20, ..AddressVector::new(group, index) };
    let handle = host.pd.address_handle(&address).unwrap();
    let [sender, first, second, third] = &ends[..] else { unreachable!() };
    for end in &ends {
        for id in 0..8 {
            end.qp.receive(end.region.slice(..1024)).id(id).post().unwrap();
        }
    }
    first.qp.attach_to_group(group).unwrap();
    first.qp.attach_to_group(group).unwrap();
    second.qp.attach_to_group(group).unwrap();
    sender.region.write_at(0, b"to all").unwrap();
    let send = || {
        sender.qp.send_to_group(&handle, QKEY, sender.region.slice(..6)).imm(9).post().unwrap();
        sender.sent();
    };
    send();
    for end in [first, second] {
        let got = end.received();
        assert_eq!((got.byte_len, got.imm, got.source_qp), (46, Some(9), Some(sender.qp.qpn())));
        assert_eq!(end.region.to_vec(40..46).unwrap(), b"to all");
        let header = DatagramHeader::read(&end.region, 0).unwrap();
        assert_eq!((header.source, header.dest), (host.address.into(), group));
        assert_eq!(header.traffic_class, 0x20);
    }
    assert!(third.receives.poll_one().is_none() && first.receives.poll_one().is_none(), "once each");
    first.qp.detach_from_group(group).unwrap();
    let gone = CreateError::NotAttached { group: group.ip() };
    assert_eq!(first.qp.detach_from_group(group), Err(gone));
    third.qp.attach_to_group(group).unwrap();
    sender.qp.attach_to_group(group).unwrap();
    send();
    for end in [second, third, sender] {
        assert_eq!(end.received().byte_len, 46, "the sender too, if it is attached");
    }
    assert!(first.receives.poll_one().is_none());
    // A wrong Q_Key, and what is no group or no member.
    sender.qp.send_to_group(&handle, QKey(1), sender.region.slice(..6)).post().unwrap();
    sender.sent();
    if rig.counts() {
        until(|| second.qp.counters().wrong_qkey == 1 && third.qp.counters().wrong_qkey == 1);
    }
    let error =
        sender.qp.send_to(&handle, second.qp.qpn(), QKEY, sender.region.slice(..6)).post().unwrap_err();
    assert_eq!(error, PostError::NotOfGroup { qpn: second.qp.qpn() });
    let here = host.handle_to(host);
    let error = sender.qp.send_to(&here, Qpn::MULTICAST, QKEY, sender.region.slice(..6)).post().unwrap_err();
    assert_eq!(error, PostError::NotOfGroup { qpn: Qpn::MULTICAST });
    let not_a_group = CreateError::Address(RouteError::NotAGroup(host.address));
    assert_eq!(first.qp.attach_to_group(host.address.into()), Err(not_a_group));
    let connected = host.end(Service::Rc, &Shape::default());
    let wrong = CreateError::NotADatagramQueue { given: "RC" };
    assert_eq!(connected.qp.attach_to_group(group), Err(wrong));
    if rig.counts() {
        assert_eq!(host.context.counters().multicast_copies, 2 + 3 + 3);
    }
}

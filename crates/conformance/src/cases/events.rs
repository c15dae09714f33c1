//! Completion events and asynchronous events.

use std::os::fd::AsFd;
use std::time::Duration;

use ferroce_transport::SendOp;
use ferroce_verbs::*;

use crate::rig::{End, Rig, SOON, Shape};
use crate::waiting::{reported, until};

/// A connection whose second end reports its receives to a channel.
fn reporting(rig: &Rig) -> (End, End, CompletionChannel) {
    let channel = rig.b.context.completion_channel().unwrap();
    let receives = channel.completion_queue(64).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), rig.b.end(Service::Rc, &Shape::default()));
    let qp = rig
        .b
        .pd
        .queue_pair(Service::Rc)
        .send_queue(&b.sends, 16)
        .receive_queue(&receives, 16)
        .address(rig.b.address)
        .build()
        .unwrap();
    let b = End { qp, receives, ..b };
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    for id in 0..16 {
        b.qp.receive(&b.region).id(id).post().unwrap();
    }
    (a, b, channel)
}

fn is_readable(channel: &CompletionChannel) -> bool {
    ferroce_device::wait_readable(channel.as_fd(), Some(Duration::ZERO)).unwrap()
}

pub(crate) fn channel_reports_any(rig: &Rig) {
    let (a, b, channel) = reporting(rig);
    for id in 0..8 {
        assert!(!is_readable(&channel));
        b.receives.arm(Notify::Any);
        assert!(b.receives.poll_one().is_none());
        a.qp.send_inline(b"news").post().unwrap();
        assert!(
            ferroce_device::wait_readable(channel.as_fd(), Some(SOON)).unwrap(),
            "its driver runs by itself"
        );
        assert_eq!(reported(&channel), b.receives);
        assert_eq!(b.received().id, id);
        a.sent();
    }
    assert!(channel.poll().is_none());
}

pub(crate) fn channel_reports_solicited(rig: &Rig) {
    let (a, b, channel) = reporting(rig);
    b.receives.arm(Notify::Solicited);
    for _ in 0..3 {
        a.qp.send_inline(b"quiet").post().unwrap();
        a.sent();
    }
    // Acknowledged, so completed over there.
    assert!(channel.poll().is_none() && !is_readable(&channel), "not solicited");
    a.qp.send_inline(b"loud").solicited().post().unwrap();
    a.sent();
    assert_eq!(reported(&channel), b.receives);
    let solicited: Vec<bool> = (0..4).map(|_| b.received().solicited).collect();
    assert_eq!(solicited, [false, false, false, rig.marks()]);
    a.qp.send_inline(b"loud").solicited().post().unwrap();
    a.sent();
    assert!(channel.poll().is_none(), "armed once, told once");
}

pub(crate) fn no_event_unless_armed(rig: &Rig) {
    let (a, b, channel) = reporting(rig);
    for _ in 0..3 {
        a.qp.send_inline(b"unasked").solicited().post().unwrap();
        a.sent();
    }
    assert!(channel.poll().is_none() && !is_readable(&channel));
    // What was there before arming raises no event either.
    b.receives.arm(Notify::Any);
    // Our drop-in library raises one for what no event has told of, as some C programs want it (docs/drop-in.md).
    assert!(!is_readable(&channel) || rig.is_card());
    assert_eq!([b.received().id, b.received().id, b.received().id], [0, 1, 2]);
}

pub(crate) fn failures_are_solicited(rig: &Rig) {
    rig.without_traffic();
    let (_a, b, channel) = reporting(rig);
    b.receives.arm(Notify::Solicited);
    b.qp.flush().unwrap();
    assert_eq!(reported(&channel), b.receives);
    assert_eq!(b.receive_ended().status, Status::Flushed);
}

pub(crate) fn overrun_ends_the_queue_pair(rig: &Rig) {
    let (a, b) = rig.rc();
    let small = rig.a.context.completion_queue(2).unwrap();
    let qp = rig
        .a
        .pd
        .queue_pair(Service::Rc)
        .send_queue(&small, 16)
        .receive_queue(&a.receives, 16)
        .address(rig.a.address)
        .build()
        .unwrap();
    let peer = rig.b.end(Service::Rc, &Shape::default());
    rig.connect(&qp, &peer.qp, &Shape::default().options);
    for _ in 0..16 {
        // Once the queue pair is in error, work is flushed, and its completions are lost as well.
        qp.write_inline(b"x", peer.region.remote()).post().unwrap();
    }
    rig.a.event(AsyncEvent::CompletionQueueOverrun(small.id()));
    until(|| qp.state() == State::Err);
    assert!(small.is_overrun());
    assert!(small.poll_one().is_some(), "what had room is there");
    let lost = loop {
        if let Err(lost) = small.wait(SOON) {
            break lost;
        }
    };
    assert_eq!(lost, WaitError::Overrun { capacity: small.capacity() });
    a.still_works(&b);
}

pub(crate) fn peer_errors_are_events(rig: &Rig) {
    rig.needs(Capability::PeerEvents);
    let (a, b) = rig.rc();
    a.post_raw(1, SendOp::Read(b.at(b.region.len() as u64)), &[a.sge(0, 8)]).unwrap();
    rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::AccessError));
    let (a, b) = rig.rc();
    a.post_raw(1, SendOp::FetchAdd { remote: b.at(1), add: 1 }, &[a.sge(0, 8)]).unwrap();
    rig.b.event(AsyncEvent::QueuePair(b.qp.qpn(), Event::RequestError));
    assert!(!ferroce_device::wait_readable(rig.b.context.events().as_fd(), Some(Duration::ZERO)).unwrap());
}

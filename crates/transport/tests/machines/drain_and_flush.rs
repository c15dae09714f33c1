//! The end of work: draining in SQD (IBA 10.3.1.5) and flushing in ERR (IBA 10.3.1.7).

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side, Verdict};
use ferroce_transport::{
    Acks, AttributeMask, Attributes, Data, Event, ModifyError, QpConfig, ReceiveQueue, ReceiveRequest,
    SendFlags, SendOp, SharedQueueId, State, Status, WorkKind,
};
use ferroce_wire::{Body, Packet, Psn, Qpn, Request, Segment, Service};

fn drain(pair: &mut Pair, side: Side) {
    pair.modify(side, &Attributes::to(State::Sqd).with_notify_drained(true)).expect("RTS to SQD");
}

fn resume(pair: &mut Pair, side: Side) {
    pair.modify(side, &Attributes::to(State::Rts)).expect("SQD to RTS");
}

/// A message that has begun is finished, those behind it wait for RTS; the event comes once, after the end.
#[test]
fn sqd_finishes_what_has_begun_and_holds_back_the_rest() {
    const LONG: u32 = 300 * 1024;
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, LONG as usize, 1);
    post_write(&mut pair, 1, LONG);
    post_write(&mut pair, 2, 10);
    pair.step();
    assert!(pair.sent.len() < 300, "the window holds some of the message back");
    drain(&mut pair, Side::A);
    assert_events(&mut pair, &[], &[]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, LONG)]);
    assert_filled(&mut pair, Side::B, 0, LONG as usize, 1);
    assert_states(&pair, State::Sqd, State::Rts);
    assert_events(&mut pair, &[Event::SendQueueDrained], &[]);

    post_write(&mut pair, 3, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[]);
    assert_events(&mut pair, &[], &[]);
    assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 2);

    resume(&mut pair, Side::A);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 10), (3, Status::Success, 10)]);
    assert_at_peace(&mut pair);
}

/// When everything that was sent is acknowledged but the message has more, it is not drained.
#[test]
fn sqd_is_not_drained_between_packets_of_a_message() {
    const LONG: u32 = 300 * 1024;
    let mut pair = pair(|setup| setup.acks = Acks::Hold);
    post_write(&mut pair, 1, LONG);
    pair.step();
    drain(&mut pair, Side::A);
    for _ in 0..10 {
        // B speaks only when everything that the window lets A send has arrived.
        pair.run_for(Duration::from_micros(10));
        let now = pair.now();
        let answer = pair.node(Side::B).transmit(now, 0, Acks::Send).expect("B owes an ACK");
        pair.inject(Side::A, &Packet::parse(&answer.bytes).unwrap());
        pair.run_for(Duration::ZERO);
        let (done, events) = (pair.take_sends(Side::A), pair.take_events(Side::A));
        assert_eq!(done.len(), events.len(), "the event comes with the end of the message");
        if !done.is_empty() {
            assert_eq!(events, [Event::SendQueueDrained]);
            return;
        }
    }
    panic!("the message did not end");
}

/// With nothing under way the event comes at once, and without the wish for it not at all.
#[test]
fn sqd_with_nothing_under_way_is_drained_at_once() {
    let mut pair = pair(|_| {});
    drain(&mut pair, Side::A);
    assert_events(&mut pair, &[Event::SendQueueDrained], &[]);
    resume(&mut pair, Side::A);
    pair.modify(Side::A, &Attributes::to(State::Sqd)).unwrap();
    pair.run();
    assert_events(&mut pair, &[], &[]);
    assert_states(&pair, State::Sqd, State::Rts);
}

/// Nothing changes under messages that are on their way; once they are done, everything that SQD allows.
#[test]
fn sqd_takes_new_attributes_only_when_it_has_drained() {
    const LONG: u32 = 300 * 1024;
    let mut pair = pair(|_| {});
    post_write(&mut pair, 1, LONG);
    pair.step();
    drain(&mut pair, Side::A);
    assert!(pair.queue_pair(Side::A).attributes().draining);
    let changes = [
        Attributes::to(State::Sqd).with_timeout(3),
        Attributes::new().with_max_rd_atomic(1),
        Attributes::to(State::Rts).with_min_rnr_timer(3),
        Attributes::to(State::Sqd).with(AttributeMask::AV),
    ];
    let before = pair.queue_pair(Side::A).attributes();
    for change in &changes {
        let refused = pair.modify(Side::A, change);
        assert!(matches!(refused, Err(ModifyError::Draining { .. })), "{refused:?}");
    }
    assert_eq!(pair.queue_pair(Side::A).attributes(), before);
    pair.run();
    assert_events(&mut pair, &[Event::SendQueueDrained], &[]);
    for change in &changes {
        pair.modify(Side::A, change).unwrap();
        if change.state == State::Rts {
            pair.modify(Side::A, &Attributes::to(State::Sqd)).unwrap();
        }
    }
    let after = pair.queue_pair(Side::A).attributes();
    assert_eq!((after.timeout, after.max_rd_atomic, after.min_rnr_timer, after.draining), (3, 1, 3, false));
    resume(&mut pair, Side::A);
    post_write(&mut pair, 2, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, LONG), (2, Status::Success, 10)]);
}

/// Another depth of the responder takes effect in SQD, and what a peer may ask for again is kept.
#[test]
fn sqd_keeps_answers_over_a_change_of_depth() {
    let mut pair = pair(|_| {});
    set_word(&mut pair, Side::B, 0, 5);
    post_add(&mut pair, 1, (0, 0), 1);
    lose(&mut pair, Side::B, &[0]);
    pair.step();
    pair.run_for(Duration::from_micros(100));
    assert_eq!(word(&mut pair, Side::B, 0), 6);
    drain(&mut pair, Side::B);
    pair.modify(Side::B, &Attributes::to(State::Sqd).with_max_dest_rd_atomic(1)).unwrap();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8)]);
    assert_eq!((word(&mut pair, Side::A, 0), word(&mut pair, Side::B, 0)), (5, 6));
    assert_eq!(pair.counters(Side::B).duplicate_atomics, 1);
}

/// Packets that are lost while draining are sent again.
#[test]
fn sqd_recovers_from_loss() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 8192, 1);
    post_write(&mut pair, 1, 8192);
    post_read(&mut pair, 2, 0);
    lose(&mut pair, Side::A, &[3, 8]);
    pair.step();
    drain(&mut pair, Side::A);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8192), (2, Status::Success, 0)]);
    assert_events(&mut pair, &[Event::SendQueueDrained], &[]);
    assert_filled(&mut pair, Side::B, 0, 8192, 1);
}

/// A queue pair that drains still answers its peer.
#[test]
fn sqd_does_not_stop_the_responder() {
    let mut pair = pair(|_| {});
    drain(&mut pair, Side::B);
    post_receive(&mut pair, Side::B, 50, 0, 10);
    post_message(&mut pair, 1, 10);
    post_read(&mut pair, 2, 3000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10), (2, Status::Success, 3000)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 10)]);
    assert_states(&pair, State::Rts, State::Sqd);
}

/// Everything that waits ends as flushed, each queue in its order, signaled or not; so does what is posted
/// afterwards.
#[test]
fn err_flushes_both_queues_in_order() {
    let mut pair = pair(|_| {});
    cut_both(&mut pair);
    for id in 60..63 {
        post_receive(&mut pair, Side::A, id, 0, 10);
    }
    post_write(&mut pair, 1, 3000);
    post_read(&mut pair, 2, 10);
    let (op, data) = (SendOp::Send, Data::Inline(b"x"));
    post_with(&mut pair, Side::A, 3, op, data, SendFlags::empty());
    pair.step();
    pair.modify(Side::A, &Attributes::to(State::Err)).unwrap();
    let sends = pair.take_sends(Side::A);
    let seen: Vec<_> = sends.iter().map(|one| (one.id, one.status, one.kind)).collect();
    let kinds = [WorkKind::Write, WorkKind::Read, WorkKind::Send];
    let wanted: Vec<_> = (1..).zip(kinds).map(|(id, kind)| (id, Status::Flushed, kind)).collect();
    assert_eq!(seen, wanted);
    assert_receives(&mut pair, Side::A, &[60, 61, 62].map(|id| (id, Status::Flushed, 0)));
    assert_eq!(pair.queue_pair(Side::A).poll_timeout(), None);

    post_with(&mut pair, Side::A, 4, op, data, SendFlags::empty());
    post_receive(&mut pair, Side::A, 63, 0, 10);
    assert_sends(&mut pair, Side::A, &[(4, Status::Flushed, 0)]);
    assert_receives(&mut pair, Side::A, &[(63, Status::Flushed, 0)]);
    heal(&mut pair);
    pair.sent.clear();
    pair.run();
    assert_eq!(pair.sent.len(), 0);
    assert_states(&pair, State::Err, State::Rts);
    assert_events(&mut pair, &[], &[]);
}

/// A receive that a half-arrived message has taken is flushed first: it was the oldest.
#[test]
fn err_flushes_the_receive_of_a_message_in_the_middle() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 4096);
    post_receive(&mut pair, Side::B, 51, 0, 4096);
    post_message(&mut pair, 1, 3000);
    pair.filter(|sent| if sent.number == 0 { Verdict::Deliver } else { Verdict::Drop });
    while pair.counters(Side::B).requests_received == 0 {
        pair.step();
    }
    pair.modify(Side::B, &Attributes::to(State::Err)).unwrap();
    assert_receives(&mut pair, Side::B, &[(50, Status::Flushed, 0), (51, Status::Flushed, 0)]);
}

/// The window is given back: another queue pair to the same host is not held back by a dead one.
#[test]
fn err_gives_the_window_back() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 300 * 1024);
    pair.step();
    assert!(pair.node(Side::A).window(1).in_flight() > 200 * 1024);
    pair.modify(Side::A, &Attributes::to(State::Err)).unwrap();
    assert_eq!(pair.node(Side::A).window(1).in_flight(), 0);
}

/// Adds a queue pair to B that takes its receives from a shared queue, connected to no peer in particular.
fn add_shared(pair: &mut Pair) -> usize {
    let setup = Setup::default();
    let node = pair.node(Side::B);
    node.device.shared.push(ReceiveQueue::new(8, 4));
    let config = QpConfig {
        qpn: Qpn::new(0x77),
        service: Service::Rc,
        domain: ferroce_transport::DomainId(1),
        caps: setup.caps,
        signal_all: false,
        shared_queue: Some(SharedQueueId(0)),
    };
    let index = node.add(config, Some(0));
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(setup.access);
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(setup.mtu)
        .with_dest_qpn(Pair::qpn(Side::A))
        .with_rq_psn(Psn::new(START))
        .with_max_dest_rd_atomic(16)
        .with_min_rnr_timer(1);
    for attributes in [init, rtr] {
        node.modify(index, &attributes).expect("the way to RTR");
    }
    index
}

/// The first packet of a longer SEND arrives there.
fn begin_message(pair: &mut Pair) {
    let request = Request::Send(Segment::First(()), &[1; 1024][..]);
    pair.inject(Side::B, &Packet::new(Qpn::new(0x77), Psn::new(START), Body::RcRequest(request)));
    pair.run();
}

/// IBA 10.9.2.3 and 11.6.3: receives of a shared queue stay there; the queue pair says that it took its last.
#[test]
fn err_of_a_queue_pair_with_a_shared_queue_reports_its_last_receive() {
    let mut pair = pair(|_| {});
    let index = add_shared(&mut pair);
    let sges = [pair.sge(Side::B, 0, 100)];
    assert!(pair.node(Side::B).device.shared[0].push(70, &sges));
    assert!(pair.node(Side::B).device.shared[0].push(71, &sges));
    // It takes the first receive, which is too small, and is refused.
    begin_message(&mut pair);
    assert_receives(&mut pair, Side::B, &[(70, Status::LocalLength, 0)]);
    let events = [Event::Established, Event::RequestError, Event::LastWorkRequestReached];
    assert_events(&mut pair, &[], &events);
    assert_eq!(pair.node(Side::B).queue_pair(index).state(), State::Err);
    assert_eq!(pair.node(Side::B).device.shared[0].len(), 1, "the other receive stays for others");
}

/// The same by the program's own wish, while a message holds a receive.
#[test]
fn a_shared_receive_of_a_message_in_the_middle_is_flushed() {
    let mut pair = pair(|_| {});
    let index = add_shared(&mut pair);
    let sges = [pair.sge(Side::B, 0, 4096)];
    assert!(pair.node(Side::B).device.shared[0].push(70, &sges));
    begin_message(&mut pair);
    pair.node(Side::B).modify(index, &Attributes::to(State::Err)).unwrap();
    pair.run();
    assert_receives(&mut pair, Side::B, &[(70, Status::Flushed, 0)]);
    assert_events(&mut pair, &[], &[Event::Established, Event::LastWorkRequestReached]);
    let refused = pair.node(Side::B).post_receive(index, &ReceiveRequest { id: 1, sges: &[] });
    assert_eq!(refused, Err(ferroce_transport::PostError::SharedQueue));
}

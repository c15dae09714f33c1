//! Unreliable connections: a message arrives whole or not at all, and no peer is told (IBA 9.8.2).

use crate::common::*;
use ferroce_sim::{Pair, Side, Verdict};
use ferroce_transport::{
    Access, Attributes, Data, Event, PostError, SendFlags, SendOp, SendRequest, State, Status, WorkKind,
};
use ferroce_wire::{Body, Imm, Packet, Psn, Segment, Service, UcRequest};

fn uc() -> Pair {
    pair(|setup| setup.service = Service::Uc)
}

/// Lets B receive a packet that A never sent.
fn inject_uc(pair: &mut Pair, psn: u32, request: UcRequest<&[u8]>) {
    pair.inject(Side::B, &Packet::new(Pair::qpn(Side::B), Psn::new(psn), Body::Uc(request)));
    pair.run();
}

#[test]
fn messages_arrive_and_nothing_is_acknowledged() {
    let mut pair = uc();
    fill(&mut pair, Side::A, 0, 3000, 1);
    post_receive(&mut pair, Side::B, 50, 0x8000, 3000);
    post_write(&mut pair, 1, 3000);
    post_message(&mut pair, 2, 3000);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A WRITE First 10",
            "A WRITE Middle 11",
            "A WRITE Last 12",
            "A SEND First 13",
            "A SEND Middle 14",
            "A SEND Last 15",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000), (2, Status::Success, 3000)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 3000)]);
    assert_filled(&mut pair, Side::B, 0, 3000, 1);
    assert_filled(&mut pair, Side::B, 0x8000, 3000, 1);
    assert_at_peace(&mut pair);
}

/// Whichever packet is lost, its message is dropped, the receive serves the next one, and that arrives.
#[test]
fn a_gap_drops_the_message_and_the_receive_is_used_again() {
    for lost in 0..4 {
        let mut pair = uc();
        fill(&mut pair, Side::A, 0, 4096, 1);
        fill(&mut pair, Side::A, 0x4000, 4096, 2);
        post_receive(&mut pair, Side::B, 50, 0x8000, 4096);
        post_message(&mut pair, 1, 4096);
        let sge = pair.sge(Side::A, 0x4000, 4096);
        post(&mut pair, 2, SendOp::SendImm(Imm(7)), &[sge]);
        lose(&mut pair, Side::A, &[lost]);
        pair.run();
        // The sender knows nothing.
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4096), (2, Status::Success, 4096)]);
        assert_eq!(wire_of(&pair, Side::B).len(), 0);
        let received = pair.take_receives(Side::B);
        assert_eq!(received.len(), 1, "lost {lost}");
        assert_eq!((received[0].id, received[0].imm, received[0].byte_len), (50, Some(7), 4096));
        assert_filled(&mut pair, Side::B, 0x8000, 4096, 2);
        // With the first packet lost, the message never began.
        assert_eq!(pair.counters(Side::B).uc_messages_dropped, u64::from(lost > 0));
        assert_at_peace(&mut pair);
    }
}

/// A dropped SEND leaves the receive that it had taken. A plain WRITE goes by, and the next SEND gets it.
#[test]
fn a_plain_write_leaves_the_receive_of_a_dropped_send_alone() {
    let mut pair = uc();
    fill(&mut pair, Side::A, 0, 4096, 1);
    post_receive(&mut pair, Side::B, 50, 0x8000, 4096);
    post_message(&mut pair, 1, 2048);
    for (id, length) in [(2, 100), (3, 3000)] {
        post_write(&mut pair, id, length);
    }
    lose(&mut pair, Side::A, &[1]);
    pair.run();
    assert_receives(&mut pair, Side::B, &[]);
    assert_eq!(
        (pair.queue_pair(Side::B).receives_taken(), pair.counters(Side::B).uc_messages_dropped),
        (1, 1)
    );
    post_message(&mut pair, 4, 10);
    pair.run();
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 10)]);
}

/// A lost packet of a WRITE: what came before it is in place, nothing after it.
#[test]
fn a_gap_drops_the_rest_of_a_write() {
    let mut pair = uc();
    fill(&mut pair, Side::A, 0, 4096, 1);
    post_write(&mut pair, 1, 4096);
    lose(&mut pair, Side::A, &[2]);
    pair.run();
    assert_filled(&mut pair, Side::B, 0, 2048, 1);
    assert_untouched(&mut pair, Side::B, 2048, 2048);
    assert_eq!(pair.counters(Side::B).uc_messages_dropped, 1);
    assert_eq!(pair.counters(Side::B).out_of_sequence, 1);
    assert_states(&pair, State::Rts, State::Rts);
}

#[test]
fn a_write_with_immediate_takes_a_receive() {
    let mut pair = uc();
    fill(&mut pair, Side::A, 0, 3000, 1);
    let sge = pair.sge(Side::A, 0, 3000);
    post_receive(&mut pair, Side::B, 50, 0, 0);
    for (id, length) in [(1, 3000), (2, 10)] {
        let op = SendOp::WriteImm(pair.remote(Side::B, 0x1000 * id), Imm(9));
        post(&mut pair, id, op, &[ferroce_transport::Sge { length, ..sge }]);
    }
    pair.run();
    let received = pair.take_receives(Side::B);
    assert_eq!(received.len(), 1, "there was one receive");
    let one = received[0];
    assert_eq!((one.id, one.imm, one.byte_len, one.kind), (50, Some(9), 3000, WorkKind::ReceiveWithImm));
    assert_filled(&mut pair, Side::B, 0x1000, 3000, 1);
    assert_eq!(pair.counters(Side::B).no_receive, 1);
    assert_untouched(&mut pair, Side::B, 0x2000, 10);
    assert_states(&pair, State::Rts, State::Rts);
}

#[test]
fn a_message_without_a_receive_is_dropped_and_counted() {
    let mut pair = uc();
    post_message(&mut pair, 1, 3000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
    assert_eq!(pair.counters(Side::B).no_receive, 1);
    assert_states(&pair, State::Rts, State::Rts);
}

/// A message for which no receive was there is not delivered from its middle, when one is posted meanwhile.
#[test]
fn a_receive_posted_in_the_middle_of_a_dropped_message_waits_for_the_next() {
    let mut pair = uc();
    fill(&mut pair, Side::A, 0, 3000, 1);
    post_message(&mut pair, 1, 3000);
    while pair.counters(Side::B).no_receive == 0 {
        pair.step();
    }
    post_receive(&mut pair, Side::B, 50, 0x8000, 3000);
    pair.run();
    assert_receives(&mut pair, Side::B, &[]);
    assert_untouched(&mut pair, Side::B, 0x8000, 3000);
    post_message(&mut pair, 2, 3000);
    pair.run();
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 3000)]);
    assert_filled(&mut pair, Side::B, 0x8000, 3000, 1);
}

/// A duplicate begins the message again; reordering within it drops it.
#[test]
fn duplicates_and_reordering_never_give_a_wrong_message() {
    for swapped in 0..4 {
        let mut pair = uc();
        fill(&mut pair, Side::A, 0, 4096, 1);
        post_receive(&mut pair, Side::B, 50, 0x8000, 4096);
        post_message(&mut pair, 1, 4096);
        post_message(&mut pair, 2, 4096);
        pair.filter(move |sent| {
            if sent.number == swapped {
                Verdict::Delay(std::time::Duration::from_micros(1))
            } else {
                Verdict::Deliver
            }
        });
        pair.run();
        assert_receives(&mut pair, Side::B, &[(50, Status::Success, 4096)]);
        assert_filled(&mut pair, Side::B, 0x8000, 4096, 1);
        assert_states(&pair, State::Rts, State::Rts);
    }
}

#[test]
fn memory_that_the_peer_may_not_touch_is_not_touched() {
    let mut pair = pair(|setup| {
        setup.service = Service::Uc;
        setup.region_access = Access::LOCAL_WRITE;
    });
    fill(&mut pair, Side::A, 0, 100, 1);
    post_write(&mut pair, 1, 100);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 100)]);
    assert_untouched(&mut pair, Side::B, 0, 4096);
    assert_eq!(pair.counters(Side::B).uc_refused, 1);
    assert_states(&pair, State::Rts, State::Rts);
    assert_eq!(wire_of(&pair, Side::B).len(), 0);
}

#[test]
fn packets_that_do_not_fit_together_are_dropped() {
    use Segment::{First, Last, Middle, Only};
    const FULL: &[u8] = &[1; 1024];
    let mut pair = uc();
    post_receive(&mut pair, Side::B, 50, 0x8000, 100);
    let at = reth(&pair, 0, 2048);
    let cases: [&[UcRequest<&[u8]>]; 5] = [
        &[UcRequest::Send(Middle, FULL)],
        &[UcRequest::Write(Last(None), FULL)],
        &[UcRequest::Write(First(at), FULL), UcRequest::Send(Last(None), FULL)],
        &[UcRequest::Write(First(at), &FULL[..512])],
        &[UcRequest::Write(Only(at, None), FULL)],
    ];
    let mut psn = START;
    for requests in cases {
        for request in requests {
            inject_uc(&mut pair, psn, *request);
            psn += 1;
        }
    }
    assert_untouched(&mut pair, Side::B, 1024, 0x10000);
    inject_uc(&mut pair, psn + 100, UcRequest::Send(Only((), None), b"right"));
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 5)]);
    assert_eq!(pair.counters(Side::B).out_of_sequence + pair.counters(Side::B).uc_refused, 5);
    assert_at_peace(&mut pair);
}

#[test]
fn what_needs_an_answer_is_refused_at_the_post() {
    let mut pair = uc();
    let remote = pair.remote(Side::B, 0);
    let sge = [pair.sge(Side::A, 0, 8)];
    for op in [
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::AtomicWrite(remote),
        SendOp::SendInvalidate(remote.rkey),
    ] {
        let request =
            SendRequest { id: 1, op, data: Data::Gather(&sge), flags: SendFlags::SIGNALED, dest: None };
        assert_eq!(pair.post_send(Side::A, &request), Err(PostError::NotOfService { service: "UC", op }));
    }
    pair.run();
    assert_at_peace(&mut pair);
}

/// A send that fails stops the sending half (SQE); the receiving half goes on, and RTS starts it again.
#[test]
fn a_failed_send_leads_to_sqe_and_back() {
    let mut pair = uc();
    post_receive(&mut pair, Side::A, 60, 0, 10);
    let mut sge = pair.sge(Side::A, 0, 10);
    sge.lkey.0 ^= 1;
    post_message(&mut pair, 1, 10);
    post(&mut pair, 2, SendOp::Send, &[sge]);
    post_message(&mut pair, 3, 10);
    pair.run();
    let wanted = [(1, Status::Success, 10), (2, Status::LocalProtection, 0), (3, Status::Flushed, 0)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_receives(&mut pair, Side::A, &[]);
    assert_states(&pair, State::Sqe, State::Rts);

    post_message(&mut pair, 4, 10);
    assert_sends(&mut pair, Side::A, &[(4, Status::Flushed, 0)]);
    pair.modify(Side::A, &Attributes::to(State::Rts)).unwrap();
    post_receive(&mut pair, Side::B, 50, 0, 10);
    post_message(&mut pair, 5, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(5, Status::Success, 10)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 10)]);
    assert_states(&pair, State::Rts, State::Rts);
    assert_events(&mut pair, &[], &[]);
}

/// SQD: the message that has begun leaves whole, the next waits.
#[test]
fn sqd_drains_and_resumes() {
    let mut pair = uc();
    post_write(&mut pair, 1, 3000);
    pair.run();
    pair.modify(Side::A, &Attributes::to(State::Sqd).with_notify_drained(true)).unwrap();
    assert_events(&mut pair, &[Event::SendQueueDrained], &[]);
    post_write(&mut pair, 2, 10);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
    pair.modify(Side::A, &Attributes::to(State::Rts)).unwrap();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 10)]);
    assert_events(&mut pair, &[], &[]);
}

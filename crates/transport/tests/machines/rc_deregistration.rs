//! Memory that goes away while messages are under way.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Access, DomainId, Event, ReceiveRequest, SendOp, Sge, State, Status};
use ferroce_wire::{Lkey, PathMtu};

/// Takes the whole memory of a side out of the table.
fn deregister(pair: &mut Pair, side: Side) {
    let key = pair.remote(side, 0).rkey.0;
    assert!(pair.node(side).device.memory.deregister(key), "the region of {side:?} was there");
}

/// A second region over some bytes of a side.
fn second_region(pair: &mut Pair, side: Side, offset: u64, length: u32) -> Sge {
    let Sge { address, .. } = pair.sge(side, offset, length);
    let memory = &mut pair.node(side).device.memory;
    let key = memory.register(DomainId(1), address, u64::from(length), Access::all());
    Sge { address, length, lkey: Lkey(key) }
}

/// Steps until B has accepted this many requests.
fn step_until_received(pair: &mut Pair, requests: u64) {
    while pair.counters(Side::B).requests_received < requests {
        assert!(pair.step(), "the pair came to rest too early");
    }
}

#[test]
fn a_region_deregistered_between_first_and_last_takes_no_more_bytes() {
    for arrived in 1..4 {
        let mut pair = pair(|_| {});
        fill(&mut pair, Side::A, 0, 4096, 1);
        post_write(&mut pair, 1, 4096);
        post_write(&mut pair, 2, 1);
        step_until_received(&mut pair, arrived);
        deregister(&mut pair, Side::B);
        pair.run();
        let arrived = u32::try_from(arrived).unwrap();
        let answer = format!("B NAK Remote Access Error {:x} msn=0", START + arrived);
        assert_eq!(wire_of(&pair, Side::B), [answer]);
        assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0), (2, Status::Flushed, 0)]);
        assert_states(&pair, State::Err, State::Err);
        assert_events(&mut pair, &[], &[Event::AccessError]);
        let placed = arrived as usize * 1024;
        assert_filled(&mut pair, Side::B, 0, placed, 1);
        assert_untouched(&mut pair, Side::B, placed, 0x10000);
    }
}

/// A READ of several requests: those before are answered, the next is refused.
#[test]
fn a_region_deregistered_between_requests_of_a_read_is_a_remote_access_error() {
    let mut pair = pair(|setup| {
        setup.mtu = PathMtu::B4096;
        setup.max_rd_atomic = 1;
    });
    fill(&mut pair, Side::B, 0, 400_000, 1);
    post_read(&mut pair, 1, 400_000);
    step_until_received(&mut pair, 1);
    // The answers of the first request are on their way.
    pair.step();
    deregister(&mut pair, Side::B);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0)]);
    assert_states(&pair, State::Err, State::Err);
    assert_events(&mut pair, &[], &[Event::AccessError]);
    assert_eq!(pair.counters(Side::B).nak_remote_access_sent, 1);
}

/// It was: the refusal of such a READ was never sent, its peer ended with "retry exceeded", and every look at the queue pair
/// brought one more event.
#[test]
fn a_region_deregistered_before_the_answer_of_a_read_is_a_remote_access_error() {
    for answered in 0..3 {
        let mut pair = pair(|_| {});
        post_read(&mut pair, 1, 3000);
        post_read(&mut pair, 2, 8);
        assert!(pair.send_one(Side::A) && pair.send_one(Side::A));
        while pair.counters(Side::B).requests_received < 2 {
            assert!(pair.receive_one(), "the requests are on their way");
        }
        for _ in 0..answered {
            assert!(pair.send_one(Side::B), "a packet of the answer");
        }
        deregister(&mut pair, Side::B);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0), (2, Status::Flushed, 0)]);
        assert_states(&pair, State::Err, State::Err);
        assert_events(&mut pair, &[], &[Event::AccessError]);
        let counters = pair.counters(Side::B);
        assert_eq!((counters.nak_remote_access_sent, counters.responses_sent), (1, answered));
    }
}

/// The local buffer of a later request is gone before it is sent: what was before it completes first.
#[test]
fn a_local_buffer_deregistered_before_sending_fails_in_order() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::A, 0, 100, 1);
    let gone = second_region(&mut pair, Side::A, 0x1000, 100);
    post_write(&mut pair, 1, 100);
    let op = SendOp::Write(pair.remote(Side::B, 0x1000));
    post(&mut pair, 2, op, &[gone]);
    post_write(&mut pair, 3, 100);
    assert!(pair.node(Side::A).device.memory.deregister(gone.lkey.0));
    pair.run();
    let wanted = [(1, Status::Success, 100), (2, Status::LocalProtection, 0), (3, Status::Flushed, 0)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_wire(&pair, &["A WRITE Only 10 ask", "B ACK 10 msn=1"]);
    assert_states(&pair, State::Err, State::Rts);
    assert_events(&mut pair, &[], &[]);
    assert_untouched(&mut pair, Side::B, 0x1000, 100);
}

/// The local buffer is gone when half of it is sent: the message ends, and the one before it was done.
#[test]
fn a_local_buffer_deregistered_in_the_middle_of_sending_fails_in_order() {
    const LEN: u32 = 300 * 1024;
    let mut pair = pair(|_| {});
    let gone = second_region(&mut pair, Side::A, 0x1000, LEN);
    fill(&mut pair, Side::A, 0x1000, LEN as usize, 1);
    post_write(&mut pair, 1, 100);
    let op = SendOp::Write(pair.remote(Side::B, 0x1000));
    post(&mut pair, 2, op, &[gone]);
    post_write(&mut pair, 3, 100);
    pair.step();
    let sent = pair.sent.len();
    assert!((3..300).contains(&sent), "{sent} packets: the window holds some of the message back");
    assert!(pair.node(Side::A).device.memory.deregister(gone.lkey.0));
    pair.run();
    let wanted = [(1, Status::Success, 100), (2, Status::LocalProtection, 0), (3, Status::Flushed, 0)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_eq!(wire_of(&pair, Side::A).len(), sent, "nothing of it is sent afterwards");
    assert_states(&pair, State::Err, State::Rts);
    let placed = (sent - 1) * 1024;
    assert_filled(&mut pair, Side::B, 0x1000, placed, 1);
    assert_untouched(&mut pair, Side::B, 0x1000 + placed, 0x1000);
}

/// The memory for the answer of a READ is gone when the answer comes.
#[test]
fn the_buffer_of_a_read_deregistered_before_its_answer_is_a_local_protection_error() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::B, 0, 2048, 1);
    let gone = second_region(&mut pair, Side::A, 0x1000, 2048);
    let op = SendOp::Read(pair.remote(Side::B, 0));
    post(&mut pair, 1, op, &[gone]);
    post_write(&mut pair, 2, 1);
    pair.step();
    assert!(pair.node(Side::A).device.memory.deregister(gone.lkey.0));
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::LocalProtection, 0), (2, Status::Flushed, 0)]);
    assert_states(&pair, State::Err, State::Rts);
    assert_untouched(&mut pair, Side::A, 0x1000, 2048);
}

/// A receive whose own memory is gone: the receiver's fault, and no event beside the completion, because
/// the peer did nothing wrong.
#[test]
fn the_buffer_of_a_receive_deregistered_fails_on_both_sides() {
    for length in [100, 3000] {
        let mut pair = pair(|_| {});
        let gone = second_region(&mut pair, Side::B, 0x1000, 4096);
        let receive = ReceiveRequest { id: 50, sges: &[gone] };
        pair.post_receive(Side::B, &receive).unwrap();
        post_receive(&mut pair, Side::B, 51, 0x8000, 4096);
        fill(&mut pair, Side::A, 0, length as usize, 1);
        post_message(&mut pair, 1, length);
        post_message(&mut pair, 2, length);
        assert!(pair.node(Side::B).device.memory.deregister(gone.lkey.0));
        pair.run();
        assert_eq!(wire_of(&pair, Side::B), ["B NAK Remote Operational Error 10 msn=0"]);
        assert_sends(&mut pair, Side::A, &[(1, Status::RemoteOperation, 0), (2, Status::Flushed, 0)]);
        let wanted = [(50, Status::LocalProtection, 0), (51, Status::Flushed, 0)];
        assert_receives(&mut pair, Side::B, &wanted);
        assert_states(&pair, State::Err, State::Err);
        assert_events(&mut pair, &[], &[]);
        assert_eq!(pair.counters(Side::B).nak_remote_operation_sent, 1);
        assert_untouched(&mut pair, Side::B, 0, 0x10000);
    }
}

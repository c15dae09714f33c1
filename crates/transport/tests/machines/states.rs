//! States and posts: what is refused leaves no trace, what does not belong is dropped and counted.

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side};
use ferroce_transport::{
    AttributeMask, Attributes, Data, Event, ModifyError, PostError, ReceiveRequest, SendFlags, SendOp,
    SendRequest, State, Status,
};
use ferroce_wire::{Body, Deth, PKey, Packet, Psn, Qpn, Request, Segment, SendTail, UcRequest};

/// Brings B to a state on the way to RTS, or beyond it to ERR.
fn pair_with_b_in(state: State) -> Pair {
    let setup = Setup::default();
    let mut pair = Pair::unconnected(&setup);
    pair.bring_up(Side::A, setup.psns[0], setup.psns[1]).expect("the way to RTS");
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(setup.access);
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(setup.mtu)
        .with_dest_qpn(Pair::qpn(Side::A))
        .with_rq_psn(Psn::new(setup.psns[0]))
        .with_max_dest_rd_atomic(16)
        .with_min_rnr_timer(1);
    let steps: &[Attributes] = match state {
        State::Reset => &[],
        State::Init => &[init],
        State::Rtr => &[init, rtr],
        _ => &[init, rtr, Attributes::to(State::Err)],
    };
    for attributes in steps {
        pair.modify(Side::B, attributes).expect("a step on the way");
    }
    assert_eq!(pair.queue_pair(Side::B).state(), state);
    pair
}

#[test]
fn an_illegal_transition_changes_nothing() {
    let cases: [(State, Attributes); 5] = [
        (State::Reset, Attributes::to(State::Rts)),
        (State::Reset, Attributes::to(State::Init).with_port(1)),
        (State::Init, Attributes::to(State::Sqd)),
        (State::Rtr, Attributes::to(State::Init).with_pkey_index(0)),
        (State::Err, Attributes::to(State::Rts)),
    ];
    for (from, attributes) in cases {
        let mut pair = pair_with_b_in(from);
        let error = pair.modify(Side::B, &attributes).unwrap_err();
        assert_eq!(pair.queue_pair(Side::B).state(), from, "{error}");
        assert_events(&mut pair, &[], &[]);
    }
}

/// An attribute out of its range refuses the whole change, the attributes that are right included.
#[test]
fn a_refused_change_takes_over_none_of_its_attributes() {
    let mut pair = pair_with_b_in(State::Rtr);
    let rts = Attributes::to(State::Rts)
        .with_sq_psn(Psn::new(0xff_fff0))
        .with_timeout(32)
        .with_retry_count(1)
        .with_rnr_retry(1)
        .with_max_rd_atomic(4);
    let error = pair.modify(Side::B, &rts).unwrap_err();
    let wanted = ModifyError::OutOfRange { attribute: AttributeMask::TIMEOUT, given: 32, max: 31 };
    assert_eq!(error, wanted);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Rtr);
    pair.modify(Side::B, &rts.with_timeout(14)).unwrap();
    fill(&mut pair, Side::A, 0, 3000, 1);
    post_write(&mut pair, 1, 3000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
}

/// Everything that a post can be refused for, with the numbers in the error; nothing is left behind.
#[test]
fn a_refused_post_changes_nothing() {
    let mut pair = pair(|setup| setup.memory = 4096);
    let sge = pair.sge(Side::A, 0, 8);
    let (five, none) = ([sge; 5], []);
    let remote = pair.remote(Side::B, 0);
    let huge = [sge, sge].map(|sge| ferroce_transport::Sge { length: (1 << 30) + 1, ..sge });
    let dest = ferroce_transport::DatagramDest { handle: 1, qpn: Qpn::new(1), qkey: Pair::QKEY };
    let add = SendOp::FetchAdd { remote, add: 1 };
    let cases: [(SendOp, Data<'_>, PostError); 8] = [
        (SendOp::Send, Data::Gather(&five), PostError::TooManyPieces { given: 5, allowed: 4 }),
        (SendOp::Read(remote), Data::Gather(&five), PostError::TooManyPieces { given: 5, allowed: 4 }),
        (SendOp::Send, Data::Inline(&[0; 257]), PostError::InlineTooLong { given: 257, allowed: 256 }),
        (
            SendOp::Write(remote),
            Data::Gather(&huge),
            PostError::TooLong { given: (1 << 31) + 2, allowed: 1 << 31 },
        ),
        (add, Data::Gather(&none), PostError::WrongLength { given: 0, needed: 8 }),
        (SendOp::AtomicWrite(remote), Data::Inline(&[0; 7]), PostError::WrongLength { given: 7, needed: 8 }),
        (SendOp::Read(remote), Data::Inline(&[0; 8]), PostError::InlineAnswer),
        (add, Data::Inline(&[0; 8]), PostError::InlineAnswer),
    ];
    for (op, data, error) in cases {
        let request = SendRequest { id: 1, op, data, flags: SendFlags::SIGNALED, dest: None };
        assert_eq!(pair.post_send(Side::A, &request), Err(error));
    }
    let flags = SendFlags::SIGNALED;
    let addressed = SendRequest { id: 1, op: SendOp::Send, data: Data::Gather(&[]), flags, dest: Some(dest) };
    assert_eq!(pair.post_send(Side::A, &addressed), Err(PostError::WrongAddress));
    let receive = ReceiveRequest { id: 1, sges: &five };
    let error = PostError::TooManyPieces { given: 5, allowed: 4 };
    assert_eq!(pair.post_receive(Side::A, &receive), Err(error));
    pair.run();
    assert_eq!(pair.sent.len(), 0);
    assert_at_peace(&mut pair);
}

/// The longest message is 2 GiB, not a byte less.
#[test]
fn a_message_of_2_gib_may_be_posted() {
    let mut pair = pair(|_| {});
    let sge = pair.sge(Side::A, 0, 1 << 31);
    let write = SendOp::Write(pair.remote(Side::B, 0));
    post(&mut pair, 1, write, &[sge]);
    let over = [sge, pair.sge(Side::A, 0, 1)];
    let data = Data::Gather(&over);
    let request = SendRequest { id: 2, op: write, data, flags: SendFlags::SIGNALED, dest: None };
    let error = PostError::TooLong { given: (1 << 31) + 1, allowed: 1 << 31 };
    assert_eq!(pair.post_send(Side::A, &request), Err(error));
    assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 1);
}

#[test]
fn a_full_queue_takes_no_more_until_something_completes() {
    let mut pair = pair(|setup| {
        setup.caps.max_send = 3;
        setup.caps.max_receive = 2;
    });
    for id in 1..4 {
        post_write(&mut pair, id, 10);
    }
    let write = SendOp::Write(pair.remote(Side::B, 0));
    let request =
        SendRequest { id: 4, op: write, data: Data::Inline(b"x"), flags: SendFlags::SIGNALED, dest: None };
    let full = PostError::QueueFull { what: "send", depth: 3 };
    assert_eq!(pair.post_send(Side::A, &request), Err(full));
    for id in 50..52 {
        post_receive(&mut pair, Side::A, id, 0, 10);
    }
    let receive = ReceiveRequest { id: 52, sges: &[] };
    let full = PostError::QueueFull { what: "receive", depth: 2 };
    assert_eq!(pair.post_receive(Side::A, &receive), Err(full));
    pair.run();
    assert_sends(&mut pair, Side::A, &[1, 2, 3].map(|id| (id, Status::Success, 10)));
    pair.post_send(Side::A, &request).unwrap();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(4, Status::Success, 1)]);
}

#[test]
fn work_is_refused_in_states_that_take_none() {
    for state in [State::Reset, State::Init, State::Rtr] {
        let mut pair = pair_with_b_in(state);
        let request = SendRequest {
            id: 1,
            op: SendOp::Send,
            data: Data::Gather(&[]),
            flags: SendFlags::SIGNALED,
            dest: None,
        };
        let error = pair.post_send(Side::B, &request).unwrap_err();
        assert!(matches!(error, PostError::WrongState { what: "sends", .. }), "{error}");
        let receive = pair.post_receive(Side::B, &ReceiveRequest { id: 1, sges: &[] });
        assert_eq!(receive.is_ok(), state != State::Reset, "receives in {state}");
        assert_sends(&mut pair, Side::B, &[]);
    }
}

#[test]
fn packets_in_states_that_take_none_are_counted_and_dropped() {
    for state in [State::Reset, State::Init, State::Err] {
        let mut pair = pair_with_b_in(state);
        inject_request(&mut pair, START, send_only(b"x"));
        let answer = Packet::new(Pair::qpn(Side::B), Psn::new(0xff_fff0), Body::RcResponse(ack(1)));
        pair.inject(Side::B, &answer);
        pair.run();
        assert_eq!(pair.counters(Side::B).wrong_state, 2, "in {state}");
        assert_eq!(pair.sent.len(), 0);
        assert_eq!(pair.queue_pair(Side::B).state(), state);
        assert_events(&mut pair, &[], &[]);
    }
}

/// IBA 10.3.1.3: a packet that arrives in RTR tells the passive side that its peer is ready, once.
#[test]
fn the_first_packet_in_rtr_is_an_event() {
    let mut pair = pair_with_b_in(State::Rtr);
    post_write(&mut pair, 1, 3000);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
    assert_events(&mut pair, &[], &[Event::Established]);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Rtr);
}

#[test]
fn packets_of_another_service_or_partition_are_counted_and_dropped() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 100);
    let to = Pair::qpn(Side::B);
    let psn = Psn::new(START);
    let payload: &[u8] = b"x";
    let deth = Deth { qkey: Pair::QKEY, source_qp: Pair::qpn(Side::A) };
    let rc = Request::Send(Segment::Only((), SendTail::Plain), payload);
    let uc = Body::Uc(UcRequest::Send(Segment::Only((), None), payload));
    let ud = Body::Ud(ferroce_wire::Datagram { deth, imm: None, payload });
    let xrc = Body::XrcRequest(ferroce_wire::Srqn::new(1), rc);
    for body in [uc, ud, xrc] {
        pair.inject(Side::B, &Packet::new(to, psn, body));
    }
    let mut foreign = Packet::new(to, psn, Body::RcRequest(rc));
    foreign.pkey = PKey(0x8123);
    pair.inject(Side::B, &foreign);
    pair.run();
    let counters = pair.counters(Side::B);
    assert_eq!((counters.wrong_service, counters.wrong_pkey), (3, 1));
    assert_eq!(pair.sent.len(), 0);
    assert_at_peace(&mut pair);
}

/// A queue pair that went through RESET is new: fresh PSNs, no work, no memory of the old connection.
#[test]
fn a_queue_pair_may_live_again_after_reset() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 3000);
    post_receive(&mut pair, Side::A, 60, 0, 10);
    pair.step();
    for side in [Side::A, Side::B] {
        pair.modify(side, &Attributes::to(State::Reset)).unwrap();
    }
    assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 0);
    assert_eq!(pair.queue_pair(Side::A).poll_timeout(), None);
    heal(&mut pair);
    pair.bring_up(Side::A, 0x500, 0x600).unwrap();
    pair.bring_up(Side::B, 0x600, 0x500).unwrap();
    pair.sent.clear();
    fill(&mut pair, Side::A, 0, 3000, 1);
    post_write(&mut pair, 2, 3000);
    pair.run();
    assert_eq!(wire(&pair)[0], "A WRITE First 500");
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 3000)]);
    assert_filled(&mut pair, Side::B, 0, 3000, 1);
    assert_at_peace(&mut pair);
}

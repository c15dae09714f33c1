//! Datagrams: Q_Keys, forty bytes of addresses in front, and nothing longer than a packet (IBA 9.8.3).

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{
    Data, DatagramDest, PostError, ReceiveRequest, SendFlags, SendOp, SendRequest, State, Status, WorkKind,
};
use ferroce_wire::{Body, Imm, QKey, Service};

/// The addresses before each datagram.
const PREFIX: u32 = 40;

fn ud() -> Pair {
    pair(|setup| setup.service = Service::Ud)
}

/// To B, under this Q_Key.
fn to_b(qkey: QKey) -> DatagramDest {
    DatagramDest { handle: 1, qpn: Pair::qpn(Side::B), qkey }
}

fn request(id: u64, op: SendOp, data: Data<'_>, dest: DatagramDest) -> SendRequest<'_> {
    SendRequest { id, op, data, flags: SendFlags::SIGNALED, dest: Some(dest) }
}

/// A sends these bytes.
fn send(pair: &mut Pair, id: u64, bytes: &[u8], dest: DatagramDest) {
    pair.post_send(Side::A, &request(id, SendOp::Send, Data::Inline(bytes), dest)).expect("in order");
}

#[test]
fn a_datagram_arrives_behind_its_addresses() {
    let mut pair = ud();
    post_receive(&mut pair, Side::B, 50, 0, 100);
    let op = SendOp::SendImm(Imm(3));
    pair.post_send(Side::A, &request(1, op, Data::Inline(b"hello"), to_b(Pair::QKEY))).unwrap();
    pair.run();
    assert_wire(&pair, &["A SEND Only with Immediate 10"]);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5)]);
    let received = pair.take_receives(Side::B);
    assert_eq!(received.len(), 1);
    let one = received[0];
    assert_eq!((one.id, one.status, one.kind), (50, Status::Success, WorkKind::Receive));
    assert_eq!((one.byte_len, one.imm, one.source_qp), (PREFIX + 5, Some(3), Some(Pair::qpn(Side::A))));
    let memory = pair.memory(Side::B);
    assert_eq!(&memory[40..45], b"hello");
    // An IPv4 header fills the second half: version, then source and destination at its end.
    assert_eq!(memory[20], 0x45);
    assert_eq!(memory[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_untouched(&mut pair, Side::B, 45, 100);
    assert_at_peace(&mut pair);
}

#[test]
fn a_wrong_qkey_is_dropped_and_counted() {
    let mut pair = ud();
    post_receive(&mut pair, Side::B, 50, 0, 100);
    send(&mut pair, 1, b"wrong", to_b(QKey(Pair::QKEY.0 + 1)));
    send(&mut pair, 2, b"right", to_b(Pair::QKEY));
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5), (2, Status::Success, 5)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, PREFIX + 5)]);
    assert_eq!(&pair.memory(Side::B)[40..45], b"right");
    assert_eq!(pair.counters(Side::B).wrong_qkey, 1);
    assert_at_peace(&mut pair);
}

/// A Q_Key with its top bit set means the queue pair's own (IBA 10.2.5).
#[test]
fn a_controlled_qkey_stands_for_the_queue_pairs_own() {
    let mut pair = ud();
    post_receive(&mut pair, Side::B, 50, 0, 100);
    send(&mut pair, 1, b"own", to_b(QKey(0x8000_1234)));
    pair.run();
    let Body::Ud(datagram) = pair.sent[0].packet().body else { panic!("{}", pair.sent[0]) };
    assert_eq!(datagram.deth.qkey, Pair::QKEY);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, PREFIX + 3)]);
}

#[test]
fn a_datagram_longer_than_the_mtu_is_refused_at_the_post() {
    let mut pair = ud();
    post_receive(&mut pair, Side::B, 50, 0, 5000);
    fill(&mut pair, Side::A, 0, 4096, 1);
    let sges = [pair.sge(Side::A, 0, 4097)];
    let long = request(1, SendOp::Send, Data::Gather(&sges), to_b(Pair::QKEY));
    assert_eq!(pair.post_send(Side::A, &long), Err(PostError::TooLong { given: 4097, allowed: 4096 }));
    let sges = [pair.sge(Side::A, 0, 1000), pair.sge(Side::A, 1000, 3096)];
    let full = request(2, SendOp::Send, Data::Gather(&sges), to_b(Pair::QKEY));
    pair.post_send(Side::A, &full).unwrap();
    pair.run();
    assert_sends(&mut pair, Side::A, &[(2, Status::Success, 4096)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, PREFIX + 4096)]);
    assert_filled(&mut pair, Side::B, 40, 4096, 1);
}

/// A receive must have room for the addresses too; one that has not ends, and its queue pair with it.
#[test]
fn a_receive_too_small_is_a_local_length_error() {
    for room in [0, 39, 44] {
        let mut pair = ud();
        post_receive(&mut pair, Side::B, 50, 0, room);
        post_receive(&mut pair, Side::B, 51, 0x1000, 100);
        send(&mut pair, 1, b"hello", to_b(Pair::QKEY));
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5)]);
        assert_receives(&mut pair, Side::B, &[(50, Status::LocalLength, 0), (51, Status::Flushed, 0)]);
        assert_states(&pair, State::Rts, State::Err);
        assert_untouched(&mut pair, Side::B, room as usize, 0x2000);
    }
}

#[test]
fn a_datagram_without_a_receive_is_dropped_and_counted() {
    let mut pair = ud();
    send(&mut pair, 1, b"lost", to_b(Pair::QKEY));
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4)]);
    assert_eq!(pair.counters(Side::B).no_receive, 1);
    assert_at_peace(&mut pair);
}

/// The addresses and the datagram are scattered like any message.
#[test]
fn addresses_and_datagram_may_go_to_different_pieces() {
    let mut pair = ud();
    let sges = [pair.sge(Side::B, 0, 40), pair.sge(Side::B, 0x100, 2), pair.sge(Side::B, 0x200, 10)];
    pair.post_receive(Side::B, &ReceiveRequest { id: 50, sges: &sges }).unwrap();
    send(&mut pair, 1, b"hello", to_b(Pair::QKEY));
    pair.run();
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, PREFIX + 5)]);
    let memory = pair.memory(Side::B);
    assert_eq!((&memory[0x100..0x102], &memory[0x200..0x203]), (&b"he"[..], &b"llo"[..]));
    assert_untouched(&mut pair, Side::B, 40, 0xc0);
}

/// An empty datagram is one.
#[test]
fn an_empty_datagram_arrives() {
    let mut pair = ud();
    post_receive(&mut pair, Side::B, 50, 0, PREFIX);
    send(&mut pair, 1, b"", to_b(Pair::QKEY));
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 0)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, PREFIX)]);
}

#[test]
fn a_datagram_without_an_address_is_refused() {
    let mut pair = ud();
    let unaddressed = SendRequest {
        id: 1,
        op: SendOp::Send,
        data: Data::Gather(&[]),
        flags: SendFlags::SIGNALED,
        dest: None,
    };
    assert_eq!(pair.post_send(Side::A, &unaddressed), Err(PostError::WrongAddress));
    let op = SendOp::Write(pair.remote(Side::B, 0));
    let write = request(2, op, Data::Gather(&[]), to_b(Pair::QKEY));
    assert_eq!(pair.post_send(Side::A, &write), Err(PostError::NotOfService { service: "UD", op }));
    pair.run();
    assert_at_peace(&mut pair);
}

/// PSNs of datagrams mean nothing: a lost, late or repeated one disturbs no other.
#[test]
fn psns_of_datagrams_do_not_matter() {
    let mut pair = ud();
    for id in 0..4 {
        post_receive(&mut pair, Side::B, 50 + id, 0x100 * id, 100);
        send(&mut pair, id, &[b'0' + u8::try_from(id).unwrap()], to_b(Pair::QKEY));
    }
    lose(&mut pair, Side::A, &[1]);
    pair.run();
    let received: Vec<_> = [50, 51, 52].map(|id| (id, Status::Success, PREFIX + 1)).to_vec();
    assert_receives(&mut pair, Side::B, &received);
    let memory = pair.memory(Side::B);
    assert_eq!([memory[40], memory[0x100 + 40], memory[0x200 + 40]], *b"023");
}

//! The small harness itself.

use std::time::Duration;

use ferroce_sim::{Pair, Setup, Side, Verdict};
use ferroce_transport::{Data, ReceiveRequest, SendFlags, SendOp, SendRequest, Status, Time};
use ferroce_wire::Service;

fn send<'a>(id: u64, op: SendOp, bytes: &'a [u8]) -> SendRequest<'a> {
    SendRequest { id, op, data: Data::Inline(bytes), flags: SendFlags::SIGNALED, dest: None }
}

#[test]
fn a_send_reaches_its_receive() {
    for service in [Service::Rc, Service::Uc] {
        let mut pair = Pair::connect(&Setup { service, ..Setup::default() });
        let sges = [pair.sge(Side::B, 10, 5)];
        pair.post_receive(Side::B, &ReceiveRequest { id: 9, sges: &sges }).unwrap();
        pair.post_send(Side::A, &send(1, SendOp::Send, b"hello")).unwrap();
        pair.run();
        assert_eq!(pair.take_sends(Side::A)[0].status, Status::Success);
        let receives = pair.take_receives(Side::B);
        assert_eq!((receives[0].id, receives[0].byte_len), (9, 5));
        assert_eq!(&pair.memory(Side::B)[10..15], b"hello");
    }
}

#[test]
fn a_corrupt_packet_is_as_good_as_lost() {
    let mut pair = Pair::connect(&Setup::default());
    let op = SendOp::Write(pair.remote(Side::B, 0));
    pair.post_send(Side::A, &send(1, op, b"again")).unwrap();
    pair.filter(|sent| if sent.number == 0 { Verdict::Flip(200) } else { Verdict::Deliver });
    pair.run();
    assert_eq!(pair.take_sends(Side::A)[0].status, Status::Success);
    assert_eq!(&pair.memory(Side::B)[..5], b"again");
    assert!(pair.counters(Side::A).retransmitted > 0);
}

#[test]
fn time_moves_only_when_it_is_told_to() {
    let mut pair = Pair::connect(&Setup::default());
    let start = pair.now();
    pair.run_for(Duration::from_millis(3));
    assert_eq!(pair.now().since(start), Duration::from_millis(3));
    assert!(!pair.step(), "nothing to do");
    assert!(pair.now() > Time::ZERO);
}

//! Which posted work still names some memory: a device keeps a region until that work is over.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Access, DomainId, Hold, ReceiveRequest, SendOp, Sge};
use ferroce_wire::Lkey;

/// A region of its own over some bytes of a side.
fn region(pair: &mut Pair, side: Side, offset: u64, length: u32) -> Sge {
    let Sge { address, .. } = pair.sge(side, offset, length);
    let memory = &mut pair.node(side).device.memory;
    let key = memory.register(DomainId(1), address, u64::from(length), Access::all());
    Sge { address, length, lkey: Lkey(key) }
}

fn hold(pair: &Pair, side: Side, sge: Sge) -> Option<Hold> {
    pair.queue_pair(side).hold_on(sge.lkey)
}

#[test]
fn a_receive_holds_its_memory_while_it_waits_and_while_its_message_arrives() {
    let mut pair = pair(|_| {});
    let (first, second) = (region(&mut pair, Side::B, 0, 4096), region(&mut pair, Side::B, 8192, 4096));
    let other = region(&mut pair, Side::B, 0x8000, 64);
    for (id, sge) in [(1, first), (2, second)] {
        pair.post_receive(Side::B, &ReceiveRequest { id, sges: &[sge] }).unwrap();
    }
    assert_eq!(hold(&pair, Side::B, other), None, "no work names it");
    let waiting = [first, second].map(|sge| hold(&pair, Side::B, sge).expect("it is posted"));
    assert!(waiting.iter().all(|hold| pair.queue_pair(Side::B).holds(hold)));
    post_message(&mut pair, 9, 3000);
    while pair.counters(Side::B).requests_received < 1 {
        assert!(pair.step());
    }
    let taken = hold(&pair, Side::B, first).expect("its message is arriving");
    assert!(pair.queue_pair(Side::B).holds(&taken));
    assert!(hold(&pair, Side::B, second).is_some());
    pair.run();
    assert_eq!(hold(&pair, Side::B, first), None, "its message has arrived");
    for over in [waiting[0], taken] {
        assert!(!pair.queue_pair(Side::B).holds(&over));
    }
    assert!(pair.queue_pair(Side::B).holds(&waiting[1]));
    post_message(&mut pair, 10, 3000);
    pair.run();
    assert!(!pair.queue_pair(Side::B).holds(&waiting[1]));
}

#[test]
fn a_send_holds_its_memory_until_it_is_acknowledged() {
    let mut pair = pair(|_| {});
    let (ours, other) = (region(&mut pair, Side::A, 0, 100), region(&mut pair, Side::A, 200, 100));
    let op = SendOp::Write(pair.remote(Side::B, 0));
    post(&mut pair, 1, op, &[ours]);
    post(&mut pair, 2, op, &[ours]);
    let held = hold(&pair, Side::A, ours).expect("it is posted");
    assert_eq!(hold(&pair, Side::A, other), None);
    assert_eq!(pair.queue_pair(Side::A).totals(), ((2, 0), (0, 0)));
    while pair.take_sends(Side::A).is_empty() {
        assert!(pair.queue_pair(Side::A).holds(&held), "the last of them is under way");
        assert!(pair.step());
    }
    pair.run();
    assert!(!pair.queue_pair(Side::A).holds(&held));
    assert_eq!(hold(&pair, Side::A, ours), None);
    assert_eq!(pair.queue_pair(Side::A).totals(), ((2, 2), (0, 0)));
}

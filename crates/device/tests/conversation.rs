//! A conversation of short messages: how many packets and system calls it takes.
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{PATIENCE, Side, device, signaled};
use ferroce_device::PathPolicy;
use ferroce_sys::clock;
use ferroce_transport::{Completion, ReceiveRequest, SendOp, WorkKind};

/// Messages there and as many back, that are counted.
const TRIPS: u64 = 20;

/// The same before them, with polls in vain between: after so many the drivers leave the work to the program, even if they found it
/// gone a moment ago.
const SETTLING: u64 = 40;

/// Polls in vain that a driver wants to see.
const IN_VAIN: usize = 8;

/// Undisturbed conversations that are enough.
const ENOUGH: u32 = 5;

/// What both ends together have sent so far: packets, system calls, repeated packets.
fn sent(sides: &[Side; 2]) -> [u64; 3] {
    let mut sums = [0; 3];
    for side in sides {
        let (counters, report) = (side.nic.counters(), side.qp.report().unwrap());
        let seen = [counters.packets_sent, counters.send_calls, report.totals.counters.retransmitted];
        sums.iter_mut().zip(seen).for_each(|(sum, more)| *sum += more);
    }
    sums
}

/// Takes what has completed; whether a message has come.
fn has_come(side: &Side) -> bool {
    let mut found = [Completion::EMPTY; 4];
    let count = side.cq.poll(&mut found);
    found[..count].iter().any(|done| done.kind == WorkKind::Receive)
}

/// One message; both ends are of this thread.
fn send(from: &Side, to: &Side) {
    let (here, there) = ([from.sge(0, 64)], [to.sge(1024, 64)]);
    to.qp.post_receive(&[ReceiveRequest { id: 2, sges: &there }]).unwrap();
    from.qp.post_send(&[signaled(1, SendOp::Send, &here)]).unwrap();
    let end = clock::now() + PATIENCE;
    while !has_come(to) {
        assert!(clock::now() < end, "a message did not come: {:?}, {:?}", from.qp.query(), to.qp.query());
    }
}

/// In a conversation each message is one system call, each acknowledgement but the last rides with the answer, and nothing is sent
/// twice. A thread that the system keeps from running is disturbed by its drivers, and by timers that come up; so some conversations
/// have to be like that, and not all.
#[test]
fn in_a_conversation_acknowledgements_ride_and_nothing_is_repeated() {
    let addresses = [[127, 0, 86, 21], [127, 0, 86, 22]];
    let sides = addresses.map(|address| Side::new(&device(address), address, PathPolicy::Forbid));
    let [one, other] = &sides;
    one.connect(&other.address());
    other.connect(&one.address());
    // The first message has no acknowledgement to take along, and the last is not acknowledged yet.
    let wanted = [4 * TRIPS - 1, 2 * TRIPS, 0];
    let (mut good, mut seen, end) = (0, [0; 3], clock::now() + PATIENCE);
    while good < ENOUGH {
        assert!(
            clock::now() < end,
            "{good} of {ENOUGH}: packets, calls and repeats {seen:?}, not {wanted:?}"
        );
        for _ in 0..SETTLING {
            send(one, other);
            send(other, one);
            for _ in 0..IN_VAIN {
                let _ = (has_come(one), has_come(other));
            }
        }
        let before = sent(&sides);
        for _ in 0..TRIPS {
            send(one, other);
            send(other, one);
        }
        let after = sent(&sides);
        seen = std::array::from_fn(|at| after[at] - before[at]);
        good += u32::from(seen == wanted);
    }
}

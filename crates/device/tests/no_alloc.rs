//! Neither a work request nor a packet costs an allocation, once everything has warmed up.
//!
//! One thread posts and polls for both ends and its allocations are counted. The driver thread of a device
//! has a counter of its own, so a program that polls is what is measured here.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use allocation_counter::measure;
use common::{Side, device, signaled};
use ferroce_device::{Config, Nic, PathPolicy};
use ferroce_transport::{Completion, Data, ReceiveRequest, SendFlags, SendOp, SendRequest, Status};
use ferroce_wire::Imm;

/// Rounds before the count and in it. Queues, timers and lists have grown to their size after the first.
const WARM_UP: u64 = 300;
const ROUNDS: u64 = 300;

/// Both ends, driven by this thread alone.
struct Ends {
    sides: [Side; 2],
}

impl Ends {
    fn over_the_wire(net: u8) -> Self {
        let (one, other) = ([127, 0, net, 1], [127, 0, net, 2]);
        Self::connected([(device(one), one), (device(other), other)], PathPolicy::Forbid)
    }

    fn in_the_process(net: u8) -> Self {
        let (nic, address) = (device([127, 0, net, 3]), [127, 0, net, 3]);
        Self::connected([(nic.clone(), address), (nic, address)], PathPolicy::Require)
    }

    /// Two engines of one device.
    fn between_engines(last: u8, path: PathPolicy) -> Self {
        let address = [127, 0, 98, last];
        let config = Config { address: Some(address.into()), engines: 2, ..Config::new("lo") };
        let nic = Nic::open(config).expect("a device on lo");
        Self::connected([(nic.clone(), address), (nic, address)], path)
    }

    fn connected(places: [(Nic, [u8; 4]); 2], path: PathPolicy) -> Self {
        let sides = places.map(|(nic, address)| Side::new(&nic, address, path));
        // Patient: a machine that is busy may leave this one thread without a core for long.
        sides[0].connect_with(&sides[1].address(), 17, 7);
        sides[1].connect_with(&sides[0].address(), 17, 7);
        Self { sides }
    }

    /// One work of each kind in both directions, short and long, until all of it is done.
    fn round(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (&self.sides[from], &self.sides[to]);
            for id in 0..3 {
                let into = [to.sge(600_000, 20_000), to.sge(700_000, 20_000)];
                to.qp.post_receive(&[ReceiveRequest { id, sges: &into }]).expect("room");
            }
            let peer = to.address();
            let (small, large, word) =
                ([from.sge(0, 64)], [from.sge(0, 70_000), from.sge(80_000, 30_000)], [from.sge(300_000, 8)]);
            let pieces = [from.sge(0, 1), from.sge(9, 4999), from.sge(400_000, 30_000)];
            let inline = SendRequest {
                id: 19,
                op: SendOp::Write(peer.at(500_000)),
                data: Data::Inline(b"inline"),
                flags: SendFlags::SIGNALED,
                dest: None,
            };
            let work = [
                signaled(10, SendOp::Write(peer.at(400_000)), &small),
                signaled(11, SendOp::Write(peer.at(400_000)), &large),
                signaled(12, SendOp::Send, &small),
                signaled(13, SendOp::SendImm(Imm(7)), &pieces),
                signaled(14, SendOp::WriteImm(peer.at(400_000), Imm(8)), &small),
                signaled(15, SendOp::Read(peer.at(400_000)), &large),
                signaled(16, SendOp::FetchAdd { remote: peer.at(800_000), add: 1 }, &word),
                signaled(17, SendOp::CompareSwap { remote: peer.at(800_000), compare: 1, swap: 2 }, &word),
                signaled(18, SendOp::AtomicWrite(peer.at(800_008)), &word),
                inline,
            ];
            from.qp.post_send(&work).expect("room");
        }
        self.collect([10 + 3; 2]);
    }

    /// Polls both ends until so many completions came at each.
    fn collect(&self, mut left: [usize; 2]) {
        let mut found = [Completion::EMPTY; 16];
        let end = ferroce_device::now() + common::PATIENCE;
        while left != [0; 2] {
            for (side, left) in self.sides.iter().zip(&mut left) {
                let count = side.cq.poll(&mut found);
                let failed = found[..count].iter().find(|done| done.status != Status::Success);
                assert!(
                    failed.is_none(),
                    "{failed:?}: {:?}",
                    self.sides.each_ref().map(|side| side.qp.query())
                );
                *left -= count;
            }
            assert!(ferroce_device::now() < end, "{left:?} are missing");
        }
    }

    fn count(&self) {
        (0..WARM_UP).for_each(|_| self.round());
        let before = self.sides[0].qp.query().expect("it is there").counters;
        let info = measure(|| (0..ROUNDS).for_each(|_| self.round()));
        let after = self.sides[0].qp.query().expect("it is there").counters;
        let done = after.requests_received + after.direct_responses;
        assert!(done - before.requests_received - before.direct_responses >= ROUNDS * 10, "{after:?}");
        assert_eq!((info.count_total, info.bytes_total), (0, 0), "{info:?}");
    }
}

#[test]
fn nothing_allocates_over_the_wire() {
    Ends::over_the_wire(97).count();
}

#[test]
fn nothing_allocates_in_the_process() {
    Ends::in_the_process(97).count();
}

/// The two ends live in two engines, because each new queue pair goes where fewest are.
#[test]
fn nothing_allocates_between_engines() {
    for (last, path) in [(4, PathPolicy::Require), (5, PathPolicy::Forbid)] {
        let ends = Ends::between_engines(last, path);
        assert_ne!(ends.sides[0].qp.engine(), ends.sides[1].qp.engine());
        ends.count();
    }
}

/// Another thread is inside of the engine most of the time, so that work is left in the mail.
#[test]
fn posting_to_a_busy_engine_allocates_nothing() {
    let ends = Ends::in_the_process(98);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(ends.sides[0].nic.counters());
            }
        });
        (0..WARM_UP).for_each(|_| ends.small_round());
        let info = measure(|| (0..20 * ROUNDS).for_each(|_| ends.small_round()));
        stop.store(true, Ordering::Relaxed);
        assert_eq!((info.count_total, info.bytes_total), (0, 0), "{info:?}");
    });
}

impl Ends {
    /// Short work only, so that many requests meet a busy engine.
    fn small_round(&self) {
        let [from, to] = &self.sides;
        let peer = to.address();
        let into = [to.sge(600_000, 64)];
        to.qp.post_receive(&[ReceiveRequest { id: 0, sges: &into }]).expect("room");
        let small = [from.sge(0, 64)];
        from.qp.post_send(&[signaled(1, SendOp::Send, &small)]).expect("room");
        let data = Data::Inline(b"inline");
        let op = SendOp::Write(peer.at(0));
        let inline = SendRequest { id: 2, op, data, flags: SendFlags::SIGNALED, dest: None };
        from.qp.post_send(&[inline]).expect("room");
        self.collect([2, 1]);
    }
}

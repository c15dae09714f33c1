//! Many connections that send through one lane at once.

mod common;

use std::sync::Arc;

use common::{PATIENCE, Side, connect_uc, signaled};
use ferroce_device::{CompletionQueue, Config, Nic, PathPolicy, Qp, QpSpec, now};
use ferroce_transport::{Caps, Completion, SendOp, Sge, Status};
use ferroce_wire::Service;

/// Messages of each connection.
const MESSAGES: usize = 3000;

/// How many of them are under way.
const DEPTH: u32 = 32;

/// A queue pair that does the same work again and again.
struct Stream<'a> {
    qp: &'a Qp,
    op: SendOp,
    sge: Sge,
    depth: u32,
    posted: usize,
    under_way: u32,
}

impl Stream<'_> {
    fn post(&mut self) {
        while self.under_way < self.depth && self.posted < MESSAGES {
            let id = u64::from(self.qp.qpn().get());
            self.qp.post_send(&[signaled(id, self.op, &[self.sge])]).expect("room");
            self.posted += 1;
            self.under_way += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.posted == MESSAGES && self.under_way == 0
    }
}

/// It was: what one connection sends, what others are answered and what no window counts could fill a ring together, and what found
/// no room was lost and sent again.
#[test]
fn what_finds_no_room_in_a_lane_waits_and_is_not_lost() {
    let address = [127, 0, 20, 44];
    let config =
        Config { address: Some(address.into()), engines: 2, path: PathPolicy::Shared, ..Config::new("lo") };
    let nic = Nic::open(config).expect("a device on lo");
    let cq = CompletionQueue::new(&nic, 4096, None).expect("a completion queue");
    let side = |engine| Side::into_queue(&nic, address, PathPolicy::Shared, (DEPTH, Some(engine)), &cq);
    let (writer, target) = (side(0), side(1));
    let (reader, source) = (side(1), side(0));
    for (one, other) in [(&writer, &target), (&reader, &source)] {
        one.connect(&other.address());
        other.connect(&one.address());
    }
    let caps = Caps { max_send: 4, max_receive: 4, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
    let unreliable = |engine| {
        let spec = QpSpec {
            service: Service::Uc,
            domain: writer.domain,
            send_cq: &cq,
            receive_cq: &cq,
            shared_queue: None,
            caps,
            signal_all: true,
            path: None,
            engine: Some(engine),
            stamps: false,
        };
        Qp::new(&nic, &spec).expect("a queue pair")
    };
    let pairs = [0; 4].map(|_| (unreliable(0), unreliable(1)));
    for (one, other) in &pairs {
        connect_uc(one, &Side { qp: Arc::clone(other), ..side(1) }, &writer);
        connect_uc(other, &Side { qp: Arc::clone(one), ..side(0) }, &target);
    }
    let write = |qp, op, sge, depth| Stream { qp, op, sge, depth, posted: 0, under_way: 0 };
    // A little less than what a power of two holds.
    let mut streams = vec![
        write(&*writer.qp, SendOp::Write(target.address().at(0)), writer.sge(0, 3900), DEPTH),
        write(&*reader.qp, SendOp::Read(source.address().at(0)), reader.sge(0, 64 << 10), DEPTH),
    ];
    for (qp, _) in &pairs {
        let to = writer.address().at(768 << 10);
        streams.push(write(qp, SendOp::Write(to), writer.sge(512 << 10, 4096), 4));
    }
    let mut found = [Completion::EMPTY; 64];
    let end = now() + PATIENCE;
    while !streams.iter().all(Stream::is_done) {
        assert!(now() < end, "{:?}", nic.counters());
        let count = cq.poll(&mut found);
        for completion in &found[..count] {
            assert_eq!(completion.status, Status::Success);
            let of = |stream: &&mut Stream<'_>| u64::from(stream.qp.qpn().get()) == completion.id;
            streams.iter_mut().find(of).expect("of one of them").under_way -= 1;
        }
        streams.iter_mut().for_each(Stream::post);
    }
    let counters = nic.counters();
    assert_eq!(counters.lane_no_room, 0, "{counters:?}");
    assert!(counters.lane_packets_sent > 60_000, "{counters:?}");
}

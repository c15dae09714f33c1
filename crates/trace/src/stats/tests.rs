use ferroce_record::{Matched, PostedFlags, WorkOp};

use super::*;
use crate::scene::{ACK, NAK_SEQUENCE, RNR, Scene, told};

fn empty() -> Stats {
    Stats::new(&Timeline::open(&[]).unwrap(), Filter::default())
}

fn stats(scene: &Scene) -> Stats {
    let mut stats = empty();
    told(&[scene], |told| stats.take(&told));
    stats
}

fn times(stats: &Stats, operation: &str, stage: &str) -> Vec<u64> {
    let json = stats.to_json();
    let rows = json["operations"].as_array().unwrap();
    let row = rows.iter().find(|row| row["operation"] == operation).unwrap();
    let stage = &row["times_ns"][stage];
    ["count", "p50", "max"].map(|name| stage[name].as_u64().unwrap_or(0)).to_vec()
}

#[test]
fn each_stage_of_a_send_has_its_time() {
    let mut scene = Scene::new(0x11, 0x22);
    scene.post(0, WorkOp::Write, 100).after(40_000).out(0, WorkOp::Write, 7, PacketFlags::empty());
    scene.after(190_000).answer(0, 7, ACK).end(0, WorkOp::Write, Status::Success);
    let stats = stats(&scene);
    let near = |name: &str, nanos: u64| {
        let found = times(&stats, "RDMA WRITE", name);
        assert!(
            found[0] == 1 && found[1].abs_diff(nanos) * 100 <= nanos && found[2] >= found[1],
            "{name}: {found:?}"
        );
    };
    near("post_to_doorbell", 10_000);
    near("in_queue", 50_000);
    near("wire_and_peer", 200_000);
    near("to_completion", 10_000);
    near("completion_to_poll", 10_000);
    near("post_to_completion", 270_000);
    let json = stats.to_json();
    assert_eq!(
        (&json["operations"][0]["from_bytes"], &json["operations"][0]["bytes"]),
        (&64.into(), &100.into())
    );
    let text = stats.to_string();
    assert!(text.contains("RDMA WRITE, 64 to 127 bytes: 1 request(s), 100 bytes, 0 error(s)\n"), "{text}");
}

#[test]
fn work_that_stays_in_the_process_has_no_wire_and_earlier_work_no_beginning() {
    let mut scene = Scene::new(0x11, 0x22);
    let qpn = scene.qpn;
    scene.post(0, WorkOp::Send, 0).then(ferroce_record::Begun { qpn, work: 0, psn: 0, packets: 0 });
    scene.end(0, WorkOp::Send, Status::Success);
    let posted = scene.posted(1, WorkOp::Read, 64);
    scene.then(ferroce_record::Posted { flags: PostedFlags::EARLIER, ..posted });
    scene.answer(1, 3, ACK).end(1, WorkOp::Read, Status::Success);
    let queue = Queue::Receive(qpn);
    scene.post(2, WorkOp::Receive, 64).then(Matched { qpn, queue, work: 2, id: 0x102, psn: 9 });
    scene.end(2, WorkOp::Receive, Status::Success);
    let stats = stats(&scene);
    assert_eq!(times(&stats, "SEND", "wire_and_peer")[0], 0);
    assert_eq!(times(&stats, "SEND", "to_completion")[0], 1);
    assert_eq!(times(&stats, "RDMA READ", "post_to_completion")[0], 0);
    assert_eq!(times(&stats, "RDMA READ", "completion_to_poll")[0], 1);
    assert_eq!(times(&stats, "RECEIVE", "in_queue")[0], 1);
    assert!(stats.to_string().contains("SEND, 0 bytes: 1 request(s)"), "{stats}");
}

#[test]
fn queue_pairs_and_queues_are_counted() {
    let mut scene = Scene::new(0x11, 0x22);
    let qpn = scene.qpn;
    scene.post(0, WorkOp::Send, 64).post(1, WorkOp::Send, 64).post(2, WorkOp::Send, 64);
    scene.out(0, WorkOp::Send, 1, PacketFlags::empty()).out(0, WorkOp::Send, 1, PacketFlags::TAKEN);
    let kind = TimerKind::Acknowledgement;
    scene.then(Timer { qpn, kind, psn: 1, work: 0, tries: 1, most: 7 });
    scene.out(0, WorkOp::Send, 1, PacketFlags::REPEAT).answer(0, 1, RNR).answer(0, 1, NAK_SEQUENCE);
    scene.respond(3, RNR).raw(PacketFlags::REFUSED, 3, 0, &[]);
    scene.end(0, WorkOp::Send, Status::RnrRetryExceeded).end(1, WorkOp::Send, Status::Flushed);
    let stats = stats(&scene);
    let expected = QpFigures {
        posted: 3,
        ended: 2,
        errors: 1,
        flushed: 1,
        out: 3,
        came: 3,
        repeats: 1,
        taken: 1,
        timeouts: 1,
        rnr_came: 1,
        rnr_sent: 1,
        nak_came: 1,
        refused: 1,
        ..QpFigures::default()
    };
    assert_eq!(stats.ranked(), [(0, qpn, expected)]);
    assert_eq!(stats.sum(), expected);
    let (_, _, depth) = stats.deepest()[0];
    assert_eq!(depth.most, 3);
    assert!((2.0..3.0).contains(&depth.mean()), "{}", depth.mean());
    assert_eq!(stats.to_json()["outstanding"], 1);
    assert!(stats.to_string().contains("100.00 % of them in error, 1 failed, 1 flushed"), "{stats}");
    let rates: u64 = stats.series.rows(5).1.iter().map(|(_, bucket)| bucket.posted).sum();
    assert_eq!(rates, 3);
    assert_eq!(stats.to_json()["over_time"][0]["most_sends_outstanding"], 3);
}

#[test]
fn queue_pairs_beyond_a_number_share_their_figures() {
    let mut stats = empty();
    for number in 0..QUEUE_PAIRS + 7 {
        stats.of(0, Qpn::new(u32::try_from(number).unwrap())).posted += 1;
    }
    assert_eq!((stats.queue_pairs.len(), stats.others.posted), (QUEUE_PAIRS, 7));
    assert_eq!(stats.sum().posted, QUEUE_PAIRS as u64 + 7);
}

#[test]
fn a_filter_leaves_work_out_of_the_figures() {
    let mut scene = Scene::new(0x11, 0x22);
    scene.good(0, WorkOp::Write, 1).good(1, WorkOp::Send, 2);
    let filter = Filter { kinds: vec![crate::OpKind::Send], ..Filter::default() };
    let mut stats = Stats { filter, ..empty() };
    told(&[&scene], |told| stats.take(&told));
    assert_eq!(stats.to_json()["operations"].as_array().unwrap().len(), 1);
}

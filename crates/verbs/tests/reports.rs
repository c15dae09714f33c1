//! What queue pairs, queues and devices tell of themselves.

mod common;

use common::*;
use ferroce_verbs::*;

const NET: u8 = 52;

/// A device and two queue pairs on it, each with a completion queue of its own; addresses must be told apart.
fn two(last: u8) -> (End, End) {
    let context = open([127, 0, NET, last]);
    let ends = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
    connect(&ends.0.qp, &ends.1.qp);
    ends
}

#[test]
fn completions_are_counted_by_status() {
    let (a, b) = two(1);
    for _ in 0..3 {
        b.qp.receive(b.region.slice(..64)).post().unwrap();
        a.qp.send(a.region.slice(..64)).post().unwrap();
        a.done();
        b.done();
    }
    // Nothing can be written where nothing is.
    let beyond = b.region.remote().slice(..8);
    drop(b.region);
    a.qp.write(a.region.slice(..8), beyond).post().unwrap();
    let refused = a.cq.wait(SOON).unwrap();
    assert_eq!(refused.status, Status::RemoteAccess);
    // And what comes after is flushed.
    a.qp.send_inline(b"late").post().unwrap();
    assert_eq!(a.cq.wait(SOON).unwrap().status, Status::Flushed);

    let (ours, theirs) = (a.qp.report().totals, b.qp.report().totals);
    let expected = |status| match status {
        Status::Success => 3,
        Status::RemoteAccess | Status::Flushed => 1,
        _ => 0,
    };
    for (status, sends, receives) in ours.completions.iter() {
        assert_eq!((sends, receives), (expected(status), 0), "{status:?}");
    }
    assert_eq!((ours.sends_posted, ours.sends_done, ours.completions.failed()), (5, 5, 2));
    assert_eq!((theirs.receives_posted, theirs.completions.receives(Status::Success)), (3, 3));
    assert_eq!(theirs.counters, b.qp.counters());
}

#[test]
fn work_without_a_completion_is_done_and_not_counted_as_one() {
    let end = End::new(&open([127, 0, NET, 2]), Service::Rc);
    let few = end.pd.queue_pair(Service::Rc).completion_queue(&end.cq).signal_all(false).build().unwrap();
    connect(&few, &end.qp);
    for round in 0..4 {
        let work = few.write(end.region.slice(..8), end.region.remote().slice(..8));
        if round < 3 { work.post() } else { work.signaled().post() }.unwrap();
    }
    end.done();
    let totals = few.report().totals;
    assert_eq!((totals.sends_posted, totals.sends_done, totals.completions.all_sends()), (4, 4, 1));
}

#[test]
fn receives_of_a_shared_queue_are_counted_for_the_queue_pair_that_took_them() {
    let context = open([127, 0, NET, 3]);
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(64).unwrap();
    let srq = pd.shared_receive_queue(8, 1).unwrap();
    let region = pd.allocate(4096, OPEN).unwrap();
    let taking =
        || pd.queue_pair(Service::Rc).completion_queue(&cq).shared_receive_queue(&srq).build().unwrap();
    let sending = || pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    let pairs = [(sending(), taking()), (sending(), taking())];
    pairs.iter().for_each(|(one, other)| connect(one, other));
    for slot in 0..5 {
        srq.receive(region.slice(64 * slot..64 * slot + 64)).post().unwrap();
    }
    assert_eq!(srq.level(), level(5, 5, 8));
    for (pair, messages) in [(&pairs[0], 3), (&pairs[1], 1)] {
        for _ in 0..messages {
            pair.0.send_inline(b"here").post().unwrap();
            for _ in 0..2 {
                cq.wait(SOON).unwrap().result().unwrap();
            }
        }
    }
    let taken = |pair: &(QueuePair, QueuePair)| pair.1.report().totals.completions.receives(Status::Success);
    assert_eq!(pairs.each_ref().map(taken), [3, 1]);
    assert_eq!(srq.level(), level(1, 5, 8), "one is left, and there were five");
    let report = pairs[0].1.report();
    assert_eq!(
        (report.receive_queue, report.totals.receives_posted),
        (Level::default(), 0),
        "it has none itself"
    );
    assert_eq!(context.report().totals.completions.all_receives(), 4);
}

fn level(now: u32, most: u32, capacity: u32) -> Level {
    Level::new(now, most, capacity)
}

#[test]
fn totals_of_a_device_outlive_queue_pairs() {
    let context = open([127, 0, NET, 4]);
    let (mut sends, mut made) = (0, 0);
    let mut last = context.report().totals;
    for round in 1..=10 {
        let (a, b) = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
        made += 2;
        connect(&a.qp, &b.qp);
        for _ in 0..round {
            a.qp.write(a.region.slice(..8), b.region.remote().slice(..8)).post().unwrap();
            a.done();
            sends += 1;
        }
        // A receive that never gets a message ends with its queue pair, and without a completion.
        b.qp.receive(b.region.slice(..8)).post().unwrap();
        let report = context.report();
        assert_eq!((report.queue_pairs, report.queue_pairs_made), (2, made));
        assert_eq!(report.totals.completions.sends(Status::Success), sends);
        drop((a, b));
        let report = context.report();
        assert_eq!((report.queue_pairs, report.queue_pairs_made), (0, made));
        let totals = report.totals;
        assert_eq!((totals.completions.sends(Status::Success), totals.sends_posted), (sends, sends));
        assert_eq!(totals.receives_posted, round);
        for ((name, before), (_, now)) in last.counters.iter().zip(totals.counters.iter()) {
            assert!(before <= now, "{name} went from {before} to {now}");
        }
        last = totals;
    }
}

#[test]
fn queues_tell_how_full_they_are_and_were() {
    let (a, b) = two(5);
    let depth = a.qp.query().unwrap().caps;
    let queues = |qp: &QueuePair| (qp.report().send_queue, qp.report().receive_queue);
    assert_eq!(queues(&a.qp), (level(0, 0, depth.max_send), level(0, 0, depth.max_receive)));
    for _ in 0..5 {
        b.qp.receive(b.region.slice(..64)).post().unwrap();
    }
    for _ in 0..3 {
        a.qp.send_inline(b"three").post().unwrap();
    }
    // They are done, but the program has not heard of it.
    assert_eq!(a.qp.report().send_queue, level(3, 3, depth.max_send));
    assert_eq!((a.cq.level(), b.cq.level()), (level(3, 3, 256), level(3, 3, 256)));
    for _ in 0..3 {
        a.done();
        b.done();
    }
    assert_eq!(a.qp.report().send_queue, level(0, 3, depth.max_send));
    assert_eq!(b.qp.report().receive_queue, level(2, 5, depth.max_receive));
    assert_eq!((a.cq.level(), b.cq.level()), (level(0, 3, 256), level(0, 3, 256)));
    a.qp.send_inline(b"one").post().unwrap();
    assert_eq!(a.qp.report().send_queue, level(1, 3, depth.max_send), "the most stays");
}

#[test]
fn work_that_is_refused_was_never_in_its_queue() {
    let (a, _b) = two(6);
    let caps = a.qp.query().unwrap().caps;
    let mut posted = 0;
    while a.qp.receive(a.region.slice(..8)).post().is_ok() {
        posted += 1;
    }
    assert_eq!(posted, caps.max_receive);
    assert_eq!(a.qp.report().receive_queue, level(posted, posted, caps.max_receive));
    assert_eq!(a.qp.report().totals.receives_posted, u64::from(posted));
}

#[test]
fn a_completion_queue_that_overflows_was_full() {
    let context = open([127, 0, NET, 7]);
    let pd = context.protection_domain().unwrap();
    let (few, enough) = (context.completion_queue(2).unwrap(), context.completion_queue(64).unwrap());
    let region = pd.allocate(64, OPEN).unwrap();
    let qp = |cq: &CompletionQueue| pd.queue_pair(Service::Rc).completion_queue(cq).build().unwrap();
    let (a, b) = (qp(&few), qp(&enough));
    connect(&a, &b);
    for _ in 0..4 {
        let _lost = a.write(region.slice(..8), region.remote().slice(..8)).post();
    }
    assert!(few.is_overrun());
    assert_eq!(few.level(), level(2, 2, 2));
    assert_eq!(a.report().totals.completions.all_sends(), 2, "what was lost is no completion");
}

#[test]
fn what_a_peer_makes_us_wait_for_is_in_the_totals_of_both() {
    let (a, b) = two(8);
    a.qp.send_inline(b"too early").post().unwrap();
    let end = a.context.clock_now() + SOON;
    while b.qp.report().totals.counters.rnr_sent == 0 {
        assert!(a.cq.poll_one().is_none());
        assert!(a.context.clock_now() < end, "{:?}", b.qp.report());
    }
    b.qp.receive(b.region.slice(..64)).post().unwrap();
    a.done();
    let (ours, theirs, all) = (a.qp.report().totals, b.qp.report().totals, a.context.report().totals);
    assert!(ours.counters.rnr_received > 0);
    assert_eq!(all.counters.rnr_received, ours.counters.rnr_received);
    assert_eq!(all.counters.rnr_sent, theirs.counters.rnr_sent);
}

/// It was: a second recording took the device away from the first one, and its end was that of both.
#[test]
fn a_device_has_one_recording_at_a_time() {
    let context = Context::builder("ferroce_lo").address([127, 0, 52, 77]).open().unwrap();
    let first = context.record().unwrap();
    let second = context.record().unwrap_err();
    assert!(second.to_string().contains("recorded already"), "{second}");
    let before = std::fs::metadata(first.path()).unwrap().len();
    context.protection_domain().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
    assert!(before > 0 && first.text().unwrap().is_empty(), "no work was posted");
    drop(first);
    drop(context.record().unwrap());
}

//! Devices and objects that come and go: nothing is leaked, no order is wrong, no thread is locked out,
//! and what is wrong is said.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;

#[path = "../processes/child.rs"]
mod child;

mod under_load;

use std::net::UdpSocket;

use child::{eventually, role, run_alone, soak_minutes, tell};
use common::*;
use ferroce_verbs::*;

/// Addresses are 127.0.NET.x; each test has its own.
const NET: u8 = 91;

/// Opens two devices, connects queue pairs over the wire and inside of one, posts work of which some will
/// never be done, and lets everything go.
fn come_and_go(net: u8, round: u64) {
    let (a, b) = wire(net);
    let (c, d) = local(net);
    for (one, other) in [(&a, &b), (&c, &d)] {
        other.qp.receive(&other.region).id(1).post().unwrap();
        other.qp.receive(&other.region).id(2).post().unwrap();
        one.qp.write(&one.region, other.region.remote()).id(3).post().unwrap();
        one.qp.send_inline(b"the second receive stays").id(4).post().unwrap();
        if round.is_multiple_of(2) {
            assert_eq!((one.done().id, one.done().id), (3, 4));
        }
        one.qp.read(&one.region, other.region.remote()).id(5).post().unwrap();
    }
}

/// Runs a test in a process of its own; true in the parent, where it is done then.
///
/// What a process holds can be counted only where no other test runs. And a test that starts processes
/// lends them all descriptors for a moment, until they run their own program: what is closed meanwhile
/// is still open there.
///
/// The process has one arena that gives back what is free: with an arena for each thread that ever was, the
/// C library keeps some ten megabytes or none, as it happens, and a leak cannot be told from them.
fn is_done_elsewhere(name: &str) -> bool {
    let is_parent = role().is_none();
    if is_parent {
        let tidy_allocator = [
            ("MALLOC_ARENA_MAX", "1"),
            ("MALLOC_MMAP_THRESHOLD_", "65536"),
            ("MALLOC_TRIM_THRESHOLD_", "65536"),
        ];
        run_alone(name, "alone", &tidy_allocator);
    }
    is_parent
}

/// Does work in a thread that ends with it: one that ever slept for a completion keeps what it sleeps on.
fn in_a_thread(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().expect("the work is done"));
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    kilobytes: u64,
}

impl Held {
    fn now() -> Self {
        let count = |path| std::fs::read_dir(path).expect("procfs").count();
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let kilobytes = line.trim().trim_end_matches(" kB").parse().expect("a number");
        Self { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), kilobytes }
    }
}

#[test]
fn a_thousand_devices_leave_nothing_behind() {
    if is_done_elsewhere("a_thousand_devices_leave_nothing_behind") {
        return;
    }
    let rounds = soak_minutes().map_or(100, |minutes| 1000 * minutes);
    in_a_thread(|| (0..20).for_each(|round| come_and_go(NET, round)));
    let before = Held::now();
    in_a_thread(|| (0..rounds).for_each(|round| come_and_go(NET, round)));
    // A thread that was joined is in the list for a moment longer.
    eventually("all threads are gone", || Held::now().threads <= before.threads);
    let after = Held::now();
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    let grown = after.kilobytes.saturating_sub(before.kilobytes);
    // One device has more than a megabyte of buffers: a single one that is left would be seen.
    assert!(grown < 1024, "{grown} KiB more after {rounds} rounds: {before:?}, {after:?}");
}

#[test]
fn ten_thousand_queue_pairs_leave_one_device_without_a_trace() {
    if is_done_elsewhere("ten_thousand_queue_pairs_leave_one_device_without_a_trace") {
        return;
    }
    let keep = (open([127, 0, NET, 11]), open([127, 0, NET, 12]));
    let round = |round: u64| {
        let (a, b) = (End::new(&keep.0, Service::Rc), End::new(&keep.1, Service::Rc));
        connect(&a.qp, &b.qp);
        b.qp.receive(&b.region).post().unwrap();
        a.qp.write(&a.region, b.region.remote()).id(round).post().unwrap();
        if round.is_multiple_of(2) {
            assert_eq!(a.done().id, round);
        }
        let srq = a.pd.shared_receive_queue(64, 4).unwrap();
        srq.receive(&a.region).post().unwrap();
        let channel = keep.0.completion_channel().unwrap();
        drop((channel, b, a));
    };
    in_a_thread(|| (0..200).for_each(round));
    let before = Held::now();
    // Two queue pairs in each.
    let rounds = soak_minutes().map_or(5_000, |minutes| 20_000 * minutes);
    in_a_thread(|| (0..rounds).for_each(round));
    eventually("all threads are gone", || Held::now().threads <= before.threads);
    let after = Held::now();
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    let grown = after.kilobytes.saturating_sub(before.kilobytes);
    // A leaked region alone would be 8 KiB of each round.
    assert!(grown < 4 * 1024, "{grown} KiB more after {rounds} rounds: {before:?}, {after:?}");
}

#[test]
fn objects_may_go_in_every_order_with_work_posted() {
    if is_done_elsewhere("objects_may_go_in_every_order_with_work_posted") {
        return;
    }
    let (net, address) = (NET, [127, 0, NET, 21]);
    let mut order = [0, 1, 2, 3, 4];
    let mut orders = Vec::new();
    permute(&mut order, 5, &mut orders);
    assert_eq!(orders.len(), 120);
    for (round, order) in orders.iter().enumerate() {
        let other_device = open([127, 0, net, 22]);
        let context = open(address);
        let End { context, pd, cq, qp, region } = {
            drop(context.clone());
            End::new(&context, Service::Rc)
        };
        // Every second time the peer is inside of the same device.
        let peer = End::new(if round % 2 == 0 { &other_device } else { &context }, Service::Rc);
        connect(&qp, &peer.qp);
        qp.receive(&region).post().unwrap();
        qp.write(&region, peer.region.remote()).post().unwrap();
        qp.send(&region).post().unwrap();
        peer.qp.read(&peer.region, region.remote()).post().unwrap();
        let (mut context, mut pd, mut cq) = (Some(context), Some(pd), Some(cq));
        let (mut qp, mut region) = (Some(qp), Some(region));
        for object in order {
            match object {
                0 => drop(context.take()),
                1 => drop(pd.take()),
                2 => drop(cq.take()),
                3 => drop(qp.take()),
                _ => drop(region.take()),
            }
        }
    }
    let again = (End::new(&open(address), Service::Rc), End::new(&open([127, 0, net, 22]), Service::Rc));
    connect(&again.0.qp, &again.1.qp);
    again.0.qp.write(&again.0.region, again.1.region.remote()).id(7).post().unwrap();
    assert_eq!(again.0.done().id, 7);
}

/// All orders, by Heap's rule.
fn permute(order: &mut [usize; 5], count: usize, all: &mut Vec<[usize; 5]>) {
    if count == 1 {
        all.push(*order);
        return;
    }
    for at in 0..count {
        permute(order, count - 1, all);
        order.swap(if count.is_multiple_of(2) { at } else { 0 }, count - 1);
    }
}

#[test]
fn threads_that_open_and_close_one_device_share_it_or_reopen_it() {
    if is_done_elsewhere("threads_that_open_and_close_one_device_share_it_or_reopen_it") {
        return;
    }
    let rounds = soak_minutes().map_or(100, |minutes| 2_000 * minutes);
    std::thread::scope(|scope| {
        // Other devices close beside it.
        scope.spawn(|| (0..rounds).for_each(|_| drop(open([127, 0, NET, 32]))));
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..rounds {
                    let context = Context::builder("lo").address([127, 0, NET, 31]).open();
                    let context = context.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    let (one, other) = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
                    drop(context);
                    connect(&one.qp, &other.qp);
                    one.qp.write(&one.region, other.region.remote()).id(round).post().unwrap();
                    assert_eq!(one.done().id, round);
                }
            });
        }
    });
}

#[test]
fn a_taken_port_is_named_and_works_when_it_is_free() {
    if is_done_elsewhere("a_taken_port_is_named_and_works_when_it_is_free") {
        return;
    }
    let taken = UdpSocket::bind("127.0.91.41:4791").unwrap();
    let error = Context::builder("lo").address([127, 0, NET, 41]).open().unwrap_err();
    let text = Chain::of(&error).to_string();
    for part in ["4791", "127.0.91.41", "ss -lunp", "FERROCE_ADDRESS"] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    drop(taken);
    let context = open([127, 0, NET, 41]);
    assert!(UdpSocket::bind("127.0.91.41:4791").is_err(), "now it is ours");
    drop(context);
    drop(UdpSocket::bind("127.0.91.41:4791").expect("closed with the device"));
}

#[test]
fn settings_that_mean_nothing_are_named_with_their_cure() {
    const NAME: &str = "settings_that_mean_nothing_are_named_with_their_cure";
    if role().is_some() {
        match Context::open("lo") {
            Ok(context) => tell(&format!("opened {:?}", context.port().gids)),
            Err(error) => tell(&Chain::of(&error).to_string()),
        }
        return;
    }
    let cases: &[(&str, &str, &[&str])] = &[
        ("FERROCE_NETDEV", "nosuch0", &["FERROCE_NETDEV", "\"nosuch0\"", "there are", "lo"]),
        ("FERROCE_NETDEV", "lo,,lo", &["FERROCE_NETDEV", "lo,,lo"]),
        ("FERROCE_ADDRESS", "localhost", &["FERROCE_ADDRESS", "\"localhost\"", "IP address"]),
        ("FERROCE_ADDRESS", "192.0.2.1", &["192.0.2.1", "lo", "127.0.0.1"]),
        ("FERROCE_PATH", "fast", &["FERROCE_PATH", "\"fast\"", "prefer", "forbid"]),
        ("FERROCE_FAULTS", "loss=lots", &["FERROCE_FAULTS", "lots"]),
        ("FERROCE_RCVBUF", "4M", &["FERROCE_RCVBUF", "\"4M\"", "number of bytes"]),
        ("FERROCE_GSO", "maybe", &["FERROCE_GSO", "\"maybe\"", "1 (on)"]),
        ("FERROCE_GRO", "2", &["FERROCE_GRO", "\"2\"", "0 (off)"]),
        ("FERROCE_GATHER", "never", &["FERROCE_GATHER", "\"never\"", "0 (off)"]),
        ("FERROCE_ONE_PASS", "2", &["FERROCE_ONE_PASS", "\"2\"", "0 (off)"]),
        ("FERROCE_PCAP", "/nonexistent/a.pcapng", &["/nonexistent/a.pcapng", "No such file"]),
    ];
    for (name, value, parts) in cases {
        // The variable under test comes last, and so it counts if it is the address.
        let said = run_alone(NAME, "open", &[("FERROCE_ADDRESS", "127.0.91.51"), (name, value)]);
        let [text] = &said[..] else { panic!("one line expected: {said:?}") };
        for part in *parts {
            assert!(text.contains(part), "{name}={value}: {part:?} is missing in: {text}");
        }
    }
    let said = run_alone(NAME, "open", &[("FERROCE_ADDRESS", "127.0.91.51")]);
    assert!(said[0].starts_with("opened"), "{said:?}");
}

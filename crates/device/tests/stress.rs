//! Many messages, many threads: nothing hangs, nothing is lost or done twice.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Side, device, signaled};
use ferroce_device::PathPolicy;
use ferroce_transport::{Completion, ReceiveRequest, SendOp, Status};

/// Messages go to and fro; each side checks what it got.
fn ping_pong(a: &Side, b: &Side, rounds: u64, wait: bool) {
    std::thread::scope(|scope| {
        scope.spawn(|| play(a, true, rounds, wait));
        scope.spawn(|| play(b, false, rounds, wait));
    });
}

fn play(side: &Side, starts: bool, rounds: u64, wait: bool) {
    const SEND: u64 = u64::MAX;
    let (out, into) = (side.sge(0, 64), side.sge(4096, 64));
    let post_receive =
        |round| side.qp.post_receive(&[ReceiveRequest { id: round, sges: &[into] }]).expect("room");
    let (mut sent, mut received) = (0, 0);
    post_receive(0);
    let send = |round: u64, sent: &mut u64, received: &mut u64| {
        // The last message must have left before its bytes are changed.
        while *sent < round {
            next(side, wait, SEND, sent, received);
        }
        side.memory.write(0, &round.to_le_bytes()).expect("inside");
        side.qp.post_send(&[signaled(SEND, SendOp::Send, &[out])]).expect("room");
    };
    for round in 0..rounds {
        if starts {
            send(round, &mut sent, &mut received);
        }
        while received <= round {
            next(side, wait, SEND, &mut sent, &mut received);
        }
        assert_eq!(side.memory.load_u64(4096), Ok(round));
        post_receive(round + 1);
        if !starts {
            send(round, &mut sent, &mut received);
        }
    }
    while sent < rounds {
        next(side, wait, SEND, &mut sent, &mut received);
    }
}

fn next(side: &Side, wait: bool, send: u64, sent: &mut u64, received: &mut u64) {
    let done = if wait { side.completion() } else { side.polled_completion() };
    assert_eq!(done.status, Status::Success);
    if done.id == send {
        *sent += 1;
    } else {
        assert_eq!(done.id, *received);
        *received += 1;
    }
}

fn two_hosts(net: u8) -> (Side, Side) {
    let (one, other) = ([127, 0, net, 1], [127, 0, net, 2]);
    let a = Side::new(&device(one), one, PathPolicy::Prefer);
    let b = Side::new(&device(other), other, PathPolicy::Prefer);
    a.connect(&b.address());
    b.connect(&a.address());
    (a, b)
}

#[test]
fn ping_pong_by_polling() {
    let (a, b) = two_hosts(21);
    ping_pong(&a, &b, 5_000, false);
}

#[test]
fn ping_pong_by_waiting() {
    let (a, b) = two_hosts(22);
    ping_pong(&a, &b, 2_000, true);
}

/// The thread that waits sleeps in the driver's place, and a pause before trying again is over while it
/// sleeps.
#[test]
fn a_thread_that_sleeps_in_the_place_of_the_driver_does_not_stop_the_clocks() {
    let (a, b) = two_hosts(26);
    let (out, into) = (a.sge(0, 64), b.sge(4096, 64));
    std::thread::scope(|scope| {
        a.qp.post_send(&[signaled(7, SendOp::Send, &[out])]).expect("room");
        let sleeper = scope.spawn(|| a.completion());
        let mut nothing = [Completion::EMPTY];
        while a.qp.query().expect("it is there").counters.rnr_received < 3 {
            assert_eq!(b.cq.wait(&mut nothing, Some(Duration::from_millis(1))), 0);
        }
        b.qp.post_receive(&[ReceiveRequest { id: 1, sges: &[into] }]).expect("room");
        let done = sleeper.join().expect("it does not panic");
        assert_eq!((done.id, done.status), (7, Status::Success));
    });
    assert_eq!(b.completion().id, 1);
}

/// A thread that slept for a completion and then never calls again has left its place to the driver.
#[test]
fn a_thread_that_slept_and_went_away_is_replaced_by_the_driver() {
    let (a, b) = two_hosts(27);
    let target = b.address();
    b.qp.post_receive(&[ReceiveRequest { id: 1, sges: &[b.sge(4096, 64)] }]).expect("room");
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| b.completion());
        a.qp.post_send(&[signaled(1, SendOp::Send, &[a.sge(0, 64)])]).expect("room");
        assert_eq!(a.completion().status, Status::Success);
        assert_eq!(sleeper.join().expect("it does not panic").id, 1);
    });
    for round in 2..50 {
        a.qp.post_send(&[signaled(round, SendOp::Write(target.at(0)), &[a.sge(0, 64)])]).expect("room");
        let done = a.completion();
        assert_eq!((done.id, done.status), (round, Status::Success));
    }
}

#[test]
fn threads_that_post_to_one_queue_pair_lose_nothing() {
    let (a, b) = two_hosts(23);
    many_posters(&a, &b);
}

#[test]
fn threads_that_post_to_one_local_queue_pair_lose_nothing() {
    let address = [127, 0, 24, 1];
    let nic = device(address);
    let a = Side::new(&nic, address, PathPolicy::Require);
    let b = Side::new(&nic, address, PathPolicy::Require);
    a.connect(&b.address());
    b.connect(&a.address());
    many_posters(&a, &b);
}

/// Four threads add one to a counter of the peer, each through the same queue pair.
fn many_posters(a: &Side, b: &Side) {
    const EACH: u64 = 3_000;
    let target = b.address();
    let outstanding = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (outstanding, a) = (&outstanding, &a);
            scope.spawn(move || {
                let into = a.sge(thread * 8, 8);
                for _ in 0..EACH {
                    while outstanding.fetch_add(1, Ordering::SeqCst) >= 48 {
                        outstanding.fetch_sub(1, Ordering::SeqCst);
                        std::thread::yield_now();
                    }
                    let add = SendOp::FetchAdd { remote: target.at(0), add: 1 };
                    a.qp.post_send(&[signaled(thread, add, &[into])]).expect("room");
                }
            });
        }
        let mut done = [0_u64; 4];
        while done != [EACH; 4] {
            let completion = a.completion();
            assert_eq!(completion.status, Status::Success);
            done[usize::try_from(completion.id).expect("small")] += 1;
            outstanding.fetch_sub(1, Ordering::SeqCst);
        }
    });
    assert_eq!(b.memory.load_u64(0), Ok(4 * EACH));
}

#[test]
fn a_stream_of_large_writes_arrives_whole() {
    let (a, b) = two_hosts(25);
    let target = b.address();
    let half = 1_u32 << 19;
    for round in 0..200_u64 {
        let byte = u8::try_from(round % 251).expect("small");
        a.memory.fill(0, half as usize, byte).expect("inside");
        a.qp.post_send(&[signaled(round, SendOp::Write(target.at(0)), &[a.sge(0, half)])]).expect("room");
        let done = a.completion();
        assert_eq!((done.id, done.status), (round, Status::Success));
        let mut seen = vec![0; half as usize];
        b.memory.read(0, &mut seen).expect("inside");
        assert!(seen.iter().all(|seen| *seen == byte), "round {round}");
    }
}

/// Eight streams into one receiver share one window, and a stream that found it full has nothing
/// under way that would call it back: the others' answers must.
#[test]
fn queue_pairs_that_share_a_window_do_not_wait_for_ever() {
    let (one, other) = ([127, 0, 26, 1], [127, 0, 26, 2]);
    let (left, right) = (device(one), device(other));
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let a = Side::new(&left, one, PathPolicy::Prefer);
            let b = Side::new(&right, other, PathPolicy::Prefer);
            a.connect(&b.address());
            b.connect(&a.address());
            (a, b)
        })
        .collect();
    for round in 0..10 {
        for (a, b) in &pairs {
            for part in 0..8_u32 {
                let (at, from) =
                    (b.address().at(u64::from(part) << 16), a.sge(u64::from(part) << 16, 1 << 16));
                a.qp.post_send(&[signaled(round, SendOp::Write(at), &[from])]).expect("room");
            }
        }
        for (a, _) in &pairs {
            for _ in 0..8 {
                let done = a.completion();
                assert_eq!((done.id, done.status), (round, Status::Success));
            }
        }
    }
}

/// Polls that find nothing once left timers to every 32nd of them. A program that polls a thousand times a
/// second was then so late that its timers were started anew, again and again.
#[test]
#[expect(clippy::disallowed_methods, reason = "a program that polls seldom is what this is about")]
fn a_program_that_polls_once_a_millisecond_is_not_late_with_its_timers() {
    let (one, other) = ([127, 0, 28, 201], [127, 0, 28, 202]);
    let asks = Side::new(&device(one), one, PathPolicy::Forbid);
    // It never gets ready, and says nothing.
    let silent = Side::new(&device(other), other, PathPolicy::Forbid);
    let peer = silent.address();
    // 4.2 ms, twice.
    asks.connect_with(&peer, 10, 1);
    asks.qp.post_send(&[signaled(1, SendOp::Write(peer.at(0)), &[asks.sge(0, 8)])]).unwrap();
    let mut found = [Completion::EMPTY];
    let mut polls = 0;
    while asks.cq.poll(&mut found) == 0 {
        polls += 1;
        assert!(polls < 1500, "{:?}", asks.qp.query());
        std::thread::sleep(Duration::from_micros(800));
    }
    assert_eq!(found[0].status, Status::RetryExceeded);
}

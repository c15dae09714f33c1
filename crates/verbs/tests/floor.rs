//! What programs with queues, wakers and sleeps of their own build on, as endpoints and brokers do.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use common::*;
use ferroce_verbs::time::{Notice, now, until};
use ferroce_verbs::*;

const NET: u8 = 34;

/// Counts its calls, and tells of them.
struct Calls(Notice<u32>);

impl Calls {
    fn new() -> (Arc<Self>, Waker) {
        let calls = Arc::new(Self(Notice::new(0)));
        let waker = Waker::from(Arc::clone(&calls));
        (calls, waker)
    }

    /// Waits until it was called so often.
    fn reach(&self, count: u32) {
        let reached = self.0.wait(Some(SOON), |calls| (*calls >= count).then_some(*calls));
        assert_eq!(reached, Some(count));
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.change(|calls| *calls += 1);
    }
}

#[test]
fn what_is_there_can_be_taken_and_nothing_is_taken_twice() {
    let (a, b) = local(NET);
    let mut found = [Completion::EMPTY; 8];
    assert_eq!(a.cq.take(&mut found), 0);
    for id in 0..5 {
        a.qp.write_inline(b"x", b.region.remote()).id(id).post().unwrap();
    }
    // On the local path the call that posts also completes.
    assert_eq!(a.cq.take(&mut found[..2]), 2);
    assert_eq!(a.cq.take(&mut found[2..]), 3);
    assert_eq!(found[..5].iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(found[..5].iter().all(|done| done.is_success() && done.qpn == a.qp.qpn()));
    assert_eq!(a.cq.take(&mut found), 0);
}

#[test]
fn completions_are_timed_on_the_clock_that_programs_read() {
    let (a, b) = wire(NET);
    let before = now();
    a.qp.write_inline(b"x", b.region.remote()).post().unwrap();
    let done = a.done();
    let after = a.context.clock_now();
    assert!(before <= done.time && done.time <= after, "{before} {} {after}", done.time);
    assert!(until(done.time).is_zero());
    let clock = a.context.clock();
    assert!(clock.wall_at(done.time) <= clock.wall);
}

#[test]
fn a_waker_is_called_once_for_what_comes_after_it_was_left() {
    let (a, b) = wire(NET);
    let mut found = [Completion::EMPTY; 4];
    let (calls, waker) = Calls::new();
    for (round, haste) in [Haste::AtOnce, Haste::InTime, Haste::AtOnce].into_iter().enumerate() {
        assert_eq!(b.cq.poll_or_wake(&mut found, &waker, haste), 0);
        b.qp.receive(b.region.slice(..8)).id(9).post().unwrap();
        a.qp.send_inline(b"wake up").post().unwrap();
        assert!(a.done().is_success());
        calls.reach(u32::try_from(round).unwrap() + 1);
        // What is there is handed over, and the waker is not kept for it.
        assert_eq!(b.cq.poll_or_wake(&mut found, &waker, haste), 1);
        assert_eq!((found[0].id, found[0].byte_len), (9, 7));
    }
    // A waker that is told to have time is called all the same.
    assert_eq!(b.cq.poll_or_wake(&mut found, &waker, Haste::AtOnce), 0);
    b.cq.relax();
    b.qp.receive(b.region.slice(..8)).post().unwrap();
    a.qp.send_inline(b"no hurry").post().unwrap();
    calls.reach(4);
}

#[test]
fn a_sleep_for_several_queues_ends_with_a_completion_in_any_of_them() {
    let (a, b) = wire(NET);
    let (c, d) = wire(NET);
    let queues = [&b.cq, &d.cq];
    for (from, to) in [(&a, &b), (&c, &d), (&a, &b)] {
        to.qp.receive(to.region.slice(..8)).id(3).post().unwrap();
        let mut post = Some(|| from.qp.send_inline(b"there").post().unwrap());
        let received = loop {
            if let Some(done) = to.cq.poll_one() {
                break done;
            }
            // It is sent when the sleep has begun, so the sleep has to end by it.
            sleep(queues, |_| {
                post.take().into_iter().for_each(|post| post());
                true
            });
        };
        assert_eq!((received.id, received.byte_len), (3, 5));
        assert!(queues.iter().all(|queue| queue.poll_one().is_none()));
    }
}

#[test]
fn a_sleep_ends_by_its_waker_and_does_not_begin_if_there_is_something_to_do() {
    let (_a, b) = wire(NET);
    let told = AtomicU32::new(0);
    std::thread::scope(|scope| {
        sleep([&b.cq], |waker| {
            let waker = waker.clone();
            scope.spawn(|| {
                told.store(1, Ordering::SeqCst);
                waker.wake();
            });
            true
        });
    });
    assert_eq!(told.load(Ordering::SeqCst), 1);
    sleep([&b.cq], |_| false);
    sleep([], |_| false);
}

/// Sleeps for one of these queues, which must not be until the time is over.
fn sleep<const N: usize>(queues: [&CompletionQueue; N], begin: impl FnOnce(&Waker) -> bool) {
    let end = now() + SOON;
    CompletionQueue::sleep_for_any(queues, SOON, begin);
    assert!(!until(end).is_zero(), "nothing ended the sleep");
}

#[test]
fn an_aborted_queue_pair_flushes_what_it_has() {
    let (a, b) = wire(NET);
    let handle = b.qp.abort_handle();
    for id in 0..3 {
        b.qp.receive(b.region.slice(..8)).id(id).post().unwrap();
    }
    handle.abort();
    for id in 0..3 {
        let ended = b.cq.wait(SOON).unwrap();
        assert_eq!((ended.id, ended.status), (id, Status::Flushed));
    }
    assert_eq!((a.qp.state(), b.qp.state()), (State::Rts, State::Err));
    handle.clone().abort();
    drop(b);
    handle.abort();
}

#[test]
fn random_numbers_differ_and_keys_are_for_every_program() {
    let context = open([127, 0, NET, 9]);
    let (one, other): ([u8; 32], [u8; 32]) = (context.random_bytes(), context.random_bytes());
    assert_ne!(one, other);
    // A length that is no multiple of what the generator gives is filled to its end: 64 times nothing but
    // zeros there has a chance of one in 2^512.
    assert!((0..64).any(|_| context.random_bytes::<5>()[4] != 0));
    let keys: Vec<QKey> = (0..64).map(|_| context.random_qkey()).collect();
    assert!(keys.iter().all(|key| key.0 >> 31 == 0), "{keys:?}");
    assert!(keys.iter().any(|key| *key != keys[0]));
}

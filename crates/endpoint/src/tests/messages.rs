//! Messages, credits and the end.

use std::thread;

use super::*;
use crate::core::State;
use crate::error::{Cause, Error};

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 256 * 7 + seed) % 251).unwrap()).collect()
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let (a, b) = pair(111);
    let sizes = [
        0,
        1,
        64,
        239,
        240,
        241,
        4096,
        16367,
        16368,
        16369,
        16383,
        16384,
        16385,
        100_000,
        1 << 20,
        5_000_000,
        3,
    ];
    thread::scope(|scope| {
        scope.spawn(|| {
            for (i, len) in sizes.into_iter().enumerate() {
                a.send(&bytes(len, i)).wait_for(SOON).unwrap();
            }
        });
        for (i, len) in sizes.into_iter().enumerate() {
            let message = b.recv().wait_for(SOON).unwrap().unwrap();
            assert_eq!(message.len(), len);
            assert!(message.into_vec() == bytes(len, i), "message {i} of {len}");
        }
    });
}

#[test]
fn numbers_go_along() {
    let (a, b) = pair(111);
    for len in [0, 10, 100_000] {
        for imm in [0, 7, u32::MAX] {
            a.send_with_imm(&bytes(len, 1), imm).wait_for(SOON).unwrap();
            let message = b.recv().wait_for(SOON).unwrap().unwrap();
            assert_eq!((message.imm(), message.len()), (Some(imm), len));
        }
    }
    a.send(b"none").wait_for(SOON).unwrap();
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().imm(), None);
}

#[test]
fn a_slow_receiver_slows_the_sender_and_loses_nothing() {
    let (a, b) = pair(111);
    let mut sent = 0_u32;
    // The peer does not receive: at some point there is no room.
    loop {
        match a.send(&sent.to_be_bytes()).wait_for(Duration::from_millis(50)) {
            Ok(()) => sent += 1,
            Err(Error::TimedOut(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(sent, 64, "as many as the peer has room for");
    for i in 0..sent {
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), &i.to_be_bytes());
    }
    a.send(b"room again").wait_for(SOON).unwrap();
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"room again");
}

#[test]
fn both_directions_at_once_with_everything_full() {
    let (a, b) = pair(111);
    let run = |out: &Connection, seed: usize| {
        for i in 0..2000 {
            let len = [10, 300, 20_000, 0, 70_000][i % 5];
            out.send(&bytes(len, seed + i)).wait_for(SOON).unwrap();
        }
    };
    let take = |from: &Connection, seed: usize| {
        for i in 0..2000 {
            let len = [10, 300, 20_000, 0, 70_000][i % 5];
            assert!(from.recv().wait_for(SOON).unwrap().unwrap().into_vec() == bytes(len, seed + i));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&a, 3));
        scope.spawn(|| run(&b, 5));
        scope.spawn(|| take(&a, 5));
        take(&b, 3);
    });
}

#[test]
fn close_delivers_everything() {
    let (a, b) = pair(111);
    for i in 0..20 {
        a.send(&bytes(i * 10_000, i)).wait_for(SOON).unwrap();
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            a.close().wait_for(SOON).unwrap();
            assert_eq!(a.state(), State::Closed);
            assert_eq!(a.send(b"late").wait_for(SOON), Err(Error::Closed));
        });
        for i in 0..20 {
            assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == bytes(i * 10_000, i));
        }
        assert!(b.recv().wait_for(SOON).unwrap().is_none());
    });
    assert!(b.recv().wait_for(SOON).unwrap().is_none());
    assert_eq!(b.send(b"to a closed peer").wait_for(SOON), Err(Error::ClosedByPeer));
    b.close().wait_for(SOON).unwrap();
}

#[test]
fn a_receiver_that_does_something_else_owes_no_report() {
    let quiet = Options::new().keepalive(None);
    let (one, two) = (open(111, 1), open(111, 2));
    for round in 0..20 {
        let (a, b) = pair_with(&one, &two, &quiet, &quiet);
        let sender = thread::spawn(move || {
            for i in 0..10 {
                a.send(&bytes(100_000, i)).wait_for(SOON).unwrap();
            }
            // All of them were read, and no thread is in the library at the other end to say so.
            a.close().wait_for(SOON).unwrap_or_else(|error| panic!("round {round}: {error}"));
        });
        for _ in 0..10 {
            assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), 100_000);
        }
        sender.join().unwrap();
        assert!(b.recv().wait_for(SOON).unwrap().is_none());
    }
}

#[test]
fn dropping_delivers_too() {
    let (a, b) = pair(111);
    a.send(&bytes(100, 1)).wait_for(SOON).unwrap();
    a.send(&bytes(1_000_000, 2)).wait_for(SOON).unwrap();
    drop(a);
    assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == bytes(100, 1));
    assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == bytes(1_000_000, 2));
    assert!(b.recv().wait_for(SOON).unwrap().is_none());
}

#[test]
fn an_abort_is_seen_by_both() {
    let (a, b) = pair(111);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| b.recv().wait_for(SOON).map(|_| ()));
        a.abort();
        assert_eq!(waiting.join().unwrap(), Err(Error::Lost(Cause::PeerReset)));
    });
    assert_eq!(a.send(b"x").wait_for(SOON), Err(Error::Lost(Cause::Aborted)));
    assert_eq!(a.state(), State::Lost(Cause::Aborted));
}

/// The least and the most of what the queue pair below is asked for: everything works with each of them.
#[test]
fn options_of_the_queue_pair_are_kept_to() {
    use ferroce_verbs::{Access, Limits, Memory};
    let depth = Limits::READ_DEPTH;
    let plain = Options::new;
    let all = [
        plain().inline(0),
        plain().inline(Limits::INLINE),
        plain().max_reads(1),
        plain().max_reads(depth),
        // Ends that keep to the rules are never told to come back later.
        plain().rnr_retries(0),
        plain().rnr_retries(7).retries(7).ack_timeout(16),
        plain().traffic_class(0x28),
    ];
    for options in all {
        let (a, b) = pair_with(&open(111, 11), &open(111, 12), &options, &options);
        let table = b.expose("t", Memory::zeroed(4096).unwrap(), Access::REMOTE_READ).wait_for(SOON).unwrap();
        table.store_u64(0, 77).unwrap();
        let remote = a.remote("t").wait_for(SOON).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                // More READs than may be under way.
                scope.spawn(|| {
                    for _ in 0..16 {
                        let read = a.read(&remote, 0, 8).wait_for(SOON).unwrap();
                        assert_eq!(read, 77_u64.to_ne_bytes());
                    }
                });
            }
            scope.spawn(|| {
                for len in (0..300).chain([70_000]) {
                    a.send(&bytes(len, len)).wait_for(SOON).unwrap();
                }
            });
            for len in (0..300).chain([70_000]) {
                assert!(
                    b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == bytes(len, len),
                    "{options:?}"
                );
            }
        });
    }
    let refused =
        |options: &Options| Half::new(&open(111, 11), None, "127.0.0.1:1".parse().unwrap(), options);
    for wrong in [plain().inline(Limits::INLINE + 1), plain().max_reads(0), plain().max_reads(depth + 1)] {
        assert!(refused(&wrong).is_err(), "{wrong:?}");
    }
}

//! How far a message has come, and waiting for that.

use std::thread;

use super::*;
use crate::connection::Delivery;
use crate::error::{Cause, Error};

/// Not long: whether something has not happened is looked at after it.
const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_message_is_delivered_before_the_program_asks_for_it() {
    let (a, b) = pair(116);
    for (round, len) in [0_u32, 1, 200, 10_000].into_iter().enumerate() {
        a.send_until(&vec![1; len as usize], len, Delivery::Delivered).wait_for(SOON).unwrap();
        // The program of the other end has not looked.
        assert_eq!(b.counters().received, 0, "{round}");
    }
    a.flush().wait_for(SOON).unwrap();
    for len in [0_u32, 1, 200, 10_000] {
        let message = b.recv().wait_for(SOON).unwrap().unwrap();
        assert_eq!((message.len(), message.imm()), (len as usize, Some(len)));
    }
}

#[test]
fn a_long_message_is_delivered_when_it_was_read() {
    let (a, b) = pair(116);
    let bytes = vec![5; 3 << 20];
    assert_eq!(
        a.send_until(&bytes, None, Delivery::Delivered).wait_for(MOMENT),
        Err(Error::TimedOut(MOMENT))
    );
    thread::scope(|scope| {
        let flushed = scope.spawn(|| a.flush().wait_for(SOON));
        // It arrives once, although its call was given up.
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), bytes.len());
        assert_eq!(flushed.join().unwrap(), Ok(()));
    });
    a.send(b"the next").wait_for(SOON).unwrap();
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"the next");
}

#[test]
fn a_message_is_taken_when_the_program_has_it() {
    let (a, b) = pair(116);
    for len in [1, 300, 2 << 20] {
        let bytes = vec![7; len];
        let given_up = a.send_until(&bytes, None, Delivery::Taken).wait_for(MOMENT);
        assert_eq!(given_up, Err(Error::TimedOut(MOMENT)), "{len}");
        thread::scope(|scope| {
            let sender = scope.spawn(|| a.send_until(&bytes, 3, Delivery::Taken).wait_for(SOON));
            for imm in [None, Some(3)] {
                let message = b.recv().wait_for(SOON).unwrap().unwrap();
                assert_eq!((message.len(), message.imm()), (len, imm));
            }
            assert_eq!(sender.join().unwrap(), Ok(()));
        });
    }
}

#[test]
fn every_message_is_followed_in_a_long_conversation() {
    let (a, b) = pair(116);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = vec![0; 100_000];
            for i in 0..600_u32 {
                let received = b.recv_into(&mut into).wait_for(SOON).unwrap().unwrap();
                assert_eq!(received.imm, Some(i));
            }
            b.close().wait_for(SOON).unwrap();
        });
        // Two threads: what one waits for is not what the other waits for.
        let bytes = vec![1; 50_000];
        for i in 0..600_u32 {
            let part = if i.is_multiple_of(7) { &bytes[..] } else { &bytes[..i as usize] };
            let delivery = if i.is_multiple_of(3) { Delivery::Delivered } else { Delivery::Taken };
            a.send_until(part, i, delivery).wait_for(SOON).unwrap();
            if i.is_multiple_of(50) {
                a.flush().wait_for(SOON).unwrap();
            }
        }
        assert!(a.recv().wait_for(SOON).unwrap().is_none());
    });
}

#[test]
fn what_was_taken_is_told_before_the_goodbye() {
    for _ in 0..20 {
        let (a, b) = pair(116);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"last");
                b.close().wait_for(SOON).unwrap();
            });
            assert_eq!(a.send_until(b"last", None, Delivery::Taken).wait_for(SOON), Ok(()));
        });
    }
}

#[test]
fn what_is_flushed_is_there_although_the_connection_ends() {
    let (a, b) = pair(116);
    for i in 0..50_u8 {
        a.send(&[i]).wait_for(SOON).unwrap();
    }
    a.flush().wait_for(SOON).unwrap();
    a.abort();
    for i in 0..50_u8 {
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), &[i]);
    }
    assert_eq!(b.recv().wait_for(SOON).map(|_| ()), Err(Error::Lost(Cause::PeerReset)));
}

#[test]
fn a_peer_that_goes_leaves_no_call_waiting() {
    let (a, b) = pair(116);
    let long = &vec![0; 1 << 20];
    thread::scope(|scope| {
        let a = &a;
        let taken = scope.spawn(|| a.send_until(b"x", None, Delivery::Taken).wait_for(SOON));
        let read = scope.spawn(move || a.send_until(long, None, Delivery::Delivered).wait_for(SOON));
        let flush = scope.spawn(|| {
            // So that something is under way that the peer has not read.
            a.send(long).wait_for(SOON).unwrap();
            a.flush().wait_for(SOON)
        });
        while a.counters().sent < 3 {
            thread::yield_now();
        }
        b.abort();
        let lost = Err(Error::Lost(Cause::PeerReset));
        assert_eq!(taken.join().unwrap(), lost);
        assert_eq!(read.join().unwrap(), lost);
        assert_eq!(flush.join().unwrap(), lost);
    });
    // What was delivered before stays so.
    assert_eq!(a.flush().wait_for(SOON), Err(Error::Lost(Cause::PeerReset)));
}

#[test]
fn a_flush_of_nothing_is_done_at_once() {
    let (a, _b) = pair(116);
    assert_eq!(a.flush().wait_for(SOON), Ok(()));
}

/// It was: work that the device threw away behind a failure counted as delivered when more of it was thrown away.
#[test]
fn what_was_thrown_away_is_not_delivered() {
    for round in 0..60_u32 {
        let (a, b) = pair(116);
        let delivered = thread::scope(|scope| {
            let following = scope.spawn(|| {
                let mut delivered = Vec::new();
                for id in 0_u32.. {
                    match a.send_until(&id.to_be_bytes(), 1, Delivery::Delivered).wait_for(SOON) {
                        Ok(()) => delivered.push(id),
                        Err(_) => break,
                    }
                }
                delivered
            });
            // Others post behind it all the time.
            for _ in 0..2 {
                scope.spawn(|| while a.send(b"behind").wait_for(SOON).is_ok() {});
            }
            for _ in 0..round {
                // So that there is room for more.
                if b.recv().wait_for(SOON).unwrap().unwrap().imm().is_some() {
                    thread::yield_now();
                }
            }
            a.abort();
            following.join().unwrap()
        });
        let mut arrived = Vec::new();
        while let Ok(Some(message)) = b.recv().wait_for(SOON) {
            if message.imm().is_some() {
                arrived.push(message.into_vec());
            }
        }
        // Those that were taken before are not counted again: the last is what matters.
        if let (Some(last), Some(came)) = (delivered.last(), arrived.last()) {
            let came = u32::from_be_bytes(came[..].try_into().unwrap());
            assert!(came >= *last, "round {round}: {last} was delivered, and {came} was the last that came");
        }
    }
}

//! Several messages in one call, and streams whose reads and writes do not meet the borders of messages.

use std::future::Future;
use std::io::{IoSlice, Read, Write};
use std::pin::pin;
use std::task::{Context as TaskContext, Waker};
use std::thread;

use super::*;
use crate::error::Error;

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_batch_of_messages_of_all_lengths_arrives_in_order() {
    let (a, b) = pair(115);
    let lengths = [0, 1, 64, 240, 241, 4096, 16_384, 16_385, 100_000, 3];
    let messages: Vec<Vec<u8>> = (0..300).map(|round| pattern(lengths[round % lengths.len()])).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = &messages[..];
            while !left.is_empty() {
                let sent = a.send_batch(left).wait_for(SOON).unwrap();
                assert!(sent > 0, "at least the first");
                left = &left[sent..];
            }
        });
        for (number, message) in messages.iter().enumerate() {
            let got = b.recv().wait_for(SOON).unwrap().unwrap();
            assert!(got.into_vec() == *message, "message {number}");
        }
    });
    assert_eq!((a.counters().sent, b.counters().received), (300, 300));
}

#[test]
fn a_batch_goes_as_far_as_there_is_room_and_waits_for_the_first_alone() {
    let (a, b) = pair(115);
    let messages = [[7; 8]; 100];
    assert_eq!(a.send_batch(&messages).wait_for(SOON), Ok(64), "as many as the peer has room for");
    let limit = Duration::from_millis(20);
    assert_eq!(a.send_batch(&messages).wait_for(limit), Err(Error::TimedOut(limit)));
    // A call that waits and is given up has sent nothing.
    let mut context = TaskContext::from_waker(Waker::noop());
    assert!(pin!(a.send_batch(&messages)).poll(&mut context).is_pending());
    for _ in 0..64 {
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), &[7; 8]);
    }
    a.send(b"next").wait_for(SOON).unwrap();
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"next");
    assert_eq!(a.send_batch::<[u8; 1]>(&[]).wait_for(SOON), Ok(0));
}

#[test]
fn a_batch_with_a_message_that_is_too_long_goes_up_to_it() {
    let (one, two) = (open(115, 1), open(115, 2));
    let (a, b) = pair_with(&one, &two, &Options::new(), &Options::new().max_message(20_000));
    let messages = [vec![1; 10], vec![2; 20_000], vec![3; 20_001], vec![4; 10]];
    assert_eq!(a.send_batch(&messages).wait_for(SOON), Ok(2));
    let refused = a.send_batch(&messages[2..]).wait_for(SOON);
    assert_eq!(refused, Err(Error::TooLong { len: 20_001, allowed: 20_000 }));
    assert_eq!(a.send_batch(&messages[3..]).wait_for(SOON), Ok(1));
    for message in [&messages[0], &messages[1], &messages[3]] {
        assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == *message);
    }
}

#[test]
fn a_batch_after_the_end_is_refused() {
    let (a, b) = pair(115);
    a.abort();
    assert!(matches!(a.send_batch(&[b"x"]).wait_for(SOON), Err(Error::Lost(_))));
    drop(b);
}

#[test]
fn a_stream_has_no_borders_whatever_is_written_and_read_at_once() {
    let (a, b) = pair(115);
    let bytes = pattern(3_000_000);
    let (mut out, mut back) = (a.into_stream(), b.into_stream());
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut at, mut round) = (0, 0);
            while at < bytes.len() {
                let cut = |len: usize, from: usize| &bytes[from..(from + len).min(bytes.len())];
                let lengths = [0, 1, 20_000, 70, 16_368, 100_000, 1_100_000];
                let first = cut(lengths[round % 7], at);
                let second = cut(lengths[(round + 3) % 7], at + first.len());
                at += out.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]).unwrap();
                round += 1;
            }
            out.shutdown_write().unwrap();
        });
        let (mut read, mut into) = (Vec::new(), vec![0; 200_000]);
        for room in [1, 7, 16_367, 16_369, 65_536, 200_000].into_iter().cycle() {
            let count = back.read(&mut into[..room]).unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&into[..count]);
        }
        assert!(read == bytes);
    });
}

#[test]
fn one_read_of_a_stream_takes_all_that_is_there() {
    let (a, b) = pair(115);
    for part in 0..10_u8 {
        a.send(&[part; 100]).wait_for(SOON).unwrap();
    }
    a.flush().wait_for(SOON).unwrap();
    let mut into = [0; 2000];
    assert_eq!(b.into_stream().read(&mut into).unwrap(), 1000);
    let expected: Vec<u8> = (0..10).flat_map(|part| [part; 100]).collect();
    assert_eq!(into[..1000], expected);
}

#[test]
fn a_message_that_a_stream_has_begun_to_read_is_received_from_there() {
    let (a, b) = pair(115);
    let (short, long) = (pattern(1000), pattern(100_000));
    let mut stream = b.clone().into_stream();
    let mut into = [0; 300];
    for message in [&short, &long] {
        a.send(message).wait_for(SOON).unwrap();
        stream.read_exact(&mut into).unwrap();
        assert_eq!(into[..], message[..300]);
        assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == message[300..]);
    }
}

//! Records in a ring, against a queue that cannot be wrong.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;

use ferroce_lane::{Consumer, LaneFile, Producer};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{RING, file_of, lane, pop, push};

#[derive(Clone, Debug)]
enum Step {
    /// Room of the first length is asked for, and a record of at most the second is committed.
    Push(usize, usize),
    Publish,
    /// So many records are taken.
    Take(usize),
    Release,
}

fn step(longest: usize) -> impl Strategy<Value = Step> {
    // Rather often near the limits, where a record just fits before the end of the ring, or does not.
    let len = prop_oneof![0..64_usize, 0..=longest, longest - 16..=longest];
    prop_oneof![
        4 => (len.clone(), len).prop_map(|(room, len)| Step::Push(room, len)),
        2 => Just(Step::Publish),
        3 => (0..6_usize).prop_map(Step::Take),
        2 => Just(Step::Release),
    ]
}

/// Bytes of which those of another record are none.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7).to_le_bytes()[0]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_is_a_queue(steps in vec(step(RING / 2 - 8), 0..200)) {
        let (producer, consumer, _) = lane();
        is_a_queue(producer, consumer, steps)?;
    }

    /// Its front is used again if the consumer keeps up.
    #[test]
    fn a_long_lane_is_a_queue(steps in vec(step(ferroce_lane::LONGEST), 0..300)) {
        let (producer, consumer) = LaneFile::create().unwrap().split();
        is_a_queue(producer, consumer, steps)?;
    }
}

fn is_a_queue(mut producer: Producer, mut consumer: Consumer, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut committed, mut published) = (VecDeque::new(), VecDeque::new());
    // Records that may still have their room.
    let mut kept = 0;
    let mut number = 0;
    for step in steps {
        match step {
            Step::Push(room, len) => {
                let len = len.min(room);
                let Some(there) = producer.room(room) else {
                    prop_assert!(kept > 0, "an empty ring has room for {room} bytes");
                    continue;
                };
                prop_assert_eq!(there.len(), room);
                number += 1;
                let record = bytes(number, len);
                there[..len].copy_from_slice(&record);
                producer.commit(record.len().to_le_bytes()[0], len);
                committed.push_back(record);
                kept += 1;
            }
            Step::Publish => {
                prop_assert_eq!(producer.publish(), !committed.is_empty());
                published.append(&mut committed);
            }
            Step::Take(count) => {
                for _ in 0..count {
                    prop_assert_eq!(consumer.look(), !published.is_empty());
                    let Some(record) = consumer.next() else { break };
                    let expected = published.pop_front().expect("no more than were published");
                    prop_assert_eq!(record.kind(), expected.len().to_le_bytes()[0]);
                    prop_assert_eq!(record.len(), expected.len());
                    let mut head = [0xee; 44];
                    let copied = record.copy_head(&mut head);
                    prop_assert_eq!(copied, expected.len().min(44));
                    prop_assert_eq!(&head[..copied], &expected[..copied]);
                    prop_assert!(head[copied..].iter().all(|byte| *byte == 0xee));
                    prop_assert_eq!(record.bytes(), expected);
                }
            }
            Step::Release => {
                consumer.release();
                kept = committed.len() + published.len();
                prop_assert_eq!(producer.is_empty(), kept == 0);
            }
        }
        prop_assert!(!producer.is_broken() && !consumer.is_broken());
    }
    Ok(())
}

#[test]
fn as_long_as_the_consumer_keeps_up_only_the_front_of_a_long_ring_is_used() {
    let lane = LaneFile::create().unwrap();
    let file = file_of(&lane);
    let (mut producer, mut consumer) = lane.split();
    // The consumer is three records behind, as it may be.
    for number in 0..1000 {
        assert!(push(&mut producer, 0, &bytes(number, 4000)));
        producer.publish();
        if number >= 3 {
            assert!(consumer.look());
            assert_eq!(pop(&mut consumer), Some((0, bytes(number - 3, 4000))));
            consumer.release();
        }
    }
    let pages = file.metadata().unwrap().blocks() * 512 / 4096;
    assert!((16..=19).contains(&pages), "{pages} pages were written");
}

#[test]
fn a_consumer_that_does_not_keep_up_has_all_of_a_long_ring() {
    let (mut producer, mut consumer) = LaneFile::create().unwrap().split();
    let (most, front) = (LaneFile::RING / 4008, (64 << 10) / 4008);
    let mut whole = 0;
    // Wherever the consumer stops. Where it has all but passed the front, that is used once more, and is all that there is.
    for place in 0..200 {
        let mut filled = 0;
        while push(&mut producer, 0, &[0x11; 4000]) {
            filled += 1;
        }
        assert!(filled >= front, "{filled} at place {place}");
        whole += usize::from(filled + 1 >= most);
        producer.publish();
        while consumer.look() {
            while consumer.next().is_some() {}
            consumer.release();
        }
        for _ in 0..place {
            assert!(push(&mut producer, 0, &[0x22; 2000]));
            producer.publish();
            assert!(consumer.look() && consumer.next().is_some());
            consumer.release();
        }
    }
    assert!(whole >= 100, "{whole} of 200");
}

#[test]
fn the_longest_record_fits_an_empty_ring_wherever_it_stands() {
    for before in (0..RING / 8).map(|words| words * 8) {
        let (mut producer, mut consumer, _) = lane();
        let mut left = before;
        while left > 0 {
            // A word and seven eighths of nothing: any number of words can be reached by them.
            let len = left.min(1024) - 8;
            assert!(push(&mut producer, 0, &bytes(1, len)));
            producer.publish();
            assert!(consumer.look() && consumer.next().is_some());
            consumer.release();
            left -= len + 8;
        }
        let long = bytes(before, producer.longest());
        assert!(push(&mut producer, 1, &long), "at {before}");
        assert!(producer.publish() && consumer.look());
        assert_eq!(pop(&mut consumer), Some((1, long)), "at {before}");
    }
}

#[test]
fn a_ring_is_filled_to_the_last_byte() {
    let (mut producer, mut consumer, _) = lane();
    for _ in 0..RING / 64 {
        assert!(push(&mut producer, 2, &[0x11; 56]));
    }
    assert!(!push(&mut producer, 2, &[]), "not even a word");
    producer.publish();
    for _ in 0..RING / 64 {
        assert!(consumer.look() && consumer.next().is_some());
    }
    assert!(!consumer.look());
    assert!(producer.room(0).is_none(), "what was read is not free yet");
    consumer.release();
    assert!(producer.room(0).is_some());
}

#[test]
fn one_look_sees_what_was_published_by_then() {
    let (mut producer, mut consumer, _) = lane();
    push(&mut producer, 0, b"first");
    producer.publish();
    assert!(consumer.look());
    push(&mut producer, 0, b"second");
    producer.publish();
    assert!(pop(&mut consumer).is_some());
    assert!(pop(&mut consumer).is_none(), "it was not looked for");
    assert!(consumer.look());
    assert_eq!(pop(&mut consumer), Some((0, b"second".to_vec())));
}

#[test]
fn too_long_a_record_has_no_room_and_nothing_is_published_twice() {
    let (mut producer, _, _) = lane();
    assert_eq!(producer.longest(), 2040);
    assert!(producer.room(2041).is_none());
    assert!(producer.room(usize::MAX).is_none());
    assert!(!producer.publish());
    push(&mut producer, 0, b"a");
    assert!(producer.publish());
    assert!(!producer.publish());
    let (mut producer, _) = LaneFile::create().unwrap().split();
    assert!(producer.room(8193).is_none());
    assert_eq!(producer.room(8192).unwrap().len(), 8192);
}

#[test]
#[should_panic(expected = "more than the 4 that there was room for")]
fn more_than_there_was_room_for_is_not_committed() {
    let (mut producer, _, _) = lane();
    producer.room(4).unwrap();
    producer.commit(0, 5);
}

#[test]
#[should_panic(expected = "room was asked for")]
fn room_is_committed_once() {
    let (mut producer, _, _) = lane();
    producer.room(4).unwrap();
    producer.commit(0, 4);
    producer.commit(0, 4);
}

//! The other process writes what it must not.

use std::os::unix::fs::FileExt;

use ferroce_lane::Lie;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{DATA, HEAD, RING, TAIL, lane, pop, push, read, write};

/// A consumer that has read 64 bytes and given them back, and what it finds broken after the head and a word in the ring
/// were changed.
fn lie_of_producer(head: u64, word: Option<(u64, u64)>) -> Option<Lie> {
    let (mut producer, mut consumer, file) = lane();
    push(&mut producer, 0, &[1; 56]);
    producer.publish();
    assert!(consumer.look() && consumer.next().is_some());
    consumer.release();
    if let Some((at, word)) = word {
        write(&file, DATA + at, word);
    }
    write(&file, HEAD, head);
    while consumer.look() && consumer.next().is_some() {}
    assert_eq!(consumer.is_broken(), consumer.lie().is_some());
    if consumer.is_broken() {
        // For good, also if all is as it should be again.
        write(&file, DATA + 64, 0);
        write(&file, HEAD, 72);
        assert!(!consumer.look() && consumer.next().is_none() && consumer.is_broken());
        assert!(!consumer.lie().unwrap().to_string().is_empty());
    }
    consumer.lie()
}

#[test]
fn a_head_that_cannot_be_breaks_the_lane() {
    let most = 64 + RING as u64;
    for said in [0, 56, most + 8, most + 1, u64::MAX, 1 << 63, u64::MAX - 7] {
        assert_eq!(lie_of_producer(said, None), Some(Lie::Head { known: 64, said }));
    }
    for said in [65, 71, most - 1] {
        assert_eq!(lie_of_producer(said, None), Some(Lie::Alignment { said }));
    }
    assert_eq!(lie_of_producer(most, None), None, "zeroes are records of no bytes");
}

#[test]
fn a_head_that_goes_back_breaks_the_lane_also_before_anything_is_released() {
    let (mut producer, mut consumer, file) = lane();
    push(&mut producer, 0, &[1; 56]);
    producer.publish();
    assert!(consumer.look() && consumer.next().is_some());
    write(&file, HEAD, 32);
    assert!(!consumer.look());
    assert_eq!(consumer.lie(), Some(Lie::Head { known: 64, said: 32 }));
}

#[test]
fn a_word_that_stands_before_no_record_breaks_the_lane() {
    let skip = |len: u64| 1 << 40 | len;
    let to_end = RING as u64 - 64 - 8;
    // Bits that mean nothing; a skip with a kind; one that ends too early or too late; one with no record behind it.
    for said in [1 << 41, 1 << 63, skip(to_end) | 1 << 32, skip(to_end - 8), skip(to_end + 8), skip(to_end)] {
        assert_eq!(lie_of_producer(RING as u64, Some((64, said))), Some(Lie::Mark { said }), "{said:#x}");
    }
    // A skip that leads to another one.
    let (mut producer, mut consumer, file) = lane();
    push(&mut producer, 0, &[1; 56]);
    producer.publish();
    assert!(consumer.look() && consumer.next().is_some());
    consumer.release();
    write(&file, DATA + 64, skip(to_end));
    write(&file, DATA, skip(RING as u64 - 8));
    write(&file, HEAD, RING as u64 + 64);
    assert!(consumer.look() && consumer.next().is_none());
    assert_eq!(consumer.lie(), Some(Lie::Mark { said: skip(RING as u64 - 8) }));
}

#[test]
fn a_skip_of_a_whole_ring_breaks_the_lane() {
    let (_, mut consumer, file) = lane();
    let said = 1 << 40 | (RING as u64 - 8);
    write(&file, DATA, said);
    write(&file, HEAD, RING as u64);
    assert!(consumer.look() && consumer.next().is_none());
    assert_eq!(consumer.lie(), Some(Lie::Mark { said }));
}

#[test]
fn a_record_that_is_too_long_breaks_the_lane() {
    // Longer than what is published.
    assert_eq!(lie_of_producer(64 + 16, Some((64, 9))), Some(Lie::Length { said: 9, most: 8 }));
    assert_eq!(lie_of_producer(64 + 8, Some((64, 1))), Some(Lie::Length { said: 1, most: 0 }));
    assert_eq!(lie_of_producer(64 + 16, Some((64, 8))), None);
    // Longer than records are.
    let (said, most) = (2041, 2040);
    assert_eq!(lie_of_producer(RING as u64, Some((64, said))), Some(Lie::Length { said: 2041, most }));
    let said = u64::from(u32::MAX);
    assert_eq!(lie_of_producer(RING as u64, Some((64, said))), Some(Lie::Length { said: 0xffff_ffff, most }));
}

#[test]
fn a_record_that_goes_over_the_end_of_the_ring_breaks_the_lane() {
    let (mut producer, mut consumer, file) = lane();
    for _ in 0..3 {
        push(&mut producer, 0, &[1; 1016]);
    }
    push(&mut producer, 0, &[1; 1000]);
    producer.publish();
    while consumer.look() && consumer.next().is_some() {}
    consumer.release();
    let at = RING as u64 - 16;
    write(&file, DATA + at, 9);
    write(&file, HEAD, at + 512);
    assert!(consumer.look() && consumer.next().is_none());
    assert_eq!(consumer.lie(), Some(Lie::Length { said: 9, most: 8 }));
}

#[test]
fn a_tail_that_cannot_be_breaks_the_lane() {
    for (said, lie) in [
        (96, Lie::Tail { known: 32, said: 96 }),
        (24, Lie::Tail { known: 32, said: 24 }),
        (0, Lie::Tail { known: 32, said: 0 }),
        (u64::MAX, Lie::Tail { known: 32, said: u64::MAX }),
        (1 << 63, Lie::Tail { known: 32, said: 1 << 63 }),
        (33, Lie::Alignment { said: 33 }),
    ] {
        let (mut producer, mut consumer, file) = lane();
        push(&mut producer, 0, &[1; 24]);
        producer.publish();
        assert!(consumer.look() && consumer.next().is_some());
        consumer.release();
        assert!(producer.is_empty());
        push(&mut producer, 0, &[1; 24]);
        producer.publish();
        // This one is committed, and so more than the consumer can know of.
        push(&mut producer, 0, &[1; 24]);
        write(&file, TAIL, said);
        assert!(!producer.is_empty() && producer.is_broken());
        assert_eq!(producer.lie(), Some(lie));
        // For good, also if all is as it should be again.
        write(&file, TAIL, 64);
        assert!(producer.room(0).is_none() && !producer.publish() && !producer.is_empty());
        assert!(!producer.give_pages_back().unwrap());
        assert_eq!(read(&file, HEAD), 64, "nothing more is published");
    }
}

#[test]
fn a_tail_is_looked_at_when_the_ring_seems_full_and_not_before() {
    let (mut producer, _, file) = lane();
    write(&file, TAIL, 1);
    for _ in 0..RING / 64 {
        assert!(push(&mut producer, 0, &[1; 56]) && producer.publish());
    }
    assert!(!producer.is_broken());
    assert!(producer.room(0).is_none() && producer.is_broken());
}

#[test]
fn bytes_that_change_under_a_reader_change_no_copy_and_no_length() {
    let (mut producer, mut consumer, file) = lane();
    push(&mut producer, 5, b"as it was");
    producer.publish();
    assert!(consumer.look());
    let record = consumer.next().unwrap();
    let mut copy = [0; 9];
    assert_eq!(record.copy_head(&mut copy), 9);
    write(&file, DATA, u64::MAX);
    file.write_all_at(b"as it is!", DATA + 8).unwrap();
    assert_eq!((record.kind(), record.len(), &copy), (5, 9, b"as it was"));
    assert_eq!(record.bytes().len(), 9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Words that are rather often nearly right.
    #[test]
    fn a_consumer_over_garbage_takes_no_more_than_a_ring(
        steps in vec((likely(), vec((0..RING as u64 / 8, likely()), 0..8)), 1..12),
    ) {
        let (_, mut consumer, file) = lane();
        for (head, words) in steps {
            for (at, word) in words {
                write(&file, DATA + at * 8, word);
            }
            write(&file, HEAD, read(&file, HEAD).wrapping_add(head));
            let mut taken = 0;
            while consumer.look() {
                let Some((_, bytes)) = pop(&mut consumer) else {
                    prop_assert!(consumer.is_broken());
                    break;
                };
                taken += bytes.len() + 8;
                prop_assert!(taken <= RING && bytes.len() <= 2040);
            }
            consumer.release();
        }
    }
}

fn likely() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..64_u64).prop_map(|words| words * 8),
        2 => 0..2048_u64,
        1 => (0..RING as u64).prop_map(|len| 1 << 40 | len),
        1 => (0..512_u64).prop_map(|words| 1 << 40 | (RING as u64 - words * 8).wrapping_sub(8)),
        1 => any::<u64>(),
    ]
}

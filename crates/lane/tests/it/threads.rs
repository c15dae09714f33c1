//! Two threads, as two processes are, over one mapping.

use std::thread;

use ferroce_lane::LaneFile;

const RECORDS: u64 = 1_000_000;

/// What a record of this number holds: a length that varies, and words that depend on both.
fn words(number: u64) -> impl Iterator<Item = u64> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..mixed >> 61).map(move |word| mixed.rotate_left(word.to_le_bytes()[0].into()) ^ number)
}

#[test]
fn a_million_records_arrive_as_they_were_sent() {
    let (mut producer, mut consumer) = LaneFile::create().unwrap().split();
    let sender = thread::spawn(move || {
        let mut sum = 0_u64;
        for number in 0..RECORDS {
            let len = words(number).count() * 8;
            let room = loop {
                // Twice, since a borrow that is returned from one arm of a loop holds in all.
                if producer.room(len).is_some() {
                    break producer.room(len).unwrap();
                }
                producer.publish();
                thread::yield_now();
            };
            for (piece, word) in room.chunks_mut(8).zip(words(number)) {
                piece.copy_from_slice(&word.to_ne_bytes());
                sum = sum.rotate_left(1) ^ word;
            }
            producer.commit(number.to_le_bytes()[0], len);
            if number % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
        assert!(!producer.is_broken());
        sum
    });
    let (mut number, mut sum) = (0_u64, 0_u64);
    while number < RECORDS {
        if !consumer.look() {
            assert!(!consumer.is_broken(), "{:?}", consumer.lie());
            thread::yield_now();
            continue;
        }
        while let Some(record) = consumer.next() {
            assert_eq!(record.kind(), number.to_le_bytes()[0]);
            for piece in record.bytes().chunks(8) {
                sum = sum.rotate_left(1) ^ u64::from_ne_bytes(piece.try_into().unwrap());
            }
            number += 1;
        }
        consumer.release();
    }
    assert_eq!(sum, sender.join().unwrap());
    assert!(!consumer.look());
}

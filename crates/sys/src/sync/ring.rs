//! A bounded ring of records, from one thread to another: how completions reach a program.

use std::array;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use thiserror::Error;

use super::prim::{AtomicU64, AtomicUsize};

/// A ring for exactly `capacity` records of `WORDS` words each, and at least for one.
///
/// The words are atomics, so there is no unsafe code here; on the machines we know they cost what
/// plain words do. A record is published by one store of the index behind it, so it is seen whole.
#[must_use]
pub fn channel<const WORDS: usize>(capacity: usize) -> (Producer<WORDS>, Consumer<WORDS>) {
    let capacity = capacity.max(1);
    let slot = || array::from_fn(|_| AtomicU64::new(0));
    let shared = Arc::new(Shared {
        slots: (0..capacity.next_power_of_two()).map(|_| slot()).collect(),
        capacity,
        head: Padded(AtomicUsize::new(0)),
        tail: Padded(AtomicUsize::new(0)),
    });
    let consumer = Consumer { shared: Arc::clone(&shared), head: 0, tail_seen: 0 };
    (Producer { shared, tail: 0, head_seen: 0 }, consumer)
}

/// The end that records go into.
pub struct Producer<const WORDS: usize> {
    shared: Arc<Shared<WORDS>>,
    tail: usize,
    /// The head when it was last looked at: it may have moved on since, never back.
    head_seen: usize,
}

/// The ring has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the ring holds {capacity} records and has no room for one more; take some out, or make it larger")]
pub struct Full {
    /// Records that the ring takes, and now holds.
    pub capacity: usize,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Puts a record in.
    ///
    /// # Errors
    /// The ring is full; nothing has changed.
    pub fn push(&mut self, record: [u64; WORDS]) -> Result<(), Full> {
        let capacity = self.shared.capacity;
        if self.tail.wrapping_sub(self.head_seen) >= capacity {
            // Acquire: what the consumer read from the slot came before, so we may write to it.
            self.head_seen = self.shared.head.0.load(Acquire);
            if self.tail.wrapping_sub(self.head_seen) >= capacity {
                return Err(Full { capacity });
            }
        }
        for (word, value) in self.shared.slot(self.tail).iter().zip(record) {
            word.store(value, Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Release);
        Ok(())
    }

    /// Whether there is room for one more record. Only [`push`](Self::push) takes it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < self.shared.capacity
    }

    /// Records in the ring, or more: the consumer may be taking some.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether the consumer has taken everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Something that only tells how full the ring is.
    #[must_use]
    pub fn gauge(&self) -> Gauge<WORDS> {
        Gauge(Arc::clone(&self.shared))
    }
}

/// The end that records come out of.
pub struct Consumer<const WORDS: usize> {
    shared: Arc<Shared<WORDS>>,
    head: usize,
    /// The tail when it was last looked at: it may have moved on since, never back.
    tail_seen: usize,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Takes the oldest record out.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; WORDS]> {
        if self.tail_seen == self.head {
            // Acquire: the words of every record before the tail are there to be read.
            self.tail_seen = self.shared.tail.0.load(Acquire);
            if self.tail_seen == self.head {
                return None;
            }
        }
        let slot = self.shared.slot(self.head);
        let record = array::from_fn(|index| slot[index].load(Relaxed));
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Release);
        Some(record)
    }

    /// Takes records out, oldest first, as many as there are and as fit. Returns how many.
    pub fn pop_into(&mut self, records: &mut [[u64; WORDS]]) -> usize {
        if self.tail_seen.wrapping_sub(self.head) < records.len() {
            // Acquire: the words of every record before the tail are there to be read.
            self.tail_seen = self.shared.tail.0.load(Acquire);
        }
        let count = self.tail_seen.wrapping_sub(self.head).min(records.len());
        if count == 0 {
            return 0;
        }
        for record in &mut records[..count] {
            let slot = self.shared.slot(self.head);
            *record = array::from_fn(|index| slot[index].load(Relaxed));
            self.head = self.head.wrapping_add(1);
        }
        self.shared.head.0.store(self.head, Release);
        count
    }

    /// Records in the ring, or fewer: the producer may be adding some.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Something that only tells how full the ring is.
    #[must_use]
    pub fn gauge(&self) -> Gauge<WORDS> {
        Gauge(Arc::clone(&self.shared))
    }
}

/// Tells any thread how full a ring is, without a hand in it.
#[derive(Clone)]
pub struct Gauge<const WORDS: usize>(Arc<Shared<WORDS>>);

impl<const WORDS: usize> Gauge<WORDS> {
    /// Records in the ring, a moment ago.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ring was empty, a moment ago. A record whose pushing the asker has been told of
    /// is seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that the ring takes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }
}

struct Shared<const WORDS: usize> {
    /// A power of two of them, so that an index finds its slot even when it has wrapped around.
    slots: Box<[[AtomicU64; WORDS]]>,
    capacity: usize,
    /// Records ever taken out; written by the consumer.
    head: Padded<AtomicUsize>,
    /// Records ever put in; written by the producer.
    tail: Padded<AtomicUsize>,
}

/// Keeps what two threads write on cache lines of their own.
#[repr(align(64))]
struct Padded<T>(T);

impl<const WORDS: usize> Shared<WORDS> {
    fn slot(&self, index: usize) -> &[AtomicU64; WORDS] {
        &self.slots[index & (self.slots.len() - 1)]
    }

    /// The head is read first, and the tail has then come at least as far; but the head may have
    /// moved on before the tail was read, so the difference may be too large.
    fn len(&self) -> usize {
        let head = self.head.0.load(Acquire);
        self.tail.0.load(Acquire).wrapping_sub(head).min(self.capacity)
    }

    fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<const WORDS: usize> fmt::Debug for Producer<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("Producer", f)
    }
}

impl<const WORDS: usize> fmt::Debug for Consumer<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("Consumer", f)
    }
}

impl<const WORDS: usize> fmt::Debug for Gauge<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Gauge", f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn capacity_is_exact() {
        for capacity in [1, 2, 3, 5, 8] {
            let (mut producer, mut consumer) = channel::<1>(capacity);
            let records = u64::try_from(capacity).unwrap();
            for round in 0..3 {
                for record in 0..records {
                    assert_eq!(producer.push([record]), Ok(()), "round {round}");
                }
                assert_eq!(producer.push([99]), Err(Full { capacity }));
                assert_eq!(
                    (producer.len(), consumer.len(), consumer.gauge().len()),
                    (capacity, capacity, capacity)
                );
                assert!(std::iter::from_fn(|| consumer.pop()).eq((0..records).map(|record| [record])));
                assert!(producer.is_empty() && consumer.is_empty() && producer.gauge().is_empty());
            }
        }
        assert_eq!(channel::<1>(0).0.gauge().capacity(), 1);
    }

    #[test]
    fn indices_may_wrap_around() {
        let (mut producer, mut consumer) = channel::<2>(3);
        let start = usize::MAX - 4;
        (producer.tail, producer.head_seen, consumer.head, consumer.tail_seen) = (start, start, start, start);
        producer.shared.head.0.store(start, Relaxed);
        producer.shared.tail.0.store(start, Relaxed);
        for record in 0..20 {
            producer.push([record, !record]).unwrap();
            producer.push([record + 100, 0]).unwrap();
            assert_eq!(consumer.len(), 2);
            let mut records = [[0; 2]; 3];
            assert_eq!(consumer.pop_into(&mut records), 2);
            assert_eq!(records, [[record, !record], [record + 100, 0], [0, 0]]);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_queue(capacity in 1_usize..9, steps in prop::collection::vec((any::<bool>(), 0_usize..5), 0..200)) {
            let (mut producer, mut consumer) = channel::<1>(capacity);
            let mut model = VecDeque::new();
            let mut next = 0_u64;
            for (push, count) in steps {
                if push {
                    let fits = model.len() < capacity;
                    prop_assert_eq!(producer.push([next]).is_ok(), fits);
                    if fits {
                        model.push_back([next]);
                    }
                    next += 1;
                } else {
                    let mut records = [[0]; 5];
                    let taken = consumer.pop_into(&mut records[..count]);
                    let expected: Vec<_> = model.drain(..count.min(model.len())).collect();
                    prop_assert_eq!(&records[..taken], &expected[..]);
                }
                prop_assert_eq!(producer.len(), model.len());
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
            }
        }
    }
}

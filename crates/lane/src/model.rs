//! Ends over words that loom watches, in place of those over files.

use crate::doors::{DoorWords, HandWord};
use crate::exchange::Exchange;
use crate::line::Words;
use crate::memory::Memory;
use crate::{Caller, Consumer, Doors, Hand, Line, Producer, Visitor};

/// Both ends of a lane with a ring of so many bytes.
#[must_use]
pub fn lane(ring: usize) -> (Producer, Consumer) {
    let [one, other] = Memory::pair(ring);
    (Producer::new(one), Consumer::new(other))
}

/// The same; the first so many bytes of the ring are used again as long as the consumer keeps up.
#[must_use]
pub fn lane_with_front(ring: usize, front: usize) -> (Producer, Consumer) {
    let (producer, consumer) = lane(ring);
    (producer.with_front(front), consumer)
}

/// The owner's end of a line, and so many to call from.
#[must_use]
pub fn line<const N: usize>() -> (Line, [Caller; N]) {
    let words = Exchange::new(Words::new());
    (Line::new(words.clone()), std::array::from_fn(|_| Caller::new(words.clone())))
}

/// Doors, and so many visitors with the hand of each.
#[must_use]
pub fn doors<const N: usize>() -> (Doors, [(Visitor, Hand); N]) {
    let words = Exchange::new(DoorWords::new());
    let visitors = std::array::from_fn(|_| {
        let hand = Exchange::new(HandWord::new());
        (Visitor::new(words.clone(), hand.clone()), Hand::new(hand))
    });
    (Doors::new(words), visitors)
}

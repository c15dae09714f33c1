//! The function of a poller runs in another thread, so it cannot borrow what this one may drop.

use ferroce_verbs::{CompletionQueue, Poller};

fn count(queue: &CompletionQueue) {
    let mut count = 0;
    let _poller = Poller::start(queue, |_| count += 1);
}

fn main() {}

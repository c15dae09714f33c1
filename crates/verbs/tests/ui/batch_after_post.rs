//! A batch is posted once.

use ferroce_verbs::QueuePair;

fn post_twice(qp: &QueuePair) {
    let mut batch = qp.batch();
    batch.add(qp.send_inline(b"once"));
    let _ = batch.post();
    batch.add(qp.send_inline(b"too late"));
}

fn main() {}

//! Inline bytes are copied when they are posted, so they must live until then.

use ferroce_verbs::{Batch, QueuePair};

fn fill<'a>(qp: &'a QueuePair, batch: &mut Batch<'a>) {
    let text = String::from("gone too early");
    batch.add(qp.send_inline(text.as_bytes()));
}

fn main() {}

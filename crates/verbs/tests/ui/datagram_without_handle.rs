//! A datagram needs an address handle: a GID alone is no way to go.

use ferroce_verbs::{Gid, QKey, Qpn, QueuePair};

fn send(qp: &QueuePair, gid: &Gid) {
    let _ = qp.send_inline_to(gid, Qpn::new(7), QKey(1), b"to nowhere").post();
}

fn main() {}

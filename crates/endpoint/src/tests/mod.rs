//! The protocol between two ends whose queue pairs were connected by hand.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod bulk;
mod delivery;
mod flood;
mod hostile;
mod memory;
mod messages;
mod names;
mod panics;
mod servers;
mod styles;
mod zero_copy;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce_verbs::{AbortHandle, Context};

use crate::connection::Connection;
use crate::half::Half;
use crate::line::Line;
use crate::options::Options;

/// Long enough for a loaded machine; no test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Ends the connection for both, as connection management does.
struct Wire {
    ended: Arc<AtomicBool>,
    queue_pairs: [AbortHandle; 2],
}

impl Line for Wire {
    fn end(&self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.queue_pairs.iter().for_each(AbortHandle::abort);
        }
    }
}

pub(crate) fn open(net: u8, host: u8) -> Context {
    Context::builder("lo").address([127, 0, net, host]).open().unwrap()
}

/// Two ends of this network, over sockets.
pub(crate) fn pair(net: u8) -> (Connection, Connection) {
    pair_with(&open(net, 1), &open(net, 2), &Options::new(), &Options::new())
}

pub(crate) fn pair_with(
    one: &Context,
    two: &Context,
    ours: &Options,
    theirs: &Options,
) -> (Connection, Connection) {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let (a, b) =
        (Half::new(one, None, nowhere, ours).unwrap(), Half::new(two, None, nowhere, theirs).unwrap());
    let (first, second) = (a.queue_pair(), b.queue_pair());
    first.connect_with(&second.local_address(), &ours.connect_options()).unwrap();
    second.connect_with(&first.local_address(), &theirs.connect_options()).unwrap();
    let queue_pairs = [first.abort_handle(), second.abort_handle()];
    let ended = Arc::<AtomicBool>::default();
    let wire = || Box::new(Wire { ended: Arc::clone(&ended), queue_pairs: queue_pairs.clone() });
    let (to_b, to_a) = (a.hello(), b.hello());
    (a.open(&to_a, wire(), nowhere, nowhere).unwrap(), b.open(&to_b, wire(), nowhere, nowhere).unwrap())
}

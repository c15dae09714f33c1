//! Members of a mesh, each with a device of its own, in one process.
#![allow(dead_code, reason = "every test takes what it needs")]

pub(crate) mod stranger;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ferroce_broker::{Broker, Builder, Members, StartError};
use ferroce_verbs::time::{now, until};
use ferroce_verbs::{Context, PathPolicy, ProtectionDomain};

/// Long enough for a loaded machine; no test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// So many members at 127.0.`net`.1 and up.
pub(crate) fn members(net: u8, count: u8) -> Members {
    let address = |last: u8| SocketAddr::from(([127, 0, net, last], 7471));
    Members::new((0..count).map(|id| (u32::from(id), address(id + 1)))).unwrap()
}

/// So many members at one address, each with a port of its own: they may share memory.
pub(crate) fn near_members(net: u8, count: u8) -> Members {
    let address = |id: u8| SocketAddr::from(([127, 0, net, 1], 7471 + u16::from(id)));
    Members::new((0..count).map(|id| (u32::from(id), address(id)))).unwrap()
}

/// The device of a member, over the wire.
pub(crate) fn device(members: &Members, id: u32) -> (Context, ProtectionDomain) {
    let address = members.get(id).unwrap().address.ip();
    let context = Context::builder("lo").address(address).path(PathPolicy::Forbid).open().unwrap();
    let domain = context.protection_domain().unwrap();
    (context, domain)
}

/// A member over the wire.
pub(crate) fn builder(members: &Members, id: u32) -> Builder {
    let (context, domain) = device(members, id);
    Broker::builder(id, members.clone()).device(&context, &domain).deadline(SOON)
}

/// Starts all of them at once.
pub(crate) fn start_all(builders: impl IntoIterator<Item = Builder>) -> Vec<Result<Broker, StartError>> {
    thread::scope(|scope| {
        let started: Vec<_> =
            builders.into_iter().map(|builder| scope.spawn(move || builder.start())).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Longer than any member of a test is kept from running: it is not gone because of that.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mesh in which all are there.
pub(crate) fn mesh(net: u8, count: u8, with: impl Fn(Builder) -> Builder) -> Vec<Broker> {
    let members = members(net, count);
    let builders = (0..u32::from(count)).map(|id| with(builder(&members, id).patience(PATIENCE)));
    start_all(builders).into_iter().map(Result::unwrap).collect()
}

/// Polls until the function says that it is enough.
pub(crate) fn poll_until(broker: &Broker, mut enough: impl FnMut(&Broker) -> bool) {
    while !enough(broker) {
        let quick = Duration::from_millis(20);
        broker.wait(quick, |_| (), |_| ()).unwrap();
    }
}

/// Waits until a broker is as the function says; nothing needs to be polled for it.
pub(crate) fn eventually(broker: &Broker, is_so: impl Fn(&Broker) -> bool) {
    let deadline = now() + SOON;
    while !is_so(broker) {
        assert!(!until(deadline).is_zero(), "{:?}, {:?}", broker.refusals(), broker.status());
        broker.wait(Duration::from_millis(5), |_| (), |_| ()).unwrap();
    }
}

/// The next message: the member that sent it, its immediate data, and its bytes.
pub(crate) fn next_message(broker: &Broker) -> (u32, Option<u32>, Vec<u8>) {
    let mut found = Vec::new();
    while found.is_empty() {
        let take = |message: ferroce_broker::Message<'_>| {
            found.push((message.peer(), message.imm(), message.to_vec()));
        };
        assert!(broker.wait_receives(SOON, take).unwrap() > 0, "nothing comes");
    }
    assert_eq!(found.len(), 1, "more than the test sent");
    found.remove(0)
}

/// What became of the next work with a name.
pub(crate) fn next_done(broker: &Broker) -> ferroce_broker::Done {
    let mut found = Vec::new();
    assert!(broker.wait_sends(SOON, |done| found.push(done)).unwrap() > 0, "nothing is done");
    assert_eq!(found.len(), 1, "more than the test posted");
    found.remove(0)
}

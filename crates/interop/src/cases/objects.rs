//! Objects of ours that change while the kernel works with them.

use std::time::Duration;

use ferroce_verbs::{
    Access, AsyncEvent, Completion, Memory, Notify, Reregistration, Service, Status, WorkKind,
};

use crate::Result;
use crate::lab::Lab;
use crate::pair::{Asks, LIMIT, Pair, Parts, Verb, check};
use crate::pattern::{pattern, sum};

/// Messages that are under way at once.
const BURST: usize = 8;

/// A region that was registered anew over other memory is where peers write to and read from, and its old key opens
/// nothing.
pub(super) fn reregistered(lab: &mut Lab, asks: Asks) -> Result<()> {
    const VERBS: [Verb; 4] = [Verb::Send, Verb::Write, Verb::WriteImm, Verb::Read];
    let mut pair = lab.pair(Service::Rc)?;
    let len = 2 * lab.link.path_mtu().bytes() + 3;
    let whole = pair.region.len();
    for verb in VERBS {
        pair.transfer(asks, verb, len)?;
    }
    // The peer may stand in the middle of the old region: that is what its address says.
    let address = pair.region.address();
    for other in [None, Some(address)] {
        let change = Reregistration::new().memory(Memory::zeroed(whole)?, ..);
        let before = pair.region.rkey();
        pair.region.reregister(other.map_or(change.clone(), |address| change.address(address)))?;
        check("the key is a new one", pair.region.rkey() != before, true)?;
        for verb in VERBS {
            pair.transfer(asks, verb, len)?;
        }
    }
    if asks == Asks::Kernel {
        // Each refusal ends a connection.
        let stale = pair.region.rkey();
        pair.region.reregister(Reregistration::new())?;
        refused(&mut pair, stale.0)?;
        let mut pair = lab.pair(Service::Rc)?;
        pair.region.reregister(Reregistration::new().access(Access::LOCAL_WRITE | Access::REMOTE_READ))?;
        let key = pair.region.rkey().0;
        pair.transfer(asks, Verb::Read, len)?;
        refused(&mut pair, key)?;
    }
    Ok(())
}

/// A WRITE of the kernel with this key.
fn refused(pair: &mut Pair, key: u32) -> Result<()> {
    let id = pair.next();
    pair.far.post(id, "write", (0, 64), &[pair.region.address(), key.into()])?;
    pair.far_fails(Status::RemoteAccess)
}

/// The completion queue grows and shrinks while messages arrive and leave: none is lost or out of order.
pub(super) fn cq_resize(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    for capacity in [2048, 16, 256, 17] {
        let stream = Stream::new(lab, &mut pair, asks);
        let (first, second) = stream.messages.split_at(BURST / 2);
        stream.begin(&mut pair, first)?;
        pair.queue.resize(capacity)?;
        check("completions that the queue holds", pair.queue.capacity() >= capacity, true)?;
        stream.begin(&mut pair, second)?;
        stream.finish(&mut pair, [])?;
    }
    Ok(())
}

/// A shared receive queue of ours says when it runs low, and grows while the kernel sends into it.
pub(super) fn srq(lab: &mut Lab) -> Result<()> {
    let domain = lab.context.protection_domain()?;
    let queue = lab.context.completion_queue(64)?;
    let srq = domain.shared_receive_queue(u32::try_from(BURST)?, 1)?;
    let parts = Parts { domain, queue, srq: Some(srq.clone()) };
    let mut pair = Pair::of_parts(&lab.context, lab.spec(Service::Rc), parts)?;
    let events = lab.context.events();
    for round in 0..3 {
        srq.set_limit(u32::try_from(BURST / 2)?)?;
        let stream = Stream::new(lab, &mut pair, Asks::Kernel);
        stream.receive(&mut pair, &stream.messages)?;
        check("receives that wait", srq.len() as usize, BURST)?;
        // One more than half of them are taken, and fewer than the limit are left.
        let (first, second) = stream.messages.split_at(BURST / 2 + 1);
        stream.send(&mut pair, first)?;
        let mut event = events.wait(LIMIT)?;
        // What other cases did to their queue pairs is told here too.
        while matches!(event, AsyncEvent::QueuePair(..)) {
            event = events.wait(LIMIT)?;
        }
        check("the event", event, AsyncEvent::SharedQueueLimit(srq.id()))?;
        let depth = [64, 1024, 8][round];
        srq.resize(depth)?;
        check("receives that it takes", srq.depth() >= depth, true)?;
        check("whether it shrinks below what waits", srq.resize(1).is_ok(), false)?;
        stream.send(&mut pair, second)?;
        stream.finish(&mut pair, [])?;
    }
    Ok(())
}

/// An event waits for company, but not for ever.
pub(super) fn moderation(lab: &mut Lab, asks: Asks) -> Result<()> {
    const PERIOD: Duration = Duration::from_millis(40);
    let channel = lab.context.completion_channel()?;
    let queue = channel.completion_queue(64)?;
    let parts = Parts { domain: lab.context.protection_domain()?, queue, srq: None };
    let mut pair = Pair::of_parts(&lab.context, lab.spec(Service::Rc), parts)?;
    pair.queue.moderate(u32::try_from(BURST)?, PERIOD)?;
    for count in [BURST, 1, BURST] {
        let mut stream = Stream::new(lab, &mut pair, asks);
        stream.messages.truncate(count);
        pair.queue.arm(Notify::Any);
        let began = lab.context.clock_now();
        stream.begin(&mut pair, &stream.messages)?;
        let woken = channel.wait(LIMIT)?;
        check("the queue that has something", woken.id(), pair.queue.id())?;
        let waited = lab.context.clock_now().since(began);
        let here: Vec<Completion> = std::iter::from_fn(|| pair.queue.poll_one()).collect();
        // Either all of them were there, or the first had waited long enough.
        check("whether the event came too early", here.len() < BURST && waited < PERIOD, false)?;
        stream.finish(&mut pair, here)?;
    }
    Ok(())
}

/// What we send keeps to a rate that the kernel knows nothing of.
pub(super) fn rate_limit(lab: &mut Lab) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    // 16 Mbit/s are 2000 bytes in a millisecond. A millisecond's worth and the last packet go at once.
    pair.near.set_rate_limit(16_000)?;
    let began = lab.context.clock_now();
    let len = 100_003;
    pair.transfer(Asks::We, Verb::Write, len)?;
    let took = lab.context.clock_now().since(began);
    check("whether 100,003 bytes took 45 ms", took >= Duration::from_millis(45), true)?;
    let waits = pair.near.counters().rate_waits;
    check("whether it waited", waits > 0, true)?;
    pair.transfer(Asks::We, Verb::Send, len)?;
    pair.transfer(Asks::We, Verb::Read, len)?;
    pair.near.set_rate_limit(0)?;
    let waits = pair.near.counters().rate_waits;
    pair.transfer(Asks::We, Verb::Write, len)?;
    check("waits without a limit", pair.near.counters().rate_waits, waits)
}

/// SENDs of several packets, each with a place of its own on both sides.
struct Stream {
    asks: Asks,
    len: usize,
    /// Number and place of each.
    messages: Vec<(u64, usize)>,
}

impl Stream {
    fn new(lab: &Lab, pair: &mut Pair, asks: Asks) -> Self {
        let len = 2 * lab.link.path_mtu().bytes() + 5;
        let messages = (0..BURST).map(|place| (pair.next(), place * len.next_multiple_of(64))).collect();
        Self { asks, len, messages }
    }

    fn begin(&self, pair: &mut Pair, messages: &[(u64, usize)]) -> Result<()> {
        self.receive(pair, messages)?;
        self.send(pair, messages)
    }

    fn receive(&self, pair: &mut Pair, messages: &[(u64, usize)]) -> Result<()> {
        for &(id, place) in messages {
            let at = pair.target + place;
            match (self.asks, &pair.srq) {
                (Asks::We, _) => pair.far.receive(id, at, self.len)?,
                (Asks::Kernel, Some(srq)) => {
                    srq.receive(pair.region.slice(at..at + self.len)).id(id).post()?;
                }
                (Asks::Kernel, None) => {
                    pair.near.receive(pair.region.slice(at..at + self.len)).id(id).post()?;
                }
            }
        }
        Ok(())
    }

    fn send(&self, pair: &mut Pair, messages: &[(u64, usize)]) -> Result<()> {
        for &(id, place) in messages {
            match self.asks {
                Asks::We => {
                    pair.region.write_at(place, &pattern(id, self.len))?;
                    pair.near.send(pair.region.slice(place..place + self.len)).id(id).post()?;
                }
                Asks::Kernel => {
                    pair.far.fill(place, self.len, id)?;
                    pair.far.post(id, "send", (place, self.len), &[])?;
                }
            }
        }
        Ok(())
    }

    /// All complete on both sides, in order and whole. Some have been polled at our end.
    fn finish(&self, pair: &mut Pair, polled: impl IntoIterator<Item = Completion>) -> Result<()> {
        let (near, far) = match self.asks {
            Asks::We => (WorkKind::Send, WorkKind::Receive),
            Asks::Kernel => (WorkKind::Receive, WorkKind::Send),
        };
        let mut polled = polled.into_iter();
        for &(id, place) in &self.messages {
            match polled.next() {
                Some(done) => {
                    let done = done.result()?;
                    check("our completion", (done.id, done.kind), (id, near))?;
                }
                None => drop(pair.near_done(id, near)?),
            }
            pair.far_done(id, far)?;
            let at = pair.target + place;
            let seen = match self.asks {
                Asks::We => pair.far.sum(at, self.len)?,
                Asks::Kernel => sum(&pair.region.to_vec(at..at + self.len)?),
            };
            check("checksum of a message", seen, sum(&pattern(id, self.len)))?;
        }
        Ok(())
    }
}

//! One end of a measurement: queue pairs, memory, and the patience to wait for the other end.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, Counters, MemoryRegion, PathPolicy,
    QueuePair, Service, Time,
};
use ferroce_device::now;

use super::line::Card;
use super::task::{Task, Way};
use crate::interrupt;

/// Which end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator,
    Target,
}

/// Sends and receives that an end of a ping-pong may have under way.
pub(crate) const PING_PONG_DEPTH: u32 = 64;

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) cq: CompletionQueue,
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) region: MemoryRegion,
}

impl End {
    pub(crate) fn new(context: &Context, address: IpAddr, task: &Task, side: Side) -> anyhow::Result<Self> {
        let pd = context.protection_domain()?;
        let (sends, receives) = match (task.is_ping_pong(), side) {
            (true, _) => (PING_PONG_DEPTH, PING_PONG_DEPTH),
            (false, Side::Initiator) => (task.depth(), 1),
            (false, Side::Target) => (1, task.receives()),
        };
        let completions = (sends + receives).saturating_mul(u32::try_from(task.qps)?);
        let cq = context.completion_queue(completions).context("cannot have so many messages under way")?;
        let policy = match task.way {
            Way::Local => PathPolicy::Require,
            Way::Shared => PathPolicy::Shared,
            Way::Wire => PathPolicy::Forbid,
        };
        // On a card with several, so that no thread is in the way of the other.
        let engine = if side == Side::Target { 1 } else { 0 };
        let build = |_| {
            let builder = pd.queue_pair(Service::Rc);
            let builder = if task.way == Way::Shared { builder.engine(engine) } else { builder };
            builder
                .address(address)
                .send_queue(&cq, sends)
                .receive_queue(&cq, receives)
                .max_sge(1)
                .signal_all(false)
                .path(policy)
                .build()
        };
        let qps = (0..task.qps).map(build).collect::<Result<_, _>>()?;
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let bytes = bytes(task, side);
        let region =
            pd.allocate(bytes, all).with_context(|| format!("cannot have {bytes} bytes of memory"))?;
        // Every page is there before anything is measured.
        region.fill(.., 0)?;
        Ok(Self { cq, qps, region })
    }

    pub(crate) fn card(&self) -> Card {
        let qps = self.qps.iter().map(QueuePair::local_address).collect();
        Card { region: self.region.remote(), qps }
    }

    pub(crate) fn connect(&self, other: &Card) -> anyhow::Result<()> {
        ensure!(
            other.qps.len() == self.qps.len(),
            "the other end has {} queue pairs instead of {}",
            other.qps.len(),
            self.qps.len()
        );
        // A receive that is not there yet will be there in a moment: 0.01 ms is code 1.
        let options = ConnectOptions { min_rnr_timer: 1, ..ConnectOptions::default() };
        for (qp, peer) in self.qps.iter().zip(&other.qps) {
            qp.connect_with(peer, &options)?;
        }
        Ok(())
    }

    /// Which way its packets take, and why.
    pub(crate) fn path(&self) -> String {
        self.qps.first().and_then(QueuePair::path).map_or_else(|| "none".into(), |path| path.to_string())
    }

    /// What happened to all its queue pairs.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for qp in &self.qps {
            sum.add(&qp.counters());
        }
        sum
    }

    /// The next completion, if there is one; failed work is an error.
    #[inline]
    pub(crate) fn poll(&self) -> anyhow::Result<Option<Completion>> {
        match self.cq.poll_one() {
            None => Ok(None),
            Some(done) => Ok(Some(*done.result()?)),
        }
    }
}

/// Where an end of a ping-pong has what it sends, and where what it gets arrives.
pub(crate) const fn outgoing_and_incoming(size: usize) -> (usize, usize) {
    (0, size.next_multiple_of(64))
}

/// Bytes of memory that an end needs.
fn bytes(task: &Task, side: Side) -> usize {
    if task.is_ping_pong() {
        return 2 * task.size.next_multiple_of(64);
    }
    let slots = match side {
        Side::Target if task.is_received() => receive_slots(task),
        _ => task.slots(),
    };
    task.qps * slots * task.size
}

/// Buffers that the receives of a queue pair share.
pub(crate) fn receive_slots(task: &Task) -> usize {
    if task.verify { task.receives() as usize } else { task.slots() }
}

/// Patience with the other end, counted in looks that found nothing.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    looks: u32,
    moved: bool,
    deadline: Time,
    over: Option<&'a AtomicBool>,
}

/// How long the other end may be silent.
const SILENCE: Duration = Duration::from_secs(20);
/// Looks between two looks at the clock.
const LOOKS: u32 = 1024;

impl<'a> Watch<'a> {
    /// Patience until `over` says that nothing more will come.
    pub(crate) fn new(over: Option<&'a AtomicBool>) -> Self {
        Self { looks: 0, moved: false, deadline: now() + SILENCE, over }
    }

    /// Something came.
    #[inline]
    pub(crate) const fn moved(&mut self) {
        self.moved = true;
    }

    /// Nothing came: whether to go on.
    #[inline]
    pub(crate) fn go_on(&mut self) -> anyhow::Result<bool> {
        self.looks += 1;
        if self.looks < LOOKS {
            return Ok(true);
        }
        self.looks = 0;
        self.look()
    }

    /// The same after a long wait.
    pub(crate) fn look(&mut self) -> anyhow::Result<bool> {
        if self.over.is_some_and(|over| over.load(Ordering::Acquire)) {
            return Ok(false);
        }
        // The end that measures decides about Ctrl-C; the other one hears of it.
        if self.over.is_none() && interrupt::is_asked() {
            return Ok(false);
        }
        let time = now();
        if self.moved {
            self.moved = false;
            self.deadline = time + SILENCE;
        } else if time > self.deadline {
            bail!("nothing from the other end for {} s; is it still there?", SILENCE.as_secs());
        }
        Ok(true)
    }
}

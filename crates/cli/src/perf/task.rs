//! What is measured: one row of the table. Both ends work from the same task.

use std::time::Duration;

use anyhow::{bail, ensure};

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Verb {
    /// RDMA WRITE: our memory into the target's, which does not notice
    Write,
    /// RDMA READ: the target's memory into ours
    Read,
    /// SEND: a message into a receive that the target posted
    Send,
    /// FETCH AND ADD: eight bytes of the target, changed all at once
    Atomic,
}

/// What is asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Bytes per second.
    Bandwidth,
    /// How long one takes.
    Latency,
    /// Messages per second.
    Rate,
}

/// What the program at the target does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// Polls its completion queue, and so does the work of its network card itself
    Poll,
    /// Spins on its memory outside of the library, so that the card's own thread does the work
    Spin,
    /// Sleeps until something is to do
    Sleep,
}

/// Which way is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Directly: both queue pairs are in one process
    Local,
    /// Through memory in common, as between two processes of this machine
    Shared,
    /// RoCEv2 packets over UDP
    Wire,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// After so many messages.
    Messages(u64),
    /// After so much time.
    Time(Duration),
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) verb: Verb,
    pub(crate) measure: Measure,
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) qps: usize,
    /// Messages under way on each queue pair.
    pub(crate) depth: u32,
    pub(crate) target: Target,
    /// Whether contents are looked at.
    pub(crate) verify: bool,
    pub(crate) way: Way,
}

impl Task {
    /// Bytes of the longest message.
    pub(crate) const MAX_SIZE: usize = 1 << 30;
    /// Queue pairs.
    pub(crate) const MAX_QPS: usize = 1024;
    /// Messages under way.
    pub(crate) const MAX_DEPTH: u32 = 8192;
    /// Bytes of messages on all queue pairs together.
    const MAX_MEMORY: usize = 2 << 30;

    /// Whether it can be done at all: a peer may have sent it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Self { verb, measure, size, qps, depth, target, .. } = *self;
        ensure!((1..=Self::MAX_SIZE).contains(&size), "messages have 1 byte to 1 GiB, not {size} bytes");
        ensure!((1..=Self::MAX_QPS).contains(&qps), "1 to {} queue pairs, not {qps}", Self::MAX_QPS);
        ensure!((1..=Self::MAX_DEPTH).contains(&depth), "a depth of 1 to {}, not {depth}", Self::MAX_DEPTH);
        let memory = size.saturating_mul(qps).saturating_mul(2);
        ensure!(
            memory <= Self::MAX_MEMORY,
            "messages of {size} bytes on {qps} queue pairs need too much memory; use fewer or smaller ones"
        );
        ensure!(verb != Verb::Atomic || size == 8, "an atomic has 8 bytes, not {size}; leave out --size");
        ensure!(
            measure != Measure::Latency || qps == 1,
            "--lat measures one queue pair; use --qps with --bw or --rate"
        );
        if verb == Verb::Send && target == Target::Spin {
            bail!(
                "a SEND arrives as a completion, so its target cannot spin on memory; use --target poll or sleep"
            );
        }
        Ok(())
    }

    /// Buffers of each queue pair at the initiator: with `verify` one for every message under way.
    pub(crate) fn slots(&self) -> usize {
        let room = if self.verify { 256 << 20 } else { 8 << 20 };
        (room / (self.size * self.qps)).clamp(1, self.depth as usize)
    }

    /// Messages under way, now that every one has a buffer of its own if it must.
    pub(crate) fn depth(&self) -> u32 {
        match (self.measure, self.verify) {
            (Measure::Latency, _) => 1,
            (_, true) => u32::try_from(self.slots()).unwrap_or(self.depth),
            (_, false) => self.depth,
        }
    }

    /// Messages that are posted with one doorbell: many while they are small.
    pub(crate) fn list(&self) -> u32 {
        let most = if self.size > 2048 { 1 } else { 16 };
        (self.depth() / 4).clamp(1, most)
    }

    /// Receives that the target keeps posted on each queue pair.
    pub(crate) fn receives(&self) -> u32 {
        let wanted = (4 * self.depth).clamp(64, Self::MAX_DEPTH);
        if !self.verify {
            return wanted;
        }
        let room = (256 << 20) / (self.size * self.qps);
        wanted.min(u32::try_from(room).unwrap_or(wanted)).max(2)
    }

    /// Whether messages arrive as completions at the target.
    pub(crate) fn is_received(&self) -> bool {
        match self.verb {
            Verb::Send => true,
            Verb::Write => self.measure == Measure::Latency && self.target != Target::Spin,
            Verb::Read | Verb::Atomic => false,
        }
    }

    /// Whether the target answers each message with one of its own.
    pub(crate) fn is_ping_pong(&self) -> bool {
        self.measure == Measure::Latency && matches!(self.verb, Verb::Write | Verb::Send)
    }
}

/// Which of so many buffers a message takes.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the rest is smaller than a number of buffers")]
pub(crate) const fn slot(message: u64, slots: usize) -> usize {
    (message % slots as u64) as usize
}

/// Names as the command line and the other end know them.
macro_rules! names {
    ($($type:ident { $($case:ident = $name:literal,)* })*) => {$(
        impl $type {
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$case => $name,)* }
            }

            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$case),)* _ => None }
            }
        }
    )*};
}

names! {
    Verb { Write = "write", Read = "read", Send = "send", Atomic = "atomic", }
    Measure { Bandwidth = "bw", Latency = "lat", Rate = "rate", }
    Target { Poll = "poll", Spin = "spin", Sleep = "sleep", }
    Way { Local = "local", Shared = "shared", Wire = "wire", }
}

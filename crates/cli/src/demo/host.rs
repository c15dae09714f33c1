//! The two hosts that talk: a card, a queue pair and memory each.

use std::time::Duration;

use anyhow::Context as _;
use ferroce::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, LocalSlice, MemoryRegion, PathPolicy,
    ProtectionDomain, QueuePair, Service,
};

use crate::perf::session::Place;

/// Bytes of a host's memory.
pub(crate) const MEMORY: usize = 2 << 20;
/// Longer than anything here takes; the demo ends with an error instead of standing still.
const SOON: Duration = Duration::from_secs(10);

/// One of them.
pub(crate) struct Host {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl Host {
    pub(crate) fn new(name: &'static str, place: &Place) -> anyhow::Result<Self> {
        let pd = place.context.protection_domain()?;
        let cq = place.context.completion_queue(64)?;
        let qp = pd
            .queue_pair(Service::Rc)
            .address(place.address)
            .send_queue(&cq, 16)
            .receive_queue(&cq, 16)
            .path(PathPolicy::Prefer)
            .build()?;
        let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = pd.allocate(MEMORY, open)?;
        Ok(Self { name, place: place.clone(), pd, cq, qp, region })
    }

    pub(crate) const fn context(&self) -> &Context {
        &self.place.context
    }

    /// A part of its memory with these bytes in it.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) -> anyhow::Result<LocalSlice<'_>> {
        self.region.write_at(offset, bytes)?;
        Ok(self.region.slice(offset..offset + bytes.len()))
    }

    /// The text that is in its memory.
    pub(crate) fn text(&self, offset: usize, len: usize) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.region.to_vec(offset..offset + len)?).into_owned())
    }

    /// The next completion.
    pub(crate) fn done(&self) -> anyhow::Result<Completion> {
        self.cq.wait(SOON).with_context(|| format!("{} waits for a completion", self.name))
    }
}

/// Both of them, connected.
pub(crate) struct Pair {
    pub(crate) ann: Host,
    pub(crate) bob: Host,
}

impl Pair {
    pub(crate) fn connect(ann: Host, bob: Host) -> anyhow::Result<Self> {
        let pair = Self { ann, bob };
        pair.meet()?;
        Ok(pair)
    }

    /// Takes both queue pairs to work.
    fn meet(&self) -> anyhow::Result<()> {
        // RNR timer code 10: 0.32 ms.
        let options = ConnectOptions { min_rnr_timer: 10, ..ConnectOptions::default() };
        self.ann.qp.connect_with(&self.bob.qp.local_address(), &options)?;
        self.bob.qp.connect_with(&self.ann.qp.local_address(), &options)?;
        Ok(())
    }

    /// Begins anew after an error.
    pub(crate) fn meet_again(&self) -> anyhow::Result<()> {
        self.ann.qp.reset()?;
        self.bob.qp.reset()?;
        self.meet()
    }
}

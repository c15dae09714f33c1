//! Ann and Bob: a network card each, and for every case a new pair of queue pairs.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferroce::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, MemoryRegion, PathPolicy, ProtectionDomain,
    QueuePair, Service,
};

/// Where they are.
const ADDRESSES: [[u8; 4]; 2] = [[127, 0, 123, 101], [127, 0, 123, 102]];

/// Longer than anything here takes; the program ends with an error instead of standing still.
const SOON: Duration = Duration::from_secs(20);

/// All that memory can be used for, but for windows.
const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Both network cards.
pub(crate) struct Hosts {
    contexts: [Context; 2],
}

/// One end of a connection, with everything that it needs.
pub(crate) struct End {
    pub(crate) name: &'static str,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl Hosts {
    pub(crate) fn open() -> anyhow::Result<Self> {
        let open = |address: [u8; 4]| {
            let builder = Context::builder("ferroce_lo").address(address).path(PathPolicy::Forbid);
            builder
                .open()
                .with_context(|| format!("cannot open a card at {}", std::net::Ipv4Addr::from(address)))
        };
        Ok(Self { contexts: [open(ADDRESSES[0])?, open(ADDRESSES[1])?] })
    }

    /// Ann and Bob, connected.
    pub(crate) fn pair(&self) -> anyhow::Result<(End, End)> {
        let usual = ConnectOptions::default();
        self.pair_with(&usual, &usual)
    }

    /// Ann and Bob, connected with these options.
    pub(crate) fn pair_with(&self, ann: &ConnectOptions, bob: &ConnectOptions) -> anyhow::Result<(End, End)> {
        let ends = (End::new("Ann", &self.contexts[0])?, End::new("Bob", &self.contexts[1])?);
        ends.0.qp.connect_with(&ends.1.qp.local_address(), ann)?;
        ends.1.qp.connect_with(&ends.0.qp.local_address(), bob)?;
        Ok(ends)
    }
}

impl End {
    fn new(name: &'static str, context: &Context) -> anyhow::Result<Self> {
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(16)?;
        let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
        let region = pd.allocate(8192, OPEN)?;
        Ok(Self { name, pd, cq, qp, region })
    }

    /// The next completion, which belongs to this work.
    pub(crate) fn ended(&self, id: u64) -> anyhow::Result<Completion> {
        let ended = self.cq.wait(SOON).with_context(|| format!("work {id} of {} did not end", self.name))?;
        ensure!(ended.id == id, "work {id} of {} was expected, and this ended: {ended:?}", self.name);
        Ok(ended)
    }
}

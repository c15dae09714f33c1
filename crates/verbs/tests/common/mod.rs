//! Two hosts in one process: each has a device with an address of its own, so packets go over sockets.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::time::Duration;

use ferroce_device::{Config, Nic};
use ferroce_verbs::*;

/// Long enough for a loaded machine; no test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// All that memory can be used for.
pub(crate) const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// One end: everything that a program needs for one queue pair.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl End {
    pub(crate) fn new(context: &Context, service: Service) -> Self {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(256).unwrap();
        let qp = pd.queue_pair(service).completion_queue(&cq).build().unwrap();
        let region = pd.allocate(8192, OPEN).unwrap();
        Self { context: context.clone(), pd, cq, qp, region }
    }

    /// The next completion, which must be a success.
    pub(crate) fn done(&self) -> Completion {
        let done = self.cq.wait(SOON).unwrap();
        let state = || (self.qp.query(), self.context.counters());
        *done.result().unwrap_or_else(|error| panic!("{error}: {:?}", state()))
    }
}

pub(crate) fn open(address: [u8; 4]) -> Context {
    Context::builder("lo").address(address).open().unwrap()
}

/// The device of a context that [`open`] gave, as the crate below has it: a process has a device once.
pub(crate) fn nic(address: [u8; 4]) -> Nic {
    let mut config = Config::from_env("lo").unwrap();
    config.address = Some(address.into());
    Nic::open(config).unwrap()
}

pub(crate) fn connect(one: &QueuePair, other: &QueuePair) {
    one.connect(&other.local_address()).unwrap();
    other.connect(&one.local_address()).unwrap();
}

/// Two ends on two devices.
pub(crate) fn wire(net: u8) -> (End, End) {
    let ends =
        (End::new(&open([127, 0, net, 1]), Service::Rc), End::new(&open([127, 0, net, 2]), Service::Rc));
    connect(&ends.0.qp, &ends.1.qp);
    ends
}

/// Two ends on one device.
pub(crate) fn local(net: u8) -> (End, End) {
    let context = open([127, 0, net, 3]);
    let ends = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
    connect(&ends.0.qp, &ends.1.qp);
    ends
}

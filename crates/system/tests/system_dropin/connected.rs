//! Queue pairs that are ready for work, and waiting for what becomes of it.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use ferroce_memory::Allocation;
use ferroce_sys::descriptor::wait_readable;
use ferroce_system::{
    Address, CardCompletion, CompletionQueue, Context, Events, Library, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairOptions,
};
use ferroce_transport::{Access, Attributes, State};
use ferroce_wire::{PathMtu, Psn, QKey, Qpn, Service};

pub(crate) const QKEY: QKey = QKey(0x1234_5678);

/// All that peers may do.
pub(crate) fn open_access() -> Access {
    Access::all()
}

/// A card with a domain and a completion queue.
pub(crate) struct Bench {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
}

impl Bench {
    pub(crate) fn new(library: Library) -> Self {
        let context = library.cards().unwrap()[0].open().unwrap();
        let domain = context.protection_domain().unwrap();
        let completions = context.completion_queue(256).unwrap();
        Self { context, domain, completions }
    }

    pub(crate) fn address(&self) -> Address {
        Address::new(self.context.gid(1, 0).unwrap(), 0)
    }

    /// Registered memory of its own, open for all.
    pub(crate) fn region(&self, len: usize) -> (Arc<Allocation>, MemoryRegion) {
        let memory = Allocation::zeroed(len).unwrap();
        let region = self.domain.register(&memory, open_access()).unwrap();
        (memory, region)
    }

    pub(crate) fn options(&self, service: Service) -> QueuePairOptions<'_> {
        QueuePairOptions::new(service, &self.completions)
    }

    /// Two queue pairs that are connected to each other.
    pub(crate) fn pair(&self, options: &QueuePairOptions<'_>) -> [QueuePair; 2] {
        let pair = [(); 2].map(|()| self.domain.queue_pair(options).unwrap());
        self.connect(&pair[0], pair[1].qpn());
        self.connect(&pair[1], pair[0].qpn());
        pair
    }

    /// A queue pair for datagrams.
    pub(crate) fn datagrams(&self, options: &QueuePairOptions<'_>) -> QueuePair {
        let qp = self.domain.queue_pair(options).unwrap();
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_qkey(QKEY);
        qp.modify(&init, None).unwrap();
        qp.modify(&Attributes::to(State::Rtr), None).unwrap();
        qp.modify(&Attributes::to(State::Rts).with_sq_psn(Psn::new(1)), None).unwrap();
        qp
    }

    pub(crate) fn connect(&self, qp: &QueuePair, peer: Qpn) {
        let is_rc = qp.service() == Service::Rc;
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(open_access());
        qp.modify(&init, None).unwrap();
        let mut rtr = Attributes::to(State::Rtr)
            .with_path_mtu(PathMtu::B1024)
            .with_dest_qpn(peer)
            .with_rq_psn(Psn::new(7));
        let mut rts = Attributes::to(State::Rts).with_sq_psn(Psn::new(7));
        if is_rc {
            rtr = rtr.with_max_dest_rd_atomic(4).with_min_rnr_timer(1);
            rts = rts.with_timeout(14).with_retry_count(7).with_rnr_retry(7).with_max_rd_atomic(4);
        }
        qp.modify(&rtr, Some(&self.address())).unwrap();
        qp.modify(&rts, None).unwrap();
    }

    /// The next completion. A test that waits for one that never comes is ended from outside.
    pub(crate) fn done(&self) -> CardCompletion {
        next(&self.completions)
    }

    /// So many completions that went well; their names, sorted.
    pub(crate) fn all_done(&self, count: usize) -> Vec<u64> {
        let mut ids: Vec<u64> = (0..count).map(|_| well(self.done()).id).collect();
        ids.sort_unstable();
        ids
    }
}

pub(crate) fn well(completion: CardCompletion) -> CardCompletion {
    assert!(completion.is_success(), "{completion:?}");
    completion
}

/// The next completion of a queue.
pub(crate) fn next(queue: &CompletionQueue) -> CardCompletion {
    loop {
        let mut found = [CardCompletion::EMPTY];
        if queue.poll(&mut found).unwrap() > 0 {
            return found[0];
        }
        std::hint::spin_loop();
    }
}

/// Whether a descriptor becomes readable.
pub(crate) fn is_readable(of: &impl std::os::fd::AsFd, within: Duration) -> bool {
    wait_readable(of.as_fd(), Some(within)).unwrap()
}

/// The next event of a card.
pub(crate) fn event(events: &Events) -> ferroce_system::CardEvent {
    loop {
        if let Some(event) = events.poll().unwrap() {
            return event;
        }
        let _ = wait_readable(events.as_fd(), Some(Duration::from_millis(100))).unwrap();
    }
}

/// Holders of some memory beside the test: its registration.
pub(crate) fn is_held(memory: &Arc<Allocation>) -> bool {
    Arc::strong_count(memory) > 1
}

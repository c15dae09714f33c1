//! Two connected queue pairs for the tests of the device.
#![allow(dead_code, unreachable_pub, reason = "not every test file uses everything")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::memory::Allocation;
use ferroce_device::{AddressVector, CompletionQueue, Config, Nic, PathPolicy, Qp, QpSpec};
use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, Completion, Data, DomainId, Remote, SendFlags, SendOp,
    SendRequest, Sge, State,
};
use ferroce_wire::{Lkey, PathMtu, Psn, Rkey, Service};

/// How long a test waits for anything before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// One end: a device, a queue pair, and a megabyte of memory.
pub struct Side {
    pub nic: Nic,
    pub domain: DomainId,
    pub qp: Arc<Qp>,
    pub cq: Arc<CompletionQueue>,
    pub memory: Arc<Allocation>,
    pub keys: (Lkey, Rkey),
    pub gid: usize,
}

/// What the peer has to know.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub qpn: ferroce_wire::Qpn,
    pub gid: ferroce_wire::Gid,
    pub memory: u64,
    pub rkey: Rkey,
}

/// A device that has this address only.
pub fn device(address: [u8; 4]) -> Nic {
    Nic::open(Config { address: Some(IpAddr::from(address)), ..Config::new("lo") }).expect("a device on lo")
}

impl Side {
    pub fn new(nic: &Nic, address: [u8; 4], path: PathPolicy) -> Self {
        Self::with(nic, address, path, 64)
    }

    pub fn with(nic: &Nic, address: [u8; 4], path: PathPolicy, depth: u32) -> Self {
        let cq = CompletionQueue::new(nic, depth * 4, None).expect("a completion queue");
        Self::into_queue(nic, address, path, (depth, None), &cq)
    }

    /// An end that completes into a queue which others may use too, and lives in a certain engine.
    pub fn into_queue(
        nic: &Nic,
        address: [u8; 4],
        path: PathPolicy,
        (depth, engine): (u32, Option<usize>),
        cq: &Arc<CompletionQueue>,
    ) -> Self {
        let domain = nic.create_domain().expect("a protection domain");
        Self::in_domain(nic, address, path, (depth, engine), cq, domain)
    }

    /// Another end of the same domain, in this engine.
    pub fn companion(&self, engine: usize, cq: &Arc<CompletionQueue>) -> Self {
        let address = self.address().gid.ip();
        Self::in_domain(&self.nic, address, PathPolicy::Forbid, (4, Some(engine)), cq, self.domain)
    }

    fn in_domain(
        nic: &Nic,
        address: impl Into<IpAddr>,
        path: PathPolicy,
        (depth, engine): (u32, Option<usize>),
        cq: &Arc<CompletionQueue>,
        domain: DomainId,
    ) -> Self {
        let cq = Arc::clone(cq);
        let caps =
            Caps { max_send: depth, max_receive: depth, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 };
        let spec = QpSpec {
            service: Service::Rc,
            domain,
            send_cq: &cq,
            receive_cq: &cq,
            shared_queue: None,
            caps,
            signal_all: false,
            path: Some(path),
            engine,
            stamps: false,
        };
        let qp = Qp::new(nic, &spec).expect("a queue pair");
        let memory = Allocation::zeroed(1 << 20).expect("memory");
        let keys =
            nic.register(domain, &memory, (0, memory.len()), memory.address(), OPEN).expect("a region");
        let gid = nic.gid_index(address.into()).expect("a GID");
        Self { nic: nic.clone(), domain, qp, cq, memory, keys, gid }
    }

    pub fn address(&self) -> Peer {
        let gid = self.nic.gid(self.gid).expect("a GID");
        Peer { qpn: self.qp.qpn(), gid, memory: self.memory.address(), rkey: self.keys.1 }
    }

    pub fn connect(&self, peer: &Peer) {
        self.connect_with(peer, 16, 7);
    }

    /// Ready to receive, and not to send.
    pub fn get_ready(&self, peer: &Peer) {
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(OPEN);
        self.qp.modify(&init, None).expect("INIT");
        let rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(peer.qpn)
            .with_rq_psn(Psn::new(0xff_fff0))
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(1);
        self.qp.modify(&rtr, Some(&AddressVector::new(peer.gid, self.gid))).expect("RTR");
    }

    pub fn connect_with(&self, peer: &Peer, timeout: u8, retries: u8) {
        self.get_ready(peer);
        let rts = Attributes::to(State::Rts)
            .with_timeout(timeout)
            .with_retry_count(retries)
            .with_rnr_retry(7)
            .with_sq_psn(Psn::new(0xff_fff0))
            .with_max_rd_atomic(16);
        self.qp.modify(&rts, None).expect("RTS");
    }

    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.memory.address() + offset, length, lkey: self.keys.0 }
    }

    /// Waits for one completion.
    pub fn completion(&self) -> Completion {
        let mut found = [Completion::EMPTY];
        assert_eq!(self.cq.wait(&mut found, Some(PATIENCE)), 1, "nothing completed on {:?}", self.qp.query());
        found[0]
    }

    /// Polls for one completion. Sleeps only if the peer seems to need this core: tests run on two of
    /// them, and not alone.
    pub fn polled_completion(&self) -> Completion {
        let mut found = [Completion::EMPTY];
        for _ in 0..200 {
            if self.cq.poll(&mut found) > 0 {
                return found[0];
            }
        }
        self.completion()
    }
}

impl Peer {
    pub const fn at(&self, offset: u64) -> Remote {
        Remote { address: self.memory + offset, rkey: self.rkey }
    }
}

/// A request that gives a completion.
pub const fn signaled<'a>(id: u64, op: SendOp, sges: &'a [Sge]) -> SendRequest<'a> {
    SendRequest { id, op, data: Data::Gather(sges), flags: SendFlags::SIGNALED, dest: None }
}

/// A small queue pair of another service in the same domain.
pub fn unreliable(side: &Side, service: Service) -> Arc<Qp> {
    let cq = CompletionQueue::new(&side.nic, 64, None).expect("a completion queue");
    let caps = Caps { max_send: 4, max_receive: 4, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
    let spec = QpSpec {
        service,
        domain: side.domain,
        send_cq: &cq,
        receive_cq: &cq,
        shared_queue: None,
        caps,
        signal_all: true,
        path: None,
        engine: None,
        stamps: false,
    };
    Qp::new(&side.nic, &spec).expect("a queue pair")
}

/// Connects a UC queue pair of `side` with one that `peer` may have.
pub fn connect_uc(qp: &Qp, peer: &Side, side: &Side) {
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(OPEN);
    qp.modify(&init, None).expect("INIT");
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(PathMtu::B4096)
        .with_dest_qpn(peer.qp.qpn())
        .with_rq_psn(Psn::new(0xff_fff0));
    qp.modify(&rtr, Some(&AddressVector::new(peer.address().gid, side.gid))).expect("RTR");
    qp.modify(&Attributes::to(State::Rts).with_sq_psn(Psn::new(0)), None).expect("RTS");
}

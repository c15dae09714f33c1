//! Builds the world of a plan: hosts with memory and regions, queue pairs that are not yet connected.

use std::collections::{BTreeMap, VecDeque};

use ferroce_transport::{
    Access, AttributeMask, Attributes, DomainId, QpConfig, ReceiveQueue, SharedQueueId, State,
};
use ferroce_wire::{Psn, QKey, Qpn, Service};

use crate::check::grants::{Arena, Grants};
use crate::check::model::{End, Model};
use crate::host::Device;
use crate::liar::{FLEETING, Victim};
use crate::memory::{Memory, fill};
use crate::node::Node;
use crate::plan::{PairPlan, Plan};
use crate::world::{At, HostPlan};

/// Bytes of each host that never change, for READs.
pub(crate) const CONSTANT: u64 = 192 * 1024;

/// Atomic cells of each host.
pub(crate) const CELLS: u64 = 12;

/// Entries of a shared receive queue.
pub(crate) const SHARED_DEPTH: u32 = 24;

/// Longest SEND of all, which receives of a shared queue must take.
const SHARED_LEN: u64 = 16 * 1024 + 64;

/// The Q_Key of all datagram queue pairs.
pub(crate) const QKEY: QKey = QKey(0x0102_0304);

/// What every host and every end has beside the model.
#[derive(Debug)]
pub(crate) struct Built {
    /// Hosts for the world.
    pub nodes: Vec<(Node, HostPlan)>,
    /// The model of it.
    pub model: Model,
    /// What each end may use of its own host.
    pub homes: Vec<Home>,
    /// Where the constant part of each host begins.
    pub constants: Vec<u64>,
}

/// What an end may use of its own host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// Its protection domain.
    pub domain: DomainId,
    /// Key of the constant part: a peer may only read.
    pub constant_key: u32,
    /// Key of the atomic cells.
    pub cells_key: u32,
    /// Key of its memory window.
    pub window: u32,
}

/// The domain that all ends share which have none of their own.
const COMMON: DomainId = DomainId(1);

/// Builds everything.
#[must_use]
pub(crate) fn build(plan: &Plan) -> Built {
    let hosts = plan.hosts.len();
    let mut nodes = Vec::new();
    let (mut constants, mut cells) = (Vec::new(), BTreeMap::new());
    for (index, host) in plan.hosts.iter().enumerate() {
        let base = 0x10_0000_0000 * (index as u64 + 1);
        let mut memory = Memory::new(base, 0);
        let constant = memory.grow(usize::try_from(CONSTANT).unwrap_or(0));
        fill(
            Model::constant(index).tag,
            0,
            memory.slice_mut(constant, usize::try_from(CONSTANT).unwrap_or(0)),
        );
        let first = memory.grow(usize::try_from(CELLS * 8).unwrap_or(0));
        cells.extend((0..CELLS).map(|cell| ((index, first + cell * 8), 0)));
        constants.push(constant);
        let node = Node::new(index, hosts, Device::new(memory));
        nodes.push((if plan.through_memory { node.through_memory() } else { node }, *host));
    }
    let disorder = plan.link.duplicate + plan.link.reorder > 0;
    let shared = (0..hosts).map(|_| VecDeque::new()).collect();
    let grants = (0..hosts).map(|_| Grants::default()).collect();
    let model = Model { ends: Vec::new(), grants, arenas: Vec::new(), shared, cells, disorder };
    let mut built = Built { nodes, model, homes: Vec::new(), constants };
    for (index, pair) in plan.pairs.iter().enumerate() {
        built.add_pair(pair, index);
    }
    for host in 0..hosts {
        built.add_shared(host);
    }
    built
}

impl Built {
    fn add_pair(&mut self, plan: &PairPlan, index: usize) {
        for side in 0..2 {
            let number = self.model.ends.len();
            let host = plan.hosts[side];
            let shared = plan.shared[side] && !plan.own_domain[side] && plan.service == Service::Rc;
            let domain = if plan.own_domain[side] {
                DomainId(100 + u32::try_from(number).unwrap_or(0))
            } else {
                COMMON
            };
            self.add_home(plan, host, domain);
            let qpn = Qpn::new(0x01_0000 + u32::try_from(number).unwrap_or(0) * 0x101);
            let config = QpConfig {
                qpn,
                service: plan.service,
                domain,
                caps: plan.caps,
                signal_all: plan.signal_all[side],
                shared_queue: shared.then_some(SharedQueueId(0)),
            };
            let connected = plan.service != Service::Ud;
            let slot = self.nodes[host].0.add(config, connected.then_some(plan.hosts[1 - side]));
            self.model.ends.push(End {
                at: At { host, slot },
                qpn,
                service: plan.service,
                domain,
                peer: connected.then_some(index * 2 + 1 - side),
                messages: Vec::new(),
                completed: 0,
                cursor: 0,
                receives: VecDeque::new(),
                shared,
                cause: None,
                disturbances: 0,
                failed: false,
                silence: false,
                retry_count: plan.retry_count,
                rnr_retry: plan.rnr_retry,
                draining: false,
                state: State::Reset,
                gone: false,
                doubled: 0,
                witness: None,
            });
        }
    }

    fn add_home(&mut self, plan: &PairPlan, host: usize, domain: DomainId) {
        let constant = self.constants[host];
        let memory = &mut self.nodes[host].0.device.memory;
        let len = 4 * u64::from(plan.rdma_max)
            + 24 * (u64::from(plan.send_max.max(if plan.service == Service::Ud { 4096 } else { 0 })) + 128)
            + 16 * 1024;
        let start = memory.grow(usize::try_from(len).unwrap_or(0));
        let key = memory.register(domain, start, len, Access::all());
        let home = Home {
            domain,
            constant_key: memory.register(domain, constant, CONSTANT, Access::REMOTE_READ),
            cells_key: memory.register(domain, constant + CONSTANT, CELLS * 8, Access::all()),
            window: memory.make_window(domain),
        };
        self.homes.push(home);
        self.model.arenas.push(Arena::new(host, key, start, len));
    }

    fn add_shared(&mut self, host: usize) {
        let device = &mut self.nodes[host].0.device;
        let used = self.model.ends.iter().any(|end| end.shared && end.at.host == host);
        let len = if used { u64::from(SHARED_DEPTH) * SHARED_LEN } else { 8 };
        let start = device.memory.grow(usize::try_from(len).unwrap_or(0));
        let key = device.memory.register(COMMON, start, len, Access::LOCAL_WRITE);
        self.model.arenas.push(Arena::new(host, key, start, len));
        device.shared.push(ReceiveQueue::new(SHARED_DEPTH, 4));
    }
}

impl Built {
    /// What a liar on the last pair knows of its ends.
    pub(crate) fn victims(&mut self, plan: &Plan) -> [Victim; 2] {
        let last = plan.pairs.len() - 1;
        [0, 1].map(|side| {
            let end = last * 2 + side;
            let (at, qpn) = (self.model.ends[end].at, self.model.ends[end].qpn);
            let (home, arena) = (self.homes[end], &self.model.arenas[end]);
            let open = (arena.start, arena.len, arena.key);
            let foreign = &self.model.arenas[side];
            let foreign = (foreign.start, foreign.key);
            let constant = self.constants[at.host];
            let memory = &mut self.nodes[at.host].0.device.memory;
            let revoked = memory.register(home.domain, open.0, open.1, Access::all());
            memory.deregister(revoked);
            let fleeting = [(); FLEETING]
                .map(|()| memory.register(home.domain, constant, CONSTANT, Access::REMOTE_READ));
            Victim {
                at,
                qpn,
                mtu: u32::try_from(plan.pairs[last].mtu.bytes()).unwrap_or(256),
                open,
                constant: (constant, CONSTANT, home.constant_key),
                cells: (constant + CONSTANT, CELLS * 8, home.cells_key),
                revoked,
                foreign,
                fleeting,
            }
        })
    }
}

/// The steps that bring an end of a pair from RESET to RTS.
#[must_use]
pub(crate) fn transitions(plan: &PairPlan, side: usize, psns: [u32; 2], peer: Qpn) -> [Attributes; 3] {
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1);
    let rtr = Attributes::to(State::Rtr);
    let rts = Attributes::to(State::Rts).with_sq_psn(Psn::new(psns[side]));
    let rts = rts.with_rate_limit(plan.rate_limits[side]);
    let connected = rtr
        .with(AttributeMask::AV)
        .with_path_mtu(plan.mtu)
        .with_dest_qpn(peer)
        .with_rq_psn(Psn::new(psns[1 - side]));
    let access = plan.rights[side];
    match plan.service {
        Service::Ud => [init.with_qkey(QKEY), rtr, rts],
        Service::Rc => [
            init.with_access(access),
            connected
                .with_max_dest_rd_atomic(plan.max_dest_rd_atomic[side])
                .with_min_rnr_timer(plan.min_rnr_timer),
            rts.with_timeout(plan.timeout)
                .with_retry_count(plan.retry_count)
                .with_rnr_retry(plan.rnr_retry)
                .with_max_rd_atomic(plan.max_rd_atomic[side]),
        ],
        _ => [init.with_access(access), connected, rts],
    }
}

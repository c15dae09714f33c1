//! Queue pairs and shared receive queues of a card.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_device::{AddressVector, QpState};
use ferroce_system::{CallError, QueuePairOptions};
use ferroce_transport::{
    AttributeMask, Attributes, Caps, Counters, Limits, ModifyError, PostRules, State, check_attributes,
};
use ferroce_wire::{Gid, Service};

use super::{CardQueue, OpenCard, convert, lock};
use crate::capability::Capability;
use crate::error::{CreateError, QpError, RouteError};

/// What a card says of what it does not have.
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// A queue pair of a card.
pub(crate) struct CardQueuePair {
    pub(crate) qp: ferroce_system::QueuePair,
    pub(crate) card: Arc<OpenCard>,
    pub(crate) send_cq: Arc<CardQueue>,
    pub(crate) receive_cq: Arc<CardQueue>,
    pub(crate) shared_queue: Option<Arc<CardSharedQueue>>,
    /// What can be told of a request whatever state it is in.
    fixed: PostRules,
    /// READs and atomics that may be under way, as far as the program has said so itself.
    reads: AtomicU8,
    /// What the program gave: a card does not tell all of it.
    address: Mutex<Option<AddressVector>>,
    /// The groups that it is attached to.
    groups: Mutex<Vec<Gid>>,
}

/// A shared receive queue of a card.
pub(crate) struct CardSharedQueue {
    pub(crate) queue: ferroce_system::SharedReceiveQueue,
}

impl CardSharedQueue {
    pub(crate) fn resize(&self, depth: u32, most: u32) -> Result<(), CreateError> {
        self.queue.resize(depth).map_err(|error| {
            let least = self.len();
            if depth >= least {
                return error.into();
            }
            let (what, given) = ("requests of a shared receive queue", depth.into());
            CreateError::OutOfBounds { what, given, least: least.into(), most: most.into() }
        })
    }

    /// Receives that were posted and are not done.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for CardSharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(f)
    }
}

/// What a queue pair of a card is made from.
pub(crate) struct Parts<'a> {
    pub(crate) service: Service,
    pub(crate) send_cq: &'a Arc<CardQueue>,
    pub(crate) receive_cq: &'a Arc<CardQueue>,
    pub(crate) shared_queue: Option<&'a Arc<CardSharedQueue>>,
    pub(crate) caps: Caps,
    pub(crate) signal_all: bool,
}

impl CardQueuePair {
    pub(crate) fn new(
        card: &Arc<OpenCard>,
        domain: &ferroce_system::ProtectionDomain,
        parts: &Parts<'_>,
    ) -> Result<Arc<Self>, CreateError> {
        let mut options = QueuePairOptions::new(parts.service, &parts.send_cq.queue);
        options.receive_cq = &parts.receive_cq.queue;
        options.shared_queue = parts.shared_queue.map(|shared| &shared.queue);
        options.caps = parts.caps;
        options.signal_all = parts.signal_all;
        let qp = domain.queue_pair(&options).map_err(|error| too_much(card, parts, error.into()))?;
        let fixed = PostRules {
            state: State::Rts,
            service: parts.service,
            caps: qp.caps(),
            path_mtu: card.active_mtu(),
            max_rd_atomic: u8::MAX,
            shared_queue: parts.shared_queue.is_some(),
        };
        Ok(Arc::new(Self {
            qp,
            fixed,
            reads: AtomicU8::new(u8::MAX),
            card: Arc::clone(card),
            send_cq: Arc::clone(parts.send_cq),
            receive_cq: Arc::clone(parts.receive_cq),
            shared_queue: parts.shared_queue.cloned(),
            address: Mutex::default(),
            groups: Mutex::default(),
        }))
    }

    /// How many READs and atomics the card lets be under way: ours, and the peer's here.
    pub(crate) fn read_depths(&self) -> (u8, u8) {
        let most = self.card.attributes();
        (most.max_initiator_depth, most.max_read_depth)
    }

    pub(crate) fn modify(
        &self,
        attributes: &Attributes,
        address: Option<&AddressVector>,
    ) -> Result<(), QpError> {
        let given = attributes.mask.contains(AttributeMask::AV);
        let address = match (given, address) {
            (true, None) => return Err(QpError::NoAddress),
            (true, Some(address)) => Some(address),
            (false, _) => None,
        };
        let there = address.map(convert::address).transpose()?;
        let mut attributes = *attributes;
        if attributes.mask.contains(AttributeMask::RATE_LIMIT) && !self.card.can(Capability::RateLimits) {
            if attributes.rate_limit > 0 {
                return Err(QpError::Unsupported(Capability::RateLimits.into()));
            }
            // That there is none is what it has.
            attributes.mask -= AttributeMask::RATE_LIMIT;
        }
        let attributes = &attributes;
        let changed = self.qp.modify(attributes, there.as_ref());
        changed.map_err(|error| self.explain(attributes, error))?;
        if attributes.mask.contains(AttributeMask::MAX_QP_RD_ATOMIC) {
            self.reads.store(attributes.max_rd_atomic, Ordering::Relaxed);
        }
        if let Some(address) = address {
            *lock(&self.address) = Some(*address);
        }
        Ok(())
    }

    /// Why a change was refused: cards say only that it was.
    #[cold]
    fn explain(&self, attributes: &Attributes, error: CallError) -> QpError {
        let known = self.qp.query();
        let state = known.map_or(State::Err, |known| known.attributes.state);
        let most = self.card.attributes();
        let limits =
            Limits { max_rd_atomic: most.max_initiator_depth, max_dest_rd_atomic: most.max_read_depth };
        let mask = attributes.mask;
        let other_path = AttributeMask::ALT_PATH | AttributeMask::PATH_MIG_STATE;
        if mask.intersects(other_path) && matches!(error.code, EINVAL | EOPNOTSUPP) {
            return QpError::Modify(ModifyError::NotSupported { attributes: mask & other_path });
        }
        if mask.contains(AttributeMask::PORT) && !(1..=most.ports).contains(&attributes.port) {
            return QpError::Modify(ModifyError::NoSuchPort { given: attributes.port });
        }
        let keys = self.card.pkeys().len();
        if mask.contains(AttributeMask::PKEY_INDEX) && usize::from(attributes.pkey_index) >= keys {
            let given = attributes.pkey_index;
            return QpError::Modify(ModifyError::NoSuchPKey { given, len: keys });
        }
        match check_attributes(self.qp.service(), state, attributes, &limits) {
            Err(why) if !error.is_fork() => QpError::Modify(why),
            _ => error.into(),
        }
    }

    pub(crate) fn query(&self) -> Result<QpState, QpError> {
        let known = self.qp.query()?;
        let told = known.address.as_ref().map(convert::vector);
        // It is forgotten by a reset.
        let given = *lock(&self.address);
        let address = if known.attributes.state == State::Reset { None } else { given.or(told) };
        Ok(QpState {
            attributes: known.attributes,
            address,
            caps: known.caps,
            path: None,
            counters: Counters::default(),
        })
    }

    pub(crate) fn attach_to_group(&self, group: Gid) -> Result<(), CreateError> {
        self.check_group(group)?;
        let mut groups = lock(&self.groups);
        self.qp.attach_to_group(group, 0)?;
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(())
    }

    pub(crate) fn detach_from_group(&self, group: Gid) -> Result<(), CreateError> {
        self.check_group(group)?;
        let mut groups = lock(&self.groups);
        let not_attached = CreateError::NotAttached { group: group.ip() };
        let place = groups.iter().position(|known| *known == group).ok_or(not_attached)?;
        self.qp.detach_from_group(group, 0)?;
        groups.swap_remove(place);
        Ok(())
    }

    fn check_group(&self, group: Gid) -> Result<(), CreateError> {
        if self.qp.service() != Service::Ud {
            return Err(CreateError::NotADatagramQueue { given: self.qp.service().name() });
        }
        let group = group.ip();
        if group.is_multicast() { Ok(()) } else { Err(RouteError::NotAGroup(group).into()) }
    }

    /// By what work is judged before it is posted, whatever state the queue pair is in.
    #[inline]
    pub(crate) fn fixed_rules(&self) -> PostRules {
        PostRules { max_rd_atomic: self.reads.load(Ordering::Relaxed), ..self.fixed }
    }

    /// By what posted work is judged, to explain why a card refused it.
    #[cold]
    pub(crate) fn rules(&self) -> Option<PostRules> {
        let known = self.qp.query().ok()?;
        Some(PostRules {
            state: known.attributes.state,
            service: self.qp.service(),
            caps: known.caps,
            path_mtu: known.attributes.path_mtu,
            max_rd_atomic: known.attributes.max_rd_atomic,
            shared_queue: self.shared_queue.is_some(),
        })
    }
}

/// Why a queue pair was not made: cards say only that it was not.
#[cold]
fn too_much(card: &OpenCard, parts: &Parts<'_>, error: CreateError) -> CreateError {
    let most = card.attributes();
    let caps = &parts.caps;
    let receives = if parts.shared_queue.is_some() { 0 } else { caps.max_receive };
    for (what, given, most) in [
        ("send requests", caps.max_send, most.max_queue_depth),
        ("receive requests", receives, most.max_queue_depth),
        ("pieces of a send", caps.max_send_sge, most.max_sge),
        ("pieces of a receive", caps.max_receive_sge, most.max_sge),
    ] {
        if given > most {
            return CreateError::OutOfBounds { what, given: given.into(), least: 0, most: most.into() };
        }
    }
    error
}

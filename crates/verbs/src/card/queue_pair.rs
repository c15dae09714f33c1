//! Queue pairs and shared receive queues of a card.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_device::{AddressVector, QpState};
use ferroce_system::{CallError, QueuePairOptions};
use ferroce_transport::{
    AttributeMask, Attributes, Caps, Counters, Limits, Load, Message, ModifyError, PostRules, ShortRules,
    State, check_attributes,
};
use ferroce_wire::{Gid, QKey, Service};

use super::groups::Membership;
use super::{CardQueue, OpenCard, convert, lock};
use crate::capability::Capability;
use crate::error::{CreateError, QpError, RouteError};

/// A queue pair of a card.
pub(crate) struct CardQueuePair {
    pub(crate) qp: ferroce_system::QueuePair,
    pub(crate) card: Arc<OpenCard>,
    pub(crate) send_cq: Arc<CardQueue>,
    pub(crate) receive_cq: Arc<CardQueue>,
    pub(crate) shared_queue: Option<Arc<CardSharedQueue>>,
    /// What can be told of a request whatever state it is in.
    pub(crate) fixed: PostRules,
    /// The same for the requests that are posted most.
    short: ShortRules,
    /// READs and atomics that may be under way, as far as the program has said so itself.
    reads: AtomicU8,
    /// What the program gave: a card does not tell all of it.
    address: Mutex<Option<AddressVector>>,
    /// The Q_Key, as far as the program has said so itself.
    qkey: AtomicU32,
    /// The groups that it is attached to.
    groups: Mutex<Vec<(Gid, Arc<Membership>)>>,
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
            short: fixed.short(),
            reads: AtomicU8::new(u8::MAX),
            card: Arc::clone(card),
            send_cq: Arc::clone(parts.send_cq),
            receive_cq: Arc::clone(parts.receive_cq),
            shared_queue: parts.shared_queue.cloned(),
            address: Mutex::default(),
            qkey: AtomicU32::new(0),
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
        self.look_first(attributes)?;
        let changed = self.qp.modify(attributes, there.as_ref());
        changed.map_err(|error| self.explain(attributes, error))?;
        if attributes.mask.contains(AttributeMask::MAX_QP_RD_ATOMIC) {
            self.reads.store(attributes.max_rd_atomic, Ordering::Relaxed);
        }
        if attributes.mask.contains(AttributeMask::QKEY) {
            self.qkey.store(attributes.qkey.0, Ordering::Relaxed);
        }
        if let Some(address) = address {
            *lock(&self.address) = Some(*address);
        }
        Ok(())
    }

    /// Refuses what some cards take though it is wrong: the kernel's soft device a state that the queue pair is not in, and numbers
    /// that are too large for their bits or tables; many a second path, which cannot be described here.
    fn look_first(&self, attributes: &Attributes) -> Result<(), QpError> {
        let mask = attributes.mask;
        let other_path = mask & (AttributeMask::ALT_PATH | AttributeMask::PATH_MIG_STATE);
        if !other_path.is_empty() {
            return Err(QpError::Modify(ModifyError::NotSupported { attributes: other_path }));
        }
        // Most programs have the first key, and asking for all is a call for each.
        if mask.contains(AttributeMask::PKEY_INDEX) && attributes.pkey_index > 0 {
            let (given, len) = (attributes.pkey_index, self.card.pkeys().len());
            if usize::from(given) >= len {
                return Err(QpError::Modify(ModifyError::NoSuchPKey { given, len }));
            }
        }
        let too_much = |of, given: u8, bits: u32| mask.contains(of) && u32::from(given) >> bits != 0;
        let odd = mask.contains(AttributeMask::CUR_STATE)
            || too_much(AttributeMask::TIMEOUT, attributes.timeout, 5)
            || too_much(AttributeMask::MIN_RNR_TIMER, attributes.min_rnr_timer, 5)
            || too_much(AttributeMask::RETRY_CNT, attributes.retry_count, 3)
            || too_much(AttributeMask::RNR_RETRY, attributes.rnr_retry, 3);
        if !odd {
            return Ok(());
        }
        let state = self.qp.query()?.attributes.state;
        let judged = check_attributes(self.qp.service(), state, attributes, &self.limits());
        judged.map(|_| ()).map_err(QpError::Modify)
    }

    fn limits(&self) -> Limits {
        let (max_rd_atomic, max_dest_rd_atomic) = self.read_depths();
        Limits { max_rd_atomic, max_dest_rd_atomic }
    }

    /// The Q_Key that goes with a datagram: that of the queue pair, if the one that is given says so by its first bit (IBA 10.2.5).
    /// Cards do this themselves; the kernel's soft device sends what it is given.
    pub(crate) fn shown_qkey(&self, given: QKey) -> QKey {
        let own = QKey(self.qkey.load(Ordering::Relaxed));
        if given.0 >> 31 != 0 && own != QKey(0) { own } else { given }
    }

    /// Why a change was refused: cards say only that it was.
    #[cold]
    fn explain(&self, attributes: &Attributes, error: CallError) -> QpError {
        let known = self.qp.query();
        let state = known.map_or(State::Err, |known| known.attributes.state);
        let most = self.card.attributes();
        let limits = self.limits();
        let mask = attributes.mask;
        if mask.contains(AttributeMask::PORT) && !(1..=most.ports).contains(&attributes.port) {
            return QpError::Modify(ModifyError::NoSuchPort { given: attributes.port });
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
        let member = self.card.groups.join(&self.card, group.ip())?;
        self.qp.attach_to_group(group, 0)?;
        if !groups.iter().any(|(known, _)| *known == group) {
            groups.push((group, member));
        }
        Ok(())
    }

    pub(crate) fn detach_from_group(&self, group: Gid) -> Result<(), CreateError> {
        self.check_group(group)?;
        let mut groups = lock(&self.groups);
        let not_attached = CreateError::NotAttached { group: group.ip() };
        let place = groups.iter().position(|(known, _)| *known == group).ok_or(not_attached)?;
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

    /// Whether such a request without an address is right for certain, whatever state the queue pair is in.
    #[inline(always)]
    pub(crate) fn allows(&self, message: Message, load: Load) -> bool {
        let may_read = !matches!(message, Message::Read) || self.reads.load(Ordering::Relaxed) > 0;
        self.short.allow(message, load) && may_read
    }

    /// By what READs and atomics are judged before they are posted, whatever state the queue pair is in; other work by `fixed`.
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

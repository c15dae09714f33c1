//! One connection to a peer, from its handshake to its end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_verbs::cm::{Disconnected, Established};
use ferroce_verbs::{
    Access, Attributes, BatchError, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QueuePair, Service, State, Status,
};

use crate::error::{BrokerSetupError, Why};
use crate::hello::Hello;
use crate::settings::Settings;

/// Work of our own beside that of the program: what we tell the peer about room, and signs of life.
pub(crate) const OWN_WORK: u32 = 8;

/// One end before the other is known: small, since any host may ask. Only its receives for the handshake are
/// posted.
pub(crate) struct Half {
    pub(crate) qp: QueuePair,
    pub(crate) send_queue: CompletionQueue,
    pub(crate) receive_queue: CompletionQueue,
    /// Where the peer tells how many of our messages its program has taken off, since the beginning.
    pub(crate) credit: MemoryRegion,
    /// Frames of the handshake: one to be sent, and those that are received.
    pub(crate) frames: MemoryRegion,
}

impl Half {
    /// An end that expects so many frames before the first message.
    pub(crate) fn new(
        context: &Context,
        domain: &ProtectionDomain,
        settings: &Settings,
        handshake: u32,
    ) -> Result<Self, BrokerSetupError> {
        let sends = settings.ring + OWN_WORK;
        let receives = settings.ring + handshake;
        let send_queue = context.completion_queue(sends)?;
        let receive_queue = context.completion_queue(receives)?;
        let mut builder = domain
            .queue_pair(Service::Rc)
            .send_queue(&send_queue, sends)
            .receive_queue(&receive_queue, receives)
            .max_sge(1)
            .max_inline(8)
            .signal_all(false)
            .address(settings.me.address.ip());
        if let Some(path) = settings.path {
            builder = builder.path(path);
        }
        let qp = builder.build()?;
        let credit = domain.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let frames =
            domain.allocate_or_reuse((1 + handshake as usize) * Hello::LONGEST, Access::LOCAL_WRITE)?;
        let half = Self { qp, send_queue, receive_queue, credit, frames };
        for frame in 1..=handshake as usize {
            half.qp
                .receive(half.frames.slice(frame * Hello::LONGEST..(frame + 1) * Hello::LONGEST))
                .post()?;
        }
        Ok(half)
    }

    /// Lets the peer in, which has shown that it may: it can use what we expose, and send messages after its
    /// frames of the handshake.
    pub(crate) fn open(
        &self,
        domain: &ProtectionDomain,
        settings: &Settings,
    ) -> Result<Ring, BrokerSetupError> {
        let stride = settings.stride();
        let region = domain.allocate_or_reuse(stride * settings.ring as usize, Access::LOCAL_WRITE)?;
        let ring = Ring { region, stride };
        ring.post(&self.qp, (0..settings.ring).map(u64::from)).map_err(|refused| refused.error)?;
        let open = Attributes::to(State::Rts).with_access(ConnectOptions::ALL_ACCESS);
        self.qp.modify(&open, None)?;
        Ok(ring)
    }

    pub(crate) fn connect(self, ring: Ring, established: Established, peer: Hello, incarnation: u64) -> Conn {
        Conn {
            qp: self.qp,
            send_queue: self.send_queue,
            receive_queue: self.receive_queue,
            ring,
            credit: self.credit,
            peer,
            incarnation,
            established,
            broken: OnceLock::new(),
            refused: AtomicBool::new(false),
        }
    }
}

/// A connection that both sides have agreed to.
pub(crate) struct Conn {
    pub(crate) qp: QueuePair,
    pub(crate) send_queue: CompletionQueue,
    pub(crate) receive_queue: CompletionQueue,
    ring: Ring,
    credit: MemoryRegion,
    /// What the peer told of itself.
    pub(crate) peer: Hello,
    /// Which life of the peer it is.
    pub(crate) incarnation: u64,
    pub(crate) established: Established,
    broken: OnceLock<Why>,
    /// A receive was not taken, so its end may not show among the receives.
    refused: AtomicBool,
}

impl Conn {
    /// How many of our messages the peer's program has taken off.
    pub(crate) fn taken_off(&self) -> u64 {
        // It is eight bytes at the beginning of a page.
        u64::from_le(self.credit.load_u64(0).unwrap_or(0))
    }

    /// Why it is of no use any more.
    pub(crate) fn broken(&self) -> Option<Why> {
        self.broken.get().copied()
    }

    /// Ends it, unless it has ended.
    pub(crate) fn end(&self, why: Why) {
        // A peer that says goodbye is not lost, whatever else is seen first.
        let why = match (why, self.established.disconnected()) {
            (Why::Lost(_), Some(Disconnected::Peer)) => Why::Left,
            (why, _) => why,
        };
        if self.broken.set(why).is_ok() {
            // Every state leads to the error state, and there everything that is posted completes.
            let _ = self.qp.flush();
            self.established.disconnect();
        }
    }

    /// Work ended so, without a word of the device about why: the first failure says more.
    pub(crate) fn end_failed(&self, status: Status) {
        self.end(Why::Lost(status));
    }

    /// Gives slots back to the device, all at once.
    pub(crate) fn post_receives(&self, slots: impl ExactSizeIterator<Item = u64>) {
        if self.ring.post(&self.qp, slots).is_err() {
            self.refused.store(true, Ordering::Relaxed);
        }
    }

    /// Whether receives may be missing.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Memory of the messages, and where that in a slot begins.
    pub(crate) const fn message_at(&self, slot: u64) -> (&MemoryRegion, usize) {
        (&self.ring.region, self.ring.start(slot))
    }
}

/// Where messages of the peer arrive, a slot for each.
pub(crate) struct Ring {
    region: MemoryRegion,
    stride: usize,
}

impl Ring {
    #[expect(clippy::cast_possible_truncation, reason = "slots are fewer than 2^15")]
    const fn start(&self, slot: u64) -> usize {
        slot as usize * self.stride
    }

    fn post(&self, qp: &QueuePair, slots: impl ExactSizeIterator<Item = u64>) -> Result<(), BatchError> {
        let mut batch = qp.receive_batch();
        batch.reserve(slots.len());
        for slot in slots {
            let start = self.start(slot);
            batch.add(qp.receive(self.region.slice(start..start + self.stride)).id(slot));
        }
        batch.post()
    }
}

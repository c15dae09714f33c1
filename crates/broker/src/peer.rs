//! One other member, as long as the broker lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_verbs::time::Spin;
use ferroce_verbs::{Access, ProtectionDomain};

use crate::buffer::Slots;
use crate::conn::Conn;
use crate::error::{BrokerSetupError, MemberRefusal};
use crate::lock;
use crate::members::Member;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::settings::Settings;

/// One other member. Locks are taken in this order: receiving, sending, line.
pub(crate) struct Peer {
    pub(crate) member: Member,
    pub(crate) slots: Arc<Slots>,
    pub(crate) sending: Mutex<Sending>,
    pub(crate) receiving: Mutex<Receiving>,
    line: Mutex<Line>,
    /// Work may be gathered that the doorbell has not been rung for.
    pub(crate) has_gathered: AtomicBool,
    /// Whether to look for room for a moment before one sleeps.
    pub(crate) spin: Spin,
}

/// What the keeper knows of it.
#[derive(Default)]
struct Line {
    /// A connection that stands and has not been taken up.
    next: Option<Arc<Conn>>,
    /// What came of the last attempt.
    refusal: Option<MemberRefusal>,
    /// Whether the member itself was behind it, as far as can be known.
    is_believed: bool,
    /// Whether it was ever there.
    has_been_there: bool,
}

impl Peer {
    pub(crate) fn new(
        member: Member,
        domain: &ProtectionDomain,
        settings: &Settings,
    ) -> Result<Arc<Self>, BrokerSetupError> {
        let stride = settings.stride();
        let region = domain.allocate_or_reuse(stride * settings.ring as usize, Access::empty())?;
        let slots = Arc::new(Slots::new(region, stride));
        Ok(Arc::new(Self {
            member,
            sending: Mutex::new(Sending::new(member.id, settings, Arc::clone(&slots))),
            slots,
            receiving: Mutex::new(Receiving::new(settings.tell_after())),
            line: Mutex::default(),
            has_gathered: AtomicBool::new(false),
            spin: Spin::new(),
        }))
    }

    /// A connection that is to be taken up when the one before is over.
    pub(crate) fn offer(&self, conn: Arc<Conn>) {
        let mut line = lock(&self.line);
        line.next = Some(conn);
        line.refusal = None;
        line.has_been_there = true;
    }

    pub(crate) fn take_next(&self) -> Option<Arc<Conn>> {
        lock(&self.line).next.take()
    }

    /// Keeps why it was not met; whether this is news. What may be the word of a stranger never takes the
    /// place of what is believed, and the same once more is no news: so a stranger that knocks for ever wakes
    /// no thread.
    pub(crate) fn refuse(&self, refusal: MemberRefusal, is_believed: bool) -> bool {
        let mut line = lock(&self.line);
        let is_kept = is_believed || !line.is_believed || line.refusal.is_none();
        if !is_kept || (line.is_believed == is_believed && line.refusal.as_ref() == Some(&refusal)) {
            return false;
        }
        (line.refusal, line.is_believed) = (Some(refusal), is_believed);
        true
    }

    pub(crate) fn refusal(&self) -> Option<MemberRefusal> {
        lock(&self.line).refusal.clone()
    }

    /// Whether it is connected, or will be when the program polls next.
    pub(crate) fn is_there(&self) -> bool {
        lock(&self.sending).working().is_ok() || lock(&self.line).next.is_some()
    }

    /// Why the member will not come unless the version or a setting of one side changes.
    pub(crate) fn misfit(&self) -> Option<MemberRefusal> {
        let line = lock(&self.line);
        let refusal = line.refusal.as_ref()?;
        (line.is_believed && refusal.is_definite() && !line.has_been_there).then(|| refusal.clone())
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn has_conn(&self) -> bool {
        lock(&self.sending).conn().is_some()
    }

    /// Rings the doorbell if something is gathered.
    pub(crate) fn flush(&self) {
        if self.has_gathered.swap(false, Ordering::AcqRel) {
            lock(&self.sending).ring_doorbell();
        }
    }
}

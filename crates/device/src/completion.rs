//! Completion queues and completion channels.
//!
//! Each engine has a ring of its own in a completion queue, and is the only one that adds to it; any thread
//! may take completions off, one thread at a time. Those of one queue pair are all in one ring, and come
//! out in order.
//! No thread is woken while the engine is at work: the engine notes what to wake, and the thread that
//! ran it does the waking after it has left.

use std::collections::VecDeque;
use std::hint::cold_path;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferroce_progress::{Sleepers, Spin};
use ferroce_record::{Polled, ProgramRing};
use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::sync::ring::{self, Consumer, Producer};
use ferroce_transport::{Completion, Level, PlainCompletion, Status, Time, WorkKind};
use ferroce_wire::Qpn;

use crate::cqe::{TOLD, WORDS, decode, encode, encode_plain};
use crate::engine::qp_shared::{QpShared, note_most};
use crate::owners::{Heard, Owners};
use crate::waiters::Waiters;

/// Number of a completion queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId(pub u32);

/// Which completions a program wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next one.
    Any,
    /// The next that its sender marked as solicited, or that failed.
    Solicited,
}

const ARMED_NOT: u8 = 0;
const ARMED_SOLICITED: u8 = 1;
const ARMED_ANY: u8 = 2;

/// Where completions are taken off, and the queue pairs that are told that they were.
#[derive(Debug)]
struct Taking {
    /// One for each engine that has queue pairs which complete here, and which engine that is.
    rings: Vec<(usize, Consumer<WORDS>)>,
    /// The ring to begin with next time: each has its turn.
    first: usize,
    /// Completions that were taken out of the rings and not yet taken off: they come before all others.
    kept: VecDeque<[u64; WORDS]>,
    owners: Owners,
    /// Where it is written down what the program takes off, if it is.
    record: Option<ProgramRing>,
}

impl Taking {
    /// Takes completions off, the oldest of each ring first.
    #[inline(always)]
    fn take(&mut self, into: &mut [Completion], heard: &mut Heard) -> usize {
        let Self { rings, first, kept, owners, .. } = self;
        let mut taken = 0;
        if !kept.is_empty() {
            taken = take_from(|| kept.pop_front(), into, owners, heard);
        }
        if let [(_, ring)] = &mut rings[..] {
            taken += take_from(|| ring.pop(), &mut into[taken..], owners, heard);
        } else {
            let (behind, from) = rings.split_at_mut(*first);
            for (_, ring) in from.iter_mut().chain(behind) {
                taken += take_from(|| ring.pop(), &mut into[taken..], owners, heard);
            }
            *first = if *first + 1 < rings.len() { *first + 1 } else { 0 };
        }
        taken
    }

    /// As [`take`](Self::take), and writes down that the program has them, if they are such that are told of.
    #[inline(never)]
    fn take_told(&mut self, cq: CqId, into: &mut [Completion], heard: &mut Heard) -> usize {
        let Self { rings, first, kept, owners, record, .. } = self;
        let mut next = || {
            if !kept.is_empty() {
                return kept.pop_front();
            }
            if let [(_, ring)] = &mut rings[..] {
                return ring.pop();
            }
            let (behind, from) = rings.split_at_mut(*first);
            from.iter_mut().chain(behind).find_map(|(_, ring)| ring.pop())
        };
        let mut whole = 0;
        // A bit for each says whether it is told. All of them had been written when the clock is read.
        for some in into.chunks_mut(u64::BITS as usize) {
            let (mut bits, mut bit) = (0_u64, 1_u64);
            let next = || {
                let mut words = next()?;
                if words[1] & TOLD != 0 {
                    words[1] &= !TOLD;
                    bits |= bit;
                }
                bit = bit.wrapping_shl(1);
                Some(words)
            };
            let taken = take_from(next, some, owners, heard);
            if let Some(ring) = record.as_ref().filter(|_| bits != 0) {
                let now = clock::now().nanos();
                for (place, completion) in some[..taken].iter().enumerate() {
                    if bits >> place & 1 != 0 {
                        ring.push(now, &polled(cq, completion, false).into());
                    }
                }
            }
            whole += taken;
            if taken < some.len() {
                break;
            }
        }
        *first = if *first + 1 < rings.len() { *first + 1 } else { 0 };
        whole
    }

    /// Completions that are there.
    fn len(&self) -> usize {
        self.kept.len() + self.rings.iter().map(|(_, ring)| ring.len()).sum::<usize>()
    }
}

/// A number of completions.
fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}

/// What a record says of a completion that is taken, or thrown away.
#[inline]
fn polled(cq: CqId, completion: &Completion, is_forgotten: bool) -> Polled {
    let Completion { qpn, id, kind, .. } = *completion;
    let is_receive = matches!(kind, WorkKind::Receive | WorkKind::ReceiveWithImm);
    Polled { qpn, cq: cq.0, id, is_receive, is_forgotten }
}

/// Takes completions from one place, and tells the queue pairs that it comes by; how many.
#[inline]
fn take_from(
    mut next: impl FnMut() -> Option<[u64; WORDS]>,
    into: &mut [Completion],
    owners: &mut Owners,
    heard: &mut Heard,
) -> usize {
    let mut taken = 0;
    for place in into {
        let Some(words) = next() else { break };
        *place = decode(&words);
        taken += 1;
        let completion = &*place;
        if completion.qpn != heard.of {
            owners.tell(heard);
            *heard = Heard { of: completion.qpn, sends: 0, receives: 0 };
        }
        match completion.kind {
            WorkKind::Receive | WorkKind::ReceiveWithImm => heard.receives += 1,
            _ => heard.sends += 1,
        }
    }
    taken
}

/// The side of a completion queue that programs see.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) id: CqId,
    capacity: AtomicU32,
    /// The most completions that were there when some were taken off. Between two such moments it only fills.
    most: AtomicU32,
    taking: Mutex<Taking>,
    /// There may be completions: a look that costs next to nothing, for threads that look again and again.
    filled: AtomicBool,
    /// There may be completions that no event on the channel has told of, and solicited ones among them.
    untold: AtomicBool,
    untold_solicited: AtomicBool,
    /// Whether the program asked for an event on its channel, and for which completions.
    armed: AtomicU8,
    channel: Option<Arc<Channel>>,
    /// Whether to look for a moment before a thread sleeps for a completion.
    pub(crate) spin: Spin,
    pub(crate) waiters: Waiters,
    overrun: AtomicBool,
    /// The queue is gone: no event for it may reach the channel any more.
    closed: AtomicBool,
    /// Counts this queue while the program has asked for an event.
    sleepers: Arc<Sleepers>,
    /// The engines that have a ring in it, a bit each.
    engines: AtomicU32,
    /// How many completions an event on the channel waits for: 1 for none.
    event_count: AtomicU32,
    /// How long it waits at most, in nanoseconds.
    event_period: AtomicU64,
    /// Completions that an event on the channel is owed for, and when the first of them came.
    unheard: AtomicU32,
    unheard_since: AtomicU64,
}

impl CqShared {
    pub(crate) fn new(
        id: CqId,
        capacity: u32,
        channel: Option<Arc<Channel>>,
        sleepers: Arc<Sleepers>,
    ) -> Self {
        Self {
            id,
            capacity: AtomicU32::new(capacity),
            most: AtomicU32::new(0),
            taking: Mutex::new(Taking {
                rings: Vec::new(),
                first: 0,
                kept: VecDeque::new(),
                owners: Owners::default(),
                record: None,
            }),
            filled: AtomicBool::new(false),
            untold: AtomicBool::new(false),
            untold_solicited: AtomicBool::new(false),
            armed: AtomicU8::new(ARMED_NOT),
            channel,
            spin: Spin::new(),
            waiters: Waiters::new(Arc::clone(&sleepers)),
            overrun: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sleepers,
            engines: AtomicU32::new(0),
            event_count: AtomicU32::new(1),
            event_period: AtomicU64::new(0),
            unheard: AtomicU32::new(0),
            unheard_since: AtomicU64::new(0),
        }
    }

    /// Completions that it holds.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// How full it is, and was.
    pub(crate) fn level(&self) -> Level {
        let taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        Level::new(count(taking.len()), self.most.load(Ordering::Relaxed), self.capacity())
    }

    /// Has an event on the channel wait for so many completions, but no longer than `period`.
    pub(crate) fn moderate(&self, count: u32, period: Duration) {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        self.event_period.store(nanos, Ordering::Relaxed);
        self.event_count.store(count.max(1), Ordering::SeqCst);
    }

    /// The engines that complete into it, a bit each.
    pub(crate) fn engines(&self) -> u32 {
        self.engines.load(Ordering::SeqCst)
    }

    /// A ring for an engine that is to complete here, if it has none yet. Made outside of the engine: it
    /// may be large.
    pub(crate) fn ring_for(&self, engine: usize) -> Option<(Producer<WORDS>, Consumer<WORDS>)> {
        let is_new = self.engines() & 1 << engine == 0;
        is_new.then(|| ring::channel(self.capacity() as usize))
    }

    /// An engine begins to complete here, into the other end of this ring. Whether the program waits for
    /// completions already.
    pub(crate) fn attach(&self, engine: usize, ring: Consumer<WORDS>) -> bool {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner).rings.push((engine, ring));
        self.engines.fetch_or(1 << engine, Ordering::SeqCst);
        self.armed.load(Ordering::SeqCst) != ARMED_NOT || self.waiters.are_any()
    }

    /// The program has given it up.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.disarm();
        self.waiters.wake_all();
        if let Some(channel) = &self.channel {
            channel.forget(self.id);
        }
    }

    /// Ends the wait for an event; false if the program did not wait for one.
    fn disarm(&self) -> bool {
        let was_armed = self.armed.swap(ARMED_NOT, Ordering::SeqCst) != ARMED_NOT;
        if was_armed {
            self.sleepers.answer();
        }
        was_armed
    }

    /// Takes completions off, oldest first; how many.
    #[inline]
    pub(crate) fn take(&self, into: &mut [Completion]) -> usize {
        if self.is_filled() { self.take_some(into, 0) } else { 0 }
    }

    /// As [`take`](Self::take), for a thread that was handed so many completions past the queue: they stand in front.
    #[inline]
    pub(crate) fn take_beside(&self, into: &mut [Completion], handed: usize) -> usize {
        if self.is_filled() {
            return handed + self.take_some(&mut into[handed..], handed);
        }
        note_most(&self.most, count(handed));
        handed
    }

    /// Whether there may be completions to take off.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    fn take_some(&self, into: &mut [Completion], handed: usize) -> usize {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let taking = &mut *taking;
        // An engine that adds something sets it afterwards. So it is found below, or it is set again. As long as something is
        // kept that no ring shows, it stays set: nothing may pass that by.
        if taking.kept.is_empty() {
            self.filled.swap(false, Ordering::AcqRel);
        }
        note_most(&self.most, count(handed + taking.len()));
        let mut heard = Heard::NONE;
        let taken = if taking.record.is_some() {
            cold_path();
            taking.take_told(self.id, into, &mut heard)
        } else {
            taking.take(into, &mut heard)
        };
        taking.owners.tell(&heard);
        if taken == into.len() {
            self.filled.store(true, Ordering::Release);
        }
        taken
    }

    /// Has it written down what the program takes off, or no longer.
    pub(crate) fn record(&self, ring: Option<ProgramRing>) {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner).record = ring;
    }

    pub(crate) fn enroll(&self, qpn: Qpn, shared: &Arc<QpShared>) {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        taking.owners.insert(qpn, shared);
    }

    pub(crate) fn strike(&self, qpn: Qpn) {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        taking.owners.remove(qpn);
    }

    /// Forgets what a queue pair has completed and no thread has taken off.
    pub(crate) fn forget(&self, qpn: Qpn) {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let Taking { rings, kept, record, .. } = &mut *taking;
        // Before a ring is seen empty: see `is_passed_by`.
        self.filled.store(true, Ordering::SeqCst);
        for (_, ring) in rings {
            kept.extend(std::iter::from_fn(|| ring.pop()));
        }
        if let Some(ring) = record {
            let is_gone = |words: &&[u64; WORDS]| words[1] & TOLD != 0 && decode(words).qpn == qpn;
            for words in kept.iter().filter(is_gone) {
                ring.push(clock::now().nanos(), &polled(self.id, &decode(words), true).into());
            }
        }
        kept.retain(|words| decode(words).qpn != qpn);
    }

    /// Whether it has completions of a queue pair that no thread has taken off.
    pub(crate) fn holds(&self, qpn: Qpn) -> bool {
        let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let Taking { rings, kept, .. } = &mut *taking;
        // They cannot be looked at in their rings. Before one is seen empty: see `is_passed_by`.
        self.filled.store(true, Ordering::SeqCst);
        for (_, ring) in rings {
            kept.extend(std::iter::from_fn(|| ring.pop()));
        }
        kept.iter().any(|words| decode(words).qpn == qpn)
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    pub(crate) fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.as_ref()
    }

    /// Whether completions wait for an event that was put off.
    fn owes_event(&self) -> bool {
        self.unheard.load(Ordering::Relaxed) > 0
    }

    /// Whether an event is put off after so many more completions, and until when.
    fn event_after(&self, added: u32, now: Time) -> Option<Time> {
        let count = self.event_count.load(Ordering::SeqCst);
        if count == 1 {
            self.unheard.store(0, Ordering::Relaxed);
            return None;
        }
        let before = self.unheard.fetch_add(added, Ordering::Relaxed);
        if before == 0 {
            self.unheard_since.store(now.nanos(), Ordering::Relaxed);
        }
        let since = Time::from_nanos(self.unheard_since.load(Ordering::Relaxed));
        let deadline = since + Duration::from_nanos(self.event_period.load(Ordering::Relaxed));
        if before + added >= count || now >= deadline {
            self.unheard.store(0, Ordering::Relaxed);
            return None;
        }
        Some(deadline)
    }

    /// Asks for an event when a completion is added from now on.
    pub(crate) fn arm(&self, notify: Notify) {
        let wanted = match notify {
            Notify::Any => ARMED_ANY,
            Notify::Solicited => ARMED_SOLICITED,
        };
        // Asking for more replaces asking for less, and not the other way round (IBA 11.4.2.2).
        if self.armed.fetch_max(wanted, Ordering::SeqCst) == ARMED_NOT {
            self.sleepers.ask();
        }
        // From here on the engine sees that we ask, or we see what it added.
        fence(Ordering::SeqCst);
    }

    /// If completions are there already that no event has told of, has the event come for them at once, whatever events
    /// wait for. An engine says that there are some before it looks whether the queue is armed.
    pub(crate) fn tell_of_old(self: &Arc<Self>, notify: Notify) {
        let untold = match notify {
            Notify::Any => &self.untold,
            Notify::Solicited => &self.untold_solicited,
        };
        if untold.load(Ordering::SeqCst) && self.is_filled() && self.has_some() && self.disarm() {
            self.has_told();
            Wake::Channel(Arc::clone(self)).run();
        }
    }

    fn has_told(&self) {
        self.untold.store(false, Ordering::SeqCst);
        self.untold_solicited.store(false, Ordering::SeqCst);
    }

    /// Whether there is something to take off.
    pub(crate) fn has_some(&self) -> bool {
        let taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        !taking.kept.is_empty() || taking.rings.iter().any(|(_, ring)| !ring.is_empty())
    }
}

/// Gives a completion queue rings of another capacity: one for each engine of the device, in order. Called
/// while this thread is inside of all of them, with their sides of the queue.
///
/// # Errors
/// A ring holds more than its successor would; nothing has changed.
pub(crate) fn resize<'a>(
    shared: &CqShared,
    capacity: u32,
    sides: impl Iterator<Item = (usize, &'a mut CqSide)>,
    rings: &mut [Option<(Producer<WORDS>, Consumer<WORDS>)>],
) -> Result<(), u32> {
    let mut taking = shared.taking.lock().unwrap_or_else(PoisonError::into_inner);
    let most = taking.rings.iter().map(|(_, ring)| ring.len()).max().unwrap_or(0);
    if most > capacity as usize {
        return Err(u32::try_from(most).unwrap_or(u32::MAX));
    }
    for (engine, side) in sides {
        let old = taking.rings.iter_mut().find(|(of, _)| *of == engine);
        let (Some((_, old)), Some((mut producer, consumer))) =
            (old, rings.get_mut(engine).and_then(Option::take))
        else {
            continue;
        };
        while let Some(words) = old.pop() {
            // There is room: no engine adds anything meanwhile, and it was counted above.
            let _ = producer.push(words);
        }
        side.producer = producer;
        *old = consumer;
    }
    shared.capacity.store(capacity, Ordering::Relaxed);
    shared.filled.store(true, Ordering::Release);
    Ok(())
}

/// The side of a completion queue that an engine sees.
#[derive(Debug)]
pub(crate) struct CqSide {
    producer: Producer<WORDS>,
    shared: Arc<CqShared>,
    /// Something was added since `settle` was last called.
    pub(crate) touched: bool,
    solicited: bool,
    /// Completions since `settle` was last called.
    added: u32,
}

impl CqSide {
    pub(crate) const fn new(producer: Producer<WORDS>, shared: Arc<CqShared>) -> Self {
        Self { producer, shared, touched: false, solicited: false, added: 0 }
    }

    pub(crate) fn shared(&self) -> &CqShared {
        &self.shared
    }

    /// Whether a completion of this engine may be handed to a thread past the queue: none is there that comes before it, and no
    /// thread waits for one or has asked for an event.
    ///
    /// What was taken out of the ring and is kept shows in `filled`: that is set before the ring is emptied, and stays set as long
    /// as something is kept. So the ring is looked at first. A thread that asks for an event or leaves a waker from here on has
    /// come after what is handed over now: it will find nothing, and nothing is left to be found.
    #[inline]
    pub(crate) fn is_passed_by(&self) -> bool {
        let shared = &self.shared;
        self.producer.is_empty()
            && !shared.filled.load(Ordering::SeqCst)
            && shared.armed.load(Ordering::SeqCst) == ARMED_NOT
            && !shared.waiters.are_any()
    }

    /// Whether there is room for one more completion. There is no less until one is added.
    pub(crate) fn has_room(&self) -> bool {
        self.producer.has_room()
    }

    /// Adds a completion. False if there is no room: it is lost.
    pub(crate) fn push(&mut self, completion: &Completion, time: Time) -> bool {
        self.add(is_wanted(completion), encode(completion, time))
    }

    /// The same of work that went well and has nothing more to tell.
    #[inline]
    pub(crate) fn push_plain(&mut self, plain: &PlainCompletion, time: Time) -> bool {
        self.add(plain.solicited, encode_plain(plain, time))
    }

    /// As [`push`](Self::push), of one that a record tells of: it is told, too, when the program takes it off.
    #[inline(never)]
    pub(crate) fn push_told(&mut self, completion: &Completion, time: Time) -> bool {
        let mut words = encode(completion, time);
        words[1] |= TOLD;
        self.add(is_wanted(completion), words)
    }

    #[inline]
    fn add(&mut self, is_wanted: bool, words: [u64; WORDS]) -> bool {
        self.touched = true;
        self.added += 1;
        if is_wanted {
            self.solicited = true;
            self.shared.untold_solicited.store(true, Ordering::Relaxed);
        }
        let fits = self.producer.push(words).is_ok();
        self.shared.untold.store(true, Ordering::Relaxed);
        self.shared.filled.store(true, Ordering::Release);
        if !fits {
            self.shared.overrun.store(true, Ordering::Relaxed);
        }
        fits
    }

    /// Notes what has to be woken for the completions that were added. Called once for many of them, after a
    /// sequentially consistent fence. When to look again, if an event waits for more completions.
    pub(crate) fn settle(&mut self, now: Time, wakes: &mut Vec<Wake>) -> Option<Time> {
        let solicited = std::mem::take(&mut self.solicited);
        let added = std::mem::take(&mut self.added);
        self.touched = false;
        let shared = &self.shared;
        let armed = shared.armed.load(Ordering::SeqCst);
        let mut again = None;
        let any = added > 0 || shared.owes_event();
        if armed == ARMED_ANY && any || armed == ARMED_SOLICITED && (solicited || shared.owes_event()) {
            again = shared.event_after(added, now);
            // Another engine may have been quicker: one event is enough.
            if again.is_none() && shared.disarm() && shared.channel.is_some() {
                shared.has_told();
                wakes.push(Wake::Channel(Arc::clone(shared)));
            }
        }
        if added > 0 && shared.waiters.are_any() {
            wakes.push(Wake::Waiters(Arc::clone(shared)));
        }
        again
    }
}

/// Whether a program wants to be told of this one that asked for solicited ones only.
#[inline]
fn is_wanted(completion: &Completion) -> bool {
    completion.solicited || completion.status != Status::Success
}

/// What is woken after the engine was left.
#[derive(Debug)]
pub(crate) enum Wake {
    Channel(Arc<CqShared>),
    Waiters(Arc<CqShared>),
}

impl Wake {
    pub(crate) fn run(self) {
        match self {
            Self::Channel(shared) => {
                if let Some(channel) = &shared.channel {
                    channel.push(&shared);
                }
            }
            Self::Waiters(shared) => shared.waiters.wake_all(),
        }
    }
}

/// Where a program waits for events of several completion queues, with a descriptor to poll.
#[derive(Debug)]
pub struct Channel {
    waiting: Mutex<VecDeque<CqId>>,
    ready: EventFd,
    /// Completion queues that report here.
    pub(crate) users: AtomicU32,
}

impl Channel {
    /// A channel without completion queues.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let channel = Self { waiting: Mutex::default(), ready: EventFd::new()?, users: AtomicU32::new(0) };
        Ok(Arc::new(channel))
    }

    fn push(&self, cq: &CqShared) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, which `forget` takes after the queue was closed.
        if !cq.closed.load(Ordering::SeqCst) {
            waiting.push_back(cq.id);
            self.ready.signal();
        }
    }

    /// The completion queue of the oldest event, if there is one. A queue must be armed again
    /// before it reports again.
    pub fn pop(&self) -> Option<CqId> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let cq = waiting.pop_front();
        if waiting.is_empty() {
            self.ready.clear();
        } else {
            // The thread that waits may have read it, as C programs do.
            self.ready.signal();
        }
        cq
    }

    /// Forgets the events of a completion queue that is no more.
    pub(crate) fn forget(&self, cq: CqId) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|known| *known != cq);
        if waiting.is_empty() {
            self.ready.clear();
        }
    }
}

/// Readable while events wait.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

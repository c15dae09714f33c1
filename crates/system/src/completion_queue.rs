//! Completion queues.

use std::collections::VecDeque;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use ferroce_cabi::{
    IBV_CQ_ATTR_MODERATE, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_STANDARD_FLAGS, IBV_WC_WITH_INV,
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_moderate_cq, ibv_modify_cq_attr, ibv_poll_cq_attr, ibv_wc,
};
use ferroce_sys::sync::Biased;
use ferroce_wire::Qpn;
use libc::c_int;

use crate::completion::{CardCompletion, Told};
use crate::completion_channel::{Channel, CompletionChannel};
use crate::context::{Open, extended};
use crate::error::{CallError, MakeError};
use crate::events::context_of;
use crate::handle::{Handle, Zero, answered, error_number};
use crate::members::Members;

/// Where work is reported when it is done. Clones are the same queue.
///
/// Make it at least as large as all queues that complete into it together: a queue that overflows loses completions.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) cq: Arc<Cq>,
}

/// The queue as the library has it.
pub(crate) struct Cq {
    pub(crate) open: Arc<Open>,
    pub(crate) c: Handle<ibv_cq>,
    /// Its extended form, which is the same object, if it tells times.
    extended: Option<*mut ibv_cq_ex>,
    /// The function of its context, whose table never changes.
    ask: Option<Ask>,
    channel: Option<Arc<Channel>>,
    pub(crate) number: u32,
    /// Held by the thread that polls: work of one queue is done in order, and is to be told so.
    polled: Biased<Polled>,
}

// SAFETY: `extended` is the same object as `c`, and is used by the thread that holds `polled` alone.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

type Ask = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

#[derive(Default)]
struct Polled {
    members: Members,
    /// Completions of others that were taken off while a queue pair was destroyed.
    kept: VecDeque<CardCompletion>,
}

/// How a completion queue is made.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is made until a context makes it"]
pub struct CompletionQueueOptions<'a> {
    capacity: u32,
    channel: Option<&'a CompletionChannel>,
    vector: u32,
    timestamps: bool,
}

impl<'a> CompletionQueueOptions<'a> {
    /// For so many completions.
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, channel: None, vector: 0, timestamps: false }
    }

    /// Announces completions on a channel.
    pub const fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Interrupts the processor behind this completion vector.
    pub const fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Tells when work ended, on the card's clock. Not all libraries and cards can.
    pub const fn timestamps(mut self) -> Self {
        self.timestamps = true;
        self
    }
}

const POLL: &str = "ibv_poll_cq";

/// Completions that are taken off at once.
const BATCH: usize = 16;

impl CompletionQueue {
    pub(crate) fn new(open: &Arc<Open>, options: &CompletionQueueOptions<'_>) -> Result<Self, MakeError> {
        let channel = options.channel.map(|channel| &channel.channel);
        if channel.is_some_and(|channel| !Arc::ptr_eq(&channel.open, open)) {
            return Err(MakeError::OtherCard { what: "completion channel" });
        }
        open.c.check("ibv_create_cq")?;
        let number = open.number();
        let made = if options.timestamps {
            make_extended(open, options, number).map(|(c, extended)| (c, Some(extended)))
        } else {
            make(open, options, number).map(|c| (c, None))
        };
        let (c, extended) = made.inspect_err(|_| open.give_back(number))?;
        let (open, channel) = (Arc::clone(open), channel.cloned());
        // SAFETY: a live context.
        let ask = unsafe { (*open.c.as_ptr()).ops.poll_cq };
        let cq = Arc::new(Cq { open, c, extended, ask, channel, number, polled: Biased::default() });
        if let Some(channel) = &cq.channel {
            channel.enroll(number, &cq);
        }
        Ok(Self { cq })
    }

    /// Its number, by which events name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.cq.number
    }

    /// Completions that it holds: at least as many as were asked for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let _alone = self.cq.polled.lock();
        // SAFETY: a live queue, whose field changes when it is resized, which is done under this lock.
        u32::try_from(unsafe { (*self.cq.c.as_ptr()).cqe }).unwrap_or(0)
    }

    /// Makes it hold another number of completions. Those that it has stay.
    ///
    /// # Errors
    /// It holds more than that, or what the library says.
    pub fn resize(&self, capacity: u32) -> Result<(), CallError> {
        self.cq.c.check("ibv_resize_cq")?;
        let _alone = self.cq.polled.lock();
        let cqe = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        // SAFETY: a live queue.
        let answer = unsafe { (self.cq.open.library.verbs().ibv_resize_cq)(self.cq.c.as_ptr(), cqe) };
        answered("ibv_resize_cq", answer)
    }

    /// Takes completions off, oldest first, and returns how many. It never waits, and allocates nothing. What a completion is
    /// turned into must not use the queue itself meanwhile.
    ///
    /// # Errors
    /// The queue is broken: it was overrun, or the card is gone.
    #[inline]
    pub fn poll<T: From<CardCompletion>>(&self, into: &mut [T]) -> Result<usize, CallError> {
        self.cq.poll(into)
    }

    /// Whether it has completions. It takes none off: what it finds is kept for the next poll.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn has_some(&self) -> Result<bool, CallError> {
        self.cq.has_some()
    }

    /// Has an event on its channel wait until there are `count` completions, or `micros` microseconds have passed since the first. A count
    /// of 0 or 1 takes that back on most cards.
    ///
    /// # Errors
    /// The card cannot, or what the library says.
    pub fn moderate(&self, count: u16, micros: u16) -> Result<(), CallError> {
        const CALL: &str = "ibv_modify_cq";
        let modify = extended!(self.cq.open, modify_cq).ok_or(CallError::unsupported(CALL))?;
        self.cq.c.check(CALL)?;
        let moderate = ibv_moderate_cq { cq_count: count, cq_period: micros };
        let mut attr = ibv_modify_cq_attr { attr_mask: IBV_CQ_ATTR_MODERATE, moderate };
        // SAFETY: a live queue, and attributes that live during the call.
        answered(CALL, unsafe { modify(self.cq.c.as_ptr(), &raw mut attr) })
    }

    /// Asks for one event on the queue's channel when a completion is added from now on, or only for one that its sender
    /// asked an event for. Poll once more after arming: what was added before raises no event.
    ///
    /// # Errors
    /// What the library says.
    pub fn arm(&self, solicited_only: bool) -> Result<(), CallError> {
        const CALL: &str = "ibv_req_notify_cq";
        // SAFETY: a live context, whose table never changes.
        let arm = unsafe { (*self.cq.open.c.as_ptr()).ops.req_notify_cq };
        let arm = arm.ok_or(CallError::unsupported(CALL))?;
        self.cq.c.check(CALL)?;
        // SAFETY: a live queue.
        answered(CALL, unsafe { arm(self.cq.c.as_ptr(), c_int::from(solicited_only)) })
    }
}

impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cq, &other.cq)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({})", self.cq.number)
    }
}

impl Cq {
    /// Works with the queues that complete here, while no thread polls.
    pub(crate) fn with_members<R>(&self, change: impl FnOnce(&mut Members) -> R) -> R {
        change(&mut self.polled.lock().members)
    }

    #[inline(always)]
    fn poll<T: From<CardCompletion>>(&self, into: &mut [T]) -> Result<usize, CallError> {
        // Programs that poll one at a time poll often.
        if let [into] = into
            && let Some(found) = self.poll_one_quickly(into)
        {
            return usize::try_from(found)
                .map_err(|_| CallError { call: POLL, code: found.saturating_neg() });
        }
        self.poll_slowly(into)
    }

    /// Polls once, if this thread has the habit of the queue: how many there were, or an error number with a minus. Else nothing, and nothing
    /// is lost.
    #[inline(always)]
    fn poll_one_quickly<T: From<CardCompletion>>(&self, into: &mut T) -> Option<c_int> {
        let ask = self.ask.filter(|_| self.c.is_ours() && self.extended.is_none())?;
        let mut polled = self.polled.lock_by_habit()?;
        if !polled.kept.is_empty() {
            return None;
        }
        let mut room = MaybeUninit::<ibv_wc>::uninit();
        // SAFETY: a live queue, and room for one completion, which lives during the call.
        let found = unsafe { ask(self.c.as_ptr(), 1, room.as_mut_ptr()) };
        if found <= 0 {
            return Some(if found == 0 { 0 } else { -error_number(found) });
        }
        // SAFETY: the library has filled it.
        let wc = unsafe { room.assume_init_ref() };
        // If it is of work that is forgotten, another may come after it.
        let quick = polled.members.resolve_quickly(wc);
        *into = match quick {
            Some(completion) => completion.into(),
            None => self.resolve_slowly(&mut polled.members, wc)?.into(),
        };
        Some(1)
    }

    #[inline(never)]
    fn poll_slowly<T: From<CardCompletion>>(&self, into: &mut [T]) -> Result<usize, CallError> {
        self.c.check(POLL)?;
        let mut polled = self.polled.lock();
        let polled = &mut *polled;
        let done = if polled.kept.is_empty() { 0 } else { polled.take_kept(into) };
        match into.len() {
            1 => self.take::<1, T>(&mut polled.members, into, done),
            _ => self.take::<BATCH, T>(&mut polled.members, into, done),
        }
    }

    /// Takes off what the library tells, behind the first `done`; how many there are then.
    #[inline(always)]
    fn take<const N: usize, T: From<CardCompletion>>(
        &self,
        members: &mut Members,
        into: &mut [T],
        done: usize,
    ) -> Result<usize, CallError> {
        match self.extended {
            None => take_by(members, into, done, N, |wanted, taken| self.ask::<N, T>(wanted, taken)),
            Some(queue) => take_extended(queue, members, into, done),
        }
    }

    fn has_some(&self) -> Result<bool, CallError> {
        self.c.check(POLL)?;
        let mut polled = self.polled.lock();
        if polled.kept.is_empty() {
            let mut some = [CardCompletion::EMPTY; BATCH];
            let taken = self.take::<BATCH, _>(&mut polled.members, &mut some, 0)?;
            polled.kept.extend(&some[..taken]);
        }
        Ok(!polled.kept.is_empty())
    }

    /// Asks for up to `wanted` completions, at most `N`.
    #[inline(always)]
    fn ask<const N: usize, T: From<CardCompletion>>(
        &self,
        wanted: usize,
        taken: &mut Taken<'_, T>,
    ) -> Result<(), CallError> {
        let poll = self.ask.ok_or(CallError::unsupported(POLL))?;
        let mut room = [const { MaybeUninit::<ibv_wc>::uninit() }; N];
        let count = c_int::try_from(wanted.min(N)).unwrap_or(0);
        // SAFETY: a live queue, and room for so many completions, which lives during the call.
        let found = unsafe { poll(self.c.as_ptr(), count, room.as_mut_ptr().cast()) };
        let Ok(found) = usize::try_from(found) else { return answered(POLL, found) };
        for one in room.iter().take(found) {
            // SAFETY: the library has filled so many.
            let wc = unsafe { one.assume_init_ref() };
            let quick = taken.members.resolve_quickly(wc);
            if let Some(completion) = quick.or_else(|| self.resolve_slowly(taken.members, wc)) {
                taken.add(completion);
            }
        }
        taken.told = found;
        Ok(())
    }

    #[inline(never)]
    fn resolve_slowly(&self, members: &mut Members, wc: &ibv_wc) -> Option<CardCompletion> {
        let mut told = Told::from(wc);
        if self.open.is_soft {
            told.flags = as_library(told.flags);
        }
        members.resolve(&told)
    }

    /// Forgets what was kept of a queue pair that is destroyed next. If it `looks`, all that is there is taken off first and
    /// kept for other queue pairs: so it is known which receives of a shared queue are done.
    pub(crate) fn keep(&self, looks: bool, destroyed: Qpn) {
        let mut polled = self.polled.lock();
        // It holds no more than that, unless the card goes on meanwhile.
        // SAFETY: a live queue, whose field changes under this lock.
        let capacity = unsafe { (*self.c.as_ptr()).cqe };
        let mut left = if looks { usize::try_from(capacity).unwrap_or(0) } else { 0 };
        while left > 0 {
            let mut some = [CardCompletion::EMPTY; BATCH];
            let taken = self.take::<BATCH, _>(&mut polled.members, &mut some, 0).unwrap_or(0);
            polled.kept.extend(&some[..taken]);
            if taken < BATCH {
                break;
            }
            left = left.saturating_sub(taken);
        }
        polled.kept.retain(|completion| completion.qpn != destroyed);
    }
}

impl Polled {
    /// What was kept goes first.
    #[cold]
    fn take_kept<T: From<CardCompletion>>(&mut self, into: &mut [T]) -> usize {
        let some = self.kept.len().min(into.len());
        into.iter_mut().zip(self.kept.drain(..some)).for_each(|(to, kept)| *to = kept.into());
        some
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.strike(self.number);
        }
        // All its events are acknowledged, so this does not wait.
        // SAFETY: the queue is live, and neither the program nor a queue pair holds it any more.
        unsafe { (self.open.library.verbs().ibv_destroy_cq)(self.c.as_ptr()) };
        self.open.give_back(self.number);
    }
}

fn make(open: &Open, options: &CompletionQueueOptions<'_>, number: u32) -> Result<Handle<ibv_cq>, MakeError> {
    let int = |what, given: u32| {
        let allowed = c_int::MAX.unsigned_abs().into();
        c_int::try_from(given).map_err(|_| MakeError::TooLarge { what, given: given.into(), allowed })
    };
    let cqe = int("number of completions", options.capacity)?;
    let vector = int("completion vector", options.vector)?;
    let channel = options.channel.map_or(std::ptr::null_mut(), |channel| channel.channel.c.as_ptr());
    let create = open.library.verbs().ibv_create_cq;
    // SAFETY: a live context and a live channel of it, or none. The number stands where C programs have a pointer, which
    // only we read.
    let cq = unsafe { create(open.c.as_ptr(), cqe, context_of(number), channel, vector) };
    Ok(Handle::made("ibv_create_cq", cq)?)
}

fn make_extended(
    open: &Open,
    options: &CompletionQueueOptions<'_>,
    number: u32,
) -> Result<(Handle<ibv_cq>, *mut ibv_cq_ex), MakeError> {
    const CALL: &str = "ibv_create_cq_ex";
    let create = extended!(open, create_cq_ex).ok_or(CallError::unsupported(CALL))?;
    let mut attr = ibv_cq_init_attr_ex::zero();
    attr.cqe = options.capacity;
    attr.cq_context = context_of(number);
    attr.channel = options.channel.map_or(std::ptr::null_mut(), |channel| channel.channel.c.as_ptr());
    attr.comp_vector = options.vector;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    // SAFETY: a live context and attributes that live during the call, with a live channel of the context or none.
    let queue = unsafe { create(open.c.as_ptr(), &raw mut attr) };
    let c = Handle::made(CALL, queue.cast::<ibv_cq>())?;
    Ok((c, queue))
}

/// Completions that are being taken off.
struct Taken<'a, T> {
    members: &'a mut Members,
    into: &'a mut [T],
    /// How many there are, and how many the library has told since it was asked.
    done: usize,
    told: usize,
}

impl<T: From<CardCompletion>> Taken<'_, T> {
    /// Adds one, for which there is room.
    #[inline(always)]
    fn add(&mut self, completion: CardCompletion) {
        self.into[self.done] = completion.into();
        self.done += 1;
    }
}

/// Takes off what `ask` gets, at most so many at once, behind the first `done`; how many there are then.
#[inline(always)]
fn take_by<T: From<CardCompletion>>(
    members: &mut Members,
    into: &mut [T],
    done: usize,
    most: usize,
    mut ask: impl FnMut(usize, &mut Taken<'_, T>) -> Result<(), CallError>,
) -> Result<usize, CallError> {
    let mut taken = Taken { members, into, done, told: 0 };
    while taken.done < taken.into.len() {
        let wanted = most.min(taken.into.len() - taken.done);
        taken.told = 0;
        match ask(wanted, &mut taken) {
            // What was taken off before is not lost.
            Err(error) if taken.done == 0 => return Err(error),
            Ok(()) if taken.told == wanted => {}
            _ => break,
        }
    }
    Ok(taken.done)
}

/// The same of a queue in its extended form.
#[inline(never)]
fn take_extended<T: From<CardCompletion>>(
    queue: *mut ibv_cq_ex,
    members: &mut Members,
    into: &mut [T],
    done: usize,
) -> Result<usize, CallError> {
    take_by(members, into, done, BATCH, |wanted, taken| {
        ask_extended(queue, wanted, |told| {
            taken.told += 1;
            if let Some(completion) = taken.members.resolve(told) {
                taken.add(completion);
            }
        })
    })
}

/// The kernel's soft device writes its own flag for a key that was invalidated, which means something else to programs.
const fn as_library(flags: u32) -> u32 {
    const KERNEL_WITH_INV: u32 = 1 << 2;
    if flags & KERNEL_WITH_INV == 0 { flags } else { flags & !KERNEL_WITH_INV | IBV_WC_WITH_INV }
}

/// Asks a queue in its extended form for up to `wanted` completions. Only the thread that polls calls it.
fn ask_extended(queue: *mut ibv_cq_ex, wanted: usize, mut each: impl FnMut(&Told)) -> Result<(), CallError> {
    /// Reads a field by its function; those that a queue was not made with are null.
    macro_rules! read {
        ($queue:ident.$field:ident) => {{
            // SAFETY: a live queue, whose functions never change once it is made.
            let read = unsafe { (*$queue).$field };
            // SAFETY: this thread polls the queue, and it is at a completion.
            read.map_or(Default::default(), |read| unsafe { read($queue) })
        }};
    }
    const CALL: &str = "ibv_start_poll";
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: a live queue, whose functions never change once it is made.
    let start = unsafe { (*queue).start_poll }.ok_or(CallError::unsupported(CALL))?;
    // SAFETY: as above.
    let next = unsafe { (*queue).next_poll }.ok_or(CallError::unsupported(CALL))?;
    // SAFETY: as above.
    let end = unsafe { (*queue).end_poll }.ok_or(CallError::unsupported(CALL))?;
    // SAFETY: a live queue that no other thread polls, and attributes that live during the call.
    match unsafe { start(queue, &raw mut attr) } {
        libc::ENOENT => return Ok(()),
        answer => answered(CALL, answer)?,
    }
    let mut taken = 0;
    let ended = loop {
        // SAFETY: this thread polls the queue, and it is at a completion.
        let wr_id = unsafe { (*queue).wr_id };
        // SAFETY: as above.
        let status = unsafe { (*queue).status };
        let opcode: c_int = read!(queue.read_opcode);
        each(&Told {
            wr_id,
            status: status.cast_unsigned(),
            opcode: opcode.cast_unsigned(),
            vendor_error: if status == 0 { 0 } else { read!(queue.read_vendor_err) },
            byte_len: read!(queue.read_byte_len),
            imm: read!(queue.read_imm_data),
            qpn: read!(queue.read_qp_num),
            source_qp: read!(queue.read_src_qp),
            flags: read!(queue.read_wc_flags),
            service_level: read!(queue.read_sl),
            ticks: (status == 0).then(|| read!(queue.read_completion_ts)),
        });
        taken += 1;
        if taken == wanted {
            break Ok(());
        }
        // SAFETY: this thread polls the queue.
        match unsafe { next(queue) } {
            0 => {}
            libc::ENOENT => break Ok(()),
            answer => break answered("ibv_next_poll", answer),
        }
    };
    // SAFETY: this thread polls the queue since `start`.
    unsafe { end(queue) };
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_flag_for_an_invalidated_key_is_known() {
        assert_eq!(as_library(1 << 2 | 1), IBV_WC_WITH_INV | 1);
        assert_eq!((as_library(IBV_WC_WITH_INV), as_library(3)), (IBV_WC_WITH_INV, 3));
    }
}

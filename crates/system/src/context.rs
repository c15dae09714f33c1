//! An open card.

use std::collections::HashSet;
use std::fmt;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use ferroce_cabi::{IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_values_ex, verbs_context};
use ferroce_wire::{Gid, PKey};

use crate::completion_channel::CompletionChannel;
use crate::completion_queue::{CompletionQueue, CompletionQueueOptions};
use crate::domain::ProtectionDomain;
use crate::error::{CallError, MakeError};
use crate::events::{self, Events};
use crate::handle::{Handle, Zero, answered, lock};
use crate::library::Library;
use crate::port::{self, CardAttributes, GidEntry, Port};

/// An open card: everything else is made from it. Clones are the same.
///
/// It closes when the last handle and the last object made from it are gone, in any order.
#[derive(Clone)]
pub struct Context {
    pub(crate) open: Arc<Open>,
}

/// The card as the library has it open. Every object holds this, so it goes last.
pub(crate) struct Open {
    pub(crate) library: Library,
    pub(crate) c: Handle<ibv_context>,
    pub(crate) name: String,
    numbers: Mutex<Numbers>,
    /// Whether it is the kernel's soft device.
    pub(crate) is_soft: bool,
}

/// The numbers of queues, by which their work is told apart; and of completion queues, by which events name them.
#[derive(Default)]
struct Numbers {
    last: u32,
    used: HashSet<u32>,
}

/// The mark of a context that has the extended functions in front of it.
const EXTENDED: usize = usize::MAX;

/// The maker of devices that are no cards: the kernel's soft device, and ours.
const NO_VENDOR: u32 = 0x00ff_ffff;

impl Context {
    pub(crate) fn new(library: Library, c: Handle<ibv_context>, name: String) -> Result<Self, CallError> {
        let mut open = Open { library, c, name, numbers: Mutex::default(), is_soft: false };
        events::never_wait(open.async_fd())?;
        let vendor = port::attributes(&open).map_or(0, |attributes| attributes.vendor_id);
        open.is_soft = !library.is_ours() && (vendor == NO_VENDOR || open.name.starts_with("rxe"));
        Ok(Self { open: Arc::new(open) })
    }

    /// The library that it comes from.
    #[must_use]
    pub fn library(&self) -> Library {
        self.open.library
    }

    /// Whether it is the kernel's soft device.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.open.is_soft
    }

    /// Whether this process opened it, and none that it was forked from.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.open.c.is_ours()
    }

    /// The name of the card.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.open.name
    }

    /// Completion vectors: completion queues of different ones interrupt different processors.
    #[must_use]
    pub fn vectors(&self) -> u32 {
        // SAFETY: a live context, whose field never changes.
        u32::try_from(unsafe { (*self.open.c.as_ptr()).num_comp_vectors }).unwrap_or(0)
    }

    /// What the card is, and how much of everything it has.
    ///
    /// # Errors
    /// What the library says.
    pub fn query(&self) -> Result<CardAttributes, CallError> {
        port::attributes(&self.open)
    }

    /// Whether completion queues can be made that tell when work ended.
    #[must_use]
    pub fn tells_times(&self) -> bool {
        extended!(self.open, create_cq_ex).is_some() && extended!(self.open, query_rt_values).is_some()
    }

    /// What its clock shows, on which completions are timed: [`CardAttributes`] says how fast it ticks.
    ///
    /// # Errors
    /// It has none, or what the library says.
    pub fn clock(&self) -> Result<u64, CallError> {
        const CALL: &str = "ibv_query_rt_values_ex";
        let query = extended!(self.open, query_rt_values).ok_or(CallError::unsupported(CALL))?;
        self.open.c.check(CALL)?;
        let mut values = ibv_values_ex::zero();
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        // SAFETY: a live context, and a structure that lives during the call.
        answered(CALL, unsafe { query(self.open.c.as_ptr(), &raw mut values) })?;
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK == 0 {
            return Err(CallError::unsupported(CALL));
        }
        // Cards put all of it into the nanoseconds, whatever their ticks are.
        let (seconds, ticks) =
            (values.raw_clock.tv_sec.cast_unsigned(), values.raw_clock.tv_nsec.cast_unsigned());
        Ok(seconds.wrapping_mul(1_000_000_000).wrapping_add(ticks))
    }

    /// What one of its ports is like now. Ports are counted from 1.
    ///
    /// # Errors
    /// There is no such port, or what the library says.
    pub fn port(&self, number: u8) -> Result<Port, CallError> {
        port::query(&self.open, number)
    }

    /// The address at this index of a port. Entries that are not in use are all zero.
    ///
    /// # Errors
    /// There is no such port or entry, or what the library says.
    pub fn gid(&self, port: u8, index: u32) -> Result<Gid, CallError> {
        port::gid(&self.open, port, index)
    }

    /// All addresses that are in use, of all ports, with their kinds; nothing if the library is too old to tell kinds.
    ///
    /// # Errors
    /// What the library says.
    pub fn gids(&self) -> Result<Option<Vec<GidEntry>>, CallError> {
        port::gids(&self.open)
    }

    /// The partition key at this index of a port.
    ///
    /// # Errors
    /// There is no such port or entry, or what the library says.
    pub fn pkey(&self, port: u8, index: u16) -> Result<PKey, CallError> {
        port::pkey(&self.open, port, index)
    }

    /// Events that are not completions.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(&self.open)
    }

    /// A protection domain: memory regions and queue pairs work together within one.
    ///
    /// # Errors
    /// What the library says.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, CallError> {
        ProtectionDomain::new(&self.open)
    }

    /// A queue for this many completions.
    ///
    /// # Errors
    /// What the library says.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, MakeError> {
        self.completion_queue_with(&CompletionQueueOptions::new(capacity))
    }

    /// The same in a particular way.
    ///
    /// # Errors
    /// What the library says.
    pub fn completion_queue_with(
        &self,
        options: &CompletionQueueOptions<'_>,
    ) -> Result<CompletionQueue, MakeError> {
        CompletionQueue::new(&self.open, options)
    }

    /// A channel, on which completion queues announce completions.
    ///
    /// # Errors
    /// What the library says.
    pub fn completion_channel(&self) -> Result<CompletionChannel, CallError> {
        CompletionChannel::new(&self.open)
    }
}

/// A function of the extended table of an open card, if there is one.
macro_rules! extended {
    ($open:expr, $field:ident) => {
        $open.extended(std::mem::offset_of!(ferroce_cabi::verbs_context, $field), |table| table.$field)
    };
}

pub(crate) use extended;

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.open, &other.open)
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.open.name)
    }
}

impl Open {
    /// The function at this offset of the extended table; nothing if the table of this library is shorter, or the driver
    /// has none. Of the last argument only the type counts, which is that of the field ([`extended!`]).
    pub(crate) fn extended<F>(&self, offset: usize, _: fn(&verbs_context) -> Option<F>) -> Option<F> {
        let context = self.c.as_ptr();
        // SAFETY: a live context, whose field never changes.
        if unsafe { (*context).abi_compat }.addr() != EXTENDED {
            return None;
        }
        let whole = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        let size = whole.wrapping_byte_add(offset_of!(verbs_context, sz)).cast::<usize>();
        // SAFETY: the mark says that a table stands in front of the context. Its size is the word before the context, which
        // every such table has.
        let size = unsafe { size.read() };
        if size < size_of::<verbs_context>() - offset {
            return None;
        }
        let place = whole.wrapping_byte_add(offset).cast::<Option<F>>();
        // SAFETY: the table reaches back to this field at least; each field of it is a function or null.
        unsafe { place.read() }
    }

    /// A number that no other queue of this context has.
    pub(crate) fn number(&self) -> u32 {
        let mut numbers = lock(&self.numbers);
        loop {
            numbers.last = numbers.last.wrapping_add(1);
            let number = numbers.last;
            if numbers.used.insert(number) {
                return number;
            }
        }
    }

    /// Gives a number back.
    pub(crate) fn give_back(&self, number: u32) {
        lock(&self.numbers).used.remove(&number);
    }

    fn async_fd(&self) -> libc::c_int {
        // SAFETY: a live context, whose field never changes.
        unsafe { (*self.c.as_ptr()).async_fd }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // Whatever the library says, nothing of it is used any more.
        // SAFETY: the context is open, and every object made from it is gone.
        unsafe { (self.library.verbs().ibv_close_device)(self.c.as_ptr()) };
    }
}

//! Registered memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use ferroce_cabi::{IBV_ACCESS_RELAXED_ORDERING, ibv_mr};
use ferroce_memory::Allocation;
use ferroce_transport::Access;
use ferroce_wire::{Lkey, Rkey};

use crate::domain::Domain;
use crate::error::{CallError, RegisterError};
use crate::handle::{Handle, answered, lock, unlocked};
use crate::held::Queue;
use crate::library::ForkCare;

/// Registered memory: the only kind that work can name, and that peers can be let into.
///
/// Dropping it is always safe. Work that was posted and names it keeps it registered until that work is done; the memory is
/// let go then. [`deregister`](Self::deregister) takes it away at once, and work under way fails.
pub struct MemoryRegion {
    pub(crate) registration: Arc<Registration>,
}

/// The region as the library has it, which goes with the last of its holders: the program, work, and windows.
pub(crate) struct Registration {
    pub(crate) domain: Arc<Domain>,
    pub(crate) lkey: Lkey,
    rkey: Rkey,
    /// What work and peers call its first byte.
    pub(crate) address: u64,
    pub(crate) len: usize,
    access: Access,
    registered: Mutex<Option<Registered>>,
    /// The queues that hold it once for all of their work, with room for [`HOMES`] from the beginning.
    homes: Mutex<Vec<Weak<Queue>>>,
}

/// Queues that name a region for the first time without an allocation: mostly there are no more.
const HOMES: usize = 4;

struct Registered {
    c: Handle<ibv_mr>,
    memory: Arc<Allocation>,
}

/// How memory is registered, beside what it is open for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterOptions {
    /// What work and peers call the first byte, if that is not its own address.
    pub address: Option<u64>,
    /// The card may write in any order, which is faster on some machines; it does so where library and card know it.
    pub relaxed_ordering: bool,
}

impl MemoryRegion {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        memory: &Arc<Allocation>,
        range: Range<usize>,
        access: Access,
        options: RegisterOptions,
    ) -> Result<Self, RegisterError> {
        domain.c.check("ibv_reg_mr")?;
        let Range { start, end } = range;
        if start > end || end > memory.len() {
            return Err(RegisterError::Outside { start, end, size: memory.len() });
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::NoLocalWrite { access });
        }
        if access.contains(Access::LOCAL_WRITE) && !memory.is_writable() {
            return Err(RegisterError::ReadOnly { access });
        }
        if domain.open.library.fork_care() == Some(ForkCare::On) && !memory.owns_pages() {
            return Err(RegisterError::SharesPages);
        }
        let len = end - start;
        let c = register(domain, memory, start, len, access, options)?;
        let address = options.address.unwrap_or_else(|| memory.address().saturating_add(start as u64));
        // SAFETY: the region was made just now, and the library does not change this field.
        let lkey = Lkey(unsafe { (*c.as_ptr()).lkey });
        // SAFETY: as above.
        let rkey = Rkey(unsafe { (*c.as_ptr()).rkey });
        let registered = Mutex::new(Some(Registered { c, memory: Arc::clone(memory) }));
        let domain = Arc::clone(domain);
        let homes = Mutex::new(Vec::with_capacity(HOMES));
        let registration = Registration { domain, lkey, rkey, address, len, access, registered, homes };
        Ok(Self { registration: Arc::new(registration) })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.registration.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first byte, as work and peers use it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.registration.address
    }

    /// What work and peers may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.registration.access
    }

    /// The key by which work names it.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.registration.lkey
    }

    /// The key by which a peer names it.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.registration.rkey
    }

    /// Lets the queues know that no work is going to name it, until some does.
    pub fn set_aside(&self) {
        let mut homes = std::mem::take(&mut *lock(&self.registration.homes));
        for home in homes.iter().filter_map(Weak::upgrade) {
            home.let_go(&self.registration);
        }
        // With its room, so that a post that names the region again need not allocate.
        homes.clear();
        let mut place = lock(&self.registration.homes);
        if place.capacity() == 0 {
            *place = homes;
        }
    }

    /// Whether no work, no window and nothing else names it any more, as far as this process has polled, once it was
    /// [set aside](Self::set_aside).
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        Arc::get_mut(&mut self.registration).is_some()
    }

    /// Whether this process made it, and none that it was forked from.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.registration.domain.c.is_ours()
    }

    /// A part of it, for work. Whether the part is inside is checked when the work is posted.
    pub const fn piece(&self, range: Range<usize>) -> Piece<'_> {
        Piece { region: self, start: range.start, end: range.end }
    }

    /// All of it, for work.
    pub fn all(&self) -> Piece<'_> {
        self.piece(0..self.len())
    }

    /// Deregisters it at once and gives the memory back. Work under way that names it fails.
    ///
    /// # Errors
    /// The library refuses, as when a memory window is bound to it; the region comes back.
    pub fn deregister(self) -> Result<Arc<Allocation>, (Self, CallError)> {
        let mut place = lock(&self.registration.registered);
        // Only this function takes it out, and it takes the region with it.
        let Some(registered) = place.take() else {
            drop(place);
            return Err((self, CallError { call: "ibv_dereg_mr", code: libc::EINVAL }));
        };
        match self.registration.deregister(&registered) {
            Ok(()) => Ok(registered.memory),
            Err(error) => {
                *place = Some(registered);
                drop(place);
                Err((self, error))
            }
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.is_ours() {
            self.set_aside();
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registration { address, len, rkey, access, .. } = &*self.registration;
        write!(f, "MemoryRegion({len} bytes at 0x{address:x}, key {rkey}, {access:?})")
    }
}

impl Piece<'_> {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start) as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a memory region. It borrows the region, which so outlives the posting of work.
#[derive(Clone, Copy, Debug)]
#[must_use = "a piece does nothing until work that names it is posted"]
pub struct Piece<'a> {
    pub(crate) region: &'a MemoryRegion,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Registration {
    /// A queue holds it from now on, until it is told that no work is going to name it.
    #[cold]
    pub(crate) fn is_named_in(&self, home: Option<&Arc<Queue>>) {
        let Some(home) = home else { return };
        let mut homes = lock(&self.homes);
        let is_it = |known: &Weak<Queue>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(home));
        homes.retain(|known| known.strong_count() > 0 && !is_it(known));
        homes.push(Arc::downgrade(home));
    }

    /// The region for a call of the library; null once it was deregistered.
    pub(crate) fn as_c(&self) -> *mut ibv_mr {
        lock(&self.registered).as_ref().map_or(std::ptr::null_mut(), |registered| registered.c.as_ptr())
    }

    fn deregister(&self, registered: &Registered) -> Result<(), CallError> {
        registered.c.check("ibv_dereg_mr")?;
        // SAFETY: the region is live. Work may still name it: then the card refuses that work.
        let answer = unsafe { (self.domain.open.library.verbs().ibv_dereg_mr)(registered.c.as_ptr()) };
        answered("ibv_dereg_mr", answer)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(registered) = unlocked(&mut self.registered).take() else { return };
        if registered.c.is_ours() && self.deregister(&registered).is_err() {
            // The card may still write there, so the memory is given up for good.
            std::mem::forget(registered);
        }
    }
}

fn register(
    domain: &Domain,
    memory: &Allocation,
    start: usize,
    len: usize,
    access: Access,
    options: RegisterOptions,
) -> Result<Handle<ibv_mr>, RegisterError> {
    let verbs = domain.open.library.verbs();
    let (pd, first) = (domain.c.as_ptr(), memory.as_ptr().wrapping_add(start).cast());
    let flags = access.bits();
    let plain = flags.cast_signed();
    let made =
        match (options.address, options.relaxed_ordering, verbs.ibv_reg_mr_iova2, verbs.ibv_reg_mr_iova) {
            (None, false, ..) | (None, true, None, _) => {
                // SAFETY: a live domain and live memory, which the region holds as long as it is registered, and which
                // Rust code reaches through `copy` of the crate `memory` alone.
                Handle::made("ibv_reg_mr", unsafe { (verbs.ibv_reg_mr)(pd, first, len, plain) })
            }
            (address, relaxed, Some(register), _) => {
                let flags = if relaxed { flags | IBV_ACCESS_RELAXED_ORDERING } else { flags };
                let address = address.unwrap_or_else(|| first.addr() as u64);
                // SAFETY: as above.
                Handle::made("ibv_reg_mr_iova2", unsafe { register(pd, first, len, address, flags) })
            }
            (Some(address), _, None, Some(register)) => {
                // SAFETY: as above.
                Handle::made("ibv_reg_mr_iova", unsafe { register(pd, first, len, address, plain) })
            }
            (Some(_), _, None, None) => {
                return Err(RegisterError::NoChosenAddress {
                    needed: "ibv_reg_mr_iova of version IBVERBS_1.7",
                });
            }
        };
    // Our own drop-in locks nothing.
    let limit = lockable().filter(|_| !domain.open.library.is_ours());
    made.map_err(|error| match (error.code, limit) {
        (libc::ENOMEM | libc::EPERM, Some(limit)) => RegisterError::Locked { len, limit, error },
        _ => error.into(),
    })
}

/// Bytes that this process may lock in memory, nothing if it may lock any number.
fn lockable() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that lives during the call.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

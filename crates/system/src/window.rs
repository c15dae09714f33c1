//! Memory windows: a part of a region, opened for a while under a key of its own.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_cabi::{IBV_MW_TYPE_1, IBV_MW_TYPE_2, ibv_mw, ibv_mw_bind_info};
use ferroce_memory::WindowKind;
use ferroce_transport::Access;
use ferroce_wire::Rkey;

use crate::domain::Domain;
use crate::error::CallError;
use crate::handle::{Handle, lock};
use crate::held::Held;
use crate::region::{MemoryRegion, Registration};

/// A memory window: it opens a part of a region to peers under a key of its own. It holds the region that it is bound to, also
/// when a peer has taken its key out of use; binding it anew, or dropping it, lets go.
pub struct MemoryWindow {
    pub(crate) window: Arc<Window>,
}

/// The window as the library has it.
pub(crate) struct Window {
    pub(crate) domain: Arc<Domain>,
    pub(crate) c: Handle<ibv_mw>,
    pub(crate) kind: WindowKind,
    /// The key that it has when all posted bindings are done. The library keeps that of type 1.
    key: AtomicU32,
    /// The key that was described last: the next one is another.
    described: AtomicU32,
    bound: Mutex<Option<Arc<Registration>>>,
}

/// What a window is to open.
#[derive(Clone, Copy, Debug)]
#[must_use = "a binding opens nothing until work with it is done"]
pub struct Binding<'a> {
    pub(crate) window: &'a MemoryWindow,
    /// The region, and which bytes of it; nothing closes the window.
    pub(crate) part: Option<(&'a MemoryRegion, u64, u64)>,
    pub(crate) access: Access,
    pub(crate) key: Rkey,
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowKind) -> Result<Self, CallError> {
        const CALL: &str = "ibv_alloc_mw";
        let number = match kind {
            WindowKind::Type1 => IBV_MW_TYPE_1,
            WindowKind::Type2 => IBV_MW_TYPE_2,
        };
        // SAFETY: a live context, whose table never changes.
        let allocate = unsafe { (*domain.open.c.as_ptr()).ops.alloc_mw };
        let allocate = allocate.ok_or(CallError::unsupported(CALL))?;
        domain.c.check(CALL)?;
        // SAFETY: a live domain.
        let c = Handle::made(CALL, unsafe { allocate(domain.c.as_ptr(), number) })?;
        // SAFETY: the window was made just now, and no other thread knows it.
        let first = unsafe { (*c.as_ptr()).rkey };
        let (key, described) = (first.into(), first.into());
        let window = Window { domain: Arc::clone(domain), c, kind, key, described, bound: Mutex::default() };
        Ok(Self { window: Arc::new(window) })
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> WindowKind {
        self.window.kind
    }

    /// The key that it has once all bindings are done that were posted.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        Rkey(self.window.key.load(Ordering::Relaxed))
    }

    /// Describes a binding to a part of a region. A window of type 2 gets the next of its keys by it, so describe it only
    /// to post it; one of type 1 gets its key when it is posted.
    pub fn bind<'a>(&'a self, region: &'a MemoryRegion, range: Range<usize>, access: Access) -> Binding<'a> {
        let address = region.address().wrapping_add(range.start as u64);
        let len = range.end.saturating_sub(range.start) as u64;
        Binding { window: self, part: Some((region, address, len)), access, key: self.window.next_key() }
    }

    /// Describes the end of a binding.
    pub fn unbind(&self) -> Binding<'_> {
        Binding { window: self, part: None, access: Access::empty(), key: self.window.next_key() }
    }
}

impl Binding<'_> {
    /// The key of a window of type 2 once this is done.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        self.key
    }

    /// As the library wants it.
    pub(crate) fn to_c(self) -> ibv_mw_bind_info {
        let mw_access_flags = self.access.bits();
        match self.part {
            Some((region, addr, length)) => {
                let mr = region.registration.as_c();
                ibv_mw_bind_info { mr, addr, length, mw_access_flags }
            }
            None => ibv_mw_bind_info { mr: std::ptr::null_mut(), addr: 0, length: 0, mw_access_flags },
        }
    }

    /// What work that binds keeps alive.
    pub(crate) fn to_held(self) -> Held {
        let region = self.part.map(|(region, ..)| Arc::clone(&region.registration));
        Held::Binding(Arc::clone(&self.window.window), region)
    }
}

impl Window {
    /// The next key: of the one that it has, the last eight bits are the program's to choose. They are drawn, so that the old
    /// key does not tell the new one.
    fn next_key(&self) -> Rkey {
        let now = self.key.load(Ordering::Relaxed);
        // Any step but none, and none to the key of a binding that is described and may be posted before this one.
        let described = self.described.load(Ordering::Relaxed);
        let mut key = after(now, drawn());
        if key == described {
            key = after(key, 0);
            key = if key == now { after(key, 0) } else { key };
        }
        self.described.store(key, Ordering::Relaxed);
        Rkey(key)
    }

    /// A binding was posted that gives it this key.
    pub(crate) fn posted(&self, key: Rkey) {
        self.key.store(key.0, Ordering::Relaxed);
        if self.kind == WindowKind::Type2 {
            // A binding names the key that the window has until then, and the program says which that is: the kernel's soft
            // device looks.
            // SAFETY: a live window.
            let field = unsafe { &raw mut (*self.c.as_ptr()).rkey };
            // SAFETY: the field is aligned, and lives as long as the window; the library reads it when a binding is posted, and
            // writes that of windows of type 1 alone.
            let field = unsafe { AtomicU32::from_ptr(field) };
            field.store(key.0, Ordering::Relaxed);
        }
    }

    /// Binds a window of type 1 by a call of the library, which deals the key, and waits for no other thread's.
    pub(crate) fn bound_by(&self, call: impl FnOnce() -> Result<(), CallError>) -> Result<Rkey, CallError> {
        let alone = lock(&self.bound);
        call()?;
        // SAFETY: a live window. The library writes the field when it binds it, which only this function has it do, under
        // this lock.
        let key = Rkey(unsafe { (*self.c.as_ptr()).rkey });
        self.posted(key);
        drop(alone);
        Ok(key)
    }

    /// A binding is done: this is what lies behind the window now.
    pub(crate) fn bound_to(&self, region: Option<Arc<Registration>>) {
        let before = std::mem::replace(&mut *lock(&self.bound), region);
        drop(before);
    }
}

/// The key that is so many steps, and one, behind another in its last eight bits. It is never the same.
const fn after(key: u32, steps: u32) -> u32 {
    key & !0xff | key.wrapping_add(steps % 0xff + 1) & 0xff
}

/// A number that no other process can guess.
fn drawn() -> u32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: so many bytes are there, and live during the call.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    // A system that is just starting has none yet: then any number has to do.
    if count == 4 { u32::from_ne_bytes(bytes) } else { 0 }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:?}, key {})", self.window.kind, self.rkey())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // SAFETY: a live context, whose table never changes.
        if let Some(free) = unsafe { (*self.domain.open.c.as_ptr()).ops.dealloc_mw } {
            // SAFETY: the window is live, and nothing holds it any more. The region behind it goes later.
            unsafe { free(self.c.as_ptr()) };
        }
    }
}

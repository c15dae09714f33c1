//! Memory windows: a part of a region, opened for a while under a key of its own.

use std::fmt;
use std::sync::Arc;

use ferroce_device::memory::WindowKind;
use ferroce_transport::{Access, Bind};
use ferroce_wire::{Lkey, Rkey};

use crate::error::{CreateError, PostError, PostTarget};
use crate::local_slice::LocalSlice;
use crate::protection_domain::Domain;
use crate::remote::RemoteRegion;

/// A memory window: it opens a part of a region to peers under a key of its own, and closes it again
/// without touching the region. Binding one costs no more than a small message.
///
/// - A window of [`Type1`](WindowKind::Type1) is open to all queue pairs of its protection domain. It is
///   bound at once by [`bind_now`](Self::bind_now), or in order with other work by
///   [`QueuePair::bind_window`](crate::QueuePair::bind_window), and closed the same way.
/// - A window of [`Type2`](WindowKind::Type2) is bound by work of a queue pair, and open to the peer of that
///   one alone. It is closed by [`local_invalidate`](crate::QueuePair::local_invalidate), by the peer with
///   [`Work::invalidate`](crate::Work::invalidate), or with its queue pair. (The IBA calls this form 2B.)
///
/// Each binding has another key: what a peer knew of the last one opens nothing any more, and does not help
/// to guess the next: for type 1 it is a new one altogether, for type 2 its last eight bits are drawn. The
/// region must have been registered with [`Access::BIND_WINDOW`], and cannot be deregistered while a window
/// is bound to it. Dropping the window closes it.
pub struct MemoryWindow {
    /// The key that it was made with, by which the device knows it.
    name: Rkey,
    kind: WindowKind,
    domain: Arc<Domain>,
}

/// What a window is to open, described by [`MemoryWindow::bind`]; nothing until work is posted with it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a binding opens nothing until work with it is done"]
pub struct Binding<'a> {
    window: &'a MemoryWindow,
    part: Option<LocalSlice<'a>>,
    access: Access,
    key: Rkey,
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowKind) -> Result<Self, CreateError> {
        let name = domain.nic.allocate_window(domain.id, kind)?;
        Ok(Self { name, kind, domain: Arc::clone(domain) })
    }

    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The key that it has now; it opens something if the window is bound.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.domain.nic.window_key(self.name).unwrap_or(self.name)
    }

    /// Describes a binding to a part of a region, for
    /// [`QueuePair::bind_window`](crate::QueuePair::bind_window). It gets a key of its own, so describe it
    /// only to post it.
    pub fn bind<'a>(&'a self, part: LocalSlice<'a>, access: Access) -> Binding<'a> {
        Binding { window: self, part: Some(part), access, key: self.next_key() }
    }

    /// Describes the end of a binding, in order with other work.
    pub fn unbind(&self) -> Binding<'_> {
        Binding { window: self, part: None, access: Access::empty(), key: self.next_key() }
    }

    /// Binds a window of type 1 to a part of a region at once, and says what a peer must know to use it.
    ///
    /// # Errors
    /// The window is of type 2, the part is not inside its region, or the region does not allow it.
    pub fn bind_now(&self, part: LocalSlice<'_>, access: Access) -> Result<RemoteRegion, WindowBindError> {
        let binding = self.bind(part, access);
        let bind = binding.to_device(&self.domain, PostTarget::Window(binding.key))?;
        self.bind_directly(&bind)?;
        Ok(binding.remote())
    }

    /// Closes a window of type 1 at once.
    ///
    /// # Errors
    /// The window is of type 2.
    pub fn unbind_now(&self) -> Result<(), WindowBindError> {
        let binding = self.unbind();
        let bind = binding.to_device(&self.domain, PostTarget::Window(binding.key))?;
        self.bind_directly(&bind)
    }

    fn bind_directly(&self, bind: &Bind) -> Result<(), WindowBindError> {
        if self.kind != WindowKind::Type1 {
            return Err(WindowBindError::NeedsQueuePair);
        }
        self.domain.nic.bind_window(self.domain.id, bind).map_err(WindowBindError::Denied)
    }

    fn next_key(&self) -> Rkey {
        self.domain.nic.next_window_key(self.name)
    }
}

impl Binding<'_> {
    /// The key of the window once this is done.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        self.key
    }

    /// What a peer must know to use it, once it is done.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        let (address, length) = self.part.map_or((0, 0), |part| (part.address(), part.len() as u64));
        RemoteRegion { address, length, rkey: self.key }
    }

    /// As the device wants it, if all of it is of this domain.
    pub(crate) fn to_device(self, domain: &Arc<Domain>, by: PostTarget) -> Result<Bind, PostError> {
        let Self { window, part, access, key } = self;
        if !Arc::ptr_eq(&window.domain, domain) {
            return Err(PostError::OtherDomain { by });
        }
        let (region, address, length) = match part {
            Some(part) => part.to_range(domain, by)?,
            None => (Lkey(0), 0, 0),
        };
        Ok(Bind { window: window.name, new_key: key, region, address, length, access })
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:?}, key {})", self.kind, self.rkey())
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // It was made here and is freed here only.
        let _ = self.domain.nic.free_window(self.domain.id, self.name);
    }
}

/// Why a window was not bound at once. It is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowBindError {
    /// What was described cannot be.
    #[error(transparent)]
    Wrong(#[from] PostError),
    /// Windows of type 2 belong to a queue pair.
    #[error("a window of type 2 is bound by work of a queue pair; post it there")]
    NeedsQueuePair,
    /// The device refused it.
    #[error("the window was not bound (the region must allow BIND_WINDOW, and LOCAL_WRITE if peers write)")]
    Denied(#[source] ferroce_transport::Denied),
}

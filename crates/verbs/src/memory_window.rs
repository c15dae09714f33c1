//! Memory windows: a part of a region, opened for a while under a key of its own.

use std::fmt;
use std::sync::Arc;

use ferroce_device::Nic;
use ferroce_device::memory::WindowKind;
use ferroce_transport::{Access, Bind, DomainId};
use ferroce_wire::{Lkey, Rkey};

use crate::capability::{Capability, Unsupported};
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
    kind: WindowKind,
    of: Of,
    domain: Arc<Domain>,
}

/// The window of the device.
enum Of {
    /// The soft device knows it by the key that it was made with.
    Soft {
        nic: Nic,
        domain: DomainId,
        name: Rkey,
    },
    Card(ferroce_system::MemoryWindow),
}

impl Drop for Of {
    fn drop(&mut self) {
        if let Self::Soft { nic, domain, name } = self {
            // It was made here and is freed here only.
            let _ = nic.free_window(*domain, *name);
        }
    }
}

/// What a window is to open, described by [`MemoryWindow::bind`]; nothing until work is posted with it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a binding opens nothing until work with it is done"]
pub struct Binding<'a> {
    window: &'a MemoryWindow,
    part: Option<LocalSlice<'a>>,
    access: Access,
    key: Rkey,
    /// As a card has it.
    card: Option<ferroce_system::Binding<'a>>,
}

/// A binding as the device wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<'a> {
    Soft(Bind),
    Card(ferroce_system::Binding<'a>, WindowKind),
}

impl Bound<'_> {
    /// As the soft device wants it; for a card, what is enough to judge it by.
    pub(crate) const fn to_bind(self) -> Bind {
        match self {
            Self::Soft(bind) => bind,
            Self::Card(binding, _) => Bind {
                window: binding.rkey(),
                new_key: binding.rkey(),
                region: Lkey(0),
                address: 0,
                length: 0,
                access: Access::empty(),
            },
        }
    }
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowKind) -> Result<Self, CreateError> {
        let of = match &**domain {
            Domain::Soft { nic, id } => {
                Of::Soft { nic: nic.clone(), domain: *id, name: nic.allocate_window(*id, kind)? }
            }
            Domain::Card { card, domain, .. } => {
                if !card.can(Capability::Windows) {
                    return Err(CreateError::Unsupported(Capability::Windows.into()));
                }
                Of::Card(domain.memory_window(kind)?)
            }
        };
        Ok(Self { kind, of, domain: Arc::clone(domain) })
    }

    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The key that it has now; it opens something if the window is bound. On a card, the one that it has once all
    /// bindings are done that were posted.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        match &self.of {
            Of::Soft { nic, name, .. } => nic.window_key(*name).unwrap_or(*name),
            Of::Card(window) => window.rkey(),
        }
    }

    /// Describes a binding to a part of a region, for
    /// [`QueuePair::bind_window`](crate::QueuePair::bind_window). It gets a key of its own, so describe it
    /// only to post it. On a card, a window of type 1 gets its key when the binding is posted
    /// ([`KeysAhead`](Capability::KeysAhead)): then [`rkey`](Self::rkey) tells it.
    pub fn bind<'a>(&'a self, part: LocalSlice<'a>, access: Access) -> Binding<'a> {
        let (region, start, end) = part.parts();
        let card = match &self.of {
            Of::Card(window) => region.as_card().map(|region| window.bind(region, start..end, access)),
            Of::Soft { .. } => None,
        };
        let key = card.as_ref().map_or_else(|| self.next_key(), ferroce_system::Binding::rkey);
        Binding { window: self, part: Some(part), access, key, card }
    }

    /// Describes the end of a binding, in order with other work.
    pub fn unbind(&self) -> Binding<'_> {
        let card = match &self.of {
            Of::Card(window) => Some(window.unbind()),
            Of::Soft { .. } => None,
        };
        let key = card.as_ref().map_or_else(|| self.next_key(), ferroce_system::Binding::rkey);
        Binding { window: self, part: None, access: Access::empty(), key, card }
    }

    /// Binds a window of type 1 to a part of a region at once, and says what a peer must know to use it.
    ///
    /// # Errors
    /// The window is of type 2, the part is not inside its region, or the region does not allow it.
    pub fn bind_now(&self, part: LocalSlice<'_>, access: Access) -> Result<RemoteRegion, WindowBindError> {
        let binding = self.bind(part, access);
        let bind = binding.to_bound(&self.domain, PostTarget::Window(binding.key))?;
        self.bind_directly(&bind)?;
        Ok(binding.remote())
    }

    /// Closes a window of type 1 at once.
    ///
    /// # Errors
    /// The window is of type 2.
    pub fn unbind_now(&self) -> Result<(), WindowBindError> {
        let binding = self.unbind();
        let bind = binding.to_bound(&self.domain, PostTarget::Window(binding.key))?;
        self.bind_directly(&bind)
    }

    fn bind_directly(&self, bound: &Bound<'_>) -> Result<(), WindowBindError> {
        if self.kind != WindowKind::Type1 {
            return Err(WindowBindError::NeedsQueuePair);
        }
        match (&self.of, bound) {
            (Of::Soft { nic, domain, .. }, Bound::Soft(bind)) => {
                nic.bind_window(*domain, bind).map_err(WindowBindError::Denied)
            }
            _ => Err(WindowBindError::Unsupported(Capability::BindingAtOnce.into())),
        }
    }

    fn next_key(&self) -> Rkey {
        match &self.of {
            Of::Soft { nic, name, .. } => nic.next_window_key(*name),
            // Of a region that is of no card: nothing is ever bound by it.
            Of::Card(window) => window.rkey(),
        }
    }
}

impl<'a> Binding<'a> {
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
    pub(crate) fn to_bound(self, domain: &Arc<Domain>, by: PostTarget) -> Result<Bound<'a>, PostError> {
        let Self { window, part, access, key, card } = self;
        if !Arc::ptr_eq(&window.domain, domain) {
            return Err(PostError::OtherDomain { by });
        }
        let (region, address, length) = match part {
            Some(part) => part.to_range(domain, by)?,
            None => (Lkey(0), 0, 0),
        };
        match &window.of {
            Of::Soft { name, .. } => {
                Ok(Bound::Soft(Bind { window: *name, new_key: key, region, address, length, access }))
            }
            Of::Card(_) => {
                let binding = card.ok_or(PostError::OtherDomain { by })?;
                Ok(Bound::Card(binding, window.kind))
            }
        }
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:?}, key {})", self.kind, self.rkey())
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
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(Unsupported),
}

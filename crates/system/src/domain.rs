//! Protection domains: which queue pairs and memory work together.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ferroce_cabi::ibv_pd;
use ferroce_memory::{Allocation, WindowKind};
use ferroce_transport::Access;

use crate::address::{Address, AddressHandle};
use crate::context::Open;
use crate::error::{CallError, MakeError, RegisterError};
use crate::handle::Handle;
use crate::queue_pair::{QueuePair, QueuePairOptions};
use crate::region::{MemoryRegion, RegisterOptions};
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::window::MemoryWindow;

/// A protection domain: queue pairs and shared receive queues use memory of their own domain only, and a peer reaches
/// memory only through a queue pair of its domain. Clones are the same domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    domain: Arc<Domain>,
}

/// The domain as the library has it. Every object made in it holds this, so it goes last.
pub(crate) struct Domain {
    pub(crate) open: Arc<Open>,
    pub(crate) c: Handle<ibv_pd>,
}

impl ProtectionDomain {
    pub(crate) fn new(open: &Arc<Open>) -> Result<Self, CallError> {
        open.c.check("ibv_alloc_pd")?;
        // SAFETY: a live context.
        let c = unsafe { (open.library.verbs().ibv_alloc_pd)(open.c.as_ptr()) };
        let c = Handle::made("ibv_alloc_pd", c)?;
        Ok(Self { domain: Arc::new(Domain { open: Arc::clone(open), c }) })
    }

    /// Registers all of some memory under its own address.
    ///
    /// # Errors
    /// What was asked and what is possible.
    pub fn register(&self, memory: &Arc<Allocation>, access: Access) -> Result<MemoryRegion, RegisterError> {
        self.register_part(memory, 0..memory.len(), access, RegisterOptions::default())
    }

    /// Registers a part of some memory, in a particular way.
    ///
    /// # Errors
    /// What was asked and what is possible.
    pub fn register_part(
        &self,
        memory: &Arc<Allocation>,
        range: Range<usize>,
        access: Access,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, RegisterError> {
        MemoryRegion::new(&self.domain, memory, range, access, options)
    }

    /// A memory window, which opens nothing until it is bound.
    ///
    /// # Errors
    /// The card has none of this kind, or what the library says.
    pub fn memory_window(&self, kind: WindowKind) -> Result<MemoryWindow, CallError> {
        MemoryWindow::new(&self.domain, kind)
    }

    /// A queue of `depth` receives of up to `max_sge` pieces, for several queue pairs.
    ///
    /// # Errors
    /// What was asked and what is possible.
    pub fn shared_receive_queue(&self, depth: u32, max_sge: u32) -> Result<SharedReceiveQueue, MakeError> {
        SharedReceiveQueue::new(&self.domain, depth, max_sge)
    }

    /// A queue pair, in RESET.
    ///
    /// # Errors
    /// What was asked and what is possible.
    pub fn queue_pair(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, MakeError> {
        QueuePair::new(&self.domain, options)
    }

    /// An address for datagrams.
    ///
    /// # Errors
    /// The address leads nowhere, or what the library says.
    pub fn address_handle(&self, address: &Address) -> Result<AddressHandle, CallError> {
        AddressHandle::new(&self.domain, address)
    }
}

impl PartialEq for ProtectionDomain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain, &other.domain)
    }
}

impl Eq for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.domain.open.name)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // If the library still counts an object of it, such as one that could not be destroyed, it stays until the card
        // closes.
        // SAFETY: the domain is live, and every object of ours that was made in it is gone.
        unsafe { (self.open.library.verbs().ibv_dealloc_pd)(self.c.as_ptr()) };
    }
}

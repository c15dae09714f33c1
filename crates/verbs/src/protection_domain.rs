//! Protection domains: which queue pairs and memory work together.

use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_device::memory::WindowKind;
use ferroce_device::{AddressVector, Nic};
use ferroce_transport::{Access, DomainId};
use ferroce_wire::Service;

use crate::address_handle::AddressHandle;
use crate::error::CreateError;
use crate::memory::Memory;
use crate::memory_region::MemoryRegion;
use crate::memory_window::MemoryWindow;
use crate::queue_pair_builder::QueuePairBuilder;
use crate::ranges::bounds;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A protection domain: queue pairs and shared receive queues use memory of their own domain only,
/// and a peer reaches memory only through a queue pair of its domain. Clones are the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    domain: Arc<Domain>,
}

/// The domain on the device. Every object made in it holds this, so it goes last.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) nic: Nic,
    pub(crate) id: DomainId,
}

impl ProtectionDomain {
    pub(crate) fn new(nic: &Nic) -> Result<Self, CreateError> {
        let id = nic.create_domain()?;
        Ok(Self { domain: Arc::new(Domain { nic: nic.clone(), id }) })
    }

    /// Its number on the device.
    #[must_use]
    pub fn id(&self) -> DomainId {
        self.domain.id
    }

    /// Registers `len` bytes of zeros, from the beginning of a page.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register(Memory::zeroed(len)?, access)
    }

    /// Registers memory of the program, such as a `Vec<u8>`, and takes it over: it comes back from
    /// [`MemoryRegion::deregister`].
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn register(&self, memory: impl Into<Memory>, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register_part(memory, .., access)
    }

    /// Registers a part of some memory. The same memory may be registered more than once, with
    /// different access.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn register_part(
        &self,
        memory: impl Into<Memory>,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let memory = memory.into();
        let (start, end) = bounds(&range, memory.len());
        let address = memory.address().saturating_add(start as u64);
        MemoryRegion::new(&self.domain, memory, (start, end), address, access)
    }

    /// Registers a part of some memory under an address of the program's choice: work and peers
    /// call its first byte `address`, which may be 0.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn register_at(
        &self,
        memory: impl Into<Memory>,
        range: impl RangeBounds<usize>,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let memory = memory.into();
        let (start, end) = bounds(&range, memory.len());
        MemoryRegion::new(&self.domain, memory, (start, end), address, access)
    }

    /// A memory window, which opens nothing until it is bound.
    ///
    /// # Errors
    /// There are too many windows.
    pub fn memory_window(&self, kind: WindowKind) -> Result<MemoryWindow, CreateError> {
        MemoryWindow::new(&self.domain, kind)
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// A queue pair, to be described further.
    pub fn queue_pair(&self, service: Service) -> QueuePairBuilder<'_> {
        QueuePairBuilder::new(&self.domain, service)
    }

    /// A queue of `depth` receives of up to `max_sge` pieces, for several queue pairs.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn shared_receive_queue(&self, depth: u32, max_sge: u32) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::new(&self.domain, depth, max_sge)
    }

    /// An address for datagrams.
    ///
    /// # Errors
    /// The address leads nowhere.
    pub fn address_handle(&self, address: &AddressVector) -> Result<AddressHandle, CreateError> {
        AddressHandle::new(&self.domain, *address)
    }
}

impl PartialEq for ProtectionDomain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain, &other.domain)
    }
}

impl Eq for ProtectionDomain {}

impl Drop for Domain {
    fn drop(&mut self) {
        // Nothing of ours belongs to it any more. If a program still holds an object of the device
        // itself, the domain stays until the device closes.
        let _ = self.nic.destroy_domain(self.id);
    }
}

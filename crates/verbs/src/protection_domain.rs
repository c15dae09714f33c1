//! Protection domains: which queue pairs and memory work together.

use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_device::memory::WindowKind;
use ferroce_device::{AddressVector, Nic};
use ferroce_transport::{Access, DomainId};
use ferroce_wire::Service;

use crate::address_handle::AddressHandle;
use crate::card::OpenCard;
use crate::card::kept::{KeepLimits, Kept, KeptRegions, Kind};
use crate::device::Device;
use crate::error::CreateError;
use crate::lent_memory::LentMemory;
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
pub(crate) enum Domain {
    Soft { nic: Nic, id: DomainId },
    Card { card: Arc<OpenCard>, domain: ferroce_system::ProtectionDomain, id: DomainId, kept: Arc<Kept> },
}

impl Domain {
    pub(crate) fn device(&self) -> Device {
        match self {
            Self::Soft { nic, .. } => Device::Soft(nic.clone()),
            Self::Card { card, .. } => Device::Card(Arc::clone(card)),
        }
    }

    /// Whether it is of this device.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        match (self, device) {
            (Self::Soft { nic, .. }, Device::Soft(other)) => nic.is_same(other),
            (Self::Card { card, .. }, Device::Card(other)) => Arc::ptr_eq(card, other),
            (Self::Soft { .. }, Device::Card(_)) | (Self::Card { .. }, Device::Soft(_)) => false,
        }
    }
}

impl ProtectionDomain {
    pub(crate) fn new(device: &Device) -> Result<Self, CreateError> {
        let domain = match device {
            Device::Soft(nic) => Domain::Soft { nic: nic.clone(), id: nic.create_domain()? },
            Device::Card(card) => {
                let (domain, id) = card.protection_domain()?;
                Domain::Card { card: Arc::clone(card), domain, id, kept: Arc::default() }
            }
        };
        Ok(Self { domain: Arc::new(domain) })
    }

    /// Its number on the device.
    #[must_use]
    pub fn id(&self) -> DomainId {
        match &*self.domain {
            Domain::Soft { id, .. } | Domain::Card { id, .. } => *id,
        }
    }

    /// Registers `len` bytes of zeros, from the beginning of a page.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register(Memory::zeroed(len)?, access)
    }

    /// Registers `len` bytes, or gives a region of that size and access that was dropped before and that no work names any more: in it is
    /// what was in it then. On a card that saves the registration, which is dear there.
    ///
    /// A region from here that is dropped stays registered for the next, as far as [`keep`](Self::keep) allows. Its key stays the same
    /// meanwhile, so regions that peers may reach ([`Access::REMOTE_READ`] and so on) are never kept: they are made anew each time.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn allocate_or_reuse(&self, len: usize, access: Access) -> Result<MemoryRegion, CreateError> {
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::BIND_WINDOW;
        match &*self.domain {
            Domain::Card { .. } if !access.intersects(remote) => {
                let kind = Kind::Own { len, access };
                MemoryRegion::kept(&self.domain, kind, || Ok((Memory::zeroed(len)?, (0, len))), access)
            }
            _ => self.allocate(len, access),
        }
    }

    /// Lends memory for registrations that are made again and again: as long as it is lent, a region of it that is dropped stays registered,
    /// and the next of the same bytes and access is that one. See [`LentMemory`].
    pub fn lend(&self, memory: impl Into<Memory>) -> LentMemory {
        LentMemory::new(&self.domain, memory.into())
    }

    /// Sets how much stays registered for [`allocate_or_reuse`](Self::allocate_or_reuse) and [`lend`](Self::lend): 64 MiB in 256 regions, if
    /// nothing is said. What is too much goes at once, that which was used longest ago first. The soft device keeps nothing.
    pub fn keep(&self, limits: KeepLimits) {
        if let Domain::Card { kept, .. } = &*self.domain {
            kept.limit(limits);
        }
    }

    /// What stays registered now, and what that was good for.
    #[must_use]
    pub fn kept(&self) -> KeptRegions {
        match &*self.domain {
            Domain::Card { kept, .. } => kept.report(),
            Domain::Soft { .. } => KeptRegions::default(),
        }
    }

    /// Registers memory of the program, such as a `Vec<u8>`, and takes it over: it comes back from
    /// [`MemoryRegion::deregister`].
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn register(&self, memory: impl Into<Memory>, access: Access) -> Result<MemoryRegion, CreateError> {
        self.register_part(memory, .., access)
    }

    /// Registers a part of some memory. The same memory may be registered more than once, with
    /// different access.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn register_part(
        &self,
        memory: impl Into<Memory>,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let memory = memory.into();
        let (start, end) = bounds(&range, memory.len());
        let address = memory.address().saturating_add(start as u64);
        MemoryRegion::new(&self.domain, memory, (start, end), (address, false), access)
    }

    /// Registers a part of some memory under an address of the program's choice: work and peers
    /// call its first byte `address`, which may be 0. Cards need a library that knows of it
    /// ([`PhysicalWindows`](crate::Capability::PhysicalWindows)).
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn register_at(
        &self,
        memory: impl Into<Memory>,
        range: impl RangeBounds<usize>,
        address: u64,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let memory = memory.into();
        let (start, end) = bounds(&range, memory.len());
        MemoryRegion::new(&self.domain, memory, (start, end), (address, true), access)
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
        // itself, the domain stays until the device closes. That of a card goes by itself.
        if let Self::Soft { nic, id } = self {
            let _ = nic.destroy_domain(*id);
        }
    }
}

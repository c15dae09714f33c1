//! Where datagrams go to.

use std::sync::Arc;

use ferroce_device::AddressVector;

use crate::error::CreateError;
use crate::protection_domain::Domain;

/// An address for datagrams. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    device: Arc<ferroce_device::AddressHandle>,
    _domain: Arc<Domain>,
}

impl AddressHandle {
    pub(crate) fn new(domain: &Arc<Domain>, address: AddressVector) -> Result<Self, CreateError> {
        let device = ferroce_device::AddressHandle::new(&domain.nic, address)?;
        Ok(Self { device, _domain: Arc::clone(domain) })
    }

    /// The source port that its datagrams left from last, or would leave from, in the first engine of the device.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.device.source_port()
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &AddressVector {
        self.device.vector()
    }

    pub(crate) const fn as_device(&self) -> &Arc<ferroce_device::AddressHandle> {
        &self.device
    }
}

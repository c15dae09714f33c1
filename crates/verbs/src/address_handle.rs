//! Where datagrams go to.

use std::sync::Arc;

use ferroce_device::AddressVector;

use crate::card::convert;
use crate::error::CreateError;
use crate::protection_domain::Domain;

/// An address for datagrams. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    of: Of,
    domain: Arc<Domain>,
}

#[derive(Clone, Debug)]
enum Of {
    Soft(Arc<ferroce_device::AddressHandle>),
    Card(Arc<(ferroce_system::AddressHandle, AddressVector)>),
}

impl AddressHandle {
    pub(crate) fn new(domain: &Arc<Domain>, address: AddressVector) -> Result<Self, CreateError> {
        let of = match &**domain {
            Domain::Soft { nic, .. } => Of::Soft(ferroce_device::AddressHandle::new(nic, address)?),
            Domain::Card { domain, .. } => {
                let handle = domain.address_handle(&convert::address(&address)?)?;
                Of::Card(Arc::new((handle, address)))
            }
        };
        Ok(Self { of, domain: Arc::clone(domain) })
    }

    /// The source port that its datagrams left from last, or would leave from, in the first engine of the device. A card
    /// does not tell: 0.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        match &self.of {
            Of::Soft(handle) => handle.source_port(),
            Of::Card(_) => 0,
        }
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &AddressVector {
        match &self.of {
            Of::Soft(handle) => handle.vector(),
            Of::Card(handle) => &handle.1,
        }
    }

    /// By which requests of the soft device name it.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match &self.of {
            Of::Soft(handle) => handle.number(),
            Of::Card(_) => 0,
        }
    }

    pub(crate) fn as_card(&self) -> Option<&ferroce_system::AddressHandle> {
        match &self.of {
            Of::Soft(_) => None,
            Of::Card(handle) => Some(&handle.0),
        }
    }

    /// Whether it is of the device of this domain; on a card, of the domain itself.
    pub(crate) fn is_of_domain(&self, domain: &Arc<Domain>) -> bool {
        match (&*self.domain, &**domain) {
            (Domain::Soft { nic, .. }, Domain::Soft { nic: other, .. }) => nic.is_same(other),
            (Domain::Card { .. }, Domain::Card { .. }) => Arc::ptr_eq(&self.domain, domain),
            (Domain::Soft { .. }, Domain::Card { .. }) | (Domain::Card { .. }, Domain::Soft { .. }) => false,
        }
    }
}

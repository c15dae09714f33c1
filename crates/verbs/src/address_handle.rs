//! Where datagrams go to, and where they came from.

use std::sync::Arc;

use ferroce_device::AddressVector;
use ferroce_wire::header::DatagramPrefix;
use ferroce_wire::{Gid, Grh};

use crate::error::{CreateError, HeaderError};
use crate::memory_region::MemoryRegion;
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

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &AddressVector {
        self.device.vector()
    }

    pub(crate) const fn as_device(&self) -> &Arc<ferroce_device::AddressHandle> {
        &self.device
    }
}

/// What stands before every received datagram: the first 40 bytes of its receive, and of
/// [`byte_len`](crate::Completion::byte_len), are this header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Where it came from.
    pub source: Gid,
    /// Where it was sent to: one of our own.
    pub dest: Gid,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that it had left.
    pub hop_limit: u8,
}

impl DatagramHeader {
    /// Bytes before the data.
    pub const LEN: usize = Grh::LEN;

    /// Reads the header of the datagram that was received at `offset` of a region.
    ///
    /// # Errors
    /// There is none.
    pub fn read(region: &MemoryRegion, offset: usize) -> Result<Self, HeaderError> {
        let mut bytes = [0; Self::LEN];
        region.read_at(offset, &mut bytes)?;
        match DatagramPrefix::parse(&bytes) {
            Ok(DatagramPrefix::V4(ip, _)) => Ok(Self {
                source: ip.source.into(),
                dest: ip.dest.into(),
                traffic_class: ip.tos,
                hop_limit: ip.ttl,
            }),
            Ok(DatagramPrefix::V6(grh)) => Ok(Self {
                source: grh.source,
                dest: grh.dest,
                traffic_class: grh.traffic_class,
                hop_limit: grh.hop_limit,
            }),
            Err(_) => Err(HeaderError::NotThere { offset }),
        }
    }

    /// The address for an answer, from our GID of this index.
    #[must_use]
    pub const fn reply_to(&self, gid_index: usize) -> AddressVector {
        AddressVector::new(self.source, gid_index)
    }
}

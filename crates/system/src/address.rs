//! Where peers are.

use std::sync::Arc;

use ferroce_cabi::{ibv_ah, ibv_ah_attr, ibv_gid};
use ferroce_wire::Gid;

use crate::domain::Domain;
use crate::error::CallError;
use crate::handle::{Handle, Zero};

/// The address of a peer, and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The peer's address.
    pub gid: Gid,
    /// Which address of our port packets come from.
    pub gid_index: u8,
    /// The port that they leave from, counted from 1.
    pub port: u8,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that a packet may take.
    pub hop_limit: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The service level, which decides the priority of packets.
    pub service_level: u8,
    /// The peer's address in an InfiniBand network; 0 on Ethernet.
    pub lid: u16,
    /// What the way carries, as the library numbers it; 0 for any rate.
    pub static_rate: u8,
}

impl Address {
    /// The peer at this address, by way of port 1, from our address of this index.
    #[must_use]
    pub const fn new(gid: Gid, gid_index: u8) -> Self {
        Self {
            gid,
            gid_index,
            port: 1,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            service_level: 0,
            lid: 0,
            static_rate: 0,
        }
    }

    pub(crate) fn to_c(self) -> ibv_ah_attr {
        let mut attr = ibv_ah_attr::zero();
        attr.grh.dgid = ibv_gid { raw: self.gid.0 };
        attr.grh.flow_label = self.flow_label;
        attr.grh.sgid_index = self.gid_index;
        attr.grh.hop_limit = self.hop_limit;
        attr.grh.traffic_class = self.traffic_class;
        attr.dlid = self.lid;
        attr.sl = self.service_level;
        attr.static_rate = self.static_rate;
        attr.is_global = 1;
        attr.port_num = self.port;
        attr
    }

    pub(crate) const fn of(attr: &ibv_ah_attr) -> Self {
        Self {
            gid: Gid(attr.grh.dgid.raw),
            gid_index: attr.grh.sgid_index,
            port: attr.port_num,
            traffic_class: attr.grh.traffic_class,
            hop_limit: attr.grh.hop_limit,
            flow_label: attr.grh.flow_label,
            service_level: attr.sl,
            lid: attr.dlid,
            static_rate: attr.static_rate,
        }
    }
}

/// An address for datagrams. Clones are the same handle. Datagrams that were posted with it hold it until they are done.
#[derive(Clone)]
pub struct AddressHandle {
    pub(crate) ah: Arc<Ah>,
}

/// The handle as the library has it.
pub(crate) struct Ah {
    pub(crate) domain: Arc<Domain>,
    pub(crate) c: Handle<ibv_ah>,
    address: Address,
}

impl AddressHandle {
    pub(crate) fn new(domain: &Arc<Domain>, address: &Address) -> Result<Self, CallError> {
        domain.c.check("ibv_create_ah")?;
        let mut attr = address.to_c();
        // SAFETY: a live domain, and attributes that live during the call.
        let c = unsafe { (domain.open.library.verbs().ibv_create_ah)(domain.c.as_ptr(), &raw mut attr) };
        let c = Handle::made("ibv_create_ah", c)?;
        Ok(Self { ah: Arc::new(Ah { domain: Arc::clone(domain), c, address: *address }) })
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.ah.address
    }
}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AddressHandle({:?})", self.ah.address.gid)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // SAFETY: the handle is live, and neither the program nor work holds it any more.
        unsafe { (self.domain.open.library.verbs().ibv_destroy_ah)(self.c.as_ptr()) };
    }
}

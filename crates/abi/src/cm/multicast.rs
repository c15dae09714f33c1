//! Multicast groups that ids have joined.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_cabi::cm::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_CM_JOIN_MC_ATTR_RESERVED,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
    RDMA_UDP_QKEY, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_ud_param,
};
use ferroce_device::{AddressVector, Uncancelled};
use ferroce_wire::{Gid, Qpn};
use libc::sockaddr;

use super::address::read;
use super::channel::Raw;
use super::handles;
use super::id::{Id, Stage};
use super::sync::complete;
use crate::address::attr_of;
use crate::object::{Acknowledged, lock, seen};
use crate::qp::Qp;
use crate::refusal::{Answer, Refused, minus_one};

/// A group that an id has joined.
pub(crate) struct Join {
    group: IpAddr,
    /// The program's own pointer, which comes back with the event.
    context: *mut c_void,
    send_only: bool,
    attached: AtomicBool,
    pub(crate) told: Acknowledged,
}

// SAFETY: the pointer is the program's, and only handed back to it.
unsafe impl Send for Join {}
// SAFETY: as above.
unsafe impl Sync for Join {}

impl Join {
    /// Has the queue pair of the id, if it has one, get what is sent to the group.
    pub(crate) fn attach(&self, id: &Id) -> Answer<()> {
        if self.send_only || id.qp().is_null() {
            return Ok(());
        }
        // SAFETY: the program answers for the queue pair that it gave to the id.
        unsafe { Qp::of(id.qp()) }?.qp.attach_to_group(Gid::from(self.group))?;
        self.attached.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends that.
    pub(crate) fn leave(&self, id: &Id) {
        if self.attached.swap(false, Ordering::Relaxed) && !id.qp().is_null() {
            // SAFETY: as above.
            let qp = unsafe { Qp::of(id.qp()) };
            // A queue pair that is another one by now was not attached.
            let _ = qp.map(|qp| qp.qp.detach_from_group(Gid::from(self.group)));
        }
    }

    /// Where the group is, as the event says it.
    pub(crate) fn param(&self, id: &Id) -> rdma_ud_param {
        let state = lock(&id.state);
        let nic = state.device.map(|device| &device.context.nic);
        let source = state.source.map(|source| source.ip());
        let index = nic.zip(source).and_then(|(nic, source)| nic.gid_index(source)).unwrap_or(0);
        let mut vector = AddressVector::new(Gid::from(self.group), index);
        vector.hop_limit = 64;
        vector.traffic_class = state.options.tos;
        rdma_ud_param {
            private_data: self.context,
            private_data_len: 0,
            ah_attr: attr_of(&vector),
            qp_num: Qpn::MULTICAST.get(),
            qkey: RDMA_UDP_QKEY,
        }
    }
}

fn join(named: *mut rdma_cm_id, group: SocketAddr, send_only: bool, context: *mut c_void) -> Answer<()> {
    let _whole = Uncancelled::new();
    let id = handles::id(named)?;
    let mut state = lock(&id.state);
    let is_ready = matches!(state.stage, Stage::Bound | Stage::Resolved | Stage::Routed);
    if !is_ready || state.device.is_none() {
        return Err(Refused::invalid("the id is neither bound to a device nor resolved"));
    }
    if !id.is_datagram() {
        return Err(Refused::invalid("only datagrams go to groups"));
    }
    let attached = AtomicBool::new(false);
    let told = Acknowledged::default();
    let join = Arc::new(Join { group: group.ip(), context, send_only, attached, told });
    state.joins.push(Arc::clone(&join));
    drop(state);
    id.tell(Raw::Joined(join));
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an address, or null.
    let begun = match unsafe { read(address) } {
        Ok(group) => join(id, group, false, context),
        Err(refused) => Err(refused),
    };
    match begun {
        Ok(()) => minus_one("rdma_join_multicast", complete(id)),
        Err(refused) => minus_one("rdma_join_multicast", Err(refused)),
    }
}

/// # Safety
/// As for [`read`], and `attr` is null or to attributes.
unsafe fn begin_joining(
    id: *mut rdma_cm_id,
    attr: *const rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let attr = unsafe { seen(attr, "attributes") }?;
    if attr.comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
        return Err(Refused::new(libc::ENOTSUP, format_args!("attributes 0x{:x}", attr.comp_mask)));
    }
    if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
        return Err(Refused::invalid("the address of the group is not given"));
    }
    let has_flags = attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS != 0;
    if !has_flags || attr.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED {
        return Err(Refused::invalid("how to join is not given, or is none of the ways"));
    }
    debug_assert_ne!(RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
    // SAFETY: as above.
    let group = unsafe { read(attr.addr) }?;
    join(id, group, attr.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes attributes, or null.
    match unsafe { begin_joining(id, attr, context) } {
        Ok(()) => minus_one("rdma_join_multicast_ex", complete(id)),
        Err(refused) => minus_one("rdma_join_multicast_ex", Err(refused)),
    }
}

fn leave(id: &Arc<Id>, group: SocketAddr) -> Answer<()> {
    let mut state = lock(&id.state);
    let place = state.joins.iter().position(|join| join.group == group.ip());
    let place =
        place.ok_or_else(|| Refused::new(libc::EADDRNOTAVAIL, format_args!("{}: not joined", group.ip())))?;
    let join = state.joins.swap_remove(place);
    drop(state);
    join.leave(id);
    id.home().forget_join(&join);
    join.told.wait();
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an address, or null.
    let group = unsafe { read(address) };
    minus_one("rdma_leave_multicast", handles::id(id).and_then(|id| leave(&id, group?)))
}

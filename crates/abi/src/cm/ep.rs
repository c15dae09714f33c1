//! Endpoints: ids that are made, resolved and given a queue pair in one call.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_cabi::cm::{RAI_PASSIVE, rdma_addrinfo, rdma_cm_id};
use ferroce_cabi::{ibv_pd, ibv_qp_init_attr};
use ferroce_device::Uncancelled;

use super::address::read;
use super::handles;
use super::id::{self, Id};
use super::qp;
use super::resolve::{self, rdma_bind_addr};
use super::sync::complete;
use crate::object::{filled, lock, seen};
use crate::qp::ibv_create_qp;
use crate::refusal::{Answer, last_errno, minus_one};

/// What an endpoint was given for the queue pairs that it will have.
#[derive(Default)]
pub(crate) struct Endpoint {
    /// Of a listener: what the queue pairs of its requests are made from.
    pub(crate) requests: Option<(*mut ibv_pd, Box<ibv_qp_init_attr>)>,
    /// Bytes that go before the private data of a request.
    pub(crate) connect: Vec<u8>,
}

fn make(id: &Id, pd: *mut ibv_pd, attr: &mut ibv_qp_init_attr) -> Answer<()> {
    qp::create(id, pd, attr, |pd, attr| {
        // SAFETY: the program answers for what it put into the attributes.
        unsafe { ibv_create_qp(pd, attr) }
    })
}

/// Makes the queue pair of a request, if its listener was told how.
pub(crate) fn make_queue_pair(listener: &Id, id: &Id) -> Answer<()> {
    let wanted = lock(&listener.state).endpoint.requests.as_ref().map(|(pd, attr)| (*pd, **attr));
    match wanted {
        Some((pd, mut attr)) => make(id, pd, &mut attr),
        None => Ok(()),
    }
}

/// # Safety
/// What `info` points to is as it says.
unsafe fn set_up(
    id: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> Answer<()> {
    if info.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller vouches for the address.
        if unsafe { rdma_bind_addr(id.as_c(), info.ai_src_addr) } != 0 {
            return Err(last_errno("the address cannot be had"));
        }
        let requests =
            attr.map(|attr| (pd, Box::new(ibv_qp_init_attr { qp_type: info.ai_qp_type, ..*attr })));
        lock(&id.state).endpoint.requests = requests;
        return Ok(());
    }
    // SAFETY: as above.
    let destination = unsafe { read(info.ai_dst_addr) }?;
    let source = if info.ai_src_addr.is_null() || info.ai_src_len == 0 {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { read(info.ai_src_addr) }?)
    };
    resolve::resolve_address(id, source, destination)?;
    // What is to be told has been: nothing is waited for.
    complete(id.as_c())?;
    resolve::resolve_route(id)?;
    complete(id.as_c())?;
    if let Some(attr) = attr {
        attr.qp_type = info.ai_qp_type;
        make(id, pd, attr)?;
    }
    if info.ai_connect_len > 0 && !info.ai_connect.is_null() {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len) };
        lock(&id.state).endpoint.connect = bytes.to_vec();
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a place of its own to fill, or null.
    let to = unsafe { filled(id, "place for the id") };
    // SAFETY: the caller passes what `rdma_getaddrinfo` gave, or something like it.
    let info = unsafe { seen(info, "address") };
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = if attr.is_null() { Ok(None) } else { unsafe { filled(attr, "attributes") }.map(Some) };
    let answer = to.and_then(|to| {
        let (info, attr) = (info?, attr?);
        id::qp_type_of(info.ai_port_space)?;
        let null = std::ptr::null_mut();
        let made = id::create(null, null.cast(), info.ai_port_space, info.ai_qp_type)?;
        handles::show_id(&made);
        // SAFETY: the caller vouches for what the address points to.
        unsafe { set_up(&made, info, pd, attr) }.inspect_err(|_| destroy(&made))?;
        *to = made.as_c();
        Ok(())
    });
    minus_one("rdma_create_ep", answer)
}

fn destroy(id: &Arc<Id>) {
    qp::destroy(id);
    qp::destroy_srq(id);
    // It was looked up, so that it is there.
    let _ = id::destroy(id);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    let _whole = Uncancelled::new();
    match handles::any_id(id) {
        Ok(id) => destroy(&id),
        Err(refused) => {
            refused.tell("rdma_destroy_ep");
        }
    }
}

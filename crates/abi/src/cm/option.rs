//! Options of ids.

use std::ffi::{c_int, c_void};

use ferroce_cabi::cm::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, ibv_ece, rdma_cm_id,
};
use ferroce_device::Uncancelled;

use super::handles;
use super::id::{Id, Stage};
use super::resolve;
use crate::object::{filled, lock, seen};
use crate::refusal::{Answer, Refused, minus_one};

/// The value of an option.
///
/// # Safety
/// `value` is null, or to so many bytes.
unsafe fn value<T: Copy>(value: *const c_void, len: usize) -> Answer<T> {
    if value.is_null() || len != size_of::<T>() {
        let wanted = size_of::<T>();
        return Err(Refused::invalid(format_args!("a value of {len} bytes: the option has {wanted}")));
    }
    // SAFETY: the caller vouches for the bytes; they need not be aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// # Safety
/// As for [`value`].
unsafe fn set(id: &Id, name: c_int, at: *const c_void, len: usize) -> Answer<()> {
    let mut state = lock(&id.state);
    let is_new = matches!(state.stage, Stage::Idle);
    match name {
        RDMA_OPTION_ID_TOS => {
            // SAFETY: the caller vouches for it.
            state.options.tos = unsafe { value::<u8>(at, len) }?;
        }
        RDMA_OPTION_ID_REUSEADDR => {
            // SAFETY: as above.
            let reuse = unsafe { value::<c_int>(at, len) }? != 0;
            if !reuse && !is_new {
                return Err(Refused::invalid("the id is bound: others may rely on it"));
            }
            if matches!(state.stage, Stage::Listening) {
                return Err(Refused::invalid("the id listens, and has its port for itself"));
            }
            state.options.reuse = reuse;
            state.tell_options();
        }
        RDMA_OPTION_ID_AFONLY => {
            // SAFETY: as above.
            let only = unsafe { value::<c_int>(at, len) }? != 0;
            if !is_new && !matches!(state.stage, Stage::Bound) {
                return Err(Refused::invalid("the id is beyond being bound"));
            }
            state.options.family_only = Some(only);
            state.tell_options();
        }
        RDMA_OPTION_ID_ACK_TIMEOUT => {
            // SAFETY: as above.
            let timeout = unsafe { value::<u8>(at, len) }?;
            if id.is_datagram() {
                return Err(Refused::invalid("datagrams are not acknowledged"));
            }
            state.options.ack_timeout = Some(timeout & 0x1f);
        }
        _ => return Err(Refused::new(libc::ENOSYS, format_args!("option {name}"))),
    }
    *lock(&id.inherited) = state.options;
    Ok(())
}

/// The program brings the way to the peer itself: there is one, whatever it says.
fn set_path(id: *mut rdma_cm_id, at: *const c_void, len: usize) -> Answer<()> {
    /// Bytes of a path with its flags.
    const ENTRY: usize = 72;
    if at.is_null() || len == 0 || !len.is_multiple_of(ENTRY) {
        return Err(Refused::invalid(format_args!("a path of {len} bytes")));
    }
    resolve::resolve_route(&handles::id(id)?)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: usize,
) -> c_int {
    let _whole = Uncancelled::new();
    let answer = handles::id(id).and_then(|known| match (level, name) {
        (RDMA_OPTION_ID, _) => {
            // SAFETY: the caller passes so many bytes, or null.
            unsafe { set(&known, name, at, len) }
        }
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => set_path(id, at, len),
        _ => Err(Refused::new(libc::ENOSYS, format_args!("option {name} of level {level}"))),
    });
    minus_one("rdma_set_option", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes options, or null.
    let ece = unsafe { seen(ece, "vendor options") };
    let answer = handles::id(id).and_then(|id| {
        let ece = ece?;
        if !id.qp().is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Refused::invalid(
                "vendor options are of a vendor, and of an id without a queue pair",
            ));
        }
        // There is no vendor whose options mean something here: none are sent.
        Ok(())
    });
    minus_one("rdma_set_local_ece", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes options of its own to fill, or null.
    let ece = unsafe { filled(ece, "vendor options") };
    let answer = handles::id(id).and_then(|id| {
        let ece = ece?;
        if !id.qp().is_null() {
            return Err(Refused::invalid("vendor options are of an id without a queue pair"));
        }
        *ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        Ok(())
    });
    minus_one("rdma_get_remote_ece", answer)
}

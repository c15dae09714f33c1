//! Memory regions. The memory is the program's: it may do with it what it likes, as with a network card.

use std::sync::{Arc, Mutex};

use ferroce_cabi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_RANGE,
    IBV_ACCESS_ZERO_BASED, IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD,
    IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_FLAGS_SUPPORTED, ibv_mr, ibv_pd,
};
use ferroce_device::Uncancelled;
use ferroce_device::memory::{Allocation, is_readable, is_writable};
use ferroce_transport::Access;
use ferroce_wire::Lkey;
use libc::{EFAULT, c_int, c_uint, c_void};

use crate::context::object;
use crate::domain::Pd;
use crate::fork;
use crate::object::{given, lock, taken};
use crate::refusal::{Answer, Refused, number, pointer, set_errno};

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: ibv_mr,
    pub(crate) generation: u32,
    pub(crate) now: Mutex<Registered>,
}

/// What is registered now.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) pd: &'static Pd,
    pub(crate) lkey: Lkey,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
}

object!(Mr, ibv_mr, "memory region");

/// What a program may ask of memory, in the device's words. Optional flags may always be ignored.
pub(crate) fn access_of(given: c_uint) -> Answer<Access> {
    let needed = given & !IBV_ACCESS_OPTIONAL_RANGE;
    if needed & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB) != 0 {
        return Err(Refused::unsupported("on-demand paging"));
    }
    Access::from_bits(needed & !IBV_ACCESS_ZERO_BASED)
        .ok_or_else(|| Refused::invalid(format_args!("unknown bits in access 0x{given:x}")))
}

/// The program's memory, if it is really there.
fn memory_at(addr: *mut c_void, length: usize, access: c_uint) -> Answer<Arc<Allocation>> {
    let first = addr.cast::<u8>();
    let writes = access & IBV_ACCESS_LOCAL_WRITE != 0;
    let there = if writes { is_writable(first, length) } else { is_readable(first, length) };
    if !there {
        let how = if writes { "written" } else { "read" };
        return Err(Refused::new(EFAULT, format_args!("not all of {length} bytes at {addr:p} can be {how}")));
    }
    Ok(if writes {
        // SAFETY: the kernel has just said that all of it can be written; that it stays so until the region
        // is deregistered is what every program promises that registers memory.
        unsafe { Allocation::from_raw(first, length) }
    } else {
        // SAFETY: as above, for reading.
        unsafe { Allocation::from_raw_read_only(first, length) }
    })
}

fn register(
    pd: &'static Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Answer<*mut ibv_mr> {
    let rights = access_of(access)?;
    let iova = if access & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { iova };
    let memory = memory_at(addr, length, access)?;
    let (lkey, rkey) = pd.context.nic.register(pd.domain, &memory, (0, length), iova, rights)?;
    pd.context.made_one();
    let c = ibv_mr {
        context: pd.context.as_c(),
        pd: pd.as_c(),
        addr,
        length,
        handle: lkey.0 >> 8,
        lkey: lkey.0,
        rkey: rkey.0,
    };
    let now = Mutex::new(Registered { pd, lkey, addr, length, iova, access });
    Ok(given(Mr { c, generation: fork::generation(), now }).cast())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    let iova = addr.addr() as u64;
    pointer("ibv_reg_mr", pd.and_then(|pd| register(pd, addr, length, iova, access.cast_unsigned())))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    pointer("ibv_reg_mr_iova", pd.and_then(|pd| register(pd, addr, length, iova, access.cast_unsigned())))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    pointer("ibv_reg_mr_iova2", pd.and_then(|pd| register(pd, addr, length, iova, access)))
}

/// Memory of other devices is out of reach of sockets.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    pointer("ibv_reg_dmabuf_mr", Err(Refused::unsupported("memory of other devices (dmabuf)")))
}

/// A refusal leaves the region as it was, which is what the number says that is returned then.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let _whole = Uncancelled::new();
    let change = Change { flags, pd, addr, length, access: access.cast_unsigned() };
    // SAFETY: the caller passes live objects, or null.
    match unsafe { reregister(mr, &change) } {
        Ok(()) => 0,
        Err(refused) => {
            set_errno(refused.tell("ibv_rereg_mr"));
            IBV_REREG_MR_ERR_INPUT
        }
    }
}

/// What is to be different.
struct Change {
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
}

/// # Safety
/// `mr` and the domain are null or live objects, and no other thread changes the region meanwhile.
unsafe fn reregister(mr: *mut ibv_mr, change: &Change) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let region = unsafe { Mr::of(mr) }?;
    let has = |bit| change.flags & bit != 0;
    let moves = has(IBV_REREG_MR_CHANGE_TRANSLATION);
    if change.flags == 0 || change.flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
        return Err(Refused::invalid(format_args!("nothing, or unknown bits, in 0x{:x}", change.flags)));
    }
    if moves && (change.length == 0 || change.addr.is_null()) {
        return Err(Refused::invalid("other memory was announced, and none was given"));
    }
    if change.access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS) {
        return Err(Refused::invalid("access was given that was not announced"));
    }
    let mut now = lock(&region.now);
    let mut next = *now;
    if has(IBV_REREG_MR_CHANGE_PD) {
        // SAFETY: as above.
        next.pd = unsafe { Pd::of(change.pd) }?;
        if !std::ptr::eq(next.pd.context, now.pd.context) {
            return Err(Refused::invalid("the protection domain was made from another context"));
        }
    }
    if moves {
        (next.addr, next.length, next.iova) = (change.addr, change.length, change.addr.addr() as u64);
    }
    if has(IBV_REREG_MR_CHANGE_ACCESS) {
        next.access = change.access;
    }
    let rights = access_of(next.access)?;
    let memory = memory_at(next.addr, next.length, next.access)?;
    let (lkey, rkey) = now.pd.context.nic.reregister_in_place(now.lkey, |spec| {
        spec.domain = next.pd.domain;
        spec.access = rights;
        spec.iova = next.iova;
        spec.memory = memory;
        (spec.offset, spec.len) = (0, next.length);
    })?;
    next.lkey = lkey;
    *now = next;
    drop(now);
    // SAFETY: the caller vouches for a live region that no other thread changes.
    let c = unsafe { &mut *mr };
    (c.pd, c.addr, c.length) = (next.pd.as_c(), next.addr, next.length);
    (c.lkey, c.rkey) = (lkey.0, rkey.0);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a region that it gives up, or null.
    number("ibv_dereg_mr", unsafe { deregister(mr) })
}

/// # Safety
/// As for [`Mr::of`], and no thread uses the region any more.
unsafe fn deregister(mr: *mut ibv_mr) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let region = unsafe { Mr::of(mr) }?;
    let Registered { pd, lkey, .. } = *lock(&region.now);
    pd.context.nic.deregister(pd.domain, lkey)?;
    pd.context.lost_one();
    // SAFETY: the caller gives it up.
    drop(unsafe { taken(mr.cast::<Mr>()) });
    Ok(())
}

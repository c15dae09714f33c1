//! Memory windows.

use ferroce_cabi::{IBV_MW_TYPE_1, IBV_MW_TYPE_2, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use ferroce_device::Uncancelled;
use ferroce_device::memory::WindowKind;
use ferroce_transport::{Bind, Data, SendOp, SendRequest};
use ferroce_wire::{Lkey, Rkey};
use libc::c_int;

use crate::context::object;
use crate::domain::Pd;
use crate::fork;
use crate::object::{given, lock, seen, taken};
use crate::post::flags_of;
use crate::qp::Qp;
use crate::refusal::{Answer, Refused, number, pointer};
use crate::region::{Mr, access_of};

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: ibv_mw,
    pd: &'static Pd,
    pub(crate) generation: u32,
    /// The key that it was made with, by which the device knows it.
    name: Rkey,
    kind: WindowKind,
}

object!(Mw, ibv_mw, "memory window");

pub(crate) unsafe extern "C" fn allocate(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    let answer = pd.and_then(|pd| {
        let known = match kind {
            IBV_MW_TYPE_1 => WindowKind::Type1,
            IBV_MW_TYPE_2 => WindowKind::Type2,
            _ => return Err(Refused::invalid(format_args!("memory window type {kind}"))),
        };
        let name = pd.context.nic.allocate_window(pd.domain, known)?;
        pd.context.made_one();
        let c = ibv_mw {
            context: pd.context.as_c(),
            pd: pd.as_c(),
            rkey: name.0,
            handle: name.0 >> 8,
            r#type: kind,
        };
        Ok(given(Mw { c, pd, generation: fork::generation(), name, kind: known }).cast())
    });
    pointer("ibv_alloc_mw", answer)
}

pub(crate) unsafe extern "C" fn free(mw: *mut ibv_mw) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a window that it gives up, or null.
    number("ibv_dealloc_mw", unsafe { deallocate(mw) })
}

/// # Safety
/// As for [`Mw::of`], and no thread uses the window any more.
unsafe fn deallocate(mw: *mut ibv_mw) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { Mw::of(mw) }?;
    known.pd.context.nic.free_window(known.pd.domain, known.name)?;
    known.pd.context.lost_one();
    // SAFETY: the caller gives it up.
    drop(unsafe { taken(mw.cast::<Mw>()) });
    Ok(())
}

/// The work that binds a window of type 2, under a key whose last eight bits the program has chosen.
///
/// # Safety
/// `mw` and the region are null or live objects.
pub(crate) unsafe fn bind_of(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Answer<SendOp> {
    // SAFETY: the caller vouches for it.
    let window = unsafe { Mw::of(mw) }?;
    if window.kind == WindowKind::Type1 {
        return Err(Refused::invalid("a window of type 1 gets its key from ibv_bind_mw: bind it there"));
    }
    // SAFETY: as above.
    unsafe { work_of(window, Rkey(rkey), info) }
}

/// # Safety
/// The region is null or a live object.
unsafe fn work_of(window: &Mw, new_key: Rkey, info: &ibv_mw_bind_info) -> Answer<SendOp> {
    let region = if info.mr.is_null() {
        if info.length != 0 {
            return Err(Refused::invalid("a window that is bound needs a region"));
        }
        Lkey(0)
    } else {
        // SAFETY: the caller vouches for it.
        let region = unsafe { Mr::of(info.mr) }?;
        let registered = lock(&region.now);
        registered.lkey
    };
    Ok(SendOp::BindWindow(Bind {
        window: window.name,
        new_key,
        region,
        address: info.addr,
        length: info.length,
        access: access_of(info.mw_access_flags)?,
    }))
}

/// Binds a window of type 1: work like any other, under a key that is made here.
pub(crate) unsafe extern "C" fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes live objects and a structure of its own.
    number("ibv_bind_mw", unsafe { bind_by_work(qp, mw, bind) })
}

/// # Safety
/// Pointers are null, or to live objects.
unsafe fn bind_by_work(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *const ibv_mw_bind) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let qp = unsafe { Qp::of(qp) }?;
    // SAFETY: as above.
    let window = unsafe { Mw::of(mw) }?;
    // SAFETY: as above.
    let bind = unsafe { seen(bind, "binding") }?;
    if window.kind != WindowKind::Type1 {
        return Err(Refused::invalid("a window of type 2 is bound by a request: post IBV_WR_BIND_MW"));
    }
    let key = window.pd.context.nic.next_window_key(window.name);
    // SAFETY: as above.
    let op = unsafe { work_of(window, key, &bind.bind_info) }?;
    let flags = flags_of(bind.send_flags);
    let request = SendRequest { id: bind.wr_id, op, data: Data::Gather(&[]), flags, dest: None };
    qp.qp.post_send(&[request]).map_err(|refused| refused.error)?;
    // SAFETY: a field of a live object; the program reads it after this call.
    unsafe { (*mw).rkey = key.0 };
    Ok(())
}

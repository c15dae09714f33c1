//! Protection domains.

use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_cabi::{ibv_context, ibv_pd};
use ferroce_device::Uncancelled;
use ferroce_transport::DomainId;
use libc::c_int;

use crate::context::{Context, object};
use crate::fork;
use crate::object::{given, taken};
use crate::refusal::{Answer, Refused, number, pointer};

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    c: ibv_pd,
    pub(crate) context: &'static Context,
    pub(crate) domain: DomainId,
    pub(crate) generation: u32,
    /// Address handles: the device does not count them.
    pub(crate) handles: AtomicU32,
}

object!(Pd, ibv_pd, "protection domain");

impl Pd {
    pub(crate) fn as_c(&self) -> *mut ibv_pd {
        (&raw const self.c).cast_mut()
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let answer = context.and_then(|context| {
        let domain = context.nic.create_domain()?;
        context.made_one();
        let c = ibv_pd { context: context.as_c(), handle: domain.0 };
        let generation = fork::generation();
        Ok(given(Pd { c, context, domain, generation, handles: AtomicU32::new(0) }).cast())
    });
    pointer("ibv_alloc_pd", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a domain that it gives up, or null.
    number("ibv_dealloc_pd", unsafe { free(pd) })
}

/// # Safety
/// As for [`Pd::of`], and no thread uses the domain any more.
unsafe fn free(pd: *mut ibv_pd) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let domain = unsafe { Pd::of(pd) }?;
    let unused = domain.handles.load(Ordering::Relaxed) == 0;
    if !unused || !domain.context.nic.destroy_domain(domain.domain) {
        return Err(Refused::busy("objects still belong to the protection domain"));
    }
    domain.context.lost_one();
    // SAFETY: the caller gives it up, and nothing belongs to it.
    drop(unsafe { taken(pd.cast::<Pd>()) });
    Ok(())
}

//! Open devices.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_cabi::{ibv_context, ibv_context_ops, ibv_device, verbs_context};
use ferroce_device::{Config, Nic, Uncancelled};
use libc::{c_int, c_void};

use crate::capture::{self, Claim};
use crate::devices::Device;
use crate::events::{self, Inbox, Subject};
use crate::object::{Zero, given, seen, taken};
use crate::refusal::{Answer, Refused, minus_one, number, pointer};
use crate::{cq, cq_ex, fork, post, private, qp, query, srq, window};

/// An open device. The C structure comes first, and the part that programs know is its end.
#[repr(C)]
pub(crate) struct Context {
    c: verbs_context,
    pub(crate) nic: Nic,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) generation: u32,
    /// The file for its packets stays its own as long as it is open.
    _capture: Option<Arc<Claim>>,
    /// What programs take for the descriptor of a driver.
    _nowhere: File,
    /// Objects that were made from it and live.
    objects: AtomicU32,
}

impl Context {
    pub(crate) fn open(device: &Device) -> Answer<*mut ibv_context> {
        fork::watch();
        let mut config =
            Config::from_env(&device.interface).map_err(|error| Refused::because(libc::EINVAL, &error))?;
        let capture = config.capture.take().map(|wanted| capture::claim(wanted, &device.interface));
        config.capture = capture.as_ref().map(|claim| claim.path().to_owned());
        let nic = Nic::open(config).inspect_err(|_| capture.iter().for_each(Claim::give_up))?;
        let inbox = Inbox::new().map_err(|error| Refused::new(libc::EMFILE, error))?;
        // Programs may copy the descriptor of the kernel's driver. Ours leads nowhere: there is no driver.
        let nowhere = File::open("/dev/null").map_err(|error| Refused::new(libc::EMFILE, error))?;
        let mut c = verbs_context::zero();
        fill(&mut c);
        c.context.device = device.as_c();
        c.context.cmd_fd = nowhere.as_raw_fd();
        c.context.async_fd = inbox.descriptor();
        c.context.num_comp_vectors = 1;
        let generation = fork::generation();
        let context = given(Self {
            c,
            nic,
            inbox,
            generation,
            _capture: capture,
            _nowhere: nowhere,
            objects: AtomicU32::new(0),
        });
        // SAFETY: it was made just now, and no other thread knows it.
        let made = unsafe { &*context };
        let place = Arc::as_ptr(&made.inbox).addr();
        events::enroll(&made.nic, Subject::Context(place), &made.inbox, 0, None);
        Ok(made.as_c())
    }

    /// The context that a program means.
    ///
    /// # Safety
    /// `context` is null, or one that [`ibv_open_device`] returned and that was not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Answer<&'a Self> {
        let whole = context.wrapping_byte_sub(std::mem::offset_of!(verbs_context, context)).cast::<Self>();
        // The offset would make something else of a null pointer.
        let whole = if context.is_null() { std::ptr::null_mut() } else { whole };
        // SAFETY: the caller vouches for it; ours begin with a `verbs_context`.
        let context = unsafe { seen(whole, "context") }?;
        fork::check(context.generation)?;
        Ok(context)
    }

    pub(crate) fn as_c(&self) -> *mut ibv_context {
        (&raw const self.c.context).cast_mut()
    }

    pub(crate) fn made_one(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost_one(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The object behind a pointer of the program, by the context that the C structure names first.
macro_rules! object {
    ($type:ident, $c:ident, $what:literal) => {
        impl $type {
            /// The object that a program means.
            ///
            /// # Safety
            /// `object` is null, or one that this library made and that was not destroyed.
            pub(crate) unsafe fn of<'a>(object: *mut ferroce_cabi::$c) -> crate::refusal::Answer<&'a Self> {
                // SAFETY: the caller vouches for it; ours begin with the C structure.
                let object = unsafe { crate::object::seen(object.cast::<Self>(), $what) }?;
                crate::fork::check(object.generation)?;
                Ok(object)
            }
        }
    };
}

pub(crate) use object;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a device of our list, or null.
    let device = unsafe { Device::of(device) };
    pointer("ibv_open_device", device.and_then(Context::open))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    minus_one("ibv_close_device", unsafe { close(context) })
}

/// # Safety
/// As for [`Context::of`], and no thread uses the context any more.
unsafe fn close(context: *mut ibv_context) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let context = unsafe { Context::of(context) }?;
    events::strike(&context.nic, Subject::Context(Arc::as_ptr(&context.inbox).addr()));
    if context.objects.load(Ordering::Relaxed) > 0 {
        // Its objects still point to it, and keep the device open: it stays until the process ends.
        return Ok(());
    }
    // SAFETY: the caller gives it up, and no object of ours points to it.
    drop(unsafe { taken(std::ptr::from_ref(context).cast_mut()) });
    Ok(())
}

/// Sets functions that refuse, each with a line for the log.
macro_rules! refuse {
    ($c:ident: $($way:ident $field:ident $name:literal $what:literal;)*) => {$(
        $c.$field = Some({
            unsafe extern "C" fn refuse() -> answer!($way) {
                let _whole = Uncancelled::new();
                $way($name, Err(Refused::unsupported($what)))
            }
            refuse
        });
    )*};
}

/// What a function returns that refuses in one of these ways.
macro_rules! answer {
    (number) => { c_int };
    (pointer) => { *mut c_void };
}

/// Sets every function. What the device does not have refuses.
fn fill(c: &mut verbs_context) {
    let (no, none) = (Some(private::refuse as _), Some(private::refuse_pointer as _));
    c.sz = size_of::<verbs_context>();
    c.query_port = Some(query::query_port);
    c.modify_cq = Some(cq::modify);
    c.query_rt_values = Some(query::query_rt_values);
    c.create_cq_ex = Some(cq_ex::create);
    c.query_device_ex = Some(query::query_device_ex);
    c.ABI_placeholder2 = no;
    c.ABI_placeholder1 = no;
    c.create_qp_ex = Some(qp::create_extended);
    c.get_srq_num = Some(srq::number_of);
    c.create_srq_ex = Some(srq::create_extended);
    refuse! { c:
        number advise_mr "ibv_advise_mr" "advice on memory";
        pointer alloc_null_mr "ibv_alloc_null_mr" "null regions";
        number read_counters "ibv_read_counters" "counters of flows";
        number attach_counters_point_flow "ibv_attach_counters_point_flow" "counters of flows";
        pointer create_counters "ibv_create_counters" "counters of flows";
        number destroy_counters "ibv_destroy_counters" "counters of flows";
        pointer reg_dm_mr "ibv_reg_dm_mr" "device memory";
        pointer alloc_dm "ibv_alloc_dm" "device memory";
        number free_dm "ibv_free_dm" "device memory";
        number modify_flow_action_esp "ibv_modify_flow_action_esp" "flow steering";
        number destroy_flow_action "ibv_destroy_flow_action" "flow steering";
        pointer create_flow_action_esp "ibv_create_flow_action_esp" "flow steering";
        number modify_qp_rate_limit "ibv_modify_qp_rate_limit" "rate limits with bursts";
        pointer alloc_parent_domain "ibv_alloc_parent_domain" "parent domains";
        number dealloc_td "ibv_dealloc_td" "thread domains";
        pointer alloc_td "ibv_alloc_td" "thread domains";
        number post_srq_ops "ibv_post_srq_ops" "tag matching";
        number destroy_rwq_ind_table "ibv_destroy_rwq_ind_table" "receive side scaling";
        pointer create_rwq_ind_table "ibv_create_rwq_ind_table" "receive side scaling";
        number destroy_wq "ibv_destroy_wq" "work queues";
        number modify_wq "ibv_modify_wq" "work queues";
        pointer create_wq "ibv_create_wq" "work queues";
        number ibv_destroy_flow "ibv_destroy_flow" "flow steering";
        pointer ibv_create_flow "ibv_create_flow" "flow steering";
        pointer open_qp "ibv_open_qp" "XRC";
        pointer open_xrcd "ibv_open_xrcd" "XRC";
        number close_xrcd "ibv_close_xrcd" "XRC";
    }
    // The mark of a context with extended functions in front of it.
    c.context.abi_compat = std::ptr::without_provenance_mut::<c_void>(usize::MAX);
    c.context.ops = ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::ibv_query_port),
        _compat_alloc_pd: none,
        _compat_dealloc_pd: none,
        _compat_reg_mr: none,
        _compat_rereg_mr: none,
        _compat_dereg_mr: none,
        alloc_mw: Some(window::allocate),
        bind_mw: Some(window::bind),
        dealloc_mw: Some(window::free),
        _compat_create_cq: none,
        poll_cq: Some(cq::poll),
        req_notify_cq: Some(cq::request_notification),
        _compat_cq_event: none,
        _compat_resize_cq: none,
        _compat_destroy_cq: none,
        _compat_create_srq: none,
        _compat_modify_srq: none,
        _compat_query_srq: none,
        _compat_destroy_srq: none,
        post_srq_recv: Some(post::post_shared),
        _compat_create_qp: none,
        _compat_query_qp: none,
        _compat_modify_qp: none,
        _compat_destroy_qp: none,
        post_send: Some(post::post_send),
        post_recv: Some(post::post_receive),
        _compat_create_ah: none,
        _compat_destroy_ah: none,
        _compat_attach_mcast: none,
        _compat_detach_mcast: none,
        _compat_async_event: none,
    };
}

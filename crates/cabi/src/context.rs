//! An open device: the tables of functions through which the inline wrappers of the headers call.

use libc::{c_int, c_void, pthread_mutex_t, timespec};

use crate::device::{
    ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_port_attr, ibv_query_device_ex_input,
};
use crate::layout::c_structs;
use crate::objects::{
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_mw, ibv_mw_bind, ibv_pd, ibv_srq,
    ibv_srq_init_attr_ex,
};
use crate::queue_pair::{ibv_qp, ibv_qp_init_attr_ex};
use crate::work::{ibv_recv_wr, ibv_send_wr, ibv_wc};
use crate::{Refusal, RefusalPtr};

c_structs! {
    struct ibv_context_ops {
        _compat_query_device: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int>,
        _compat_query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut c_void) -> c_int>,
        _compat_alloc_pd: RefusalPtr,
        _compat_dealloc_pd: RefusalPtr,
        _compat_reg_mr: RefusalPtr,
        _compat_rereg_mr: RefusalPtr,
        _compat_dereg_mr: RefusalPtr,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: RefusalPtr,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: RefusalPtr,
        _compat_resize_cq: RefusalPtr,
        _compat_destroy_cq: RefusalPtr,
        _compat_create_srq: RefusalPtr,
        _compat_modify_srq: RefusalPtr,
        _compat_query_srq: RefusalPtr,
        _compat_destroy_srq: RefusalPtr,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: RefusalPtr,
        _compat_query_qp: RefusalPtr,
        _compat_modify_qp: RefusalPtr,
        _compat_destroy_qp: RefusalPtr,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: RefusalPtr,
        _compat_destroy_ah: RefusalPtr,
        _compat_attach_mcast: RefusalPtr,
        _compat_detach_mcast: RefusalPtr,
        _compat_async_event: RefusalPtr,
    }

    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    struct ibv_values_ex {
        comp_mask: u32,
        raw_clock: timespec,
    }

    struct verbs_context {
        query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
        advise_mr: Refusal,
        alloc_null_mr: RefusalPtr,
        read_counters: Refusal,
        attach_counters_point_flow: Refusal,
        create_counters: RefusalPtr,
        destroy_counters: Refusal,
        reg_dm_mr: RefusalPtr,
        alloc_dm: RefusalPtr,
        free_dm: Refusal,
        modify_flow_action_esp: Refusal,
        destroy_flow_action: Refusal,
        create_flow_action_esp: RefusalPtr,
        modify_qp_rate_limit: Refusal,
        alloc_parent_domain: RefusalPtr,
        dealloc_td: Refusal,
        alloc_td: RefusalPtr,
        modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        post_srq_ops: Refusal,
        destroy_rwq_ind_table: Refusal,
        create_rwq_ind_table: RefusalPtr,
        destroy_wq: Refusal,
        modify_wq: Refusal,
        create_wq: RefusalPtr,
        query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
        r#priv: *mut c_void,
        query_device_ex: Option<unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int>,
        ibv_destroy_flow: Refusal,
        ABI_placeholder2: Refusal,
        ibv_create_flow: RefusalPtr,
        ABI_placeholder1: Refusal,
        open_qp: RefusalPtr,
        create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
        open_xrcd: RefusalPtr,
        close_xrcd: Refusal,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}

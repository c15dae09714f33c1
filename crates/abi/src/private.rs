//! Symbols that must be there and that no program needs here: the inside of rdma-core for its own drivers,
//! and the forms from before 2008. Libraries of hardware vendors are linked to the first, and are loaded with
//! many programs.

use ferroce_device::Uncancelled;
use libc::{ENOSYS, EOPNOTSUPP, c_char, c_int, c_void};

use crate::refusal::set_errno;

/// Refuses, whatever the arguments.
pub(crate) unsafe extern "C" fn refuse() -> c_int {
    EOPNOTSUPP
}

/// The same for functions that return a pointer.
pub(crate) unsafe extern "C" fn refuse_pointer() -> *mut c_void {
    set_errno(EOPNOTSUPP);
    std::ptr::null_mut()
}

/// Functions that would talk to a kernel driver.
macro_rules! not_here {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            ENOSYS
        }
    )*};
}

not_here! {
    execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq
    ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
    ibv_cmd_create_qp_ex2 ibv_cmd_create_qp_ex ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
    ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
    ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv
    ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any
    ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
}

/// Functions of which drivers expect no answer.
macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}

nothing_to_do! { __verbs_log verbs_init_cq verbs_register_driver_34 verbs_set_ops verbs_uninit_context }

/// Functions that would make an object of a driver.
macro_rules! no_object {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            set_errno(ENOSYS);
            std::ptr::null_mut()
        }
    )*};
}

no_object! { _verbs_init_and_alloc_context verbs_open_device }

/// How many attributes a call to the kernel needs: none is made.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __ioctl_final_num_attrs(given: libc::c_uint) -> libc::c_uint {
    given
}

/// Files of a device of the kernel: ours has none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_read_ibdev_sysfs_file(
    _: *mut c_char,
    _: usize,
    _: *mut c_void,
    _: *const c_char,
) -> c_int {
    let _whole = Uncancelled::new();
    set_errno(libc::ENOENT);
    -1
}

/// The oldest forms, which answer that they are not here. The door of `libibverbs.so.1` has each under its own name with the
/// version of that time.
macro_rules! old_forms {
    ($($answer:ident: $($name:ident)*;)*) => {$($(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> old_forms!(@type $answer) {
            old_forms!(@answer $answer)
        }
    )*)*};
    (@type pointer) => { *mut c_void };
    (@type $number:ident) => { c_int };
    (@answer number) => { ENOSYS };
    (@answer pointer) => {{ set_errno(ENOSYS); std::ptr::null_mut() }};
    (@answer minus_one) => {{ set_errno(ENOSYS); -1 }};
}

old_forms! {
    number:
        ferroce_old_ibv_ack_async_event ferroce_old_ibv_ack_cq_events ferroce_old_ibv_attach_mcast
        ferroce_old_ibv_dealloc_pd ferroce_old_ibv_dereg_mr ferroce_old_ibv_destroy_ah ferroce_old_ibv_destroy_cq
        ferroce_old_ibv_destroy_qp ferroce_old_ibv_destroy_srq ferroce_old_ibv_detach_mcast
        ferroce_old_ibv_free_device_list ferroce_old_ibv_modify_qp ferroce_old_ibv_modify_srq
        ferroce_old_ibv_query_device ferroce_old_ibv_query_port ferroce_old_ibv_query_qp ferroce_old_ibv_query_srq
        ferroce_old_ibv_register_driver ferroce_old_ibv_resize_cq;
    pointer:
        ferroce_old_ibv_alloc_pd ferroce_old_ibv_create_ah ferroce_old_ibv_create_cq ferroce_old_ibv_create_qp
        ferroce_old_ibv_create_srq ferroce_old_ibv_get_device_guid ferroce_old_ibv_get_device_list
        ferroce_old_ibv_get_device_name ferroce_old_ibv_open_device ferroce_old_ibv_reg_mr;
    minus_one:
        ferroce_old_ibv_close_device ferroce_old_ibv_get_async_event ferroce_old_ibv_get_cq_event
        ferroce_old_ibv_query_gid ferroce_old_ibv_query_pkey;
}

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

/// Whether destroying may go on after the kernel's device has gone.
#[unsafe(no_mangle)]
static verbs_allow_disassociate_destroy: bool = false;

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

/// What the oldest forms answer. They are reached through the versions below only.
#[unsafe(no_mangle)]
extern "C" fn ferroce_old_number() -> c_int {
    ENOSYS
}

#[unsafe(no_mangle)]
extern "C" fn ferroce_old_pointer() -> *mut c_void {
    set_errno(ENOSYS);
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn ferroce_old_minus_one() -> c_int {
    set_errno(ENOSYS);
    -1
}

#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "jmp "
    };
}
#[cfg(all(not(test), target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "b "
    };
}

/// Gives names their old versions, each as a jump to one of the answers above.
macro_rules! old_forms {
    ($($version:literal $answer:literal: $($name:literal)*;)*) => {
        // The names must stand in one object file with their versions, so they are written in assembly.
        #[cfg(not(test))]
        std::arch::global_asm!($($(
            concat!(".globl ferroce_old_", $name),
            concat!(".type ferroce_old_", $name, ", %function"),
            concat!("ferroce_old_", $name, ": ", jump!(), $answer),
            concat!(".symver ferroce_old_", $name, ", ", $name, "@", $version),
        )*)*);
    };
}

old_forms! {
    "IBVERBS_1.0" "ferroce_old_number":
        "ibv_ack_async_event" "ibv_ack_cq_events" "ibv_attach_mcast" "ibv_dealloc_pd" "ibv_dereg_mr"
        "ibv_destroy_ah" "ibv_destroy_cq" "ibv_destroy_qp" "ibv_destroy_srq" "ibv_detach_mcast"
        "ibv_free_device_list" "ibv_modify_qp" "ibv_modify_srq" "ibv_query_device" "ibv_query_port"
        "ibv_query_qp" "ibv_query_srq" "ibv_resize_cq";
    "IBVERBS_1.0" "ferroce_old_pointer":
        "ibv_alloc_pd" "ibv_create_ah" "ibv_create_cq" "ibv_create_qp" "ibv_create_srq"
        "ibv_get_device_guid" "ibv_get_device_list" "ibv_get_device_name" "ibv_open_device" "ibv_reg_mr";
    "IBVERBS_1.0" "ferroce_old_minus_one":
        "ibv_close_device" "ibv_get_async_event" "ibv_get_cq_event" "ibv_query_gid" "ibv_query_pkey";
    "IBVERBS_1.1" "ferroce_old_number":
        "ibv_register_driver";
}

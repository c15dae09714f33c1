//! The functions of `librdmacm.so.1` that are not written yet. Programs are linked so that every symbol must be there
//! when they are loaded; these answer as on a machine without RDMA. A function that is written loses its line here.

use libc::{EBADF, EINVAL, ENODEV, ENOSYS, c_char, c_int, c_void};

use crate::refusal::set_errno;

/// One line for each function: its name and what it answers, whatever its arguments.
macro_rules! missing {
    ($($name:ident: $answer:ident $(($code:ident))?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> missing!(@type $answer) {
            missing!(@answer $answer $($code)?)
        }
    )*};
    (@type minus_one) => { c_int };
    (@type wide_minus_one) => { isize };
    (@type null) => { *mut c_void };
    (@type nothing) => { () };
    (@type port) => { u16 };
    (@type text) => { *const c_char };
    (@answer minus_one $code:ident) => {{ set_errno($code); -1 }};
    (@answer wide_minus_one $code:ident) => {{ set_errno($code); -1 }};
    (@answer null $code:ident) => {{ set_errno($code); std::ptr::null_mut() }};
    (@answer nothing) => { () };
    (@answer port) => { 0 };
    (@answer text) => { c"UNKNOWN EVENT".as_ptr() };
}

missing! {
    // Here a program begins, and learns that there is no device.
    rdma_create_event_channel: null(ENODEV);
    rdma_create_id: minus_one(ENODEV);
    rdma_create_ep: minus_one(ENODEV);
    rdma_get_devices: null(ENODEV);
    rdma_getaddrinfo: minus_one(ENODEV);
    rsocket: minus_one(ENODEV);

    // What needs a channel, an event or an id, of which there are none.
    rdma_accept: minus_one(EINVAL);
    rdma_ack_cm_event: minus_one(EINVAL);
    rdma_bind_addr: minus_one(EINVAL);
    rdma_connect: minus_one(EINVAL);
    rdma_create_qp: minus_one(EINVAL);
    rdma_create_qp_ex: minus_one(EINVAL);
    rdma_create_srq: minus_one(EINVAL);
    rdma_create_srq_ex: minus_one(EINVAL);
    rdma_destroy_ep: nothing;
    rdma_destroy_event_channel: nothing;
    rdma_destroy_id: minus_one(EINVAL);
    rdma_destroy_qp: nothing;
    rdma_destroy_srq: nothing;
    rdma_disconnect: minus_one(EINVAL);
    rdma_establish: minus_one(EINVAL);
    rdma_event_str: text;
    rdma_free_devices: nothing;
    rdma_freeaddrinfo: nothing;
    rdma_get_cm_event: minus_one(EINVAL);
    rdma_get_dst_port: port;
    rdma_get_remote_ece: minus_one(EINVAL);
    rdma_get_request: minus_one(EINVAL);
    rdma_get_src_port: port;
    rdma_init_qp_attr: minus_one(EINVAL);
    rdma_join_multicast: minus_one(EINVAL);
    rdma_join_multicast_ex: minus_one(EINVAL);
    rdma_leave_multicast: minus_one(EINVAL);
    rdma_listen: minus_one(EINVAL);
    rdma_migrate_id: minus_one(EINVAL);
    rdma_notify: minus_one(EINVAL);
    rdma_reject: minus_one(EINVAL);
    rdma_reject_ece: minus_one(EINVAL);
    rdma_resolve_addr: minus_one(EINVAL);
    rdma_resolve_route: minus_one(EINVAL);
    rdma_set_local_ece: minus_one(EINVAL);
    rdma_set_option: minus_one(EINVAL);

    // What needs a socket made by `rsocket`. The last two take descriptors of any kind.
    raccept: minus_one(EBADF);
    rbind: minus_one(EBADF);
    rclose: minus_one(EBADF);
    rconnect: minus_one(EBADF);
    rfcntl: minus_one(EBADF);
    rgetpeername: minus_one(EBADF);
    rgetsockname: minus_one(EBADF);
    rgetsockopt: minus_one(EBADF);
    riomap: wide_minus_one(EBADF);
    riounmap: minus_one(EBADF);
    riowrite: wide_minus_one(EBADF);
    rlisten: minus_one(EBADF);
    rread: wide_minus_one(EBADF);
    rreadv: wide_minus_one(EBADF);
    rrecv: wide_minus_one(EBADF);
    rrecvfrom: wide_minus_one(EBADF);
    rrecvmsg: wide_minus_one(EBADF);
    rsend: wide_minus_one(EBADF);
    rsendmsg: wide_minus_one(EBADF);
    rsendto: wide_minus_one(EBADF);
    rsetsockopt: minus_one(EBADF);
    rshutdown: minus_one(EBADF);
    rwrite: wide_minus_one(EBADF);
    rwritev: wide_minus_one(EBADF);
    rpoll: minus_one(ENOSYS);
    rselect: minus_one(ENOSYS);
}

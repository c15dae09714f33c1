//! The functions of the libraries, by name and version, as one table of pointers each.

use std::ffi::{CStr, c_int, c_uint, c_void};

use ferroce_cabi::{
    cm, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use crate::dl::Opened;

/// A symbol that a library must have and has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) symbol: &'static str,
    pub(crate) version: &'static str,
    /// It has one of this name in another version, or in none.
    pub(crate) elsewhere: bool,
}

/// Declares a table: what every library must have, and what newer ones have.
macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident;
        required { $($name:ident, $version:literal: $type:ty;)* }
        optional { $($newer:ident, $newer_version:literal: $newer_type:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: $type,)*
            $(pub(crate) $newer: Option<$newer_type>,)*
        }

        impl $table {
            /// Looks all of them up.
            pub(crate) fn of(library: Opened) -> Result<Self, Missing> {
                Ok(Self {
                    $($name: {
                        let at = find(library, concat!(stringify!($name), "\0"), concat!($version, "\0"))?;
                        // SAFETY: the symbol has this name in this version, and so this type.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(at) }
                    },)*
                    $($newer: {
                        let at = find(library, concat!(stringify!($newer), "\0"), concat!($newer_version, "\0"));
                        // SAFETY: as above.
                        at.ok().map(|at| unsafe { std::mem::transmute::<*mut c_void, $newer_type>(at) })
                    },)*
                })
            }

            /// What every library must have, with versions.
            #[cfg(test)]
            pub(crate) const REQUIRED: &[(&'static str, &'static str)] = &[$((stringify!($name), $version),)*];
            /// What newer ones have.
            #[cfg(test)]
            pub(crate) const OPTIONAL: &[(&'static str, &'static str)] =
                &[$((stringify!($newer), $newer_version),)*];
        }
    };
}

/// Where a symbol is. Both texts end with a zero byte.
fn find(library: Opened, name: &'static str, version: &'static str) -> Result<*mut c_void, Missing> {
    let text = |text: &'static str| CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default();
    let found = library.symbol(text(name), text(version));
    found.map(std::ptr::NonNull::as_ptr).ok_or_else(|| Missing {
        symbol: name.trim_end_matches('\0'),
        version: version.trim_end_matches('\0'),
        elsewhere: library.has(text(name)),
    })
}

table! {
    /// `libibverbs.so.1`. Fifteen years of libraries have what is required.
    Verbs;
    required {
        ibv_get_device_list, "IBVERBS_1.1": unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list, "IBVERBS_1.1": unsafe extern "C" fn(*mut *mut ibv_device);
        ibv_get_device_guid, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_device) -> u64;
        ibv_open_device, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context) -> c_int;
        ibv_get_async_event, "IBVERBS_1.1":
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_async_event);
        ibv_query_device, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        // It fills the beginning of the structure, which was shorter when this symbol was made.
        ibv_query_port, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        ibv_query_pkey, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
        ibv_alloc_pd, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel, "IBVERBS_1.0": unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel, "IBVERBS_1.0": unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq, "IBVERBS_1.1":
            unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_resize_cq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
        ibv_destroy_cq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event, "IBVERBS_1.1":
            unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_cq, c_uint);
        ibv_create_srq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        ibv_modify_srq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
        ibv_query_srq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
        ibv_destroy_srq, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_srq) -> c_int;
        ibv_create_qp, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_query_qp, "IBVERBS_1.1":
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        ibv_destroy_qp, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_qp) -> c_int;
        ibv_create_ah, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        ibv_destroy_ah, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_ah) -> c_int;
        ibv_attach_mcast, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
        ibv_detach_mcast, "IBVERBS_1.1": unsafe extern "C" fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    }
    optional {
        ibv_reg_mr_iova, "IBVERBS_1.7":
            unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
        ibv_reg_mr_iova2, "IBVERBS_1.8":
            unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
        ibv_get_device_index, "IBVERBS_1.9": unsafe extern "C" fn(*mut ibv_device) -> c_int;
        _ibv_query_gid_ex, "IBVERBS_1.11":
            unsafe extern "C" fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
        _ibv_query_gid_table, "IBVERBS_1.11":
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
        ibv_is_fork_initialized, "IBVERBS_1.13": unsafe extern "C" fn() -> c_int;
    }
}

table! {
    /// `librdmacm.so.1`.
    Cm;
    required {
        rdma_create_event_channel, "RDMACM_1.0": unsafe extern "C" fn() -> *mut cm::rdma_event_channel;
        rdma_destroy_event_channel, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_event_channel);
        rdma_create_id, "RDMACM_1.0": unsafe extern "C" fn(
            *mut cm::rdma_event_channel,
            *mut *mut cm::rdma_cm_id,
            *mut c_void,
            c_int,
        ) -> c_int;
        rdma_destroy_id, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id) -> c_int;
        rdma_bind_addr, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_resolve_addr, "RDMACM_1.0": unsafe extern "C" fn(
            *mut cm::rdma_cm_id,
            *mut libc::sockaddr,
            *mut libc::sockaddr,
            c_int,
        ) -> c_int;
        rdma_resolve_route, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id, c_int) -> c_int;
        rdma_connect, "RDMACM_1.0":
            unsafe extern "C" fn(*mut cm::rdma_cm_id, *mut cm::rdma_conn_param) -> c_int;
        rdma_listen, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id, c_int) -> c_int;
        rdma_accept, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id, *mut cm::rdma_conn_param) -> c_int;
        rdma_reject, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_id) -> c_int;
        rdma_get_cm_event, "RDMACM_1.0":
            unsafe extern "C" fn(*mut cm::rdma_event_channel, *mut *mut cm::rdma_cm_event) -> c_int;
        rdma_ack_cm_event, "RDMACM_1.0": unsafe extern "C" fn(*mut cm::rdma_cm_event) -> c_int;
    }
    optional {
        // What a program needs that has queue pairs of its own making.
        rdma_establish, "RDMACM_1.2": unsafe extern "C" fn(*mut cm::rdma_cm_id) -> c_int;
        rdma_init_qp_attr, "RDMACM_1.2":
            unsafe extern "C" fn(*mut cm::rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What our own drop-in exports is the list of Debian's libraries.
    const EXPORTS: [&str; 2] =
        [include_str!("../../abi/exports.txt"), include_str!("../../abi/exports-rdmacm.txt")];

    #[test]
    fn each_symbol_is_one_of_the_library_in_its_default_version() {
        for (required, optional, exports) in
            [(Verbs::REQUIRED, Verbs::OPTIONAL, EXPORTS[0]), (Cm::REQUIRED, Cm::OPTIONAL, EXPORTS[1])]
        {
            for (name, version) in required.iter().chain(optional) {
                let line = format!("{name}@@{version}");
                assert!(exports.lines().any(|known| known == line), "{line}");
            }
        }
    }
}

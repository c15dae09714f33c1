//! The C side of verbs: structures and numbers of rdma-core 44 for 64-bit Linux, as C programs were compiled with them.
//!
//! Layouts only, no logic. The names are those of C, so that a reader finds them in the manual pages;
//! `tests/layout.rs` compiles a C program against the installed headers and compares the offset and the size
//! of every field and the value of every constant.
#![allow(unsafe_code, reason = "the functions of C are unsafe to call, and so are their types")]
#![allow(missing_docs, reason = "names and meanings are those of the C headers and manual pages")]
#![allow(non_camel_case_types, non_snake_case, reason = "the names are those of C")]

pub mod cm;
mod constants;
mod context;
mod device;
mod layout;
mod objects;
mod queue_pair;
mod work;

pub use constants::*;
pub use context::{ibv_context, ibv_context_ops, ibv_values_ex, verbs_context};
pub use device::{
    ibv_cq_moderation_caps, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry,
    ibv_odp_caps, ibv_packet_pacing_caps, ibv_pci_atomic_caps, ibv_port_attr, ibv_query_device_ex_input,
    ibv_rss_caps, ibv_tm_caps, ibv_tso_caps,
};
pub use layout::Layout;
pub use objects::*;
pub use queue_pair::*;
pub use work::{
    ibv_data_buf, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, send_wr_atomic, send_wr_bind, send_wr_rdma,
    send_wr_to, send_wr_ud,
};

/// A function that answers "not supported" with a number, whatever its arguments.
pub type Refusal = Option<unsafe extern "C" fn() -> libc::c_int>;
/// The same for those that return a pointer.
pub type RefusalPtr = Option<unsafe extern "C" fn() -> *mut libc::c_void>;

/// Every structure with its fields, for comparison with the headers.
#[must_use]
pub fn layouts() -> Vec<Layout> {
    let all = [
        device::layouts(),
        objects::layouts(),
        work::layouts(),
        queue_pair::layouts(),
        context::layouts(),
        work::nested(),
        device::nested(),
    ];
    all.into_iter().flatten().collect()
}

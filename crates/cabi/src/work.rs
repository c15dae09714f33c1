//! Work requests and completions.

use libc::{c_int, c_uint, c_void};

use crate::layout::{Layout, c_structs};
use crate::objects::{ibv_ah, ibv_mw, ibv_mw_bind_info};

c_structs! {
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    struct ibv_data_buf {
        addr: *mut c_void,
        length: usize,
    }

    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    struct ibv_wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}

/// `ibv_send_wr::wr.rdma`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// `ibv_send_wr::wr.atomic`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// `ibv_send_wr::wr.ud`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct send_wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `ibv_send_wr::wr`; which of them it is follows from the opcode and the queue pair's type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union send_wr_to {
    pub rdma: send_wr_rdma,
    pub atomic: send_wr_atomic,
    pub ud: send_wr_ud,
}

/// `ibv_send_wr::bind_mw`, which shares its place with a form that no queue pair here knows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct send_wr_bind {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    /// In network byte order; or the key to invalidate, in the order of this machine.
    pub imm_data: u32,
    pub wr: send_wr_to,
    pub remote_srqn: u32,
    pub bind_mw: send_wr_bind,
}

/// What the list above cannot name: fields inside of unnamed structures.
pub(crate) fn nested() -> Vec<Layout> {
    macro_rules! inside {
        ($($path:literal, $base:expr, $type:ty { $($field:ident: $size:expr,)* })*) => {
            vec![$($((
                concat!($path, stringify!($field)),
                $base + core::mem::offset_of!($type, $field),
                $size,
            ),)*)*]
        };
    }
    let to = core::mem::offset_of!(ibv_send_wr, wr);
    let bind = core::mem::offset_of!(ibv_send_wr, bind_mw);
    let info = bind + core::mem::offset_of!(send_wr_bind, bind_info);
    let fields = inside! {
        "", 0, ibv_send_wr {
            wr_id: 8, next: 8, sg_list: 8, num_sge: 4, opcode: 4, send_flags: 4, imm_data: 4,
            wr: size_of::<send_wr_to>(), bind_mw: size_of::<send_wr_bind>(),
        }
        "wr.rdma.", to, send_wr_rdma { remote_addr: 8, rkey: 4, }
        "wr.atomic.", to, send_wr_atomic { remote_addr: 8, compare_add: 8, swap: 8, rkey: 4, }
        "wr.ud.", to, send_wr_ud { ah: 8, remote_qpn: 4, remote_qkey: 4, }
        "qp_type.xrc.", 0, ibv_send_wr { remote_srqn: 4, }
        "bind_mw.", bind, send_wr_bind { mw: 8, rkey: 4, bind_info: size_of::<ibv_mw_bind_info>(), }
        "bind_mw.bind_info.", info, ibv_mw_bind_info { mr: 8, addr: 8, length: 8, mw_access_flags: 4, }
    };
    vec![Layout { name: "struct ibv_send_wr", size: size_of::<ibv_send_wr>(), fields }]
}

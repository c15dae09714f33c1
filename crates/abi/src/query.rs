//! What a device and its port are like.

use std::mem::offset_of;

use ferroce_cabi::{
    IBV_ATOMIC_HCA, IBV_DEVICE_BAD_PKEY_CNTR, IBV_DEVICE_BAD_QKEY_CNTR, IBV_DEVICE_CURR_QP_STATE_MOD,
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B,
    IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_SRQ_RESIZE, IBV_DEVICE_SYS_IMAGE_GUID, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_MTU_4096, IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_DOWN,
    IBV_PORT_IP_BASED_GIDS, IBV_QPF_GRH_REQUIRED, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
    IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry,
    ibv_port_attr, ibv_query_device_ex_input, ibv_values_ex,
};
use ferroce_device::discovery::GidTable;
use ferroce_device::memory::{MAX_REGIONS, MAX_WINDOWS};
use ferroce_device::{Limits, Nic, Uncancelled};
use ferroce_wire::PKeyTable;
use libc::{EINVAL, c_int, c_void, ssize_t};

use crate::context::Context;
use crate::devices::write_text;
use crate::object::{Zero, filled};
use crate::refusal::{Answer, Refused, minus_one, number, set_errno};

/// The port of every device.
const PORT: u8 = 1;

/// The number that stands for no vendor: there is no hardware.
const NO_VENDOR: u32 = 0x00ff_ffff;

/// Whether ATOMIC WRITE is known, as `device_cap_flags_ex` says it.
const ATOMIC_WRITE: u64 = 1 << 40;

fn device_attributes(nic: &Nic) -> ibv_device_attr {
    let mut attr = ibv_device_attr::zero();
    write_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = nic.info().node_guid().to_be();
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = u64::MAX;
    // Any page size will do: memory is not pinned.
    attr.page_size_cap = 0xffff_f000;
    attr.vendor_id = NO_VENDOR;
    attr.max_qp = int(Limits::QUEUE_PAIRS);
    attr.max_qp_wr = int(Limits::QUEUE_DEPTH as usize);
    attr.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR
        | IBV_DEVICE_BAD_QKEY_CNTR
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_sge = int(Limits::SGE as usize);
    attr.max_sge_rd = int(Limits::SGE as usize);
    attr.max_cq = int(Limits::COMPLETION_QUEUES);
    attr.max_cqe = int(Limits::COMPLETIONS as usize);
    attr.max_mr = int(MAX_REGIONS);
    attr.max_pd = int(Limits::DOMAINS);
    attr.max_qp_rd_atom = c_int::from(Limits::READ_DEPTH);
    attr.max_qp_init_rd_atom = c_int::from(Limits::READ_DEPTH);
    attr.max_res_rd_atom = int(Limits::QUEUE_PAIRS * usize::from(Limits::READ_DEPTH));
    // They are atomic for the processors too, which would be `IBV_ATOMIC_GLOB`. But cards and the kernel's own device say
    // this, and programs that know no other, such as UCX before 1.19, would do without atomics.
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_mcast_grp = int(nic.most_groups());
    attr.max_mcast_qp_attach = int(Limits::GROUP_MEMBERS);
    attr.max_total_mcast_qp_attach = int(nic.most_groups() * Limits::GROUP_MEMBERS);
    attr.max_mw = int(MAX_WINDOWS);
    attr.max_ah = int(Limits::ADDRESS_HANDLES);
    attr.max_srq = int(Limits::SHARED_QUEUES);
    attr.max_srq_wr = int(Limits::QUEUE_DEPTH as usize);
    attr.max_srq_sge = int(Limits::SGE as usize);
    attr.max_pkeys = u16::try_from(PKeyTable::MOST).unwrap_or(u16::MAX);
    attr.local_ca_ack_delay = 15;
    attr.phys_port_cnt = PORT;
    attr
}

fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a structure of its own to fill, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = context.and_then(|context| {
        *attr? = device_attributes(&context.nic);
        Ok(())
    });
    number("ibv_query_device", answer)
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    to: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a structure of its own, or null.
    let asked = unsafe { input.as_ref() }.map_or(0, |input| input.comp_mask);
    let answer = context.and_then(|context| {
        if asked != 0 {
            return Err(Refused::invalid(format_args!("unknown bits 0x{asked:x} in the question")));
        }
        if size < size_of::<ibv_device_attr>() || to.is_null() {
            return Err(Refused::invalid(format_args!("{size} bytes for the attributes are too few")));
        }
        let mut attr = ibv_device_attr_ex::zero();
        attr.orig_attr = device_attributes(&context.nic);
        attr.completion_timestamp_mask = u64::MAX;
        // In kHz: completions are stamped in nanoseconds.
        attr.hca_core_clock = 1_000_000;
        attr.device_cap_flags_ex = u64::from(attr.orig_attr.device_cap_flags) | ATOMIC_WRITE;
        (attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period) = (u16::MAX, u16::MAX);
        // In kilobits per second, as `ibv_modify_qp` takes it.
        attr.packet_pacing_caps.qp_rate_limit_min = 1;
        attr.packet_pacing_caps.qp_rate_limit_max = u32::MAX;
        attr.packet_pacing_caps.supported_qpts = 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD;
        attr.phys_port_cnt_ex = u32::from(PORT);
        // SAFETY: the caller vouches for `size` bytes there; no more than the structure has are copied.
        unsafe { copy_out(&attr, to.cast(), size) };
        Ok(())
    });
    number("ibv_query_device_ex", answer)
}

/// Fills as much of a structure as the program knows of.
///
/// # Safety
/// `to` is valid for writes of `size` bytes.
unsafe fn copy_out<T>(from: &T, to: *mut u8, size: usize) {
    let len = size.min(size_of::<T>());
    // SAFETY: both ranges have `len` bytes, and one of them is our own.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast(), to, len) };
    // SAFETY: the caller vouches for the rest of its structure, which is of a later version than ours.
    unsafe { to.wrapping_add(len).write_bytes(0, size - len) };
}

fn port_attributes(nic: &Nic) -> ibv_port_attr {
    let mut attr = ibv_port_attr::zero();
    attr.state = if nic.info().up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = c_int::from(nic.active_mtu().code());
    // Places of the table; those behind the last address are empty.
    attr.gid_tbl_len = int(GidTable::MAX_LEN);
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = 1 << 31;
    attr.pkey_tbl_len = u16::try_from(nic.pkeys().len()).unwrap_or(u16::MAX);
    attr.max_vl_num = 1;
    // One lane of 25 Gbit/s: near to what a socket carries, and known to every tool.
    attr.active_width = 1;
    attr.active_speed = 32;
    // 5: the link is up; 3: disabled.
    attr.phys_state = if nic.info().up { 5 } else { 3 };
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr.flags = IBV_QPF_GRH_REQUIRED;
    attr
}

fn check_port(given: u32) -> Answer<()> {
    if given == u32::from(PORT) {
        Ok(())
    } else {
        Err(Refused::invalid(format_args!("port {given}: the device has one, with the number 1")))
    }
}

/// # Safety
/// `context` is as for [`Context::of`], and `to` is null or valid for writes of `size` bytes.
unsafe fn query_port_into(context: *mut ibv_context, port: u8, to: *mut u8, size: usize) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let context = unsafe { Context::of(context) }?;
    check_port(u32::from(port))?;
    if to.is_null() {
        return Err(Refused::invalid("the attributes are a null pointer"));
    }
    // SAFETY: the caller vouches for it.
    unsafe { copy_out(&port_attributes(&context.nic), to, size) };
    Ok(())
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context and `size` bytes of its own.
    number("ibv_query_port", unsafe { query_port_into(context, port, attr.cast(), size) })
}

/// The form for programs from before the structure grew: it must not write behind their shorter one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut c_void,
) -> c_int {
    let _whole = Uncancelled::new();
    let size = offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller passes an open context and a structure of the short form.
    number("ibv_query_port", unsafe { query_port_into(context, port, attr.cast(), size) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let answer = context.and_then(|context| {
        check_port(u32::from(port))?;
        if gid.is_null() {
            return Err(Refused::invalid("the GID is a null pointer"));
        }
        let raw = gid_at(&context.nic, u32::try_from(index).unwrap_or(u32::MAX))?;
        // SAFETY: the caller passes sixteen bytes of its own to fill; programs do not always align them.
        unsafe { gid.write_unaligned(raw) };
        Ok(())
    });
    minus_one("ibv_query_gid", answer)
}

/// The GID at an index; zeros at an empty place of the table.
fn gid_at(nic: &Nic, index: u32) -> Answer<ibv_gid> {
    if index as usize >= GidTable::MAX_LEN {
        let most = GidTable::MAX_LEN;
        return Err(Refused::invalid(format_args!("GID index {index}: the table has {most} places, from 0")));
    }
    Ok(ibv_gid { raw: nic.gid(index as usize).map_or([0; 16], |gid| gid.0) })
}

fn gid_entry(nic: &Nic, index: u32) -> Answer<ibv_gid_entry> {
    let mut entry = ibv_gid_entry::zero();
    entry.gid = gid_at(nic, index)?;
    entry.gid_index = index;
    entry.port_num = u32::from(PORT);
    entry.gid_type = IBV_GID_TYPE_ROCE_V2.cast_unsigned();
    entry.ndev_ifindex = nic.info().index;
    Ok(entry)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let answer = context.and_then(|context| {
        if flags != 0 || to.is_null() {
            return Err(Refused::unsupported(format_args!("flags 0x{flags:x} of a GID query, or no entry")));
        }
        check_port(port)?;
        let entry = gid_entry(&context.nic, index)?;
        if context.nic.gid(index as usize).is_none() {
            return Err(Refused::new(libc::ENODATA, format_args!("place {index} of the GID table is empty")));
        }
        // SAFETY: the caller vouches for `size` bytes there.
        unsafe { copy_out(&entry, to.cast(), size) };
        Ok(())
    });
    number("ibv_query_gid_ex", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    to: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let answer = context.and_then(|context| {
        let count = context.nic.gid_count();
        if flags != 0 || to.is_null() || size == 0 {
            return Err(Refused::unsupported(format_args!(
                "flags 0x{flags:x} of a GID query, or no entries"
            )));
        }
        if room < count {
            return Err(Refused::invalid(format_args!("room for {room} GIDs; the port has {count}")));
        }
        for index in 0..count {
            let entry = gid_entry(&context.nic, u32::try_from(index).unwrap_or(u32::MAX))?;
            // SAFETY: the caller vouches for `room` entries of `size` bytes, and `index` is below `room`.
            unsafe { copy_out(&entry, to.cast::<u8>().wrapping_add(index * size), size) };
        }
        Ok(ssize_t::try_from(count).unwrap_or(ssize_t::MAX))
    });
    answer.unwrap_or_else(|refused| -(refused.tell("ibv_query_gid_table") as ssize_t))
}

/// A RoCEv2 GID in the numbers of this private function, which has no name for it: 1 is RoCE v2 there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: libc::c_uint,
    kind: *mut c_int,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a number of its own to fill, or null.
    let kind = unsafe { filled(kind, "type") };
    let answer = context.and_then(|context| {
        check_port(u32::from(port))?;
        gid_at(&context.nic, index)?;
        *kind? = 1;
        Ok(())
    });
    minus_one("ibv_query_gid_type", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a number of its own to fill, or null.
    let pkey = unsafe { filled(pkey, "P_Key") };
    let answer = context.and_then(|context| {
        check_port(u32::from(port))?;
        let found = usize::try_from(index).ok().and_then(|index| context.nic.pkey(index));
        let found =
            found.ok_or_else(|| Refused::invalid(format_args!("P_Key index {index}: the port has fewer")))?;
        *pkey? = found.0.to_be();
        Ok(())
    });
    minus_one("ibv_query_pkey", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let wanted = u16::from_be(pkey);
    let found = context.ok().filter(|_| port == PORT).and_then(|context| {
        (0..).map_while(|index| context.nic.pkey(index)).position(|known| known.0 == wanted)
    });
    found.map_or_else(
        || {
            set_errno(EINVAL);
            -1
        },
        int,
    )
}

/// The clock that completions are stamped with.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a structure of its own to fill, or null.
    let values = unsafe { filled(values, "values") };
    let answer = context.and_then(|_| {
        let values = values?;
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Refused::unsupported(format_args!("values 0x{:x}", values.comp_mask)));
        }
        values.raw_clock.tv_sec = 0;
        values.raw_clock.tv_nsec = libc::c_long::try_from(ferroce_device::now().nanos()).unwrap_or(0);
        Ok(())
    });
    number("ibv_query_rt_values_ex", answer)
}

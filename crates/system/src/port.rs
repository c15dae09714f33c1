//! What a card and its ports are like.

use ferroce_cabi::{
    IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, ibv_device_attr, ibv_device_attr_ex,
    ibv_gid, ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input,
};
use ferroce_wire::{Gid, PKey, PathMtu};
use libc::c_int;

use crate::card::text;
use crate::context::{Open, extended};
use crate::error::CallError;
use crate::handle::{Zero, answered};

/// What a card is, and how much of everything it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardAttributes {
    /// The version of what runs on it.
    pub firmware: String,
    /// Its number in the world.
    pub node_guid: u64,
    /// Its maker, and the maker's number for this kind of card.
    pub vendor_id: u32,
    /// The maker's number for this kind of card.
    pub part_id: u32,
    /// Ports, which are counted from 1.
    pub ports: u8,
    /// Bytes of a memory region.
    pub max_region: u64,
    /// Requests of a queue.
    pub max_queue_depth: u32,
    /// Pieces of a request.
    pub max_sge: u32,
    /// Completions of a completion queue.
    pub max_completions: u32,
    /// Queue pairs.
    pub max_queue_pairs: u32,
    /// Completion queues.
    pub max_completion_queues: u32,
    /// Shared receive queues.
    pub max_shared_receive_queues: u32,
    /// Memory regions.
    pub max_memory_regions: u32,
    /// Memory windows.
    pub max_memory_windows: u32,
    /// READs and atomics under way to one queue pair.
    pub max_read_depth: u8,
    /// READs and atomics under way from one queue pair.
    pub max_initiator_depth: u8,
    /// Whether it has atomics.
    pub atomics: bool,
    /// Whether it has ATOMIC WRITE.
    pub atomic_writes: bool,
    /// Its capabilities, as the library numbers them.
    pub capabilities: u32,
    /// The bits of a completion's time that mean something; none if it takes no times.
    pub timestamp_mask: u64,
    /// How fast the clock ticks on which completions are timed, in kilohertz; 0 if it is not told.
    pub core_clock_khz: u64,
    /// Completions, and microseconds, that an event may wait for at most; nothing if events cannot be put off.
    pub moderation: Option<(u16, u16)>,
}

/// What a port is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whether it carries packets.
    pub active: bool,
    /// Whether it is an Ethernet port, on which addresses are those of IP.
    pub ethernet: bool,
    /// The largest payload of a packet now.
    pub active_mtu: Option<PathMtu>,
    /// The largest payload of a packet that it can be set up for.
    pub max_mtu: Option<PathMtu>,
    /// Bytes of a message.
    pub max_message: u32,
    /// Entries of its table of addresses.
    pub gids: u32,
    /// Entries of its table of partition keys.
    pub pkeys: u16,
    /// Its address in an InfiniBand network.
    pub lid: u16,
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its index in the table.
    pub index: u32,
    /// The port.
    pub port: u32,
    /// Whether packets with it are RoCEv2, and not of InfiniBand or RoCEv1.
    pub is_roce_v2: bool,
    /// The kernel's number of its network interface, 0 if it has none.
    pub interface: u32,
}

/// The bit of ATOMIC WRITE in `device_cap_flags_ex`. Libraries that are too old to know it leave it out.
const ATOMIC_WRITE: u64 = 1 << 40;

pub(crate) fn attributes(open: &Open) -> Result<CardAttributes, CallError> {
    let mut attr = ibv_device_attr_ex::zero();
    let extended = extended!(open, query_device_ex)
        .ok_or(CallError::unsupported("ibv_query_device_ex"))
        .and_then(|query| {
            let input = ibv_query_device_ex_input { comp_mask: 0 };
            // SAFETY: a live context, and structures of these sizes that live during the call.
            let answer = unsafe {
                query(open.c.as_ptr(), &raw const input, &raw mut attr, size_of::<ibv_device_attr_ex>())
            };
            answered("ibv_query_device_ex", answer)
        });
    if extended.is_err() {
        attr = ibv_device_attr_ex::zero();
        // SAFETY: a live context, and a structure that lives during the call.
        let answer =
            unsafe { (open.library.verbs().ibv_query_device)(open.c.as_ptr(), &raw mut attr.orig_attr) };
        answered("ibv_query_device", answer)?;
    }
    Ok(CardAttributes {
        timestamp_mask: attr.completion_timestamp_mask,
        core_clock_khz: attr.hca_core_clock,
        moderation: Some((attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period))
            .filter(|(count, period)| *count > 0 && *period > 0 && extended!(open, modify_cq).is_some()),
        atomic_writes: attr.device_cap_flags_ex & ATOMIC_WRITE != 0,
        ..first_attributes(&attr.orig_attr)
    })
}

fn first_attributes(attr: &ibv_device_attr) -> CardAttributes {
    let count = |number: c_int| u32::try_from(number).unwrap_or(0);
    let small = |number: c_int| u8::try_from(number.clamp(0, 255)).unwrap_or(0);
    CardAttributes {
        firmware: text(&attr.fw_ver),
        node_guid: u64::from_be(attr.node_guid),
        vendor_id: attr.vendor_id,
        part_id: attr.vendor_part_id,
        ports: attr.phys_port_cnt,
        max_region: attr.max_mr_size,
        max_queue_depth: count(attr.max_qp_wr),
        max_sge: count(attr.max_sge),
        max_completions: count(attr.max_cqe),
        max_queue_pairs: count(attr.max_qp),
        max_completion_queues: count(attr.max_cq),
        max_shared_receive_queues: count(attr.max_srq),
        max_memory_regions: count(attr.max_mr),
        max_memory_windows: count(attr.max_mw),
        max_read_depth: small(attr.max_qp_rd_atom),
        max_initiator_depth: small(attr.max_qp_init_rd_atom),
        atomics: attr.atomic_cap != 0,
        atomic_writes: false,
        capabilities: attr.device_cap_flags,
        timestamp_mask: 0,
        core_clock_khz: 0,
        moderation: None,
    }
}

pub(crate) fn query(open: &Open, number: u8) -> Result<Port, CallError> {
    let mut attr = ibv_port_attr::zero();
    let answer = match extended!(open, query_port) {
        // SAFETY: a live context, and a structure of this size that lives during the call.
        Some(query) => unsafe { query(open.c.as_ptr(), number, &raw mut attr, size_of::<ibv_port_attr>()) },
        None => {
            // SAFETY: as above; it fills no more than the structure has.
            unsafe { (open.library.verbs().ibv_query_port)(open.c.as_ptr(), number, &raw mut attr) }
        }
    };
    answered("ibv_query_port", answer)?;
    let mtu = |code: c_int| u8::try_from(code).ok().and_then(PathMtu::from_code);
    Ok(Port {
        active: attr.state == IBV_PORT_ACTIVE,
        ethernet: attr.link_layer == IBV_LINK_LAYER_ETHERNET,
        active_mtu: mtu(attr.active_mtu),
        max_mtu: mtu(attr.max_mtu),
        max_message: attr.max_msg_sz,
        gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        pkeys: attr.pkey_tbl_len,
        lid: attr.lid,
    })
}

pub(crate) fn gid(open: &Open, port: u8, index: u32) -> Result<Gid, CallError> {
    let mut gid = ibv_gid { raw: [0; 16] };
    let index = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: a live context, and an address that lives during the call.
    let answer = unsafe { (open.library.verbs().ibv_query_gid)(open.c.as_ptr(), port, index, &raw mut gid) };
    answered("ibv_query_gid", answer)?;
    Ok(Gid(gid.raw))
}

/// The most addresses that are asked for; cards have some hundreds.
const MOST_GIDS: usize = 65_536;

pub(crate) fn gids(open: &Open) -> Result<Option<Vec<GidEntry>>, CallError> {
    const CALL: &str = "ibv_query_gid_table";
    let Some(query) = open.library.verbs()._ibv_query_gid_table else { return Ok(None) };
    let mut entries = vec![ibv_gid_entry::zero(); 256];
    let found = loop {
        let (first, room) = (entries.as_mut_ptr(), entries.len());
        // SAFETY: a live context, and so many entries of this size, which live during the call.
        let found = unsafe { query(open.c.as_ptr(), first, room, 0, size_of::<ibv_gid_entry>()) };
        match usize::try_from(found) {
            Ok(found) => break found.min(room),
            Err(_) if found == -libc::EINVAL as isize && room < MOST_GIDS => {
                entries.resize(room * 4, ibv_gid_entry::zero());
            }
            Err(_) => {
                let code = i32::try_from(found).unwrap_or(-libc::EIO);
                answered(CALL, code)?;
            }
        }
    };
    let known = entries.iter().take(found).map(|entry| GidEntry {
        gid: Gid(entry.gid.raw),
        index: entry.gid_index,
        port: entry.port_num,
        is_roce_v2: c_int::try_from(entry.gid_type) == Ok(IBV_GID_TYPE_ROCE_V2),
        interface: entry.ndev_ifindex,
    });
    Ok(Some(known.collect()))
}

pub(crate) fn pkey(open: &Open, port: u8, index: u16) -> Result<PKey, CallError> {
    let mut pkey = 0;
    let index = c_int::from(index);
    // SAFETY: a live context, and a number that lives during the call.
    let answer =
        unsafe { (open.library.verbs().ibv_query_pkey)(open.c.as_ptr(), port, index, &raw mut pkey) };
    answered("ibv_query_pkey", answer)?;
    Ok(PKey(u16::from_be(pkey)))
}

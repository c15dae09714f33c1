//! What a device and its port are like.

use ferroce_device::Limits;
use ferroce_device::discovery::DeviceInfo;
use ferroce_wire::{Gid, PKey, PathMtu};

use crate::card::OpenCard;
use crate::device::Device;

/// What a device is, and how much of everything it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Its name, such as `ferroce_lo`.
    pub name: String,
    /// Its network interface; empty for a card.
    pub interface: String,
    /// The version of what runs on it; empty for the soft device.
    pub firmware: String,
    /// Its number in the world.
    pub node_guid: u64,
    /// Requests of a queue.
    pub max_queue_depth: u32,
    /// Pieces of a request.
    pub max_sge: u32,
    /// Bytes of an inline request.
    pub max_inline: u32,
    /// Completions of a completion queue.
    pub max_completions: u32,
    /// Queue pairs.
    pub max_queue_pairs: usize,
    /// Completion queues.
    pub max_completion_queues: usize,
    /// Shared receive queues.
    pub max_shared_receive_queues: usize,
    /// Address handles.
    pub max_address_handles: usize,
    /// Protection domains.
    pub max_protection_domains: usize,
    /// Memory regions.
    pub max_memory_regions: usize,
    /// READs and atomics under way on each side of a queue pair.
    pub max_read_depth: u8,
    /// How fast the clock ticks on which completions are timed, in kilohertz: that of the soft device counts nanoseconds. 0 if a card
    /// does not tell.
    pub core_clock_khz: u64,
    /// The bits of a completion's time that mean something: on the soft device all of them.
    pub timestamp_mask: u64,
}

impl DeviceAttributes {
    pub(crate) fn of(device: &Device) -> Self {
        match device {
            Device::Soft(nic) => Self::of_soft(nic.info()),
            Device::Card(card) => Self::of_card(card),
        }
    }

    fn of_card(card: &OpenCard) -> Self {
        let has = card.attributes();
        let many = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            name: card.name().to_owned(),
            interface: String::new(),
            firmware: has.firmware.clone(),
            node_guid: has.node_guid,
            max_queue_depth: has.max_queue_depth,
            max_sge: has.max_sge.min(Limits::SGE),
            // Cards tell only when a queue pair is made.
            max_inline: 0,
            max_completions: has.max_completions,
            max_queue_pairs: many(has.max_queue_pairs),
            max_completion_queues: many(has.max_completion_queues),
            max_shared_receive_queues: many(has.max_shared_receive_queues),
            max_address_handles: usize::MAX,
            max_protection_domains: usize::MAX,
            max_memory_regions: many(has.max_memory_regions),
            max_read_depth: has.max_read_depth.min(has.max_initiator_depth),
            core_clock_khz: has.core_clock_khz,
            timestamp_mask: has.timestamp_mask,
        }
    }

    fn of_soft(info: &DeviceInfo) -> Self {
        Self {
            firmware: String::new(),
            name: info.name.clone(),
            interface: info.interface.clone(),
            node_guid: info.node_guid(),
            max_queue_depth: Limits::QUEUE_DEPTH,
            max_sge: Limits::SGE,
            max_inline: Limits::INLINE,
            max_completions: Limits::COMPLETIONS,
            max_queue_pairs: Limits::QUEUE_PAIRS,
            max_completion_queues: Limits::COMPLETION_QUEUES,
            max_shared_receive_queues: Limits::SHARED_QUEUES,
            max_address_handles: Limits::ADDRESS_HANDLES,
            max_protection_domains: Limits::DOMAINS,
            max_memory_regions: ferroce_device::memory::MAX_REGIONS,
            max_read_depth: Limits::READ_DEPTH,
            core_clock_khz: 1_000_000,
            timestamp_mask: u64::MAX,
        }
    }
}

/// Whether a port carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The interface was down when the device was opened.
    Down,
    /// It does.
    Active,
}

/// What the port of a device is like. A device has one, with the number 1; of a card that has several, the first is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whether it carries packets.
    pub state: PortState,
    /// The largest payload of a packet.
    pub active_mtu: PathMtu,
    /// Its addresses; an index into this table is a GID index.
    pub gids: Vec<Gid>,
    /// Its partition keys.
    pub pkeys: Vec<PKey>,
}

impl Port {
    pub(crate) fn of(device: &Device) -> Self {
        let is_up = match device {
            Device::Soft(nic) => nic.info().up,
            Device::Card(card) => card.is_up(),
        };
        Self {
            state: if is_up { PortState::Active } else { PortState::Down },
            active_mtu: device.active_mtu(),
            gids: device.gids(),
            pkeys: device.pkeys(),
        }
    }
}

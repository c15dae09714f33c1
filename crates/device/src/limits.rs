//! How large the objects of a device may be, and how many it has.

use ferroce_transport::MAX_RESOURCES;

/// How large the objects of a device may be, and how many it has.
#[derive(Clone, Copy, Debug)]
pub struct Limits;

impl Limits {
    /// Requests of a queue.
    pub const QUEUE_DEPTH: u32 = 32_768;
    /// Pieces of a request.
    pub const SGE: u32 = 32;
    /// Bytes of an inline request.
    pub const INLINE: u32 = 1024;
    /// Completions of a completion queue.
    pub const COMPLETIONS: u32 = 1 << 22;
    /// Engines.
    pub const ENGINES: usize = 16;
    /// Queue pairs of an engine.
    pub const QUEUE_PAIRS: usize = 65_000;
    /// Completion queues.
    pub const COMPLETION_QUEUES: usize = 1 << 16;
    /// Shared receive queues of an engine.
    pub const SHARED_QUEUES: usize = 1 << 16;
    /// Address handles.
    pub const ADDRESS_HANDLES: usize = 1 << 20;
    /// Protection domains.
    pub const DOMAINS: usize = 1 << 16;
    /// Queue pairs attached to a multicast group.
    pub const GROUP_MEMBERS: usize = 4096;
    /// Multicast groups.
    pub const GROUPS: usize = 4096;
    /// READs and atomics under way on each side of a queue pair.
    pub const READ_DEPTH: u8 = MAX_RESOURCES;
}

//! Memory that a peer may use by address alone.

use ferroce_verbs::Memory;

/// A *physical window*: memory with an address space of its own, which begins at an address of the program's choice.
/// A peer that is let in reads and writes by these addresses, and never sees a key.
///
/// There is none unless the program opens one with [`Options::physical_window`](crate::Options::physical_window),
/// and every peer is judged by a function of the program before it gets in. Nothing beyond the window can
/// be reached: the device checks each access.
///
/// ```
/// use ferroce_endpoint::{Memory, Options, PhysicalWindow};
///
/// let memory = Memory::zeroed(1 << 20)?;
/// // One mebibyte, which peers know as 0x4000_0000 and following.
/// let window = PhysicalWindow::read_only(memory.clone(), 0x4000_0000);
/// let options = Options::new().physical_window(window, |peer| peer.ip().is_loopback());
/// # let _ = options;
/// # Ok::<(), ferroce_endpoint::MemoryError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PhysicalWindow {
    pub(crate) memory: Memory,
    pub(crate) start: u64,
    pub(crate) writable: bool,
}

impl PhysicalWindow {
    /// A window that peers may only read.
    #[must_use]
    pub fn read_only(memory: impl Into<Memory>, start: u64) -> Self {
        Self { memory: memory.into(), start, writable: false }
    }

    /// A window that peers may read and write.
    #[must_use]
    pub fn read_write(memory: impl Into<Memory>, start: u64) -> Self {
        Self { memory: memory.into(), start, writable: true }
    }
}

//! Registered memory of a socket, and the memory of programs that bytes come from and go to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_int;
use std::ptr::NonNull;

use ferroce_cabi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd};
use ferroce_device::memory::copy_in;
use libc::iovec;

use crate::refusal::{Answer, Refused, last_errno};
use crate::region::{ibv_dereg_mr, ibv_reg_mr};

/// Memory that is ours, and that a peer may write if it was made so.
pub(super) struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    region: *mut ibv_mr,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

// SAFETY: the memory is the buffer's own, and all that reads or writes it has the lock of the socket; what a peer
// writes meanwhile is copied as such.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(super) fn new(pd: *mut ibv_pd, len: usize, peer_writes: bool) -> Answer<Self> {
        let layout = Layout::from_size_align(len.max(1), 4096);
        let layout = layout.map_err(|error| Refused::new(libc::ENOMEM, error))?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or_else(|| Refused::new(libc::ENOMEM, "no memory for a buffer"))?;
        let access = IBV_ACCESS_LOCAL_WRITE | if peer_writes { IBV_ACCESS_REMOTE_WRITE } else { 0 };
        let access = c_int::try_from(access).unwrap_or(0);
        // SAFETY: the domain is live, and the memory lives until it is deregistered.
        let region = unsafe { ibv_reg_mr(pd, start.as_ptr().cast(), layout.size(), access) };
        if region.is_null() {
            let refused = last_errno("a buffer cannot be registered");
            // SAFETY: it was allocated with this layout just now.
            unsafe { dealloc(start.as_ptr(), layout) };
            return Err(refused);
        }
        // SAFETY: it was made just now.
        let made = unsafe { &*region };
        Ok(Self { start, layout, region, lkey: made.lkey, rkey: made.rkey })
    }

    pub(super) fn address(&self, offset: usize) -> u64 {
        self.start.as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// Where a part of it is, which must be inside.
    pub(super) fn part(&self, offset: usize, len: usize) -> *mut u8 {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.layout.size());
        assert!(is_inside, "{len} bytes at {offset} are not all in a buffer of {} bytes", self.layout.size());
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Reads what a peer may be writing.
    pub(super) fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: the part is inside.
        unsafe { copy_in(self.part(offset, N), &mut bytes) };
        bytes
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.part(offset, bytes.len());
        // SAFETY: the part is inside, and nothing else writes it now: it waits for no send, and peers are told
        // where to write only afterwards.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was registered by `new`, and the queue pair that used it is gone.
        if unsafe { ibv_dereg_mr(self.region) } == 0 {
            // SAFETY: it was allocated with this layout, and no device writes it any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// Bytes of a program in several parts, of which the first ones are done.
pub(super) struct Parts<'a> {
    parts: &'a [iovec],
    done: usize,
}

impl<'a> Parts<'a> {
    /// # Safety
    /// Every part is memory that may be read, or written if it is to be filled, while this lives.
    pub(super) const unsafe fn new(parts: &'a [iovec]) -> Self {
        Self { parts, done: 0 }
    }

    pub(super) fn left(&self) -> usize {
        let whole = self.parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.iov_len));
        whole.saturating_sub(self.done)
    }

    /// The next bytes that lie together, at most so many.
    fn next(&mut self, most: usize) -> Option<(*mut u8, usize)> {
        while let Some((first, rest)) = self.parts.split_first() {
            if self.done < first.iov_len {
                let len = most.min(first.iov_len - self.done);
                let at = first.iov_base.cast::<u8>().wrapping_add(self.done);
                self.done += len;
                return Some((at, len));
            }
            self.done -= first.iov_len;
            self.parts = rest;
        }
        None
    }

    /// Copies the next bytes to a place of ours.
    ///
    /// # Safety
    /// So many bytes can be written at `to`, and nothing else uses them.
    pub(super) unsafe fn take(&mut self, to: *mut u8, len: usize) {
        let mut copied = 0;
        while copied < len {
            let Some((from, part)) = self.next(len - copied) else { return };
            // The program's other threads, or peers, may write it just now: that is as with every socket.
            // SAFETY: the program vouches for its part, and the caller for the place.
            unsafe { std::ptr::copy_nonoverlapping(from, to.wrapping_add(copied), part) };
            copied += part;
        }
    }

    /// Fills the next bytes from a place of ours that a peer may write.
    ///
    /// # Safety
    /// So many bytes can be read at `from`.
    pub(super) unsafe fn fill(&mut self, from: *const u8, len: usize) {
        let mut copied = 0;
        while copied < len {
            let Some((to, part)) = self.next(len - copied) else { return };
            // SAFETY: the program vouches for its part, and the caller for the place.
            unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(copied), to, part) };
            copied += part;
        }
    }
}

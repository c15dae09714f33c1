//! The arrays that `sendmmsg` and `recvmmsg` work on.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;

use libc::{c_long, c_void};

use super::control::{Control, Notes};
use super::name::Name;

/// Datagrams that one system call sends or receives at most.
pub(super) const BATCH: usize = 64;

/// Room for the headers, names and control messages of as many datagrams as one call takes, made once.
///
/// An entry is written whole before each call, and only the entries of that call are.
pub struct Messages {
    headers: Box<[libc::mmsghdr]>,
    pieces: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
}

// SAFETY: what keeps this from being `Send` are the raw pointers in `headers` and `pieces`. They own nothing, and no code
// here reads through them. Those in `headers` are into this struct's own boxes, which move with it and stay where they are.
// Those in `pieces` are handed to the kernel by callers of `send` and `receive` alone, which promise to have set them since:
// pointers from another thread's time are never used.
unsafe impl Send for Messages {}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

impl Messages {
    /// Makes all the room that will be needed.
    #[must_use]
    pub fn new() -> Self {
        Self::with_room(BATCH)
    }

    /// Makes room for calls of up to so many datagrams.
    pub(super) fn with_room(entries: usize) -> Self {
        // SAFETY: a header of C is numbers and pointers, for which zero is a value.
        let header = unsafe { mem::zeroed::<libc::mmsghdr>() };
        let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![header; entries].into(),
            pieces: vec![piece; entries].into(),
            names: vec![Name::EMPTY; entries].into(),
            controls: vec![Control::EMPTY; entries].into(),
        }
    }

    /// The control messages of an entry, to be written before [`outgoing`](Self::outgoing).
    pub fn control(&mut self, at: usize) -> &mut Control {
        &mut self.controls[at]
    }

    /// Entry `at` sends these bytes to this name, with its control messages.
    pub fn outgoing(&mut self, at: usize, payload: &[u8], name: Name) {
        self.names[at] = name;
        let used = self.controls[at].used();
        // The kernel only reads what it sends.
        self.point(at, payload.as_ptr().cast_mut(), payload.len(), name.size(), used);
    }

    /// Entry `at` sends these bytes instead of those that it was set for, to the same name and with the same control messages.
    #[inline]
    pub(super) fn turn_to(&mut self, at: usize, payload: &[u8]) {
        // The kernel only reads what it sends.
        let bytes = payload.as_ptr().cast_mut().cast::<c_void>();
        self.pieces[at] = libc::iovec { iov_base: bytes, iov_len: payload.len() };
    }

    /// Entry `at` has got other control messages than when it was set.
    pub(super) fn measure(&mut self, at: usize) {
        self.headers[at].msg_hdr.msg_controllen = self.controls[at].used();
    }

    /// Entry `at` receives into this slot.
    pub fn incoming(&mut self, at: usize, slot: &mut [u8]) {
        self.point(at, slot.as_mut_ptr(), slot.len(), Name::ROOM, Control::ROOM);
    }

    /// Sends these entries without waiting; says how many were taken.
    ///
    /// # Safety
    /// [`outgoing`](Self::outgoing) has set each of these entries since it was last used, and
    /// the bytes given to it are still borrowed.
    pub unsafe fn send(&mut self, socket: RawFd, entries: Range<usize>) -> io::Result<usize> {
        let headers = &mut self.headers[entries];
        let (to, count, flags) = (headers.as_mut_ptr(), headers.len(), c_long::from(libc::MSG_DONTWAIT));
        // SAFETY: `to` points to `count` headers, and each to a name, control messages and a piece of this
        // struct, none of which moves during the call; the caller keeps the bytes that pieces point to.
        let result = unsafe { libc::syscall(libc::SYS_sendmmsg, c_long::from(socket), to, count, flags) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Sends one entry without waiting. A call that takes many looks whether others want the processor after
    /// each of them.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(super) unsafe fn send_one(&mut self, socket: RawFd, at: usize) -> io::Result<()> {
        let header = &mut self.headers[at];
        let (to, flags) = (&raw mut header.msg_hdr, c_long::from(libc::MSG_DONTWAIT));
        // SAFETY: as in `send`, with one header.
        let result = unsafe { libc::syscall(libc::SYS_sendmsg, c_long::from(socket), to, flags) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives into these entries without waiting; says how many were filled.
    ///
    /// # Safety
    /// [`incoming`](Self::incoming) has set each of these entries since it was last used, and
    /// the slots given to it are still borrowed by the caller alone.
    pub unsafe fn receive(&mut self, socket: RawFd, entries: Range<usize>) -> io::Result<usize> {
        let headers = &mut self.headers[entries];
        let (to, count, flags) = (headers.as_mut_ptr(), headers.len(), c_long::from(libc::MSG_DONTWAIT));
        let forever = ptr::null_mut::<libc::timespec>();
        // SAFETY: `to` points to `count` headers, and each to a name, control messages and a piece of this
        // struct, whose true room it says and none of which moves during the call; the caller keeps the
        // slots that pieces point to. Without a time limit the last argument is null.
        let result =
            unsafe { libc::syscall(libc::SYS_recvmmsg, c_long::from(socket), to, count, flags, forever) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Receives one datagram into an entry without waiting.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub(super) unsafe fn receive_one(&mut self, socket: RawFd, at: usize) -> io::Result<()> {
        let header = &mut self.headers[at];
        let (to, flags) = (&raw mut header.msg_hdr, c_long::from(libc::MSG_DONTWAIT));
        // SAFETY: as in `receive`, with one header.
        let result = unsafe { libc::syscall(libc::SYS_recvmsg, c_long::from(socket), to, flags) };
        header.msg_len = u32::try_from(result).map_err(|_| io::Error::last_os_error())?;
        Ok(())
    }

    /// What has come into entry `at`: bytes, sender and notes; `None` if any of it was cut.
    #[must_use]
    pub fn received(&self, at: usize) -> Option<(usize, Name, Notes)> {
        self.received_from(at).map(|(len, name, notes)| (len, *name, notes))
    }

    /// The same, with the name where it lies.
    #[inline(always)]
    pub(super) fn received_from(&self, at: usize) -> Option<(usize, &Name, Notes)> {
        let header = &self.headers[at];
        if header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return None;
        }
        let len = usize::try_from(header.msg_len).ok()?;
        Some((len, &self.names[at], self.controls[at].notes(header.msg_hdr.msg_controllen)))
    }

    fn point(&mut self, at: usize, bytes: *mut u8, len: usize, name: u32, control: usize) {
        self.pieces[at] = libc::iovec { iov_base: bytes.cast::<c_void>(), iov_len: len };
        let header = &mut self.headers[at].msg_hdr;
        header.msg_name = self.names[at].as_mut_ptr().cast::<c_void>();
        header.msg_namelen = name;
        header.msg_iov = &raw mut self.pieces[at];
        header.msg_iovlen = 1;
        header.msg_control = self.controls[at].as_mut_ptr().cast::<c_void>();
        header.msg_controllen = control;
        header.msg_flags = 0;
    }
}

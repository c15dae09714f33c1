//! What is behind each descriptor of the process.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

/// Descriptors above are always the kernel's.
const MOST: usize = 1 << 16;

const SOCKET: u8 = 1;
const SET: u8 = 2;
/// What an edge-triggered set has told of a socket, and need not tell again.
pub(crate) const TOLD_IN: u8 = 4;
pub(crate) const TOLD_OUT: u8 = 8;
pub(crate) const TOLD_END: u8 = 16;

static KINDS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];

fn place(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(usize::try_from(fd).ok()?)
}

fn kind(fd: c_int) -> u8 {
    place(fd).map_or(0, |kind| kind.load(Ordering::Relaxed))
}

/// Whether a descriptor is a socket of ours.
pub(crate) fn is_socket(fd: c_int) -> bool {
    kind(fd) & SOCKET != 0
}

/// Whether a descriptor is a set of epoll with sockets of ours in it.
pub(crate) fn is_set(fd: c_int) -> bool {
    kind(fd) & SET != 0
}

/// A socket of ours was made; false if its number is too large to be remembered.
pub(crate) fn made_socket(fd: c_int) -> bool {
    forget_in_children();
    place(fd).map(|kind| kind.store(SOCKET, Ordering::Relaxed)).is_some()
}

pub(crate) fn made_set(fd: c_int) {
    if let Some(kind) = place(fd) {
        kind.store(SET, Ordering::Relaxed);
    }
}

pub(crate) fn gone(fd: c_int) {
    if let Some(kind) = place(fd) {
        kind.store(0, Ordering::Relaxed);
    }
}

/// What was told of a socket.
pub(crate) fn told(fd: c_int) -> u8 {
    kind(fd) & (TOLD_IN | TOLD_OUT | TOLD_END)
}

pub(crate) fn has_told(fd: c_int, what: u8) {
    if let Some(kind) = place(fd) {
        kind.fetch_or(what, Ordering::Relaxed);
    }
}

/// The program has done something with a socket: it is told again.
pub(crate) fn tell_again(fd: c_int, what: u8) {
    if let Some(kind) = place(fd) {
        kind.fetch_and(!(what | TOLD_END), Ordering::Relaxed);
    }
}

fn forget_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only writes numbers, which is all that may be done between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    for kind in &KINDS {
        kind.store(0, Ordering::Relaxed);
    }
}

//! Threads of a C program may be cancelled; ours must not end in the middle of something.

use std::marker::PhantomData;

use libc::c_int;

/// While it lives, this thread is not cancelled (`pthread_cancel`): what is asked for meanwhile waits until
/// the next cancellation point after it.
///
/// Many functions of the C library are cancellation points: `open`, `read`, `write`, `close`, `poll`. A
/// thread that is cancelled there is unwound by force, past locks that it holds and past the end of functions
/// that C has called, where Rust aborts the process. So code that calls the C library on behalf of a C
/// program has one of these.
///
/// A turn of an engine needs none: all that it asks of the system goes through `syscall`, which is no
/// cancellation point, so packets do not pay for it. The exception is a capture, which is a file, and has one
/// around each write.
#[derive(Debug)]
#[must_use = "the thread can be cancelled again as soon as this is dropped"]
pub struct Uncancelled {
    before: c_int,
    /// It belongs to the thread that made it.
    thread: PhantomData<*mut ()>,
}

impl Uncancelled {
    /// From now on this thread is not cancelled.
    #[inline]
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: the pointer is to a number that lives during the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, thread: PhantomData }
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        let mut ours = DISABLE;
        // SAFETY: as above. It is no cancellation point itself.
        unsafe { pthread_setcancelstate(self.before, &raw mut ours) };
    }
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> c_int {
        let mut before = -1;
        // SAFETY: the pointer is to a number that lives during the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        let mut ours = -1;
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(before, &raw mut ours) };
        before
    }

    #[test]
    fn the_state_before_comes_back_also_when_they_are_nested() {
        let enabled = state();
        assert_ne!(enabled, DISABLE);
        let outer = Uncancelled::new();
        let inner = Uncancelled::new();
        assert_eq!(state(), DISABLE);
        drop(inner);
        assert_eq!(state(), DISABLE);
        drop(outer);
        assert_eq!(state(), enabled);
    }
}

//! Signals are the program's: threads of a library take none.

/// All signals blocked in this thread, until it is dropped. A thread that is started meanwhile takes none
/// either.
#[must_use = "signals come again as soon as this is dropped"]
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// From now on this thread takes no signals.
    pub fn new() -> Self {
        // SAFETY: a signal set is plain data, for which all zeroes is a value.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut old = all;
        // SAFETY: the pointer is to a set that lives during the call.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: the pointers are to sets that live during the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
        Self(old)
    }
}

impl Default for SignalsBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SignalsBlocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalsBlocked")
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the pointer is to a set that lives during the call; null asks for nothing.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

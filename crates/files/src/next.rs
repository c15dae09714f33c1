//! The functions behind ours: those of the C library, or of a library that was loaded after this one.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the libraries behind this one, looked up when it is first needed.
pub(crate) struct Next {
    name: &'static CStr,
    /// Null until then. Threads that look at once find the same.
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is; null if there is none.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// There is no such function, as an error number.
pub(crate) fn missing() {
    // SAFETY: the C library gives every thread a place of its own for its error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; the place is valid while the thread lives, and no other thread writes it.
    unsafe { place.write(libc::ENOSYS) };
}

//! The functions behind ours: those of the C library, or of a library that was loaded after this one; and those of
//! rsockets.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the libraries behind this one, looked up when it is first needed.
pub(crate) struct Next {
    name: &'static CStr,
    /// Null until then. Threads that look at once find the same.
    address: AtomicPtr<c_void>,
    ours: bool,
}

impl Next {
    pub(crate) const fn of_c(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()), ours: false }
    }

    pub(crate) const fn of_rsockets(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()), ours: true }
    }

    /// Where it is; null if there is none.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let from = if self.ours { rsockets() } else { libc::RTLD_NEXT };
        if self.ours && from.is_null() {
            return from;
        }
        // SAFETY: the name ends with a zero byte, and the library is open.
        let found = unsafe { libc::dlsym(from, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// The library of rsockets; null if there is none.
fn rsockets() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: the name ends with a zero byte.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) }.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*library)
}

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: the C library gives every thread a place of its own for its error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; the place is valid while the thread lives, and no other thread writes it.
    unsafe { place.write(code) };
}

/// For functions that return -1 and an error number.
pub(crate) fn fail(code: c_int) -> c_int {
    set_errno(code);
    -1
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Declares functions that are called through their addresses. One that is not there fails with `ENOSYS`. A thread that is
/// cancelled in one of the C library is unwound through ours.
macro_rules! next {
    ($($from:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        pub(crate) unsafe fn $name($($argument: $type),*) -> $answer {
            static NEXT: crate::next::Next = crate::next::Next::$from(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
            );
            let address = NEXT.address();
            if address.is_null() {
                crate::next::set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the function of this name has this type.
            let call: unsafe extern "C-unwind" fn($($type),*) -> $answer = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller keeps the contract of the function.
            unsafe { call($($argument),*) }
        }
    )*};
}

pub(crate) use next;

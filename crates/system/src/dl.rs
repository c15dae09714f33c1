//! The dynamic loader: libraries that are opened while the program runs, and never closed.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

use libc::c_void;

/// A library that the loader has opened. It stays for the life of the process: its threads and its handlers of forks and
/// exits do, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened(NonNull<c_void>);

// SAFETY: the loader takes its handles from any thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// Opens a library by its path or, without a slash in it, by its name; or says what the loader said.
pub(crate) fn open(library: &Path) -> Result<Opened, String> {
    let name =
        CString::new(library.as_os_str().as_bytes()).map_err(|_| "a zero byte in its name".to_owned())?;
    // SAFETY: the name is text that ends with a zero byte. What the constructors of the library do is trusted: it is the
    // one that the machine, or the user, has for this.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).map(Opened).ok_or_else(last_error)
}

/// What the loader said last in this thread.
fn last_error() -> String {
    // SAFETY: a function without arguments; what it returns belongs to this thread until its next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: it is not null, and then a text that ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Opened {
    /// Where the symbol of this name and version is.
    pub(crate) fn symbol(self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library was opened and is never closed, and both are texts that end with a zero byte.
        NonNull::new(unsafe { libc::dlvsym(self.0.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }

    /// Whether it, or a library that it needs, has a symbol of this name in any version.
    pub(crate) fn has(self, name: &CStr) -> bool {
        // SAFETY: as above.
        !unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }.is_null()
    }
}

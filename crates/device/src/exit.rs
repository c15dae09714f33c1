//! The end of the process: what it owes its peers leaves before it does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::cancel::Uncancelled;
use crate::nic;

/// Has devices that are still open then say farewell.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this program, or of this library: then the C library calls it before
        // the library is taken out of the process.
        unsafe { libc::atexit(ending) };
    });
}

extern "C" fn ending() {
    let _whole = Uncancelled::new();
    // It runs in the middle of the program's own end, which must not become another one.
    let _ = catch_unwind(AssertUnwindSafe(nic::say_farewell));
}

//! The end of the process: what it owes its peers leaves before it does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use ferroce_sys::{Uncancelled, at_exit};

use crate::nic;

/// Has devices that are still open then say farewell.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without memory for it, peers find out by their retries.
        let _ = at_exit(ending);
    });
}

extern "C" fn ending() {
    let _whole = Uncancelled::new();
    // It runs in the middle of the program's own end, which must not become another one.
    let _ = catch_unwind(AssertUnwindSafe(nic::say_farewell));
}

//! The end of the process: what it owes its peers leaves before it does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use ferroce_sys::{Uncancelled, at_exit};

/// What is called at the end.
static LAST: OnceLock<fn()> = OnceLock::new();

/// Has this called when the process ends: devices that are still open then say farewell.
pub(crate) fn watch(last: fn()) {
    LAST.get_or_init(|| {
        // Without memory for it, peers find out by their retries.
        let _ = at_exit(ending);
        last
    });
}

extern "C" fn ending() {
    let _whole = Uncancelled::new();
    // It runs in the middle of the program's own end, which must not become another one.
    let _ = LAST.get().map(|last| catch_unwind(AssertUnwindSafe(last)));
}

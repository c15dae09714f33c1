//! After a fork, the child has the objects of its parent but not the thread that drives them.
//!
//! In the child they refuse to work, and destroying them only forgets them: the device behind them is the
//! parent's. What the child opens itself is new.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::refusal::{Answer, Refused};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the first process and this one, as far as they were noticed.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has forks noticed from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only counts, which is all that may be done between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Whether an object of this generation was made by this process.
pub(crate) fn is_ours(made_in: u32) -> bool {
    made_in == generation()
}

/// An error if an object was made before a fork that this process is the child of.
pub(crate) fn check(made_in: u32) -> Answer<()> {
    if is_ours(made_in) {
        Ok(())
    } else {
        Err(Refused::new(
            libc::EPERM,
            "the object was made before a fork; open the device again in the child",
        ))
    }
}

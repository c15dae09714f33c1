//! Forks: a child has the objects of its parent, but the card knows the parent alone.
//!
//! What a child asked of them would be asked in the parent's name, or reach for memory of the driver that children do not
//! get. So in a child they refuse, and dropping them only forgets them. What the child opens itself is new.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the first of its parents that had forks noticed.
#[inline]
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

//! What a poll finds. Another commit may have another type for it: this is the file to replace there.

use ferroce_transport::Completion;
use ferroce_transport::{Status, WorkKind};

pub(crate) type Found = Completion;

/// What ended, and how.
pub(crate) const fn told(found: &Found) -> (WorkKind, Status) {
    (found.kind, found.status)
}

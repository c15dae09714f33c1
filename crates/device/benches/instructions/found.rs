//! What a poll finds and what posting refuses. Another commit may have other types for it: this is the file
//! to replace there.

use ferroce_transport::{Completion, PostError, PostListError, Status, WorkKind};

pub(crate) type Found = Completion;

/// What ended, and how.
pub(crate) const fn told(found: &Found) -> (WorkKind, Status) {
    (found.kind, found.status)
}

/// Why a list was refused.
pub(crate) const fn why(refused: PostListError) -> PostError {
    refused.error
}

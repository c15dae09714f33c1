//! Why nothing can be kept.

use std::path::PathBuf;

use rusqlite::{Error, ErrorCode};

/// Why nothing can be kept in a file, or nothing more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is no file that an analyzer can use.
    #[error("{} cannot be opened; does its directory exist, and may it be written?", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Error,
    },
    /// Another program has the file.
    #[error("{} is in use by another analyzer; end that one, or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is one of something else.
    #[error("{} is no file of an analyzer; it is left as it is", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version has written it.
    #[error("{} was written by a later version ({version}; this one knows {known})", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of what is in it.
        version: i64,
        /// The version that is known.
        known: i64,
    },
    /// The file is damaged.
    #[error("{} is damaged; move it away, and the analyzer begins anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Error,
    },
    /// There is no room for more.
    #[error("there is no room to keep more in {}: the disk is full, or the limit of {most} bytes is reached", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the file may have.
        most: u64,
    },
    /// Something else is wrong.
    #[error("nothing can be kept in {}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Error,
    },
}

impl StoreError {
    pub(super) fn of(source: Error, path: &std::path::Path, most: u64) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
            Some(ErrorCode::DiskFull) => Self::Full { path, most },
            Some(ErrorCode::NotADatabase) => Self::Foreign { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, source },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::Open { path, source }
            }
            _ => Self::Other { path, source },
        }
    }
}

//! Which files lie in a directory of windows, and which of them go.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::{WindowsConfig, WindowsError};
use crate::clock;
use crate::outlet::state::KeptFiles;

const PREFIX: &str = "windows-";
const SUFFIX: &str = ".parquet";

/// The files of a directory, the oldest first. Files of others are left as they are.
#[derive(Debug)]
pub(super) struct Keeping {
    config: WindowsConfig,
    /// When each was closed, in milliseconds of the Unix clock, and its bytes.
    files: VecDeque<(u64, u64)>,
    bytes: u64,
    removed: u64,
    /// One analyzer has the directory at a time.
    _lock: File,
}

impl Keeping {
    pub(super) fn open(config: &WindowsConfig) -> Result<Self, WindowsError> {
        let path = config.directory.clone();
        let wrong = |source| WindowsError::Directory { path: path.clone(), source };
        fs::create_dir_all(&config.directory).map_err(wrong)?;
        let lock = File::create(config.directory.join(".lock")).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(WindowsError::InUse { path }),
            Err(TryLockError::Error(source)) => return Err(wrong(source)),
        }
        let mut keeping =
            Self { config: config.clone(), files: VecDeque::new(), bytes: 0, removed: 0, _lock: lock };
        // What another life had begun.
        let _ = fs::remove_file(keeping.beside());
        let mut files = Vec::new();
        for entry in fs::read_dir(&config.directory).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            if let Some(millis) = entry.file_name().to_str().and_then(closed_at) {
                files.push((millis, entry.metadata().map_err(wrong)?.len()));
            }
        }
        files.sort_unstable();
        keeping.bytes = files.iter().map(|(_, bytes)| bytes).sum();
        keeping.files = files.into();
        keeping.shorten(clock::unix_nanos() / 1_000_000);
        Ok(keeping)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.config.directory
    }

    /// Where a file is while it is written.
    pub(super) fn beside(&self) -> PathBuf {
        self.config.directory.join(format!("{PREFIX}open{SUFFIX}.tmp"))
    }

    /// The place of a file that is closed now, which is later than all others.
    pub(super) fn place(&self, millis: u64) -> (u64, PathBuf) {
        let millis = self.files.back().map_or(millis, |(last, _)| millis.max(last + 1));
        (millis, self.path(millis))
    }

    fn path(&self, millis: u64) -> PathBuf {
        self.config.directory.join(format!("{PREFIX}{millis:013}{SUFFIX}"))
    }

    /// A file is there.
    pub(super) fn add(&mut self, millis: u64, bytes: u64) {
        self.files.push_back((millis, bytes));
        self.bytes += bytes;
    }

    /// Removes files that are too old, and the oldest of too many.
    pub(super) fn shorten(&mut self, now: u64) {
        let oldest = now.saturating_sub(clock::millis(self.config.longest));
        while let Some((millis, bytes)) = self.files.front().copied() {
            if self.bytes <= self.config.most && millis >= oldest {
                break;
            }
            // What cannot be removed is looked at again by the next life.
            let _ = fs::remove_file(self.path(millis));
            self.files.pop_front();
            self.bytes -= bytes;
            self.removed += 1;
        }
    }

    /// What lies there.
    pub(super) fn told(&self) -> KeptFiles {
        KeptFiles { files: self.files.len() as u64, bytes: self.bytes, removed: self.removed }
    }
}

/// When a file of this name was closed; none if it is not one of ours.
fn closed_at(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    (digits.len() >= 13 && digits.bytes().all(|digit| digit.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(name: &str) -> WindowsConfig {
        let directory = std::env::temp_dir().join(format!("ferroce-windows-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        WindowsConfig { longest: Duration::from_secs(100), most: 25, ..WindowsConfig::new(directory) }
    }

    #[test]
    fn the_oldest_go_and_files_of_others_stay() {
        let config = config("keep");
        fs::create_dir_all(&config.directory).unwrap();
        let now = clock::unix_nanos() / 1_000_000;
        let put = |name: &str| fs::write(config.directory.join(name), [7; 10]).unwrap();
        for millis in [now - 200_000, now - 4000, now - 3000, now - 2000] {
            put(&format!("{PREFIX}{millis}{SUFFIX}"));
        }
        let others = ["windows-1.parquet", "windows-x234567890123.parquet", "notes.txt", "my.parquet"];
        others.into_iter().for_each(put);
        put("windows-open.parquet.tmp");
        let mut keeping = Keeping::open(&config).unwrap();
        assert_eq!(keeping.told(), KeptFiles { files: 2, bytes: 20, removed: 2 });
        assert!(matches!(Keeping::open(&config), Err(WindowsError::InUse { .. })));
        let (millis, path) = keeping.place(5);
        assert_eq!(millis, now - 1999, "names grow, also if the clock of the wall does not");
        fs::write(path, [7; 10]).unwrap();
        keeping.add(millis, 10);
        keeping.shorten(now);
        assert_eq!(keeping.told(), KeptFiles { files: 2, bytes: 20, removed: 3 });
        keeping.shorten(now + 200_000);
        assert_eq!(keeping.told(), KeptFiles { files: 0, bytes: 0, removed: 5 });
        let mut left: Vec<_> = fs::read_dir(&config.directory).unwrap().map(|entry| entry.unwrap()).collect();
        left.retain(|entry| entry.file_name() != ".lock");
        assert_eq!(left.len(), others.len(), "{left:?}");
        fs::remove_dir_all(&config.directory).unwrap();
    }
}

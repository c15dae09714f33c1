//! Files that are there whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Puts a file in the place of another one: whatever breaks, one of the two is there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_added_extension("tmp");
    let written = (|| {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        finish(&file, &beside, path)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Makes sure that a file is on the disk, and gives it its name.
pub(super) fn finish(file: &File, beside: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(beside, path)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

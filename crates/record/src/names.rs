//! Names of the files of one run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The name of a file for the process with this number of a run.
#[must_use]
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    if number <= 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_run_has_a_name_of_its_own() {
        let name = |path: &str, number| numbered(Path::new(path), number).display().to_string();
        assert_eq!(name("a/run.ftrace", 1), "a/run.ftrace");
        assert_eq!(name("a/run.ftrace", 2), "a/run.2.ftrace");
        assert_eq!(name("run", 13), "run.13");
    }
}

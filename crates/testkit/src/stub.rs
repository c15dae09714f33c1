//! Libraries that are not as they should be, and cards that fail: compiled from C when a test wants one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge;

/// A card that does what a test wants, written in C: it moves no bytes, completes what it is given, and fails where variables that
/// begin with `CARD_` say. Its name is `card0`. The library is compiled into this folder; nothing where C cannot be.
///
/// # Panics
/// The compiler does not take it.
#[must_use]
pub fn card(folder: &Path) -> Option<PathBuf> {
    let headers = judge::is_here("cc") && judge::has_file("/usr/include/infiniband/verbs.h");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../system/tests/c/card");
    headers
        .then(|| compile("card.so", folder, &source.with_extension("c"), Some(&source.with_extension("map"))))
}

/// A library made of a few lines of C, in this folder; nothing where C cannot be.
///
/// # Panics
/// The compiler does not take it.
#[must_use]
pub fn library(name: &str, folder: &Path, code: &str) -> Option<PathBuf> {
    if !judge::is_here("cc") {
        return None;
    }
    let source = folder.join(format!("{name}-{}.c", std::process::id()));
    fs::write(&source, code).expect("a folder of tests can be written");
    let library = compile(name, folder, &source, None);
    fs::remove_file(&source).expect("it was written");
    Some(library)
}

fn compile(name: &str, folder: &Path, source: &Path, map: Option<&Path>) -> PathBuf {
    // Another process may compile it, too, or have it loaded: it takes the place of the one before it at once.
    let (fresh, library) = (folder.join(format!("{name}-{}", std::process::id())), folder.join(name));
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o"]);
    command.arg(&fresh).arg(source);
    if let Some(map) = map {
        command.arg(format!("-Wl,--version-script={}", map.display()));
    }
    let output = command.output().expect("it was there just now");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(fresh, &library).expect("both are in one folder");
    library
}

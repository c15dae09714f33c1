//! The library under test, and programs that are run with it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use ferroce_testkit::dropin::folder;
use ferroce_testkit::judge;

/// Seconds after which a program hangs. The long form has many more of them at once, and more for each to do.
fn patience() -> &'static str {
    if is_long() { "900" } else { "60" }
}

/// A program with our library, on a loopback address of its own, that is ended when it hangs.
pub(crate) fn with_library(program: impl AsRef<OsStr>, address: &str) -> Command {
    with_library_for(patience(), program, address)
}

/// The same for a program that hangs after so many seconds.
pub(crate) fn with_library_for(seconds: &str, program: impl AsRef<OsStr>, address: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", seconds])
        .arg(program)
        .env("LD_LIBRARY_PATH", folder())
        .env("FERROCE_ADDRESS", address)
        .env("FERROCE_LOG", "warn")
        .env_remove("FERROCE_FAULTS")
        .env_remove("FERROCE_PCAP")
        .env_remove("FERROCE_PATH")
        .env_remove("FERROCE_SHARED")
        .env_remove("FERROCE_NETDEV")
        .stdin(Stdio::null());
    command
}

/// Whether the long forms were asked for, as `cargo xtask soak` does.
pub(crate) fn is_long() -> bool {
    env::var_os("FERROCE_SOAK").is_some_and(|value| value == "1")
}

/// What a program said on both outputs.
pub(crate) fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// Whether C programs can be compiled.
pub(crate) fn can_compile() -> bool {
    judge::is_here("gcc") && judge::has_file("/usr/include/infiniband/verbs.h")
}

/// Compiles a C program of `tests/c` that is linked to the library.
pub(crate) fn compiled(name: &str) -> PathBuf {
    compiled_with(name, &["-libverbs"])
}

/// The same with these libraries instead.
pub(crate) fn compiled_with(name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    // Several tests may need it at once, and a program that runs cannot be written.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{number}"));
    let output = Command::new("gcc")
        .args(["-Wall", "-Werror", "-D_GNU_SOURCE", "-o"])
        .arg(&binary)
        .arg(&source)
        .args(libraries)
        .args(["-lpthread", "-ldl"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    binary
}

/// Whether the packages with foreign programs are there.
pub(crate) fn are_here(programs: &[&str]) -> bool {
    programs.iter().all(|program| judge::has_file(&format!("/usr/bin/{program}")))
}

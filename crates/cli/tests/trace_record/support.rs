//! Folders, the binary, and what it left behind.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

/// How long anything may take, on a machine that has much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// A folder that is gone when the test is over.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("ferroce-recorded-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| name(entry.unwrap())).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder of the drop-in library: from `cargo xtask test`, or linked here.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        env::var_os("FERROCE_ABI").map_or_else(
            || {
                let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
                let mut command = Command::new(env!("CARGO"));
                command.args(["xtask", "link-abi"]).current_dir(root).stdout(Stdio::null());
                assert!(command.status().unwrap().success());
                Path::new(env!("CARGO_BIN_EXE_ferroce")).with_file_name("abi")
            },
            PathBuf::from,
        )
    })
}

/// A command that takes nothing from the environment of this test.
pub(crate) fn without_settings(command: &mut Command) {
    for name in [
        "LD_LIBRARY_PATH",
        "FERROCE_NETDEV",
        "FERROCE_FAULTS",
        "FERROCE_PCAP",
        "FERROCE_PATH",
        "FERROCE_ADDRESS",
        "FERROCE_TRACE",
        "FERROCE_TRACE_FLIGHT",
        "FERROCE_TRACE_SAMPLE",
    ] {
        command.env_remove(name);
    }
}

/// `ferroce trace` with these words.
pub(crate) fn command(words: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    without_settings(&mut command);
    command.arg("trace").args(words.iter().map(AsRef::as_ref));
    command.env("FERROCE_LIBRARIES", libraries()).stdin(Stdio::null());
    command
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Out {
    pub(crate) fn of(output: Output) -> Self {
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self { code: output.status.code(), out, err }
    }

    /// A failure that is one line; the line.
    #[track_caller]
    pub(crate) fn failure(&self) -> &str {
        assert_eq!(self.code, Some(1), "{self:?}");
        let line = self.err.strip_suffix('\n').expect("a whole line");
        assert!(line.starts_with("ferroce: ") && !line.contains('\n'), "{line}");
        line
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn trace(words: &[&dyn AsRef<OsStr>]) -> Out {
    Out::of(command(words).output().unwrap())
}

/// Waits until something is there.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = ferroce::time::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(ferroce::time::now() < end, "waited {LIMIT:?} for {what}");
        std::thread::yield_now();
    }
}

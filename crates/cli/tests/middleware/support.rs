//! Programs under `ferroce run`, as root and as a user without any right.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ferroce_testkit::judge;

/// One packet in a hundred is lost.
pub(crate) const LOSS: (&str, &str) = ("FERROCE_FAULTS", "loss=0.01,seed=24");

/// Whether the long forms were asked for, as `cargo xtask soak` does.
pub(crate) fn is_long() -> bool {
    env::var_os("FERROCE_SOAK").is_some_and(|value| value == "1")
}

/// Seconds after which a program hangs.
fn patience() -> &'static str {
    if is_long() { "900" } else { "90" }
}

/// The folder of the libraries: from `cargo xtask test`, or linked here.
pub(crate) fn libraries() -> &'static Path {
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

/// `ferroce run` of a program that is ended when it hangs.
pub(crate) fn run(address: &str, program: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", patience(), env!("CARGO_BIN_EXE_ferroce"), "run", "--"]).args(program);
    command.env("FERROCE_LIBRARIES", libraries()).env("TMPDIR", env!("CARGO_TARGET_TMPDIR"));
    on_its_own(command, address)
}

/// Without settings of the user of the tests.
fn on_its_own(mut command: Command, address: &str) -> Command {
    let ours = ["NETDEV", "FAULTS", "PCAP", "PATH", "LOG"].map(|name| format!("FERROCE_{name}"));
    for name in ours.iter().map(String::as_str).chain(["LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_RUNTIME_DIR"]) {
        command.env_remove(name);
    }
    let others = env::vars_os().map(|(name, _)| name).filter(|name| {
        name.to_str().is_some_and(|name| ["UCX_", "OMPI_", "FI_"].iter().any(|start| name.starts_with(start)))
    });
    for name in others {
        command.env_remove(name);
    }
    command.env("FERROCE_ADDRESS", address).stdin(Stdio::null());
    command
}

/// What a program said on both outputs.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    said(&output)
}

/// Compiles a C program of `tests/c` by this compiler.
pub(crate) fn compiled(compiler: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    // Several tests may need it at once, and a program that runs cannot be written.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{number}"));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&binary).arg(source);
    succeeds(command);
    binary
}

/// A folder with what a user without any right needs to run programs.
pub(crate) struct Unprivileged {
    folder: PathBuf,
}

impl Unprivileged {
    /// Copies the libraries, `ferroce` and this program to where everybody may read.
    pub(crate) fn new(program: &Path) -> Self {
        // Several tests may have one at once.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("ferroce-middleware-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        for (from, to) in [(Path::new(env!("CARGO_BIN_EXE_ferroce")), "ferroce"), (program, "program")] {
            fs::copy(from, folder.join(to)).unwrap();
        }
        for library in ["libferroce.so.0", "libibverbs.so.1", "librdmacm.so.1", "libferroce_files.so"] {
            fs::copy(libraries().join(library), folder.join(library)).unwrap();
        }
        Self { folder }
    }

    /// The same, if this is root and can become that user.
    pub(crate) fn become_with(program: &Path) -> Option<Arc<Self>> {
        let can = judge::has_file("/usr/bin/setpriv") && judge::is_root_for("becoming another user");
        can.then(|| Arc::new(Self::new(program)))
    }

    /// The program that was copied.
    pub(crate) fn program(&self) -> String {
        self.folder.join("program").to_str().unwrap().to_owned()
    }

    /// `ferroce run` of a program, by that user.
    pub(crate) fn run(&self, address: &str, program: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", patience(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(self.folder.join("ferroce")).args(["run", "--"]).args(program).current_dir(&self.folder);
        command.env("FERROCE_LIBRARIES", &self.folder).env("TMPDIR", &self.folder).env("HOME", &self.folder);
        on_its_own(command, address)
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

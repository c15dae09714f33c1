//! Programs in Python, with packages of others.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use ferroce_testkit::judge;
use serde_json::Value;

use crate::waiting::page_support::{ask, wait_for};

/// A Python with the messages of OpenTelemetry and DuckDB, which are installed once; none if that cannot be.
pub fn python() -> Option<PathBuf> {
    static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(install);
    PYTHON.clone()
}

fn install() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outlets-python");
    let (python, done) = (home.join("bin/python"), home.join("done"));
    if !done.exists() {
        let quiet = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let pip = ["-m", "pip", "install", "--timeout", "5", "--retries", "1"];
        if quiet(Command::new("python3").args(["-m", "venv"]).arg(&home))
            && quiet(Command::new(&python).args(pip).args(PACKAGES))
        {
            fs::write(&done, "").unwrap();
        }
    }
    judge::has_file(done.to_str().unwrap()).then_some(python)
}

const PACKAGES: [&str; 2] = ["opentelemetry-proto==1.45.2", "duckdb==2.0.0"];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// A collector of OpenTelemetry.
pub struct Collector {
    child: Child,
    address: SocketAddr,
}

impl Collector {
    pub fn start(python: &Path, address: SocketAddr) -> Self {
        let child = Command::new(python).arg(script("collector.py")).arg(address.to_string()).spawn();
        let this = Self { child: child.unwrap(), address };
        wait_for(|| "the collector".to_owned(), || TcpStream::connect(address).ok());
        this
    }

    /// What came last.
    pub fn told(&self) -> Value {
        ask(self.address, "/")
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What DuckDB reads in the windows of a directory.
pub fn windows(python: &Path, directory: &Path) -> Value {
    let output = Command::new(python).arg(script("windows.py")).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

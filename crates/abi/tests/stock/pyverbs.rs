//! rdma-core's own test suite, as Debian ships it with pyverbs. `cargo xtask conformance` writes down what
//! passes.

use std::path::Path;
use std::process::Command;

use ferroce_testkit::judge;

use crate::library::{are_here, said, with_library};

/// Where Debian has the suite.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// Tests that must pass at least.
const AT_LEAST: usize = 91;

#[test]
fn the_suite_of_rdma_core_passes_on_each_path() {
    if !are_here(&["python3"]) || !judge::has_file(&format!("{SUITE}/run_tests.py")) {
        return;
    }
    let suite = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suite");
    let copied = format!("rm -rf {0} && cp -r {SUITE} {0} && gunzip -f {0}/*.gz", suite.display());
    assert!(Command::new("sh").args(["-c", &copied]).status().unwrap().success());
    for (path, address) in [("wire", "127.0.88.40"), ("shared", "127.0.88.42"), ("local", "127.0.88.41")] {
        let mut command = with_library("/usr/bin/python3", address);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite.py")).arg(&suite).arg("ferroce_lo");
        command.env("FERROCE_PATH", path).env_remove("FERROCE_LOG");
        let output = command.output().unwrap();
        let said = said(&output);
        let ends =
            |end: &str| said.lines().filter(|line| line.split('\t').nth(2) == Some(end)).collect::<Vec<_>>();
        assert!(output.status.success(), "over the {path} path: {}\n{said}", output.status);
        assert_eq!(ends("failed"), Vec::<&str>::new(), "over the {path} path");
        let passed = ends("passed").len();
        assert!(passed >= AT_LEAST, "{passed} passed over the {path} path:\n{said}");
    }
}

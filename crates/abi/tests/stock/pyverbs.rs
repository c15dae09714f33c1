//! rdma-core's own test suite, as Debian ships it with pyverbs: the part that concerns the software of every device.

use crate::library::{are_here, folder, with_library};
use ferroce_testkit::judge;

/// Where Debian has the suite.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// Tests that must pass at least; `cargo xtask conformance` writes down which do.
const AT_LEAST: usize = 85;

#[test]
fn the_suite_of_rdma_core_passes_over_the_wire_and_locally() {
    if !are_here(&["python3"]) || !judge::has_file(&format!("{SUITE}/run_tests.py")) {
        return;
    }
    let suite = folder().join("suite");
    let copied = format!("cp -r {SUITE} {0} && gunzip -f {0}/*.gz", suite.display());
    let status = std::process::Command::new("sh").args(["-c", &copied]).status().unwrap();
    assert!(status.success());
    for (path, address) in [("wire", "127.0.88.40"), ("local", "127.0.88.41")] {
        let mut command = with_library("/usr/bin/python3", address);
        command.args(["run_tests.py", "--dev", "ferroce_lo", "-v"]).current_dir(&suite);
        command.env("FERROCE_PATH", path).env_remove("FERROCE_LOG").env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let passed = said.lines().filter(|line| line.ends_with("... ok") || *line == "ok").count();
        assert!(output.status.success(), "over the {path} path:\n{said}");
        assert!(passed >= AT_LEAST, "{passed} passed over the {path} path:\n{said}");
    }
}

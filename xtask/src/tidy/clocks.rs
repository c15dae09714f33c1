//! Time is passed in, so that a seed replays a run exactly. Clippy says the same of the code it
//! compiles; this rule also sees code that is configured out.

use super::Finding;
use super::source::{attributes, line_of, mentions};
use super::tree::Tree;

const CALLS: &[&str] = &["Instant::now", "SystemTime::now", "thread::sleep", "thread::park_timeout"];

const LINT: &str = "clippy::disallowed_methods";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code() {
        for call in CALLS.iter().filter(|_| !may_read_clocks(path)) {
            for offset in mentions(code, call) {
                let what = format!(
                    "`{call}`: only the device, xtask and benchmarks may; take the time as an argument"
                );
                findings.push(Finding::new(path, line_of(code, offset), what));
            }
        }
        for (offset, body) in attributes(code) {
            if body.contains(LINT) && !body.contains("reason") {
                let what = format!("say why `{LINT}` is allowed here: add `reason = \"...\"`");
                findings.push(Finding::new(path, line_of(code, offset), what));
            }
        }
    }
    findings
}

fn may_read_clocks(path: &str) -> bool {
    path.starts_with("crates/device/")
        || path.starts_with("xtask/")
        || path.split('/').any(|part| part == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    const SLEEP: &str = "fn f() {\n    std::thread::sleep(D);\n}\n";

    #[test]
    fn the_device_and_benchmarks_may_know_the_time() {
        assert!(lines("crates/device/src/clock.rs", SLEEP).is_empty());
        assert!(lines("crates/wire/benches/parse.rs", SLEEP).is_empty());
    }

    #[test]
    fn nobody_else_may() {
        assert_eq!(lines("crates/wire/src/lib.rs", SLEEP), [2]);
        assert_eq!(lines("crates/wire/tests/a.rs", "#[cfg(never)]\nfn f() { Instant::now(); }\n"), [2]);
    }

    #[test]
    fn talking_about_it_is_fine() {
        assert!(
            lines("crates/wire/src/lib.rs", "// not Instant::now\nconst A: &str = \"thread::sleep\";\n")
                .is_empty()
        );
    }

    #[test]
    fn an_allowance_needs_a_reason() {
        let bare = "#[allow(clippy::disallowed_methods)]\nfn f() {}\n";
        let said = "#[expect(clippy::disallowed_methods, reason = \"the edge\")]\nfn f() {}\n";
        assert_eq!(lines("xtask/src/a.rs", bare), [1]);
        assert!(lines("xtask/src/a.rs", said).is_empty());
    }
}

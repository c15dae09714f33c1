//! Time is passed in, so that a seed replays a run exactly. Clippy says the same of the code it
//! compiles; this rule also sees code that is configured out.

use super::Finding;
use super::source::{attributes, line_of, mentions};
use super::tree::Tree;

/// Functions by their path, as in clippy.toml.
const PATHS: &[&str] = &[
    "Instant::now",
    "Instant::elapsed",
    "SystemTime::now",
    "SystemTime::elapsed",
    "thread::sleep",
    "thread::park_timeout",
    "Receiver::recv_timeout",
    "Condvar::wait_timeout",
    "Condvar::wait_timeout_while",
];

/// The same as methods. `elapsed` with an argument is told the time, and so another one.
const METHODS: &[&str] = &[".elapsed()", ".recv_timeout(", ".wait_timeout(", ".wait_timeout_while("];

const LINT: &str = "clippy::disallowed_methods";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code() {
        if !may_read_clocks(path) {
            findings.extend(calls(code).map(|(offset, call)| {
                let what =
                    format!("`{call}`: only `sys`, xtask and benchmarks may; take the time as an argument");
                Finding::new(path, line_of(code, offset), what)
            }));
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

/// Everything that reads a clock or waits for one, and where.
fn calls(code: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let paths = PATHS.iter().flat_map(move |path| mentions(code, path).map(move |offset| (offset, *path)));
    let methods = METHODS.iter().flat_map(move |method| {
        let name = method.trim_matches(['.', '(', ')']);
        code.match_indices(method).map(move |(offset, _)| (offset, name))
    });
    paths.chain(methods)
}

fn may_read_clocks(path: &str) -> bool {
    path.starts_with("crates/sys/")
        || path.starts_with("crates/device/tests/")
        || path.starts_with("xtask/")
        || path.split('/').any(|part| part == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    const SLEEP: &str = "fn f() {\n    std::thread::sleep(D);\n}\n";

    #[test]
    fn the_clock_and_benchmarks_may_know_the_time() {
        assert!(lines("crates/sys/src/clock.rs", SLEEP).is_empty());
        assert!(lines("crates/wire/benches/parse.rs", SLEEP).is_empty());
    }

    #[test]
    fn other_crates_may_not() {
        assert_eq!(lines("crates/wire/src/lib.rs", SLEEP), [2]);
        assert_eq!(lines("crates/wire/tests/a.rs", "#[cfg(never)]\nfn f() { Instant::now(); }\n"), [2]);
    }

    #[test]
    fn waiting_with_a_limit_reads_a_clock_too() {
        for line in [
            "start.elapsed().as_nanos();",
            "Instant::elapsed(&start);",
            "queue.recv_timeout(D)?;",
            "bell.wait_timeout(guard, D);",
            "bell.wait_timeout_while(guard, D, f);",
        ] {
            assert_eq!(lines("crates/sim/src/run.rs", line), [1], "{line}");
        }
        assert!(lines("crates/sim/src/run.rs", "timer.elapsed(now); self.elapsed; queue.recv();").is_empty());
    }

    #[test]
    fn this_rule_knows_all_that_clippy_knows() {
        let clippy = std::fs::read_to_string(root().join("clippy.toml")).unwrap();
        let listed: Vec<&str> =
            clippy.split("path = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(listed.len(), PATHS.len());
        for path in listed {
            assert!(PATHS.iter().any(|known| path.ends_with(&format!("::{known}"))), "{path}");
        }
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

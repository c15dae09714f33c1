//! Unsafe code has few homes, so that a reader knows where to look hardest.

use super::Finding;
use super::source::{attributes, line_of, words};
use super::tree::Tree;

const HOMES: &[&str] = &["crates/device/", "crates/verbs/src/system", "crates/abi/", "crates/cabi/"];

/// Crates whose very promise is to hold none: the compiler must be told so.
const FORBIDDING: &[&str] = &["wire", "transport"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.code() {
        if HOMES.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        for (offset, _) in words(code).filter(|(_, word)| *word == "unsafe") {
            let what =
                format!("unsafe code may live only in {}; move it there or do without", HOMES.join(", "));
            findings.push(Finding::new(path, line_of(code, offset), what));
        }
    }
    for name in FORBIDDING {
        let root = format!("crates/{name}/src/lib.rs");
        let Some((path, code)) = tree.code().find(|(path, _)| *path == root) else { continue };
        let forbids = |(offset, body): &(usize, &str)| {
            code[*offset..].starts_with("#!") && *body == "forbid(unsafe_code)"
        };
        if !attributes(code).iter().any(forbids) {
            findings.push(Finding::new(
                path,
                1,
                "add `#![forbid(unsafe_code)]`: this crate promises to hold none",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_at_home_is_fine() {
        let text = "fn f(p: *const u8) -> u8 { unsafe { *p } }\n";
        assert!(lines("crates/device/src/mem.rs", text).is_empty());
        assert!(lines("crates/verbs/src/system/dl.rs", text).is_empty());
    }

    #[test]
    fn unsafe_elsewhere_is_not() {
        assert_eq!(lines("crates/verbs/src/qp.rs", "fn f() {}\nunsafe fn g() {}\n"), [2]);
        assert_eq!(lines("crates/cli/src/main.rs", "#[unsafe(no_mangle)]\nfn f() {}\n"), [1]);
    }

    #[test]
    fn words_about_unsafe_are_fine() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n";
        assert!(lines("crates/wire/src/lib.rs", text).is_empty());
    }

    #[test]
    fn the_promise_must_be_in_the_crate_root() {
        assert_eq!(lines("crates/wire/src/lib.rs", "// #![forbid(unsafe_code)]\n"), [1]);
        assert_eq!(lines("crates/transport/src/lib.rs", "#[forbid(unsafe_code)]\nmod a;\n"), [1]);
        assert!(lines("crates/transport/src/lib.rs", "#![forbid(unsafe_code)]\n").is_empty());
    }
}

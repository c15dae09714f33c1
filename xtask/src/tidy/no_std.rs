//! A crate that promises to live without the standard library must not reach for it. The compiler
//! does not say so where `std` is installed: there, `extern crate std` simply works.

use super::Finding;
use super::source::{attributes, line_of, without_tests, words};
use super::tree::Tree;

/// The crates with that promise.
const PROMISING: &[&str] = &["wire"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in PROMISING {
        let sources = format!("crates/{name}/src/");
        let root = format!("{sources}lib.rs");
        for (path, code) in tree.code().filter(|(path, _)| path.starts_with(&sources)) {
            if path == root && !promises(code) {
                findings.push(Finding::new(path, 1, "add `#![no_std]`, without a condition"));
            }
            let code = without_tests(code);
            findings.extend(imports(&code).map(|(offset, name)| {
                let what = format!(
                    "`extern crate {name}`: this crate promises no_std and no allocation; \
                     where only tests need it, put `#[cfg(test)]` before it"
                );
                Finding::new(path, line_of(&code, offset), what)
            }));
        }
    }
    findings
}

/// Whether `#![no_std]` stands there on its own: `cfg_attr` could switch it off.
fn promises(code: &str) -> bool {
    attributes(code).iter().any(|(offset, body)| code[*offset..].starts_with("#!") && body.trim() == "no_std")
}

/// Where `extern crate` brings in anything but the crate itself, and what it brings in.
fn imports(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let words: Vec<(usize, &str)> = words(code).collect();
    let found = words.windows(3).filter_map(|three| match three {
        [(offset, "extern"), (_, "crate"), (_, name)] if *name != "self" => Some((*offset, *name)),
        _ => None,
    });
    found.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_promise_stands_in_the_crate_root() {
        assert!(lines("crates/wire/src/lib.rs", "#![no_std]\nmod a;\n").is_empty());
        assert_eq!(lines("crates/wire/src/lib.rs", "#![cfg_attr(not(test), no_std)]\n"), [1]);
        assert_eq!(lines("crates/wire/src/lib.rs", "// #![no_std]\n"), [1]);
        assert!(lines("crates/wire/src/a.rs", "mod b;\n").is_empty());
    }

    #[test]
    fn reaching_for_std_or_alloc_is_found() {
        assert_eq!(lines("crates/wire/src/a.rs", "\nextern crate std;\n"), [2]);
        assert_eq!(lines("crates/wire/src/a.rs", "#[macro_use]\nextern  crate\n    alloc as heap;\n"), [2]);
        assert_eq!(lines("crates/wire/src/a.rs", "#[cfg(feature = \"std\")]\nextern crate std;\n"), [2]);
    }

    #[test]
    fn tests_examples_and_other_crates_may() {
        let inside = "#[cfg(test)]\nmod tests {\n    extern crate std;\n    fn f() {}\n}\n";
        assert!(lines("crates/wire/src/a.rs", inside).is_empty());
        assert!(lines("crates/wire/src/a.rs", "#[cfg(test)]\nextern crate std;\n").is_empty());
        assert!(
            lines("crates/wire/src/a.rs", "/// ```\n/// extern crate std;\n/// ```\nfn f() {}\n").is_empty()
        );
        assert!(lines("crates/wire/tests/a.rs", "extern crate std;\n").is_empty());
        assert!(lines("crates/transport/src/a.rs", "extern crate std;\n").is_empty());
        assert!(lines("crates/wire/src/a.rs", "extern crate self as wire;\nextern \"C\" {}\n").is_empty());
    }

    #[test]
    fn what_follows_the_tests_is_looked_at_again() {
        let text = "#[cfg(test)]\nmod tests { fn f() {} }\nextern crate std;\n";
        assert_eq!(lines("crates/wire/src/a.rs", text), [3]);
    }
}

//! Where unsafe code lives is said by the crates themselves: each forbids it, or allows it at its head with a reason.

use super::Finding;
use super::source::{attributes, line_of, words};
use super::tree::Tree;

/// How a crate speaks of unsafe code at its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// It holds none, and the compiler knows.
    Forbids,
    /// It is a home of unsafe code, and says why.
    Allows,
    /// The lint of the workspace denies it; single files may be homes, with a reason at their own head.
    Silent,
}

impl Head {
    fn of(code: &str) -> Self {
        let said = |offset: usize| code[offset..].starts_with("#!");
        let mut inner = attributes(code).into_iter().filter(|(offset, _)| said(*offset));
        inner
            .find_map(|(_, body)| {
                let body: String = body.split_whitespace().collect();
                let allows = body.starts_with("allow(unsafe_code,") && body.contains("reason=");
                if body == "forbid(unsafe_code)" {
                    Some(Self::Forbids)
                } else {
                    allows.then_some(Self::Allows)
                }
            })
            .unwrap_or(Self::Silent)
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files: Vec<(&str, &str, Head)> =
        tree.code().map(|(path, code)| (path, code, Head::of(code))).collect();
    let head_of = |path: &str| files.iter().find(|(known, ..)| *known == path).map(|(.., head)| *head);
    for (path, code, head) in &files {
        let is_home =
            *head == Head::Allows || homes_above(path).any(|above| head_of(&above) == Some(Head::Allows));
        if is_home {
            continue;
        }
        for (offset, _) in words(code).filter(|(_, word)| *word == "unsafe") {
            let what = "unsafe code in a place that does not say so; move it to a crate that is a home of it, or do \
                        without";
            findings.push(Finding::new(path, line_of(code, offset), what));
        }
    }
    for (path, _, head) in files.iter().filter(|(path, ..)| is_library(path)) {
        let folder = path.trim_end_matches("lib.rs");
        let has_home =
            || files.iter().any(|(other, .., said)| other.starts_with(folder) && *said == Head::Allows);
        if *head == Head::Silent && !has_home() {
            let what = "say `#![forbid(unsafe_code)]` at the head of the crate, or allow it with a reason";
            findings.push(Finding::new(path, 1, what));
        }
    }
    findings
}

/// The heads whose word holds for a file: those of the modules around it and that of its crate. Tests, benchmarks and
/// what they share have heads of their own.
fn homes_above(path: &str) -> impl Iterator<Item = String> {
    let folders: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let in_folder = |folder: &str| {
        ["lib.rs", "mod.rs", "main.rs"]
            .map(|file| format!("{folder}/{file}"))
            .into_iter()
            .chain([format!("{folder}.rs")])
    };
    folders
        .into_iter()
        .map(|at| path[..at].to_owned())
        .flat_map(move |folder| in_folder(&folder).collect::<Vec<_>>())
}

fn is_library(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], ["crates", _, "src", "lib.rs"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSAFE: &str = "fn f(p: *const u8) -> u8 { unsafe { *p } }\n";
    const ALLOWS: &str = "#![allow(unsafe_code, reason = \"raw memory\")]\n";
    const FORBIDS: &str = "#![forbid(unsafe_code)]\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn unsafe_code_is_fine_in_a_crate_or_module_that_says_so() {
        assert!(found(&[("crates/sys/src/lib.rs", ALLOWS), ("crates/sys/src/unix.rs", UNSAFE)]).is_empty());
        let module = [("crates/v/src/system/mod.rs", ALLOWS), ("crates/v/src/system/dl.rs", UNSAFE)];
        assert!(found(&module).is_empty());
        assert!(found(&[("crates/v/tests/fork.rs", &format!("{ALLOWS}{UNSAFE}"))]).is_empty());
    }

    #[test]
    fn unsafe_code_elsewhere_is_not() {
        let files =
            [("crates/v/src/lib.rs", FORBIDS), ("crates/v/src/qp.rs", "fn f() {}\nunsafe fn g() {}\n")];
        assert_eq!(found(&files), ["crates/v/src/qp.rs:2"]);
        assert_eq!(found(&[("crates/cli/src/main.rs", "#[unsafe(no_mangle)]\nfn f() {}\n")]).len(), 1);
        let files = [("crates/v/src/lib.rs", ALLOWS), ("crates/v/tests/a.rs", UNSAFE)];
        assert_eq!(found(&files), ["crates/v/tests/a.rs:1"], "a test speaks for itself");
        let without_reason =
            [("crates/v/src/lib.rs", "#![allow(unsafe_code)]\n"), ("crates/v/src/a.rs", UNSAFE)];
        assert_eq!(found(&without_reason).len(), 2);
    }

    #[test]
    fn words_about_unsafe_are_fine() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n";
        assert!(found(&[("crates/wire/src/lib.rs", text)]).is_empty());
    }

    #[test]
    fn a_crate_without_unsafe_code_forbids_it_at_its_root() {
        assert_eq!(found(&[("crates/wire/src/lib.rs", "// #![forbid(unsafe_code)]\n")]).len(), 1);
        assert_eq!(found(&[("crates/transport/src/lib.rs", "#[forbid(unsafe_code)]\nmod a;\n")]).len(), 1);
        assert!(found(&[("crates/transport/src/lib.rs", FORBIDS)]).is_empty());
    }
}

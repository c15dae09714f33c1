//! Small things that should never cost a reviewer a word.

use super::Finding;
use super::source::{attributes, line_of, mentions, words};
use super::tree::Tree;

/// Data is kept byte for byte.
const DATA: &[&str] = &["testdata/", "fuzz/corpus/"];

const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !DATA.iter().any(|data| path.starts_with(data))) {
        findings.extend(blanks(path, text));
    }
    for file in tree.files() {
        if let (Some(text), Some(code)) = (&file.text, &file.code) {
            findings.extend(unfinished(&file.path, code));
            findings.extend(ignored(&file.path, text, code));
        }
    }
    findings
}

fn blanks(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with(char::is_whitespace) {
            findings.push(Finding::new(path, index + 1, "trailing whitespace; remove it"));
        }
        if path.ends_with(".rs") && line.contains('\t') {
            findings.push(Finding::new(path, index + 1, "a tab; indent with spaces, write \\t in strings"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::new(path, text.lines().count(), "the last line must end with a newline"));
    }
    findings
}

fn unfinished(path: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in UNFINISHED {
        for offset in mentions(code, name).filter(|offset| code[offset + name.len()..].starts_with('!')) {
            findings.push(Finding::new(
                path,
                line_of(code, offset),
                format!("`{name}!` is for drafts; finish it"),
            ));
        }
    }
    findings
}

/// An ignored test is one that never runs: make it fast, move it to the soak, or delete it.
fn ignored(path: &str, text: &str, code: &str) -> Vec<Finding> {
    let what =
        "an ignored test is one that never runs; make it fast, give it to `cargo xtask soak`, or delete it";
    let mut findings = Vec::new();
    for (offset, body) in attributes(code) {
        let conditional = body.trim_start().starts_with("cfg_attr");
        let mut names = words(body).map(|(_, word)| word);
        let ignores =
            if conditional { names.any(|word| word == "ignore") } else { names.next() == Some("ignore") };
        if ignores {
            findings.push(Finding::new(path, line_of(code, offset), what));
        }
    }
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if doc.is_some_and(|doc| doc.trim_start().starts_with("```ignore")) {
            findings.push(Finding::new(path, index + 1, what));
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
    fn clean_text_passes() {
        assert!(lines("a.rs", "/// Text.\nfn f() {\n    let todo = \"todo!\"; // dbg!\n}\n").is_empty());
        assert!(lines("empty.rs", "").is_empty());
    }

    #[test]
    fn stray_blanks_are_found() {
        assert_eq!(lines("a.md", "one \ntwo\r\nthree\n"), [1, 2]);
        assert_eq!(lines("a.rs", "\tfn f() {}\n"), [1]);
        assert!(lines("Makefile", "all:\n\techo\n").is_empty());
        assert_eq!(lines("a.md", "one\ntwo"), [2]);
    }

    #[test]
    fn data_is_left_alone() {
        assert!(lines("fuzz/corpus/packet/seed", "x ").is_empty());
        assert!(lines("testdata/tshark.txt", "x \n").is_empty());
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(lines("a.rs", "fn f() {\n    todo!()\n}\nfn g() { dbg!(1); }\n"), [2, 4]);
    }

    #[test]
    fn ignored_tests_are_found() {
        assert_eq!(lines("a.rs", "#[test]\n#[ignore]\nfn f() {}\n#[ignore = \"slow\"]\nfn g() {}\n"), [2, 4]);
        assert_eq!(lines("a.rs", "#[cfg_attr(miri, ignore)]\nfn f() {}\n"), [1]);
        assert_eq!(lines("a.rs", "/// ```ignore\n/// x\n/// ```\nfn f() {}\n"), [1]);
        assert!(lines("a.rs", "#[arg(ignore_case = true)]\nfn ignore() {}\n").is_empty());
    }
}

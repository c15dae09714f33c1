//! Examples in the documentation run beside each other, as processes. One that opens a whole interface meets
//! those that open one address of it, and either is refused: once in some runs.

use super::Finding;
use super::tree::Tree;

/// What opens the whole of the loopback interface.
const WHOLE: &[&str] = &["open(\"lo\")", "open(\"ferroce_lo\")"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_start();
            let documents = line.starts_with("///") || line.starts_with("//!");
            if documents && WHOLE.iter().any(|whole| line.contains(whole)) {
                let what = "an example that opens all of `lo` fails beside one that opens an address of it: \
                            `builder(\"ferroce_lo\").address(...)`";
                findings.push(Finding::new(path, number, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_opens_one_address() {
        let text = "/// let all = Context::open(\"lo\")?;\nlet fine = Context::open(\"lo\")?;\n\
                    /// let one = Context::builder(\"lo\").address(one).open()?;\n";
        let findings = check(&Tree::of(&[("crates/verbs/src/context.rs", text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
        assert!(check(&Tree::of(&[("README.md", text)])).is_empty());
    }
}

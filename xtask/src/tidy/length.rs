//! A file one can read in one sitting.

use super::Finding;
use super::tree::Tree;

/// Lines a Rust file may have.
const LIMIT: usize = 700;

/// Files that may be longer: path, lines, and the reason. Empty, and meant to stay so.
const EXCEPTIONS: &[(&str, usize, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        let exception = EXCEPTIONS.iter().find(|(name, ..)| *name == path);
        let limit = exception.map_or(LIMIT, |(_, lines, _)| *lines);
        let lines = text.lines().count();
        if lines > limit {
            let what = format!("{lines} lines, at most {limit}; split it along what it does");
            findings.push(Finding::new(path, limit + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_last_good_length() {
        let good = "//\n".repeat(LIMIT);
        let bad = "//\n".repeat(LIMIT + 1);
        assert!(check(&Tree::of(&[("a.rs", &good), ("long.md", &bad)])).is_empty());
        let found = check(&Tree::of(&[("a.rs", &bad)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.starts_with("701 lines"));
    }
}

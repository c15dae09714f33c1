//! The project is for strangers: nothing in it may lean on the machine it was written on.

use super::Finding;
use super::tree::Tree;

/// Put together here, so that this file does not break its own rule.
const PATTERNS: &[&str] = &[
    concat!("../", "shared"),
    concat!("/", "work/"),
    concat!("/", "farm/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            for pattern in PATTERNS.iter().filter(|pattern| names_it(line, pattern)) {
                let what =
                    format!("`{pattern}` exists on one machine only; copy what is needed into the project");
                findings.push(Finding::new(path, index + 1, what));
            }
        }
    }
    findings
}

/// The middle of a longer path or address does not count, only its start.
fn names_it(line: &str, pattern: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "-_.~}>)".contains(c);
    line.match_indices(pattern).any(|(at, _)| !line[..at].chars().next_back().is_some_and(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_of_a_machine_are_found() {
        for pattern in PATTERNS {
            let text = format!("fine\nlet path = \"{pattern}x\";\n");
            let found = check(&Tree::of(&[("a.rs", &text)]));
            assert_eq!(found.len(), 1, "{pattern}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn the_middle_of_another_path_is_fine() {
        let text = format!("https://x.org{0} ./a{0}b {{root}}{0}\n", PATTERNS[1]);
        assert!(check(&Tree::of(&[("a.md", &text)])).is_empty());
    }
}

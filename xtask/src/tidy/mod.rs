//! `cargo xtask tidy`: the repository's own rules as code. One rule per file, each a function from
//! the tree to what is wrong in it, tested on small trees made in memory.

use anyhow::{Result, bail, ensure};

use crate::say::say;
use crate::shell::root;

mod circles;
mod clocks;
mod errors;
mod examples;
mod floor;
mod hygiene;
mod inherit;
mod layers;
mod length;
mod links;
mod machine;
mod manifest;
mod map;
mod markdown;
mod no_std;
mod source;
mod tree;
mod unsafety;

use tree::Tree;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// List the rules
    #[arg(long)]
    list: bool,
}

/// One thing that is wrong: where, and what to do about it.
#[derive(Debug)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

struct Rule {
    name: &'static str,
    says: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "layers",
        says: "a crate depends only on crates before it in the house",
        check: layers::check,
    },
    Rule {
        name: "floor",
        says: "what stands on verbs knows the house below through verbs alone",
        check: floor::check,
    },
    Rule {
        name: "unsafe",
        says: "each crate says at its head whether it holds unsafe code, and why",
        check: unsafety::check,
    },
    Rule {
        name: "circles",
        says: "in the device and below it, at most three files import each other in a circle",
        check: circles::check,
    },
    Rule {
        name: "errors",
        says: "errors of libraries have names of their own, may grow, print no cause that they hand on, and are in docs/errors.md",
        check: errors::check,
    },
    Rule { name: "no-std", says: "the wire crate does without std and alloc", check: no_std::check },
    Rule { name: "length", says: "a Rust file has at most 700 lines", check: length::check },
    Rule { name: "links", says: "links, anchors and paths in Markdown lead somewhere", check: links::check },
    Rule { name: "machine", says: "nothing refers to one developer's machine", check: machine::check },
    Rule {
        name: "clocks",
        says: "only `sys`, xtask and benchmarks read a clock or sleep",
        check: clocks::check,
    },
    Rule {
        name: "examples",
        says: "an example in the documentation opens one address, never a whole interface",
        check: examples::check,
    },
    Rule {
        name: "hygiene",
        says: "no stray blanks, unfinished code or ignored tests",
        check: hygiene::check,
    },
    Rule { name: "map", says: "every crate is on the map in ARCHITECTURE.md", check: map::check },
    Rule {
        name: "inherit",
        says: "every member takes lints and licence from the workspace",
        check: inherit::check,
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for rule in RULES {
            say!("{:8} {}", rule.name, rule.says);
        }
        return Ok(());
    }
    say!("tidy: {}", check_repository()?);
    Ok(())
}

/// Checks every rule and prints all that is wrong. Returns a note for the report.
pub(crate) fn check_repository() -> Result<String> {
    check(|_| true)
}

/// Checks one rule, for another part that stands on it.
pub(crate) fn check_rule(name: &str) -> Result<String> {
    check(|rule| rule.name == name)
}

fn check(wanted: impl Fn(&Rule) -> bool) -> Result<String> {
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| wanted(rule)).collect();
    ensure!(!rules.is_empty(), "tidy has no such rule");
    let tree = Tree::load(&root())?;
    let lines = report(&tree, &rules);
    for line in &lines {
        say!("{line}");
    }
    match lines.len() {
        0 => Ok(format!("{} rules kept by {} files", rules.len(), tree.files().len())),
        1 => bail!("tidy: one thing to put right, listed above"),
        count => bail!("tidy: {count} things to put right, listed above"),
    }
}

fn report(tree: &Tree, rules: &[&Rule]) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in rules {
        let mut findings = (rule.check)(tree);
        findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        lines.extend(findings.iter().map(|f| format!("{}:{}: {}: {}", f.path, f.line, rule.name, f.what)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_failures_of_all_rules_are_listed() {
        let tree = Tree::of(&[
            ("crates/wire/src/lib.rs", "#![no_std]#![forbid(unsafe_code)]\n\tfn f() { todo!() }\n"),
            ("README.md", "[gone](gone.md) \n"),
        ]);
        let lines = report(&tree, &RULES.iter().collect::<Vec<_>>());
        let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(has("README.md:1: links: "), "{lines:?}");
        assert!(has("README.md:1: hygiene: "), "{lines:?}");
        assert_eq!(
            lines.iter().filter(|line| line.starts_with("crates/wire/src/lib.rs:2: hygiene: ")).count(),
            2
        );
    }
}

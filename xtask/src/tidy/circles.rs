//! Modules read downward: where several import each other in a circle, none of them can be understood alone.
//!
//! What counts is a path that begins with `crate`, `super` or `self`, by the file of the module that it leads to. A
//! module that only hands on what its children offer takes nothing from them.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::without_tests;
use super::tree::Tree;

/// Crates in which no large circle is left.
const CRATES: &[&str] = &["sys", "memory", "lane", "fabric", "switchboard", "progress", "device"];

/// Files that may import each other in one circle.
const MOST: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let circles = CRATES.iter().flat_map(|name| Imports::of(tree, name).circles());
    circles
        .filter(|circle| circle.len() > MOST)
        .map(|circle| {
            let names: Vec<&str> = circle.iter().map(|(path, _)| path.as_str()).collect();
            let what = format!(
                "{} files import each other in a circle, at most {MOST} may: {}; move what they share below them",
                names.len(),
                names.join(", ")
            );
            Finding::new(names[0], 1, what)
        })
        .collect()
}

/// The files of a crate, by the module that each is, and which modules each imports.
#[derive(Default)]
struct Imports {
    files: BTreeMap<Vec<String>, String>,
    to: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl Imports {
    fn of(tree: &Tree, name: &str) -> Self {
        let source = format!("crates/{name}/src/");
        let mut all = Self::default();
        let mut codes = Vec::new();
        for (path, code) in tree.code() {
            let Some(module) = path.strip_prefix(&source).and_then(module_of) else { continue };
            // What is for tests may look at everything.
            if !module.iter().any(|part| matches!(part.as_str(), "tests" | "churn" | "stress")) {
                all.files.insert(module.clone(), path.to_owned());
                codes.push((module, without_tests(code)));
            }
        }
        for (module, code) in codes {
            let found: BTreeSet<_> = paths(&code)
                .iter()
                .filter_map(|path| all.target(&module, path))
                .filter(|to| *to != module)
                .collect();
            all.to.insert(module, found);
        }
        all
    }

    /// The module with a file of its own that a path leads to.
    fn target(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut module = if path.first()? == "crate" { Vec::new() } else { from.to_vec() };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => {
                    module.pop();
                }
                part => {
                    module.push(part.to_owned());
                    if !self.files.contains_key(&module) {
                        module.pop();
                        break;
                    }
                }
            }
        }
        self.files.contains_key(&module).then_some(module)
    }

    /// Modules that reach each other, with their files; each module in at most one circle.
    fn circles(&self) -> Vec<Vec<(String, Vec<String>)>> {
        let reached: BTreeMap<_, _> = self.to.keys().map(|from| (from, self.reached_from(from))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for from in self.to.keys() {
            if seen.contains(from) || !reached[from].contains(from) {
                continue;
            }
            let back = |to: &&Vec<String>| reached.get(*to).is_some_and(|reached| reached.contains(from));
            let circle: Vec<_> = reached[from].iter().filter(back).cloned().collect();
            seen.extend(circle.iter().cloned());
            circles.push(circle.into_iter().map(|module| (self.files[&module].clone(), module)).collect());
        }
        circles
    }

    fn reached_from(&self, from: &[String]) -> BTreeSet<Vec<String>> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from.to_vec()];
        while let Some(module) = next.pop() {
            for to in self.to.get(&module).into_iter().flatten() {
                if reached.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        reached
    }
}

/// The module of a file below `src`; that of the crate's root has no name.
fn module_of(path: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    Some(parts)
}

/// Every path of the code that begins with `crate`, `super` or `self`, braces taken apart.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (start, _) in code.match_indices("::") {
        let head = code[..start].rsplit(|c: char| !is_name(c)).next().unwrap_or_default();
        let before = code[..start - head.len()].trim_end();
        if matches!(head, "crate" | "super" | "self") && !before.ends_with("::") {
            take(&code[start..], &mut vec![head.to_owned()], &mut all);
        }
    }
    all
}

/// Reads what follows a path: `::name`, `::{one, other::third}` or nothing.
fn take<'a>(mut rest: &'a str, path: &mut Vec<String>, all: &mut Vec<Vec<String>>) -> &'a str {
    let depth = path.len();
    loop {
        let Some(after) = rest.trim_start().strip_prefix("::") else {
            all.push(path.clone());
            break;
        };
        let after = after.trim_start();
        if let Some(mut inside) = after.strip_prefix('{') {
            loop {
                inside = inside.trim_start();
                if let Some(end) = inside.strip_prefix('}') {
                    path.truncate(depth);
                    return end;
                }
                let len = inside.find(|c: char| !is_name(c)).unwrap_or(inside.len());
                let before = path.len();
                path.push(inside[..len].to_owned());
                let left = take(&inside[len..], path, all);
                path.truncate(before);
                // On to the next one: past a new name, and past the comma.
                let next = left.find([',', '}']).unwrap_or(left.len());
                inside = left[next..].strip_prefix(',').unwrap_or(&left[next..]);
                if inside.is_empty() {
                    return inside;
                }
            }
        }
        let len = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
        if len == 0 {
            all.push(path.clone());
            rest = after;
            break;
        }
        path.push(after[..len].to_owned());
        rest = &after[len..];
    }
    path.truncate(depth);
    rest
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn braces_are_taken_apart() {
        let code =
            "use crate::a::{self, B, c::{D, E as F}}; fn f(x: super::g::H) { crate::i(); std::j::k(); }";
        let paths: Vec<String> = paths(code).iter().map(|path| path.join("::")).collect();
        let expected =
            ["crate::a::self", "crate::a::B", "crate::a::c::D", "crate::a::c::E", "super::g::H", "crate::i"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_circle_of_four_is_one_too_many() {
        let four = [
            ("crates/sys/src/lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
            ("crates/sys/src/a.rs", "use crate::b::B;"),
            ("crates/sys/src/b/mod.rs", "use super::c::{C, X};"),
            ("crates/sys/src/c.rs", "fn f() -> crate::d::D { todo }"),
            ("crates/sys/src/d.rs", "use super::a;\nuse super::e::E;"),
            ("crates/sys/src/e.rs", "use std::fmt;"),
        ];
        let what = found(&four);
        assert_eq!(what.len(), 1, "{what:?}");
        let names =
            ["a.rs", "b/mod.rs", "c.rs", "d.rs"].map(|name| format!("crates/sys/src/{name}")).join(", ");
        assert!(what[0].starts_with("4 files import each other") && what[0].contains(&names), "{what:?}");
        let mut three = four;
        three[3].1 = "use crate::e::E; use super::a;";
        assert_eq!(found(&three), [""; 0], "three may");
    }

    #[test]
    fn what_hands_on_and_what_tests_is_no_circle() {
        let files = [
            ("crates/device/src/lib.rs", "mod a; mod b; mod c; mod d; pub use a::A; pub use b::B;"),
            ("crates/device/src/a.rs", "use super::B;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("crates/device/src/b.rs", "use super::A; use super::c;"),
            ("crates/device/src/c.rs", "use super::d;"),
            ("crates/device/src/d.rs", "use super::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}

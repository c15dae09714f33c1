//! The page on the systems that Ferroce began with (docs/seeds.md): no cell is empty, and what it names exists.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the cases live that run over every way; their list is in its `mod.rs`.
const CASES: &str = "crates/conformance/src/cases/";

/// The mark of a row that is not finished.
const UNFINISHED: &str = "TODO-LEAD";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn every_row_of_the_page_names_tests_that_exist() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/seeds.md")).unwrap();
    let mut tree = Tree { root, files: HashMap::new() };
    let Judged { sections, wrong } = tree.judge(&page);
    let rows: Vec<usize> = sections.iter().map(|(_, rows)| *rows).collect();
    assert_eq!(sections.len(), 4, "four systems: {sections:?}");
    assert!(rows.iter().all(|rows| *rows >= 25), "a table has lost its rows: {sections:?}");
    assert!(wrong.is_empty(), "{} rows of docs/seeds.md are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_wrong_with_a_row_is_told() {
    let mut tree = Tree { root: root(), files: HashMap::new() };
    let mut judge = |row: &str| {
        let page = format!("## One\n\n| theirs | ours | tests |\n|---|---|---|\n{row}\n");
        let Judged { sections, wrong } = tree.judge(&page);
        assert_eq!(sections, [("One".to_owned(), 1)]);
        wrong.join("\n")
    };
    let this = "crates/ferroce/tests/seeds.rs";
    let case = "crates/conformance/src/cases/operations.rs";
    for right in [
        format!("| a | b | `{this}` `what_is_wrong_with_a_row_is_told` |"),
        format!("| a | b | `{case}` `send_arrives` `write_arrives`; `{this}` |"),
        "| a | b | planned: something |".to_owned(),
        "| a | b | none: it cannot be run |".to_owned(),
    ] {
        assert_eq!(judge(&right), "", "{right}");
    }
    for (row, why) in [
        (format!("| a | | `{this}` |"), "an empty cell"),
        ("| a | b | |".to_owned(), "an empty cell"),
        ("| a | b |".to_owned(), "2 cells instead of 3"),
        ("| a | b | planned: |".to_owned(), "without saying what"),
        ("| a | b | it is tested |".to_owned(), "names no file"),
        ("| a | b | `crates/ferroce/tests/nowhere.rs` |".to_owned(), "does not exist"),
        (format!("| a | b | `{this}` `no_such_test` |"), "has no function no_such_test"),
        (format!("| a | b | `{this}` `root` |"), "root is no test"),
        (format!("| a | b | `{case}` `no_such_case` |"), "has no function no_such_case"),
        ("| a | b | `what_is_wrong_with_a_row_is_told` |".to_owned(), "before any file"),
        (format!("| a | b | `{this}`; TODO-LEAD |"), "is not finished"),
    ] {
        assert!(judge(&row).contains(why), "{row}: {}", judge(&row));
    }
}

/// What was found on a page.
struct Judged {
    /// Headings of tables, and how many rows they have.
    sections: Vec<(String, usize)>,
    wrong: Vec<String>,
}

/// The files of the tree, as far as they were read.
struct Tree {
    root: PathBuf,
    files: HashMap<String, Option<String>>,
}

impl Tree {
    fn judge(&mut self, page: &str) -> Judged {
        let mut judged = Judged { sections: Vec::new(), wrong: Vec::new() };
        for (number, line) in (1..).zip(page.lines()) {
            if let Some(heading) = line.strip_prefix("## ") {
                judged.sections.push((heading.to_owned(), 0));
            }
            let is_head = line.starts_with("| theirs |") || line.starts_with("|---");
            if !line.starts_with('|') || is_head {
                continue;
            }
            if let Some((_, rows)) = judged.sections.last_mut() {
                *rows += 1;
            }
            if let Err(why) = self.judge_row(line) {
                judged.wrong.push(format!("line {number}: {why}: {line}"));
            }
        }
        judged
    }

    fn judge_row(&mut self, line: &str) -> Result<(), String> {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if cells.iter().any(|cell| cell.is_empty()) {
            return Err("an empty cell".to_owned());
        }
        let [_, _, tests] = cells[..] else { return Err(format!("{} cells instead of 3", cells.len())) };
        for reason in ["planned:", "none:"] {
            if let Some(what) = tests.strip_prefix(reason) {
                let says = !what.trim().is_empty();
                return says.then_some(()).ok_or_else(|| format!("{reason} without saying what"));
            }
        }
        let spans: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        let is_finished = !tests.contains(UNFINISHED);
        if spans.is_empty() && is_finished {
            return Err("it names no file".to_owned());
        }
        let mut file = None;
        for span in spans {
            if span.contains('/') {
                if !self.root.join(span).exists() {
                    return Err(format!("{span} does not exist"));
                }
                file = Some(span);
            } else {
                self.judge_test(file.ok_or_else(|| format!("{span} stands before any file"))?, span)?;
            }
        }
        is_finished.then_some(()).ok_or_else(|| "it is not finished".to_owned())
    }

    /// Whether a file has a test of this name.
    fn judge_test(&mut self, file: &str, name: &str) -> Result<(), String> {
        let text = self.read(file).ok_or_else(|| format!("{file} cannot be read"))?;
        let function = format!("fn {name}(");
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let at = lines.iter().position(|line| line.contains(&function));
        let at = at.ok_or_else(|| format!("{file} has no function {name}"))?;
        // Attributes stand right before it, with nothing but comments between them.
        let above = lines[..at].iter().rev();
        let mut head = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let is_test = head.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
        // Of the macro that makes two tests of each name in its list.
        let is_listed = lines.contains(&"ferroce_testkit::over_both! {")
            && lines.iter().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")));
        let is_case = file.starts_with(CASES) && self.has_case(name);
        (is_test || is_listed || is_case).then_some(()).ok_or_else(|| format!("{name} is no test of {file}"))
    }

    /// Whether it is on the list of cases.
    fn has_case(&mut self, name: &str) -> bool {
        let list = self.read(&format!("{CASES}mod.rs")).unwrap_or_default();
        list.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
    }

    fn read(&mut self, file: &str) -> Option<String> {
        let path = self.root.join(file);
        self.files.entry(file.to_owned()).or_insert_with(|| fs::read_to_string(path).ok()).clone()
    }
}

//! What the pages point to must be there.

use super::Finding;
use super::markdown::{anchors, prose};
use super::tree::Tree;

/// A word in backticks that starts so is meant as a path from the root.
const PATHS: &[&str] = &["crates/", "xtask/", "docs/", "testdata/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for line in prose(text) {
            let links = line.links().into_iter().filter_map(|target| broken_link(tree, path, text, &target));
            let spans = line.code_spans().into_iter().filter_map(|span| missing_path(tree, span));
            findings.extend(links.chain(spans).map(|what| Finding::new(path, line.number, what)));
        }
    }
    findings
}

fn broken_link(tree: &Tree, page: &str, text: &str, target: &str) -> Option<String> {
    // Pages elsewhere are not ours to check.
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let (name, text) = if file.is_empty() {
        (page.to_owned(), Some(text))
    } else {
        let name = resolve(page, file);
        match name.filter(|name| tree.exists(name)) {
            None => return Some(format!("link to `{target}`: no such file; mend the link or add the file")),
            Some(name) => {
                let text = tree.text(&name);
                (name, text)
            }
        }
    };
    let anchor = anchor.filter(|_| name.ends_with(".md"))?;
    let known = anchors(text.unwrap_or_default());
    let what = format!("link to `{target}`: {name} has no such heading; it has: {}", known.join(", "));
    (!known.iter().any(|one| one == anchor)).then_some(what)
}

fn missing_path(tree: &Tree, span: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if !PATHS.iter().any(|start| span.starts_with(start)) || !span.chars().all(plain) || span.contains("..") {
        return None;
    }
    // `file.rs:12` names a line.
    let path = span.split(':').next().unwrap_or(span).trim_end_matches('/');
    (!tree.exists(path)).then(|| format!("`{span}`: no such path; name it as it is now"))
}

/// The path a relative link means, from the root; `None` if it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let files =
            [("docs/page.md", text), ("README.md", "# Top\n## Two words\n"), ("crates/wire/src/lib.rs", "")];
        check(&Tree::of(&files)).into_iter().map(|f| format!("{}: {}", f.line, f.what)).collect()
    }

    #[test]
    fn good_links_and_paths_pass() {
        let text = "# Here\n[a](../README.md) [b](../README.md#two-words) [c](#here) [d](/crates/wire) [e](https://x.org)\n\
                    `crates/wire/src/lib.rs` `crates/wire/` `crates/wire/src/lib.rs:7` `crates/<name>` `crates/...`\n";
        assert_eq!(findings(text), [""; 0]);
    }

    #[test]
    fn a_missing_file_is_found() {
        assert!(findings("\n[a](gone.md)")[0].starts_with("2: link to `gone.md`: no such file"));
        assert_eq!(findings("[a](../../outside.md)").len(), 1);
    }

    #[test]
    fn a_missing_heading_is_found() {
        assert!(findings("[a](../README.md#three)")[0].contains("it has: top, two-words"));
        assert_eq!(findings("[a](#nowhere)").len(), 1);
    }

    #[test]
    fn a_missing_path_is_found() {
        assert!(findings("see `crates/wire/src/gone.rs`")[0].contains("no such path"));
    }
}

//! One set of lints and one licence for every member.

use super::Finding;
use super::manifest::Manifest;
use super::tree::Tree;

/// What each manifest must set to true, as a path and as one writes it.
const INHERITED: &[(&[&str], &str)] = &[
    (&["lints", "workspace"], "lints.workspace = true"),
    (&["package", "license", "workspace"], "license.workspace = true"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.manifests() {
        // The layers rule reports a manifest that cannot be read.
        let Ok(manifest) = Manifest::parse(text) else { continue };
        let missing = INHERITED.iter().filter(|(key, _)| !manifest.is_true(key));
        findings.extend(missing.map(|(_, line)| Finding::new(path, 1, format!("add `{line}`"))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_inherit_lints_and_licence() {
        let good = "[package]\nname = \"x\"\nlicense.workspace = true\n[lints]\nworkspace = true\n";
        let bad = "[package]\nname = \"x\"\nlicense = \"MIT\"\n";
        assert!(check(&Tree::of(&[("crates/x/Cargo.toml", good), ("fuzz/Cargo.toml", bad)])).is_empty());
        assert_eq!(check(&Tree::of(&[("xtask/Cargo.toml", bad)])).len(), 2);
    }
}

//! Verbs is the floor: what stands on it knows the house below through verbs alone. So what endpoints and
//! brokers need is an API that every program has, and the device can be rebuilt without them.

use super::Finding;
use super::layers::{ORDER, ROOT, folder_of};
use super::manifest::{Dependency, Manifest};
use super::source::{line_of, mentions};
use super::tree::Tree;

const FLOOR: &str = "verbs";

/// What stands on the floor. `abi` does not: C programs have verbs of their own, and it stands beside ours.
/// `cli` shows what is in the device, and looks for itself.
const UPSTAIRS: &[&str] = &["endpoint", "broker", "probe", "mesh", "meshd", "ferroce"];

/// What tests upstairs may know of the house below: a test that plays a hostile peer makes packets by hand,
/// and verbs has no business to offer that. Types of the wire that honest programs name are re-exported by
/// verbs.
const FOR_TESTS: &[&str] = &["wire"];

/// Its tests play other users of the machine, which work at the sockets themselves.
const PLAYS_OTHERS: &str = "ferroce";

/// The way from verbs down into the device, for the tests of verbs, and for the cases that they run.
const HATCH: &str = "as_device";
const CASES: &str = "crates/conformance/src/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let root = Manifest::parse(tree.text(ROOT).unwrap_or_default());
    // A manifest that cannot be read is what `layers` finds.
    let renames = root.map(|root| root.renames()).unwrap_or_default();
    let mut findings = Vec::new();
    for (folder, path) in tree.crates().filter(|(folder, _)| UPSTAIRS.contains(folder)) {
        let Ok(manifest) = Manifest::parse(tree.text(path).unwrap_or_default()) else { continue };
        for dependency in manifest.dependencies(&renames) {
            if let Some(below) = reaches_below(folder, &dependency) {
                let what = format!(
                    "`{folder}` stands on `{FLOOR}` and may not depend on `{below}`; \
                     have `{FLOOR}` offer what is needed, as something that any program could use"
                );
                findings.push(Finding::new(path, dependency.line, what));
            }
        }
    }
    let home = format!("crates/{FLOOR}/");
    for (path, code) in tree.code().filter(|(path, _)| !path.starts_with(&home) && !path.starts_with(CASES)) {
        findings.extend(mentions(code, HATCH).map(|offset| {
            let what = format!("`{HATCH}` is for the tests of `{FLOOR}`; use its API, or add to it");
            Finding::new(path, line_of(code, offset), what)
        }));
    }
    findings
}

/// The crate below the floor that a crate upstairs reaches for, if it may not.
fn reaches_below<'a>(folder: &str, dependency: &'a Dependency) -> Option<&'a str> {
    let other = folder_of(&dependency.package)?;
    let place = |name| ORDER.iter().position(|known| *known == name);
    let is_below = place(other)? < place(FLOOR)?;
    let may = dependency.dev && (FOR_TESTS.contains(&other) || folder == PLAYS_OTHERS);
    (is_below && !may).then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(folder: &str, dependencies: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"ferroce-{folder}\"\n{dependencies}\n");
        let path = format!("crates/{folder}/Cargo.toml");
        check(&Tree::of(&[(&path, &manifest)]))
            .into_iter()
            .map(|f| format!("{}: {}", f.line, f.what))
            .collect()
    }

    #[test]
    fn the_floor_carries_what_is_upstairs() {
        let fine = "[dependencies]\nferroce-verbs = \"0\"\ntokio = \"1\"\n\
                    [dev-dependencies]\nferroce-testkit = \"0\"";
        for folder in ["endpoint", "broker", "ferroce"] {
            assert_eq!(findings(folder, fine), [""; 0]);
        }
        let up = "[dependencies]\nferroce-endpoint = \"0\"\nferroce-verbs = \"0\"";
        assert_eq!(findings("broker", up), [""; 0]);
    }

    #[test]
    fn nothing_upstairs_reaches_through_it() {
        for below in ["wire", "transport", "device", "cabi"] {
            for folder in ["endpoint", "broker", "probe", "mesh", "meshd", "ferroce"] {
                let found =
                    findings(folder, &format!("[dependencies]\nferroce-{below} = {{ workspace = true }}"));
                assert_eq!(found.len(), 1, "{folder} {below}");
                let start = format!("4: `{folder}` stands on `verbs` and may not depend on `{below}`");
                assert!(found[0].starts_with(&start), "{}", found[0]);
            }
        }
    }

    #[test]
    fn another_name_hides_nothing() {
        let root =
            "[workspace.dependencies]\nnic = { package = \"ferroce-device\", path = \"crates/device\" }\n";
        let broker = "[package]\nname = \"ferroce-broker\"\n[dependencies]\nnic.workspace = true\n";
        let found = check(&Tree::of(&[(ROOT, root), ("crates/broker/Cargo.toml", broker)]));
        assert!(found.len() == 1 && found[0].what.contains("may not depend on `device`"), "{found:?}");
    }

    #[test]
    fn tests_may_make_packets_and_no_more() {
        assert_eq!(findings("endpoint", "[dev-dependencies]\nferroce-wire = \"0\""), [""; 0]);
        assert_eq!(findings("endpoint", "[dev-dependencies]\nferroce-device = \"0\"").len(), 1);
        assert_eq!(findings("broker", "[dev-dependencies]\nferroce-transport = \"0\"").len(), 1);
        assert_eq!(findings("ferroce", "[dev-dependencies]\nferroce-device = \"0\""), [""; 0]);
    }

    #[test]
    fn what_is_below_or_beside_the_floor_is_not_meant() {
        for folder in ["device", "verbs", "abi", "cli"] {
            let below = "[dependencies]\nferroce-device = \"0\"\nferroce-wire = \"0\"";
            assert_eq!(findings(folder, below), [""; 0], "{folder}");
        }
    }

    #[test]
    fn the_hatch_is_for_the_tests_of_verbs() {
        let tree = Tree::of(&[
            ("crates/verbs/tests/raw.rs", "fn f() { qp.as_device(); }\n"),
            ("crates/broker/src/lib.rs", "// as_device\nfn f() {\n    qp.as_device();\n}\n"),
            ("examples/kv/src/main.rs", "fn f() { qp.as_device(); }\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("crates/broker/src/lib.rs".into(), 3), ("examples/kv/src/main.rs".into(), 1)]);
    }
}

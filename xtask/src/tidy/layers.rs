//! Imports point one way: a crate may know only the crates before it in the house.

use super::Finding;
use super::manifest::{Dependency, Manifest, Renames};
use super::tree::Tree;

/// The workspace's own manifest.
pub(super) const ROOT: &str = "Cargo.toml";

/// The house from the ground up. `cabi` holds the C layouts that verbs and abi share; `ferroce` is
/// the public facade. `trace` reads the files that a device writes, and so stands below the device.
pub(super) const ORDER: &[&str] = &[
    "wire",
    "transport",
    "sys",
    "record",
    "trace",
    "memory",
    "lane",
    "fabric",
    "switchboard",
    "progress",
    "device",
    "cabi",
    "system",
    "verbs",
    "conformance",
    "endpoint",
    "broker",
    "probe",
    "mesh",
    "meshd",
    "lab",
    "ferroce",
    "abi",
    "files",
    "sockets",
    "cli",
];

/// Crates for tests: they may know the whole house, and the house knows them only in its tests.
const DEV_ONLY: &[&str] = &["testkit", "sim", "clos", "interop"];

/// Packages from outside that only some crates may use.
struct Outsider {
    packages: &'static [&'static str],
    allowed: &'static [&'static str],
    why: &'static str,
}

const OUTSIDERS: &[Outsider] = &[
    Outsider {
        packages: RUNTIMES,
        allowed: &["endpoint", "broker", "probe", "meshd", "ferroce", "abi", "cli"],
        why: "the layers below endpoint run without an async runtime",
    },
    Outsider {
        packages: &["libc"],
        allowed: &[
            "sys",
            "memory",
            "lane",
            "fabric",
            "switchboard",
            "device",
            "cabi",
            "system",
            "verbs",
            "abi",
            "files",
            "sockets",
        ],
        why: "only they make system calls or speak C",
    },
    Outsider { packages: &["anyhow"], allowed: &["cli"], why: "a library's errors are lists of reasons" },
];

/// Async runtimes, and what starts one.
const RUNTIMES: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "async-io",
    "async-executor",
    "async-global-executor",
    "futures-executor",
    "compio",
    "glommio",
    "monoio",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let renames = match Manifest::parse(tree.text(ROOT).unwrap_or_default()) {
        Ok(root) => root.renames(),
        Err(error) => return vec![unreadable(ROOT, &error)],
    };
    for (folder, path) in tree.crates() {
        let text = tree.text(path).unwrap_or_default();
        match Manifest::parse(text) {
            Ok(manifest) => findings.extend(check_manifest(folder, path, &manifest, &renames)),
            Err(error) => findings.push(unreadable(path, &error)),
        }
    }
    findings
}

fn unreadable(path: &str, error: &str) -> Finding {
    Finding::new(path, 1, format!("cannot be read as TOML: {error}"))
}

fn check_manifest(folder: &str, path: &str, manifest: &Manifest<'_>, renames: &Renames) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !ORDER.contains(&folder) && !DEV_ONLY.contains(&folder) {
        let what =
            format!("crate `{folder}` has no place in the house; give it one in xtask/src/tidy/layers.rs");
        findings.push(Finding::new(path, 1, what));
    }
    if manifest.package() != Some(&package_of(folder)) {
        findings.push(Finding::new(path, 1, format!("the package must be called `{}`", package_of(folder))));
    }
    for dependency in manifest.dependencies(renames) {
        if let Some(what) = wrong_with(folder, &dependency) {
            findings.push(Finding::new(path, dependency.line, what));
        }
    }
    findings
}

fn wrong_with(folder: &str, dependency: &Dependency) -> Option<String> {
    if let Some(other) = folder_of(&dependency.package) {
        return wrong_with_member(folder, other, dependency.dev);
    }
    let package = dependency.package.as_str();
    let outsider = OUTSIDERS.iter().find(|outsider| outsider.packages.contains(&package))?;
    if outsider.allowed.contains(&folder) {
        return None;
    }
    let Outsider { allowed, why, .. } = outsider;
    Some(format!("`{folder}` may not use `{package}`, because {why}; it belongs to: {}", allowed.join(", ")))
}

fn wrong_with_member(folder: &str, other: &str, dev: bool) -> Option<String> {
    if DEV_ONLY.contains(&folder) || folder == other {
        return None;
    }
    if DEV_ONLY.contains(&other) {
        let what = format!("`{other}` is for tests; move it to [dev-dependencies] of `{folder}`");
        return (!dev).then_some(what);
    }
    let place = |name| ORDER.iter().position(|known| *known == name);
    match (place(folder), place(other)) {
        (Some(here), Some(there)) if there > here => Some(format!(
            "`{folder}` may not depend on `{other}`, which comes after it ({}); move the shared part down",
            ORDER.join(" < ")
        )),
        _ => None,
    }
}

fn package_of(folder: &str) -> String {
    if folder == "ferroce" { folder.into() } else { format!("ferroce-{folder}") }
}

pub(super) fn folder_of(package: &str) -> Option<&str> {
    if package == "ferroce" { Some(package) } else { package.strip_prefix("ferroce-") }
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
    fn downward_is_fine() {
        assert!(findings("verbs", "[dependencies]\nferroce-wire = \"0\"\nferroce-device = \"0\"").is_empty());
    }

    #[test]
    fn upward_is_not() {
        let found = findings("wire", "[dependencies]\nferroce-device = { workspace = true }");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("4: `wire` may not depend on `device`"));
    }

    #[test]
    fn upward_is_not_even_for_tests() {
        assert_eq!(findings("wire", "[dev-dependencies]\nferroce-device = \"0\"").len(), 1);
    }

    #[test]
    fn test_crates_are_for_tests() {
        assert!(findings("wire", "[dev-dependencies]\nferroce-testkit = \"0\"").is_empty());
        assert!(findings("testkit", "[dependencies]\nferroce-sim = \"0\"\nferroce-wire = \"0\"").is_empty());
        assert!(findings("cli", "[dependencies]\nferroce-testkit = \"0\"")[0].contains("[dev-dependencies]"));
    }

    #[test]
    fn outsiders_stay_in_their_rooms() {
        assert!(findings("endpoint", "[dependencies]\ntokio = \"1\"").is_empty());
        assert!(findings("device", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"").is_empty());
        assert!(findings("device", "[dependencies]\ntokio = \"1\"")[0].contains("async runtime"));
        assert!(
            findings("broker", "[dependencies]\nc = { package = \"libc\", version = \"0.2\" }")[0]
                .contains("`libc`")
        );
    }

    #[test]
    fn every_runtime_is_a_runtime() {
        for runtime in ["async-std", "smol", "async-io", "futures-executor"] {
            let found = findings("transport", &format!("[dev-dependencies]\n{runtime} = \"1\""));
            assert!(found[0].contains("async runtime"), "{runtime}");
        }
    }

    #[test]
    fn a_name_given_by_the_workspace_hides_nothing() {
        let root = "[workspace.dependencies]\nc-stuff = { package = \"libc\", version = \"0.2\" }\n\
                    top = { package = \"ferroce-cli\", path = \"crates/cli\" }\n";
        let wire = "[package]\nname = \"ferroce-wire\"\n[dependencies]\nc-stuff.workspace = true\ntop.workspace = true\n";
        let found = check(&Tree::of(&[(ROOT, root), ("crates/wire/Cargo.toml", wire)]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().any(|f| f.line == 4 && f.what.contains("`libc`")));
        assert!(found.iter().any(|f| f.line == 5 && f.what.contains("may not depend on `cli`")));
    }

    #[test]
    fn an_unknown_crate_must_be_placed() {
        assert!(findings("attic", "")[0].contains("no place in the house"));
    }

    #[test]
    fn folder_and_package_agree() {
        let tree = Tree::of(&[("crates/wire/Cargo.toml", "[package]\nname = \"wire\"\n")]);
        assert!(check(&tree)[0].what.contains("`ferroce-wire`"));
    }
}

//! A commit, or the work tree, whose benchmarks can be built beside those of another one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::say::complain;
use crate::shell::{Cmd, root, target_dir};

/// A tree of sources with a build folder of its own.
#[derive(Debug)]
pub(super) struct Checkout {
    /// How it is called in tables.
    pub(super) name: String,
    tree: PathBuf,
    /// None is where cargo always builds.
    target: Option<PathBuf>,
}

impl Checkout {
    /// The work tree, built where it always is.
    pub(super) fn here() -> Self {
        Self { name: "work tree".into(), tree: root(), target: None }
    }

    /// One side of a comparison: a commit, or the work tree if none is named.
    ///
    /// Each side has a folder below `target/pairs`, and keeps what it has built for the next time.
    pub(super) fn of_side(side: &str, revision: Option<&str>) -> Result<Self> {
        let folder = target_dir().join("pairs").join(side);
        let target = Some(folder.join("target"));
        let Some(revision) = revision else {
            return Ok(Self { target, ..Self::here() });
        };
        let commit = commit(revision)?;
        let tree = folder.join("tree");
        let stamp = folder.join("commit");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(&commit) {
            complain!("{side}: checking out {revision} into {}", tree.display());
            // What was interrupted must not be taken for a commit.
            let _ = fs::remove_file(&stamp);
            extract(&commit, &tree)?;
            fs::write(&stamp, &commit).with_context(|| format!("writing {}", stamp.display()))?;
        }
        let short = commit.get(..7).unwrap_or(&commit);
        let name = if revision.starts_with(short) { short.into() } else { format!("{revision} ({short})") };
        Ok(Self { name, tree, target })
    }

    /// Puts a benchmark of the work tree in place of its own, which may be another one or none.
    pub(super) fn borrow_bench(&self, package: &str, bench: &str) -> Result<()> {
        let inner = |tree: &Path| tree.join("crates").join(package);
        if self.tree == root() {
            return Ok(());
        }
        let (from, to) = (inner(&root()), inner(&self.tree));
        copy_folder(&from.join("benches").join(bench), &to.join("benches").join(bench))?;
        let path = to.join("Cargo.toml");
        let manifest = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if let Some(manifest) = with_bench(&manifest, bench) {
            fs::write(&path, manifest).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The text of a file.
    pub(super) fn read(&self, path: &str) -> Result<String> {
        let path = self.tree.join(path);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Replaces a file. The work tree is nothing to write to.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        ensure!(self.tree != root(), "{path} of the work tree is not replaced");
        let path = self.tree.join(path);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Builds a benchmark: its program.
    pub(super) fn build(&self, package: &str, bench: &str) -> Result<PathBuf> {
        let mut cmd = Cmd::cargo("bench --no-run --message-format json-render-diagnostics")
            .args(["-p", &format!("ferroce-{package}"), "--bench", bench])
            .in_dir(&self.tree);
        if let Some(target) = &self.target {
            cmd = cmd.env("CARGO_TARGET_DIR", target.to_string_lossy());
        }
        // It takes minutes, so what cargo says is shown.
        let said = cmd.printed().with_context(|| format!("building the benchmark of {}", self.name))?;
        let path = executable(&said, bench);
        path.with_context(|| format!("cargo built no benchmark `{bench}` of {}", self.name))
    }
}

/// The full name of a commit.
fn commit(revision: &str) -> Result<String> {
    let cmd = Cmd::new("git").args(["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")]);
    let (known, said) = cmd.captured()?;
    ensure!(known, "{revision:?} is no commit of this repository");
    Ok(said.trim().to_owned())
}

/// Has a folder hold the files of a commit, and nothing else.
fn extract(commit: &str, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("removing {}", tree.display()))?;
    }
    fs::create_dir_all(tree).with_context(|| format!("making {}", tree.display()))?;
    let archive = tree.with_extension("tar");
    Cmd::new("git").args(["archive", "--output"]).arg(&archive).arg(commit).output()?;
    // Files are as old as this call: cargo builds anew what is younger than its last build, and a commit may
    // be older than that.
    let unpack = Cmd::new("tar").arg("--extract").arg("--touch").arg("--file").arg(&archive);
    unpack.arg("--directory").arg(tree).output()?;
    Ok(fs::remove_file(archive)?)
}

/// Has a folder hold the files of another one, and leaves alone what is the same: it is not built anew then.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
            continue;
        }
        let bytes = fs::read(entry.path())?;
        if fs::read(&target).ok().as_ref() != Some(&bytes) {
            fs::write(&target, bytes).with_context(|| format!("writing {}", target.display()))?;
        }
    }
    Ok(())
}

/// A manifest with a benchmark more; none if it has it already.
fn with_bench(manifest: &str, bench: &str) -> Option<String> {
    let has = manifest.lines().any(|line| line.trim() == format!("name = \"{bench}\""));
    (!has).then(|| format!("{manifest}\n[[bench]]\nname = \"{bench}\"\nharness = false\n"))
}

/// The program of a benchmark, from what cargo says while it builds.
fn executable(said: &str, bench: &str) -> Option<PathBuf> {
    let artifacts = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_bench = |artifact: &Value| {
        artifact["target"]["name"] == bench
            && artifact["target"]["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "bench"))
    };
    artifacts.filter(is_bench).find_map(|artifact| Some(artifact["executable"].as_str()?.into()))
}

/// Both sides of a comparison; two of the same would say nothing.
pub(super) fn sides(before: Option<&str>, after: Option<&str>) -> Result<[Checkout; 2]> {
    if let (Some(before), Some(after)) = (before, after)
        && commit(before)? == commit(after)?
    {
        bail!("{before} and {after} are the same commit; name two with --before and --after");
    }
    Ok([Checkout::of_side("before", before)?, Checkout::of_side("after", after)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_what_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"nic"},"executable":null}
not JSON
{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"nic"},"executable":"/x/nic-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(said, "nic"), Some("/x/nic-1".into()));
        assert_eq!(executable(said, "refusals"), None);
    }

    #[test]
    fn a_benchmark_is_added_to_a_manifest_once() {
        let manifest = "[package]\nname = \"x\"\n";
        let with = with_bench(manifest, "instructions").unwrap();
        assert!(with.starts_with(manifest));
        assert!(with.ends_with("\n[[bench]]\nname = \"instructions\"\nharness = false\n"));
        assert_eq!(with_bench(&with, "instructions"), None);
    }

    #[test]
    fn copies_leave_alone_what_is_the_same() {
        let folder = std::env::temp_dir().join(format!("ferroce-xtask-copy-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/a.rs"), "new").unwrap();
        fs::write(from.join("b.rs"), "same").unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("b.rs"), "same").unwrap();
        let written = || fs::metadata(to.join("b.rs")).unwrap().modified().unwrap();
        let before = written();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/a.rs")).unwrap(), "new");
        assert_eq!(written(), before);
        fs::remove_dir_all(folder).unwrap();
    }
}

//! The files the rules look at, in memory: what git knows, and what it would add.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source;
use crate::shell::Cmd;

/// One file of the repository.
pub(super) struct File {
    /// From the root, with forward slashes.
    pub(super) path: String,
    /// `None` for binary files.
    pub(super) text: Option<String>,
    /// For Rust files: the text with comments and strings blanked out, same length.
    pub(super) code: Option<String>,
}

impl File {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let code = text.as_deref().filter(|_| path.ends_with(".rs")).map(source::code_only);
        Self { path, text, code }
    }
}

/// All files, sorted by path.
pub(super) struct Tree(Vec<File>);

impl Tree {
    /// Reads the working tree: tracked files and new ones that are not ignored.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut paths = git_files(root).unwrap_or_else(|| walk(root, ""));
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let full = root.join(&path);
            // A file that git still lists may be gone from the working tree; a link is not ours to follow.
            if !full.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let bytes = fs::read(&full).with_context(|| format!("reading {path}"))?;
            files.push(File::new(path, bytes));
        }
        Ok(Self(files))
    }

    /// A tree for a test, from paths and texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| File::new((*path).into(), text.as_bytes().to_vec())).collect())
    }

    pub(super) fn files(&self) -> &[File] {
        &self.0
    }

    /// Every text file as its path and its text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// Every Rust file as its path and its code without comments and strings.
    pub(super) fn code(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|file| Some((file.path.as_str(), file.code.as_deref()?)))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts().find(|(name, _)| *name == path).map(|(_, text)| text)
    }

    /// Whether the path names a file, or a folder that holds one.
    pub(super) fn exists(&self, path: &str) -> bool {
        let inside = |file: &File| {
            file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.0.iter().any(inside)
    }

    /// The manifests of the workspace's members: path and text.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| *path == "xtask/Cargo.toml" || crate_folder(path).is_some())
    }

    /// The folders under `crates/`, and the path of each one's manifest.
    pub(super) fn crates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|file| Some((crate_folder(&file.path)?, file.path.as_str())))
    }
}

/// `wire` for `crates/wire/Cargo.toml`, nothing for any other path.
pub(super) fn crate_folder(path: &str) -> Option<&str> {
    let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!folder.contains('/')).then_some(folder)
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    // CI often checks out as one user and runs as another, which git refuses unless told.
    let safe = format!("safe.directory={}", root.display());
    let git = Cmd::new("git").args([
        "-c",
        safe.as_str(),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let (worked, output) = git.captured().ok()?;
    let paths: Vec<String> = output.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // No file at all: an archive unpacked inside another repository.
    (worked && !paths.is_empty()).then_some(paths)
}

/// For a source archive without git: everything but what a build leaves behind.
fn walk(root: &Path, folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            paths.push(path);
        } else if ![".git", "target", "artifacts", "coverage"].contains(&name.as_str()) {
            paths.extend(walk(root, &path));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn files_and_their_folders_exist() {
        let tree = Tree::of(&[("crates/wire/src/lib.rs", "")]);
        assert!(tree.exists("crates/wire/src/lib.rs"));
        assert!(tree.exists("crates/wire"));
        assert!(!tree.exists("crates/wi"));
    }

    #[test]
    fn binary_files_have_no_text() {
        assert!(File::new("a.pcap".into(), vec![0xd4, 0xc3]).text.is_none());
        assert!(File::new("a.bin".into(), vec![b'a', 0]).text.is_none());
    }

    #[test]
    fn this_repository_loads_with_and_without_git() {
        let root = shell::root();
        assert!(Tree::load(&root).unwrap().exists("xtask/src/tidy/tree.rs"));
        let walked = walk(&root, "");
        assert!(walked.iter().any(|path| path == "xtask/src/tidy/tree.rs"));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
    }
}

//! The copy of the tree in which mistakes are made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::list::Mutant;
use crate::shell::{Cmd, root, target_dir};

/// A copy of everything that git knows of, or would if it were told.
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    /// Brings the copy up to date. Files that are the same are left alone, so that nothing is built again for them.
    pub(super) fn copied() -> Result<Self> {
        let tree = Self { root: target_dir().join("mutants/tree") };
        let names = Cmd::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()?;
        let wanted: BTreeSet<PathBuf> = names
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(PathBuf::from)
            .filter(|name| root().join(name).is_file())
            .collect();
        ensure!(!wanted.is_empty(), "git knows of no file here");
        for name in &wanted {
            copy_if_other(&root().join(name), &tree.root.join(name))?;
        }
        let mut present = Vec::new();
        files_below(&tree.root, Path::new(""), &mut present)?;
        for name in present.iter().filter(|name| !wanted.contains(*name)) {
            let path = tree.root.join(name);
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(tree)
    }

    /// Makes the mistake, does something, and takes the mistake back.
    pub(super) fn with<T>(&self, mutant: &Mutant, act: impl FnOnce() -> T) -> Result<T> {
        let path = self.root.join(&mutant.file);
        let original = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let changed = mutated(&original, mutant)
            .with_context(|| format!("{} does not reach as far as {}", path.display(), mutant.name()))?;
        let write =
            |text: &str| fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
        write(&changed)?;
        let result = act();
        write(&original)?;
        Ok(result)
    }
}

/// The text with the mistake in it; none if it has no such place.
fn mutated(text: &str, mutant: &Mutant) -> Option<String> {
    let [start, end] = mutant.span.map(|place| offset(text, place));
    let (start, end) = (start?, end?);
    Some(format!("{}{}{}", text.get(..start)?, mutant.replacement, text.get(end..)?))
}

/// Where a line and a column, both counted from 1, are in a text.
fn offset(text: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(before..)?;
    let inside: usize = rest.chars().take(column.checked_sub(1)?).map(char::len_utf8).sum();
    Some(before + inside)
}

fn copy_if_other(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(to, bytes).with_context(|| format!("writing {}", to.display()))
}

fn files_below(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(folder);
    for entry in fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files_below(root, &name, files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::mutant;
    use super::*;

    #[test]
    fn the_mistake_is_made_at_its_place_and_nowhere_else() {
        let text = "one + two\nä ö + x\nfour + five\n";
        let here = Mutant { span: [(2, 5), (2, 6)], ..mutant(2) };
        assert_eq!(mutated(text, &here).unwrap(), "one + two\nä ö - x\nfour + five\n");
        let lines = Mutant { span: [(1, 5), (2, 2)], replacement: "|".into(), ..mutant(1) };
        assert_eq!(mutated(text, &lines).unwrap(), "one | ö + x\nfour + five\n");
        assert_eq!(mutated("short", &Mutant { span: [(9, 1), (9, 2)], ..mutant(9) }), Some("short-".into()));
    }
}

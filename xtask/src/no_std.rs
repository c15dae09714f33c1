//! The `no-std` part: the wire crate builds without the standard library.
//!
//! A check for this machine's own target cannot show that alone: there, `std` is always within
//! reach. So the tidy rule `no-std` forbids reaching for it in our sources, no dependency may have
//! its feature `std` on, and where a target without `std` is installed, it decides.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::place::Place;
use crate::shell::Cmd;
use crate::tidy;

pub(crate) fn check(place: &Place, target_dir: &Path) -> Result<String> {
    tidy::check_rule("no-std")?;
    let check = || Cmd::cargo("check -p ferroce-wire --no-default-features --target-dir").arg(target_dir);
    place.run(&check())?;
    dependencies(place)?;
    let Some(target) = bare_target()? else {
        return Ok("target without std not installed, skipped".into());
    };
    place.run(&check().arg("--target").arg(&target))?;
    Ok(format!("also for {target}"))
}

/// No dependency may have its feature `std` on.
fn dependencies(place: &Place) -> Result<()> {
    let line = "tree -p ferroce-wire --no-default-features --edges normal,no-proc-macro --prefix none";
    let cmd = Cmd::cargo(line).args(["--format", "{p}|{f}"]);
    place.say(&format!("$ {cmd}"));
    let (worked, tree) = cmd.captured()?;
    ensure!(worked, "`{cmd}` failed:\n{tree}");
    if let Some(package) = with_std(&tree) {
        bail!("`{package}` is built with its feature `std`; take it with `default-features = false`");
    }
    Ok(())
}

/// The first package of `package|feature,feature` lines that has the feature `std`.
fn with_std(tree: &str) -> Option<&str> {
    let mut packages = tree.lines().filter_map(|line| line.split_once('|'));
    packages.find(|(_, features)| features.split(',').any(|name| name == "std")).map(|(package, _)| package)
}

/// An installed target that has no standard library, if there is one.
fn bare_target() -> Result<Option<String>> {
    let (worked, sysroot) = Cmd::new("rustc").args(["--print", "sysroot"]).captured()?;
    ensure!(worked, "`rustc --print sysroot` failed:\n{sysroot}");
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    let entries = fs::read_dir(&targets).with_context(|| format!("listing {}", targets.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("lib").is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names.into_iter().find(|name| is_bare(name)))
}

/// Such a target names no operating system: `thumbv7em-none-eabi`, `x86_64-unknown-none`.
fn is_bare(target: &str) -> bool {
    target.split('-').any(|part| part == "none") && !target.contains("linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_brings_std_is_found() {
        let tree = "ferroce-wire v0.1.0 (x)|\nbitflags v2.13.1|\ncrc32fast v1.5.0|default,std\n";
        assert_eq!(with_std(tree), Some("crc32fast v1.5.0"));
        assert_eq!(with_std("a v1|alloc,nostd\nb v1|\nwarning: std\n"), None);
    }

    #[test]
    fn targets_without_a_system_are_recognised() {
        for bare in ["thumbv7em-none-eabi", "x86_64-unknown-none", "riscv32i-unknown-none-elf"] {
            assert!(is_bare(bare), "{bare}");
        }
        for other in ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-none", "components", "etc"] {
            assert!(!is_bare(other), "{other}");
        }
    }
}

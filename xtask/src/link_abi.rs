//! `cargo xtask link-abi`: links the drop-in libraries from the archive of the C interface.
//!
//! Cargo cannot give symbols their versions, so a C compiler links: the archive, a version map made from the list of
//! symbols that Debian's library exports, and its soname.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::say::say;
use crate::shell::{Cmd, root, target_dir};

/// Options of `cargo xtask link-abi`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimise as for a release
    #[arg(long)]
    release: bool,
}

/// Symbols that the library must export, with their versions: those of Debian 12, as `nm -D` names them.
pub(crate) const EXPORTS: &str = "crates/abi/exports.txt";

/// The variable that tells the tests where the library is.
pub(crate) const FOLDER: &str = "FERROCE_ABI";

/// What programs ask for.
pub(crate) const SONAME: &str = "libibverbs.so.1";
/// What `ferroce run` preloads for programs that look for the kernel's files.
pub(crate) const FILES: &str = "libferroce_files.so";
/// What programs that load it by hand may ask for.
pub(crate) const PLAIN: &str = "libibverbs.so";

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = link(Build::Alone { release: args.release })?;
    say!("link-abi: {}", folder.join(SONAME).display());
    say!("link-abi: use it with LD_LIBRARY_PATH={} or `ferroce run -- PROGRAM`", folder.display());
    Ok(())
}

/// How the archive is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// By itself, as for a release or not.
    Alone { release: bool },
    /// With the programs that `interop` runs and everything that `cargo test --workspace` compiles. Alone, its dependencies
    /// have fewer features, and all of them would be compiled a second time.
    WithTests,
}

impl Build {
    /// Compiles, and returns the folder with what came of it.
    fn run(self) -> Result<PathBuf> {
        let (line, profile) = match self {
            Self::Alone { release: false } => ("build -p ferroce-abi -p ferroce-files", "debug"),
            Self::Alone { release: true } => ("build -p ferroce-abi -p ferroce-files --release", "release"),
            Self::WithTests => {
                ("build --workspace --lib --tests --examples --bin ferroce-interop --bin ferroce", "debug")
            }
        };
        Cmd::cargo(line).run()?;
        Ok(target_dir().join(profile))
    }
}

/// Links, and returns the folder of the libraries.
pub(crate) fn link(build: Build) -> Result<PathBuf> {
    let built = build.run()?;
    let folder = built.join("abi");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let exports = fs::read_to_string(root().join(EXPORTS)).with_context(|| format!("reading {EXPORTS}"))?;
    let map = folder.join("libibverbs.map");
    fs::write(&map, version_map(&exports)?)?;
    // Under another name first, so that a program that runs meanwhile keeps the old one whole.
    let fresh = folder.join(format!("{SONAME}.{}", std::process::id()));
    linker(&built.join("libferroce_abi.a"), &map, &fresh).run()?;
    fs::rename(&fresh, folder.join(SONAME))?;
    let plain = folder.join(PLAIN);
    if fs::symlink_metadata(&plain).is_err() {
        symlink(SONAME, &plain)?;
    }
    check_exports(&folder.join(SONAME), &exports)?;
    let fresh = folder.join(format!("{FILES}.{}", std::process::id()));
    fs::copy(built.join(FILES), &fresh).with_context(|| format!("copying {FILES}"))?;
    fs::rename(&fresh, folder.join(FILES))?;
    Ok(folder)
}

fn linker(archive: &Path, map: &Path, to: &Path) -> Cmd {
    Cmd::new("cc")
        .args(["-shared", "-o"])
        .arg(to)
        .args([format!("-Wl,-soname,{SONAME}"), format!("-Wl,--version-script={}", map.display())])
        .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,--whole-archive"])
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"])
}

/// The version map: every version with its symbols, each version after the one before it.
fn version_map(exports: &str) -> Result<String> {
    let mut nodes: BTreeMap<(u8, u32), (String, Vec<&str>)> = BTreeMap::new();
    for line in exports.lines().filter(|line| !line.is_empty()) {
        let Some((name, version)) = line.split_once("@@") else {
            // A version by itself, or an old form: those bring their versions with them.
            if !line.contains('@') {
                nodes.entry(order(line)?).or_default().0 = line.to_owned();
            }
            continue;
        };
        let node = nodes.entry(order(version)?).or_default();
        node.0 = version.to_owned();
        node.1.push(name);
    }
    let mut map = String::new();
    let mut before = String::new();
    let mut left = nodes.len();
    for (name, symbols) in nodes.into_values() {
        left -= 1;
        let _ = writeln!(map, "{name} {{");
        if !symbols.is_empty() {
            let _ = writeln!(map, "  global: {};", symbols.join("; "));
        }
        // In an earlier version this would also hide the old forms that bring that version with them.
        if left == 0 {
            let _ = writeln!(map, "  local: *;");
        }
        let _ = writeln!(map, "}}{before};");
        before = format!(" {name}");
    }
    Ok(map)
}

/// Public versions come first, by number; the private one is the last.
fn order(version: &str) -> Result<(u8, u32)> {
    let parts = [("IBVERBS_1.", 0), ("IBVERBS_PRIVATE_", 1)];
    let found = parts.iter().find_map(|(prefix, rank)| Some((*rank, version.strip_prefix(prefix)?)));
    let Some((rank, number)) = found else { bail!("{EXPORTS}: {version:?} is no version of libibverbs") };
    Ok((rank, number.parse().with_context(|| format!("{EXPORTS}: {version:?}"))?))
}

/// The library exports what the list says, no less and no more.
fn check_exports(library: &Path, expected: &str) -> Result<()> {
    let (done, table) = Cmd::new("readelf").args(["--dyn-syms", "-W"]).arg(library).captured()?;
    ensure!(done, "readelf failed:\n{table}");
    let exported = exported(&table);
    let mut expected: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
    expected.sort_unstable();
    let missing: Vec<_> = expected.iter().filter(|name| !exported.contains(name)).collect();
    let surplus: Vec<_> = exported.iter().filter(|name| !expected.contains(name)).collect();
    ensure!(
        missing.is_empty() && surplus.is_empty(),
        "{} differs from {EXPORTS}: missing {missing:?}, surplus {surplus:?}",
        library.display()
    );
    Ok(())
}

/// Names that are defined, from the table that readelf prints.
fn exported(table: &str) -> Vec<&str> {
    let columns = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let defined =
        columns.filter(|columns| columns.len() == 8 && columns[6] != "UND" && columns[4] != "LOCAL");
    let mut names: Vec<&str> = defined.map(|columns| columns[7]).filter(|name| *name != "Name").collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_in_order_and_hide_the_rest() {
        let exports = "IBVERBS_1.0\nIBVERBS_1.10\nIBVERBS_PRIVATE_34\na@@IBVERBS_1.10\nb@@IBVERBS_1.2\n\
                       b@IBVERBS_1.0\nc@@IBVERBS_PRIVATE_34\n";
        let map = version_map(exports).unwrap();
        assert_eq!(
            map,
            "IBVERBS_1.0 {\n};\nIBVERBS_1.2 {\n  global: b;\n} IBVERBS_1.0;\n\
             IBVERBS_1.10 {\n  global: a;\n} IBVERBS_1.2;\nIBVERBS_PRIVATE_34 {\n  global: c;\n  local: *;\n} IBVERBS_1.10;\n"
        );
        assert!(version_map("a@@GLIBC_2.2\n").is_err());
    }

    #[test]
    fn what_is_defined_is_read_from_the_table() {
        let table = "   Num:    Value          Size Type    Bind   Vis      Ndx Name\n\
                     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND read@GLIBC_2.2.5 (2)\n\
                     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND poll\n\
                     3: 00000000000f1cc0    25 FUNC    GLOBAL DEFAULT   14 ibv_fork_init@@IBVERBS_1.1\n";
        assert_eq!(exported(table), ["ibv_fork_init@@IBVERBS_1.1"]);
    }
}

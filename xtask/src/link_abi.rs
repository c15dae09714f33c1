//! `cargo xtask link-abi`: links the drop-in libraries from the archive of the C interface.
//!
//! There is one engine, `libferroce.so.0`, with all code and all state, and a door to it for each library that programs ask
//! for: a process that uses both has one card. Cargo cannot give symbols their versions, so a C compiler links: the
//! engine from the archive, under names of its own; and each door from a few lines of assembly, with a version map made
//! from the list of symbols that Debian's library exports, and its soname.

mod door;
mod exports;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::say::say;
use crate::shell::{Cmd, root, target_dir};
use door::Processor;
use exports::Export;

/// Options of `cargo xtask link-abi`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimise as for a release
    #[arg(long)]
    release: bool,
}

/// The variable that tells the tests where the library is.
pub(crate) const FOLDER: &str = "FERROCE_ABI";

/// What is behind the doors.
const ENGINE: &str = "libferroce.so.0";

/// A library that programs ask for.
struct Door {
    soname: &'static str,
    /// What programs that load it by hand, and linkers, may ask for: a link to it.
    plain: &'static str,
    /// Symbols that it must export, with their versions: those of Debian 12, as `nm -D` names them.
    exports: &'static str,
}

const DOORS: [Door; 2] = [
    Door { soname: "libibverbs.so.1", plain: "libibverbs.so", exports: "crates/abi/exports.txt" },
    Door { soname: "librdmacm.so.1", plain: "librdmacm.so", exports: "crates/abi/exports-rdmacm.txt" },
];

/// What `ferroce run` preloads for programs that look for the kernel's files.
const FILES: &str = "libferroce_files.so";

/// What `ferroce run --sockets` preloads for programs whose sockets are to be rsockets.
const SOCKETS: &str = "libferroce_sockets.so";

/// The libraries, each after those that it needs.
pub(crate) const LIBRARIES: [&str; 5] = [ENGINE, DOORS[0].soname, DOORS[1].soname, FILES, SOCKETS];

/// Links to libraries, each with its target.
pub(crate) const LINKS: [(&str, &str); 2] =
    [(DOORS[0].plain, DOORS[0].soname), (DOORS[1].plain, DOORS[1].soname)];

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = link(Build::Alone { release: args.release })?;
    for library in LIBRARIES {
        say!("link-abi: {}", folder.join(library).display());
    }
    say!("link-abi: use them with LD_LIBRARY_PATH={} or `ferroce run -- PROGRAM`", folder.display());
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
            Self::Alone { release: false } => {
                ("build -p ferroce-abi -p ferroce-files -p ferroce-sockets", "debug")
            }
            Self::Alone { release: true } => {
                ("build -p ferroce-abi -p ferroce-files -p ferroce-sockets --release", "release")
            }
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
    // In a folder beside it first: a program that runs meanwhile keeps the old libraries whole, and several may link at once.
    let fresh = built.join(format!("abi.{}", std::process::id()));
    for folder in [&folder, &fresh] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let done = link_all(&built, &fresh).and_then(|()| put(&fresh, &folder));
    fs::remove_dir_all(&fresh)?;
    done.map(|()| folder)
}

fn link_all(built: &Path, folder: &Path) -> Result<()> {
    let mut lists = Vec::new();
    for door in &DOORS {
        let list = root().join(door.exports);
        lists.push(fs::read_to_string(&list).with_context(|| format!("reading {}", door.exports))?);
    }
    let exports: Vec<Vec<Export<'_>>> = lists.iter().map(|list| exports::read(list)).collect();
    link_engine(&built.join("libferroce_abi.a"), folder, &exports.concat())?;
    for ((door, exports), list) in DOORS.iter().zip(&exports).zip(&lists) {
        link_door(door, folder, exports)?;
        exports::check(&folder.join(door.soname), list)?;
    }
    for (link, target) in LINKS {
        symlink(target, folder.join(link))?;
    }
    for library in [FILES, SOCKETS] {
        fs::copy(built.join(library), folder.join(library)).with_context(|| format!("copying {library}"))?;
    }
    Ok(())
}

/// Each takes the place of the one before it at once, the engine before its doors: an old door fits a newer engine.
fn put(from: &Path, to: &Path) -> Result<()> {
    for name in LIBRARIES.into_iter().chain(LINKS.map(|(link, _)| link)) {
        fs::rename(from.join(name), to.join(name))
            .with_context(|| format!("replacing {}", to.join(name).display()))?;
    }
    Ok(())
}

/// The engine: the whole archive, of which one can see only what the doors lead to. It stays where it is when a program
/// closes its door: threads run in it, and the C library calls it at a fork and at the end.
fn link_engine(archive: &Path, folder: &Path, exports: &[Export<'_>]) -> Result<()> {
    let names: Vec<(String, String)> = exports.iter().filter_map(door::behind).collect();
    let seen: Vec<&str> = names.iter().map(|(seen, _)| seen.as_str()).collect();
    let map = folder.join("engine.map");
    fs::write(&map, format!("{VERSION} {{\n  global: {};\n  local: *;\n}};\n", seen.join("; ")))?;
    let renamed = names.iter().filter(|(seen, compiled)| seen != compiled);
    let options: String =
        renamed.map(|(seen, compiled)| format!("-Wl,--defsym={seen}={compiled}\n")).collect();
    let aliases = folder.join("engine.options");
    fs::write(&aliases, options)?;
    let to = folder.join(ENGINE);
    shared(ENGINE, &map, &to)
        .args(["-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,--whole-archive"])
        .arg(archive)
        .args(["-Wl,--no-whole-archive".to_owned(), format!("@{}", aliases.display())])
        .args(["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"])
        .run()?;
    let list: String = seen.iter().map(|name| format!("{name}@@{VERSION}\n")).collect();
    exports::check(&to, &format!("{VERSION}\n{list}"))
}

/// The version of all that the engine exports. It changes when an old door must not meet a new engine.
const VERSION: &str = "FERROCE_0";

fn link_door(door: &Door, folder: &Path, exports: &[Export<'_>]) -> Result<()> {
    let (map, text) = (folder.join("door.map"), folder.join("door.s"));
    fs::write(&map, exports::version_map(exports).with_context(|| format!("reading {}", door.exports))?)?;
    fs::write(&text, door::assembly(exports, Processor::here()))?;
    shared(door.soname, &map, &folder.join(door.soname))
        .args(["-nostdlib", "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"])
        .args([text, folder.join(ENGINE)])
        .run()
}

/// What all of them are linked with.
fn shared(soname: &str, map: &Path, to: &Path) -> Cmd {
    Cmd::new("cc")
        .args(["-shared", "-o"])
        .arg(to)
        .args([format!("-Wl,-soname,{soname}"), format!("-Wl,--version-script={}", map.display())])
        .args(["-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro"])
}

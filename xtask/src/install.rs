//! `cargo xtask install`: the binary, its manual and its completions under one directory.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::link_abi::{self, Build};
use crate::say::say;
use crate::shell::{Cmd, target_dir};

/// Options of `cargo xtask install`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to install, such as /usr/local or ~/.local: bin, share/man and the shells' directories below it
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
}

/// Where each shell looks for completions, below the prefix.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/ferroce"),
    ("zsh", "share/zsh/site-functions/_ferroce"),
    ("fish", "share/fish/vendor_completions.d/ferroce.fish"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    Cmd::cargo("build --release --locked -p ferroce-cli").run()?;
    // Commands run at the root of the repository; a relative prefix is relative to the caller.
    let prefix = std::path::absolute(&args.prefix).context("the prefix")?;
    let mut installed = install(&target_dir().join("release/ferroce"), &prefix)?;
    installed.extend(install_library(&link_abi::link(Build::Alone { release: true })?, &prefix)?);
    for path in installed {
        say!("{}", path.display());
    }
    Ok(())
}

/// How often a file that is still open for writing somewhere is tried again.
const MOST_BUSY: usize = 10_000;

/// Copies the binary, and has it write its manual and completions; all that was written.
fn install(binary: &Path, prefix: &Path) -> Result<Vec<PathBuf>> {
    let to = prefix.join("bin/ferroce");
    make_parent(&to)?;
    // A running binary cannot be written to, but it can be replaced.
    let fresh = prefix.join("bin/.ferroce.new");
    clear(&fresh)?;
    fs::copy(binary, &fresh).with_context(|| format!("cannot write {}", fresh.display()))?;
    fs::rename(&fresh, &to).with_context(|| format!("cannot write {}", to.display()))?;
    let mut installed = vec![to.clone()];
    let manual = prefix.join("share/man/man1");
    ask(&to, &["man".as_ref(), manual.as_os_str()])?;
    installed.extend(pages(&manual)?);
    for (shell, place) in COMPLETIONS {
        let file = prefix.join(place);
        make_parent(&file)?;
        let script = ask(&to, &["completions".as_ref(), shell.as_ref()])?;
        fs::write(&file, script).with_context(|| format!("cannot write {}", file.display()))?;
        installed.push(file);
    }
    Ok(installed)
}

/// Copies the drop-in libraries to where `ferroce run` looks for them.
fn install_library(linked: &Path, prefix: &Path) -> Result<Vec<PathBuf>> {
    let folder = prefix.join("lib/ferroce");
    let mut installed = Vec::new();
    // Programs that run with one of them keep the old one whole.
    let fresh = folder.join(".new");
    for name in link_abi::LIBRARIES {
        let to = folder.join(name);
        make_parent(&to)?;
        clear(&fresh)?;
        fs::copy(linked.join(name), &fresh).with_context(|| format!("cannot write {}", fresh.display()))?;
        fs::rename(&fresh, &to).with_context(|| format!("cannot write {}", to.display()))?;
        installed.push(to);
    }
    for (name, target) in link_abi::LINKS {
        let to = folder.join(name);
        clear(&fresh)?;
        symlink(target, &fresh).with_context(|| format!("cannot write {}", fresh.display()))?;
        fs::rename(&fresh, &to).with_context(|| format!("cannot write {}", to.display()))?;
        installed.push(to);
    }
    Ok(installed)
}

/// Removes what an install that was interrupted left: a copy would follow a link.
fn clear(fresh: &Path) -> Result<()> {
    match fs::remove_file(fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", fresh.display()))
        }
        _ => Ok(()),
    }
}

fn make_parent(file: &Path) -> Result<()> {
    let dir = file.parent().unwrap_or(file);
    fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// Runs the installed binary; what it printed.
fn ask(binary: &Path, args: &[&std::ffi::OsStr]) -> Result<String> {
    let cmd = Cmd::new(binary).args(args.iter().copied());
    let mut captured = cmd.captured();
    // A process that another thread is just starting has the file open for writing, as we had, until it runs its program.
    for _ in 0..MOST_BUSY {
        let busy = |error: &anyhow::Error| {
            let cause = error.root_cause().downcast_ref::<io::Error>();
            cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ExecutableFileBusy)
        };
        if !captured.as_ref().is_err_and(busy) {
            break;
        }
        std::thread::yield_now();
        captured = cmd.captured();
    }
    let (fine, text) = captured?;
    ensure!(fine, "`{cmd}` failed: {text}");
    Ok(text)
}

fn pages(dir: &Path) -> Result<Vec<PathBuf>> {
    let ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ferroce"));
    let mut pages: Vec<PathBuf> =
        fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect();
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A stand-in that writes pages and scripts as the binary does; the binary's own tests show that it
    /// does.
    const SCRIPT: &str = "#!/bin/sh\nif [ \"$1\" = man ]; then mkdir -p \"$2\"; echo page > \"$2/ferroce.1\"\n\
                          else echo \"for $2\"; fi\n";

    /// It was: a process that another thread started at that moment had the new file open still, and it could not be run.
    #[test]
    fn a_file_that_a_starting_process_has_open_is_tried_again() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = std::env::temp_dir().join(format!("ferroce-install-busy-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let binary = dir.join("built");
        fs::write(&binary, SCRIPT).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        Cmd::new("true").captured().unwrap();
                    }
                });
            }
            let installed = (0..50).try_for_each(|_| install(&binary, &dir.join("prefix")).map(drop));
            over.store(true, Ordering::Relaxed);
            installed.unwrap();
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn everything_lands_where_it_is_looked_for() {
        let dir = std::env::temp_dir().join(format!("ferroce-install-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let binary = dir.join("built");
        fs::write(&binary, SCRIPT).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let prefix = dir.join("prefix");
        // The second time replaces the first.
        for _ in 0..2 {
            let installed = install(&binary, &prefix).unwrap();
            assert_eq!(installed.len(), 5, "{installed:?}");
            assert!(installed.iter().all(|path| path.starts_with(&prefix) && path.is_file()));
        }
        for _ in 0..2 {
            for name in link_abi::LIBRARIES {
                fs::write(dir.join(name), name).unwrap();
            }
            let installed = install_library(&dir, &prefix).unwrap();
            for (name, is) in [
                ("libferroce.so.0", "libferroce.so.0"),
                ("libibverbs.so.1", "libibverbs.so.1"),
                ("librdmacm.so.1", "librdmacm.so.1"),
                ("libibverbs.so", "libibverbs.so.1"),
                ("librdmacm.so", "librdmacm.so.1"),
            ] {
                let path = prefix.join("lib/ferroce").join(name);
                assert!(installed.contains(&path), "{installed:?}");
                assert_eq!(fs::read_to_string(path).unwrap(), is);
            }
        }
        // It was: a link that an interrupted install left was followed, and what it led to was written over.
        for (left, folder) in [(".new", "lib/ferroce"), (".ferroce.new", "bin")] {
            let other = dir.join("other");
            fs::write(&other, "other").unwrap();
            symlink(&other, prefix.join(folder).join(left)).unwrap();
            install(&binary, &prefix).unwrap();
            install_library(&dir, &prefix).unwrap();
            assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        }
        let zsh = fs::read_to_string(prefix.join("share/zsh/site-functions/_ferroce")).unwrap();
        assert_eq!(zsh, "for zsh\n");
        let error = install(&dir.join("missing"), &prefix).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }
}

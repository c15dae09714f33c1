//! Programs that are linked to nothing of RDMA: the machine's libraries are looked for when a program asks for a card, and a machine without
//! them runs everything on the soft device.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::{Cmd, target_dir};

/// What no program may ask the loader for, by the beginning of its name.
const NEVER: [&str; 2] = ["libibverbs", "librdmacm"];

/// Looks at every program that the build has made: the binaries, the examples, and the programs of tests. How many there are.
pub(crate) fn check() -> Result<usize> {
    let debug = target_dir().join("debug");
    let mut programs = Vec::new();
    for folder in [debug.clone(), debug.join("examples"), debug.join("deps")] {
        programs.extend(programs_of(&folder)?);
    }
    ensure!(!programs.is_empty(), "there are no programs in {}", debug.display());
    let (done, table) = Cmd::new("readelf").args(["-d", "-W"]).args(&programs).captured()?;
    ensure!(done, "readelf failed:\n{table}");
    let wrong = linked(&table);
    ensure!(
        wrong.is_empty(),
        "linked to libraries of RDMA, which are to be looked for at run time (crates/system):\n{}",
        wrong.join("\n")
    );
    Ok(programs.len())
}

/// Files of a folder that can be run, but for libraries. A folder that is not there has none.
fn programs_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(files) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut programs = Vec::new();
    for file in files {
        let file = file.with_context(|| format!("reading {}", folder.display()))?;
        // What has an ending is none: libraries, and what cargo notes of each program. A file may go meanwhile.
        let is_program =
            file.metadata().is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0);
        if is_program && file.path().extension().is_none() {
            programs.push(file.path());
        }
    }
    Ok(programs)
}

/// The programs that need what they must not, and what that is, from what readelf prints of them.
fn linked(table: &str) -> Vec<String> {
    let mut program = "";
    let mut wrong = Vec::new();
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("File: ") {
            program = name;
        }
        let needed = line.split_once("(NEEDED)").and_then(|(_, rest)| rest.split_once('['));
        if let Some((_, library)) = needed
            && NEVER.iter().any(|never| library.starts_with(never))
        {
            wrong.push(format!("{program}: {}", library.trim_end_matches(']')));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_library_of_rdma_is_named() {
        let table = "\nFile: target/debug/good\n\nDynamic section at offset 0x1 contains 3 entries:\n  \
                     0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n  \
                     0x000000000000001d (RUNPATH)            Library runpath: [libibverbs.so.1]\n\nFile: target/debug/bad\n  \
                     0x0000000000000001 (NEEDED)             Shared library: [librdmacm.so.1]\n";
        assert_eq!(linked(table), ["target/debug/bad: librdmacm.so.1"]);
    }

    #[test]
    fn a_program_is_what_can_be_run_and_has_no_ending() {
        let here = std::env::current_exe().unwrap();
        let found = programs_of(here.parent().unwrap()).unwrap();
        assert!(found.contains(&here), "{found:?}");
        assert!(found.iter().all(|program| program.extension().is_none()), "{found:?}");
        assert_eq!(programs_of(Path::new("/nowhere")).unwrap(), Vec::<PathBuf>::new());
    }
}

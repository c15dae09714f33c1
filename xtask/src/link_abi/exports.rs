//! What a library exports: lists of symbols with their versions, as `nm -D` names them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::Cmd;

/// A line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Export<'a> {
    /// A version by itself.
    Version(&'a str),
    /// The form that programs are linked to today.
    Now { name: &'a str, version: &'a str },
    /// A form that only programs of long ago are linked to.
    Old { name: &'a str, version: &'a str },
}

/// The lines of a list.
pub(super) fn read(list: &str) -> Vec<Export<'_>> {
    let line = |line| match str::split_once(line, "@@") {
        Some((name, version)) => Export::Now { name, version },
        None => match line.split_once('@') {
            Some((name, version)) => Export::Old { name, version },
            None => Export::Version(line),
        },
    };
    list.lines().filter(|line| !line.is_empty()).map(line).collect()
}

/// The version map: every version with its symbols, each version after the one before it.
pub(super) fn version_map(exports: &[Export<'_>]) -> Result<String> {
    let mut nodes: BTreeMap<(u8, u32), (&str, Vec<&str>)> = BTreeMap::new();
    for export in exports {
        match *export {
            Export::Version(version) => nodes.entry(order(version)?).or_default().0 = version,
            Export::Now { name, version } => {
                let node = nodes.entry(order(version)?).or_default();
                node.0 = version;
                node.1.push(name);
            }
            // The assembler gives these their versions.
            Export::Old { .. } => {}
        }
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
    let parts = [("IBVERBS_1.", 0), ("RDMACM_1.", 0), ("IBVERBS_PRIVATE_", 1)];
    let found = parts.iter().find_map(|(prefix, rank)| Some((*rank, version.strip_prefix(prefix)?)));
    let Some((rank, number)) = found else { bail!("{version:?} is no version of libibverbs or librdmacm") };
    Ok((rank, number.parse().with_context(|| format!("the version {version:?}"))?))
}

/// The library exports what the list says, no less and no more.
pub(super) fn check(library: &Path, list: &str) -> Result<()> {
    let (done, table) = Cmd::new("readelf").args(["--dyn-syms", "-W"]).arg(library).captured()?;
    ensure!(done, "readelf failed:\n{table}");
    let exported = exported(&table);
    let mut expected: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    expected.sort_unstable();
    let missing: Vec<_> = expected.iter().filter(|name| !exported.contains(name)).collect();
    let surplus: Vec<_> = exported.iter().filter(|name| !expected.contains(name)).collect();
    ensure!(
        missing.is_empty() && surplus.is_empty(),
        "{} differs from its list: missing {missing:?}, surplus {surplus:?}",
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
        let list = "IBVERBS_1.0\nIBVERBS_1.10\nIBVERBS_PRIVATE_34\na@@IBVERBS_1.10\nb@@IBVERBS_1.2\n\
                    b@IBVERBS_1.0\nc@@IBVERBS_PRIVATE_34\n";
        let map = version_map(&read(list)).unwrap();
        assert_eq!(
            map,
            "IBVERBS_1.0 {\n};\nIBVERBS_1.2 {\n  global: b;\n} IBVERBS_1.0;\n\
             IBVERBS_1.10 {\n  global: a;\n} IBVERBS_1.2;\nIBVERBS_PRIVATE_34 {\n  global: c;\n  local: *;\n} IBVERBS_1.10;\n"
        );
        assert!(version_map(&read("a@@GLIBC_2.2\n")).is_err());
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

//! `cargo xtask conformance`: rdma-core's own test suite on our library, over each path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::link_abi::{self, Build};
use crate::say::say;
use crate::shell::{Cmd, root, target_dir};

/// Options of `cargo xtask conformance`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimise as for a release
    #[arg(long)]
    release: bool,
    /// Put the table into docs/conformance.md
    #[arg(long)]
    write_docs: bool,
}

/// Where Debian has the suite of the release that our layouts are of.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// Runs it and prints one line per test.
const RUNNER: &str = "crates/abi/tests/suite.py";
/// Where the table goes.
const PAGE: &str = "docs/conformance.md";
/// The suite is run over each, on an address of its own.
const PATHS: [(&str, &str); 3] =
    [("wire", "127.0.88.50"), ("shared", "127.0.88.52"), ("local", "127.0.88.51")];
/// Seconds after which the suite hangs.
const PATIENCE: &str = "600";

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    name: String,
    end: String,
    why: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(Path::new(SUITE).exists(), "{SUITE} is missing: `cargo xtask setup` installs python3-pyverbs");
    let library = link_abi::link(Build::Alone { release: args.release })?;
    let folder = target_dir().join("conformance");
    let suite = folder.join("suite");
    // Python writes beside what it reads, and the packed files must be unpacked.
    let _ = fs::remove_dir_all(&suite);
    fs::create_dir_all(&folder)?;
    Cmd::new("cp").arg("-r").arg(SUITE).arg(&suite).run()?;
    let unpack = format!("gunzip -f {}/*.gz", suite.display());
    Cmd::new("sh").args(["-c", &unpack]).run()?;
    let mut runs = Vec::new();
    for (path, address) in PATHS {
        let cmd = Cmd::new("timeout")
            .args([PATIENCE, "/usr/bin/python3"])
            .arg(root().join(RUNNER))
            .arg(&suite)
            .arg("ferroce_lo")
            .env("LD_LIBRARY_PATH", library.display().to_string())
            .env("FERROCE_PATH", path)
            .env("FERROCE_ADDRESS", address);
        let (done, output) = cmd.captured()?;
        let ended = results(&output);
        ensure!(
            done && !ended.is_empty(),
            "the suite did not come to its end over the {path} path:\n{output}"
        );
        runs.push((path, ended));
    }
    let page = page(&runs);
    say!("{page}");
    if args.write_docs {
        fs::write(root().join(PAGE), &page).with_context(|| format!("writing {PAGE}"))?;
    }
    for (path, ended) in &runs {
        let failed: Vec<String> = ended
            .iter()
            .filter(|test| test.end == "failed")
            .map(|test| format!("{}: {}", test.name, test.why))
            .collect();
        ensure!(failed.is_empty(), "{} failed over the {path} path:\n{}", failed.len(), failed.join("\n"));
    }
    Ok(())
}

/// The lines of the runner.
fn results(output: &str) -> Vec<Ended> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("RESULT\t"));
    let parts = lines.map(|line| line.splitn(3, '\t').map(str::to_owned).collect::<Vec<_>>());
    parts
        .filter_map(|parts| match <[String; 3]>::try_from(parts) {
            Ok([name, end, why]) => Some(Ended { name, end, why }),
            Err(_) => None,
        })
        .collect()
}

/// The file of a test: `test_cq` of `tests.test_cq.CQTest.test_resize_cq`.
fn file_of(name: &str) -> &str {
    name.split('.').nth(1).unwrap_or(name)
}

/// Files for the hardware of one vendor, which skip on every other device.
fn is_of_a_vendor(file: &str) -> bool {
    ["test_mlx5", "test_efa"].iter().any(|vendor| file.starts_with(vendor))
}

/// Counts of passed, skipped and failed, over each path.
type Counts = [[usize; 3]; PATHS.len()];

fn page(runs: &[(&str, Vec<Ended>)]) -> String {
    let mut files: BTreeMap<&str, Counts> = BTreeMap::new();
    let (mut vendors, mut total) = (Counts::default(), Counts::default());
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (index, (_, ended)) in runs.iter().enumerate() {
        for test in ended {
            let column = match test.end.as_str() {
                "passed" => 0,
                "skipped" => 1,
                _ => 2,
            };
            let file = file_of(&test.name);
            let row = if is_of_a_vendor(file) { &mut vendors } else { files.entry(file).or_default() };
            row[index][column] += 1;
            total[index][column] += 1;
            let listed = index == 0 && !is_of_a_vendor(file) && column == 1;
            if listed {
                reasons.entry(&test.why).or_default().push(test.name.rsplit('.').next().unwrap_or_default());
            }
        }
    }
    let mut page = String::from(INTRODUCTION);
    let heads: String =
        PATHS.iter().map(|(path, _)| format!(" {path}: passed | skipped | failed |")).collect();
    let _ = writeln!(page, "| file |{heads}\n|---{}|", "|---".repeat(3 * PATHS.len()));
    for (file, counts) in &files {
        page.push_str(&row(file, counts));
    }
    page.push_str(&row("files of hardware vendors", &vendors));
    page.push_str(&row("all", &total));
    page.push_str("\n## What is skipped, and why\n\nThe reasons are the suite's own words. Tests of hardware vendors are left out.\n\n");
    page.push_str("| reason | tests |\n|---|---|\n");
    for (reason, mut tests) in reasons {
        tests.sort_unstable();
        let _ = writeln!(page, "| {} | {} |", reason.replace('|', "/"), tests.join(", "));
    }
    page
}

fn row(name: &str, counts: &Counts) -> String {
    let numbers: Vec<String> = counts.iter().flatten().map(ToString::to_string).collect();
    format!("| {name} | {} |\n", numbers.join(" | "))
}

const INTRODUCTION: &str = "\
# Conformance

rdma-core has a test suite of its own, which its maintainers and the vendors of hardware run on their devices. Debian
ships the one of release 44 with the package `python3-pyverbs`. `cargo xtask conformance` runs it on our
`libibverbs.so.1`: once with all queue pairs meeting over UDP sockets, once with connections through memory as between two
processes, and once over the local path. `--write-docs` writes this page. The dice that the suite throws are the same each time.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_runner_are_read_and_the_rest_is_not() {
        let output = "noise\nRESULT\ttests.test_pd.PDTest.test_alloc_pd\tpassed\t\nRESULT\ta.b.c.d\tskipped\tno | such\n";
        let ended = results(output);
        assert_eq!(ended.len(), 2);
        assert_eq!((file_of(&ended[0].name), ended[0].end.as_str()), ("test_pd", "passed"));
        assert_eq!(ended[1].why, "no | such");
    }

    #[test]
    fn the_page_counts_by_file_and_names_what_was_skipped() {
        let test =
            |name: &str, end: &str| Ended { name: name.into(), end: end.into(), why: "because".into() };
        let ended = vec![
            test("tests.test_pd.A.test_one", "passed"),
            test("tests.test_pd.A.test_two", "skipped"),
            test("tests.test_mlx5_cq.A.test_three", "skipped"),
        ];
        let page = page(&[("wire", ended.clone()), ("shared", ended.clone()), ("local", ended)]);
        assert!(page.contains("| test_pd | 1 | 1 | 0 | 1 | 1 | 0 | 1 | 1 | 0 |"), "{page}");
        assert!(page.contains("| files of hardware vendors | 0 | 1 | 0 | 0 | 1 | 0 | 0 | 1 | 0 |"), "{page}");
        assert!(page.contains("| because | test_two |"), "{page}");
    }
}

//! `cargo xtask fuzz`: runs the fuzz targets on a copy of the corpus, so that a run leaves the tree as it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::say::{complain, say};
use crate::shell::{Cmd, root, target_dir};

/// Seconds per target when nothing else is said.
const DEFAULT_SECONDS: u64 = 60;
/// Seconds one input may take. Every parser is linear; a slower input is a finding.
const INPUT_SECONDS: u64 = 10;

/// The cargo-fuzz we install; a version that is already there is taken as it is.
const CARGO_FUZZ: &str = "0.13.2";

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The target to run; all of them if left out
    target: Option<String>,
    /// Seconds per target [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Minutes per target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Executions per target, however long they take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["seconds", "minutes"])]
    runs: Option<u64>,
    /// Afterwards add to the committed corpus what reaches new code
    #[arg(long)]
    grow: bool,
    /// Run one input once, as after a finding; needs TARGET
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with_all = ["seconds", "minutes", "runs", "grow"])]
    replay: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut targets = targets()?;
    if let Some(wanted) = &args.target {
        ensure!(targets.contains(wanted), "no fuzz target `{wanted}`; there are: {}", targets.join(", "));
        targets.retain(|name| name == wanted);
    }
    install_cargo_fuzz()?;
    if let (Some(target), Some(file)) = (&args.target, &args.replay) {
        // The path is meant from where the caller stands; commands run from the root.
        let file = std::path::absolute(file).with_context(|| format!("finding {}", file.display()))?;
        ensure!(file.is_file(), "{} is not a file", file.display());
        return cargo_fuzz(target).arg(file).run();
    }
    let seconds = args.minutes.map(|minutes| minutes * 60).or(args.seconds).unwrap_or(DEFAULT_SECONDS);
    let length = args.runs.map_or(Length::Seconds(seconds), Length::Runs);
    let mut found = Vec::new();
    for target in &targets {
        // The other targets still get their time; the findings are summed up at the end.
        if let Err(error) = run_target(target, length) {
            complain!("\nfuzz {target}: {error:#}");
            found.push(target.as_str());
        } else if args.grow {
            grow(target)?;
        }
    }
    ensure!(found.is_empty(), "fuzz: failed: {}; see above", found.join(", "));
    say!("fuzz: {} ran {length} each without a finding", targets.join(", "));
    Ok(())
}

/// How long a target runs.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    Seconds(u64),
    /// So many executions.
    Runs(u64),
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds} s"),
            Self::Runs(runs) => write!(f, "{runs} times"),
        }
    }
}

/// The names of all fuzz targets: the files in `fuzz/fuzz_targets`.
pub(crate) fn targets() -> Result<Vec<String>> {
    let files = names_in(&root().join("fuzz/fuzz_targets"))?;
    let targets: Vec<String> =
        files.iter().filter_map(|name| name.strip_suffix(".rs")).map(str::to_owned).collect();
    ensure!(!targets.is_empty(), "fuzz/fuzz_targets holds no target");
    Ok(targets)
}

/// cargo-fuzz is a cargo program: we may install it anywhere cargo itself runs.
pub(crate) fn install_cargo_fuzz() -> Result<()> {
    if matches!(Cmd::cargo("fuzz --version").captured(), Ok((true, _))) {
        return Ok(());
    }
    Cmd::cargo("install cargo-fuzz --locked --version").arg(CARGO_FUZZ).run()
}

/// Fuzzes one target. An error names every new artifact and how to replay it.
pub(crate) fn run_target(target: &str, length: Length) -> Result<()> {
    let corpus = working_corpus(target);
    copy_files(&committed_corpus(target), &corpus)?;
    let artifacts = root().join("fuzz/artifacts").join(target);
    let before = versions_in(&artifacts)?;
    let cmd = cargo_fuzz(target).arg(&corpus).arg("--");
    let cmd = match length {
        Length::Seconds(seconds) => cmd.arg(format!("-max_total_time={seconds}")),
        Length::Runs(runs) => cmd.arg(format!("-runs={runs}")),
    };
    let cmd = cmd.arg(format!("-timeout={INPUT_SECONDS}"));
    let Err(error) = cmd.run() else { return Ok(()) };
    let new: Vec<String> =
        versions_in(&artifacts)?.difference(&before).map(|(name, _)| name.clone()).collect();
    if new.is_empty() {
        return Err(error.context("it did not build or run; no new artifact was written"));
    }
    bail!("{}", finding(target, &new));
}

fn finding(target: &str, artifacts: &[String]) -> String {
    let mut text = format!("FINDING in `{target}`");
    for name in artifacts {
        let path = format!("fuzz/artifacts/{target}/{name}");
        text += &format!("\n  input:  {path}\n  replay: cargo xtask fuzz {target} --replay {path}");
    }
    text += &format!(
        "\n  keep:   copy it to fuzz/corpus/{target}/ under a name that tells the bug, then mend the bug"
    );
    text
}

/// Adds the inputs that reach new code to the committed corpus. A merge and not `cargo fuzz cmin`:
/// cmin would replace the seeds that carry the name of a bug by ones named after their hash.
fn grow(target: &str) -> Result<()> {
    let committed = committed_corpus(target);
    let before = names_in(&committed)?;
    cargo_fuzz(target).arg(&committed).arg(working_corpus(target)).args(["--", "-merge=1"]).run()?;
    let after = names_in(&committed)?;
    say!("fuzz {target}: {} new corpus entries in fuzz/corpus/{target}", after.difference(&before).count());
    Ok(())
}

fn cargo_fuzz(target: &str) -> Cmd {
    // The sanitizer flags are unstable; this switch lets the stable compiler take them.
    let cmd = Cmd::cargo("fuzz run --fuzz-dir fuzz --target-dir").arg(target_dir().join("fuzz"));
    cmd.arg(target).env("RUSTC_BOOTSTRAP", "1")
}

fn committed_corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Kept between runs, so that a later run starts from what an earlier one found.
fn working_corpus(target: &str) -> PathBuf {
    target_dir().join("fuzz-corpus").join(target)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for name in names_in(from)? {
        fs::copy(from.join(&name), to.join(&name))
            .with_context(|| format!("copying {name} to {}", to.display()))?;
    }
    Ok(())
}

/// The file names in a folder; none if there is no such folder.
fn names_in(dir: &Path) -> Result<BTreeSet<String>> {
    if !dir.exists() {
        return Ok(BTreeSet::new());
    }
    let entries = fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Names with the time of their last change: a finding found again is written again under its old name.
fn versions_in(dir: &Path) -> Result<BTreeSet<(String, SystemTime)>> {
    let modified = |name: String| {
        let time = fs::metadata(dir.join(&name)).and_then(|meta| meta.modified());
        time.with_context(|| format!("looking at {name}")).map(|time| (name, time))
    };
    names_in(dir)?.into_iter().map(modified).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_has_a_corpus() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        for target in targets().unwrap() {
            assert!(
                manifest.contains(&format!("fuzz_targets/{target}.rs")),
                "{target} is not in fuzz/Cargo.toml"
            );
            assert!(
                !names_in(&committed_corpus(&target)).unwrap().is_empty(),
                "fuzz/corpus/{target} is empty"
            );
        }
    }

    #[test]
    fn a_finding_says_how_to_replay_it() {
        let text = finding("packet", &["crash-1234".into()]);
        assert!(text.contains("cargo xtask fuzz packet --replay fuzz/artifacts/packet/crash-1234"));
    }
}

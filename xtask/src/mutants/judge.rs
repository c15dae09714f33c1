//! What becomes of a mutant: built, tested, simulated, each within a limit.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::list::{Crate, Mutant, Step};
use super::tree::Tree;
use crate::clock::Stopwatch;
use crate::say::say;
use crate::setup;
use crate::shell::{Cmd, target_dir};

/// Seeds that a mutant has to pass.
const SEEDS: &str = "200";

/// A step may take this many times as long as it takes without a mistake, and this many seconds more: a mistake
/// seldom makes tests a little slower, and other programs may be busy on this machine.
const PATIENCE: u64 = 5;
const GRACE: u64 = 45;

/// Seconds that the compiler may take.
const BUILD_LIMIT: u64 = 1200;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A test of its crate failed.
    CaughtByTests,
    /// The tests passed, and the simulator found a broken promise.
    CaughtBySimulator,
    /// A test or the simulator did not end.
    TimedOut,
    /// It does not compile.
    Unviable,
    /// Known to change nothing.
    Equivalent { reason: String },
    /// Nothing noticed.
    Survived,
}

impl Verdict {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::CaughtByTests => "caught by tests",
            Self::CaughtBySimulator => "caught by simulator",
            Self::TimedOut => "timed out",
            Self::Unviable => "unviable",
            Self::Equivalent { .. } => "changes nothing",
            Self::Survived => "SURVIVED",
        }
    }
}

/// Judges mutants in a tree.
pub(super) struct Judge {
    tree: PathBuf,
    build: PathBuf,
    jobs: Option<usize>,
    /// Seconds that each step may take.
    limits: BTreeMap<Step, u64>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
    TooLate,
}

impl Judge {
    /// Builds everything once, and sees how long each step takes without a mistake.
    pub(super) fn prepared<'a>(
        tree: &Tree,
        crates: impl Iterator<Item = &'a Crate>,
        jobs: Option<usize>,
    ) -> Result<Self> {
        let build = target_dir().join("mutants/build");
        let mut judge = Self { tree: tree.root.clone(), build, jobs, limits: BTreeMap::new() };
        for step in crates.flat_map(|one| one.steps).copied() {
            if judge.limits.contains_key(&step) {
                continue;
            }
            say!("mutants: first without a mistake: {step}");
            if judge.built(step)? != Ended::Well {
                bail!("mutants: the tree does not build without a mistake: {}", judge.building(step));
            }
            let watch = Stopwatch::start();
            if judge.ran(step, BUILD_LIMIT)? != Ended::Well {
                bail!("mutants: tests fail without a mistake; see `{}`", judge.running(step));
            }
            judge.limits.insert(step, watch.read().0.as_secs() * PATIENCE + GRACE);
        }
        Ok(judge)
    }

    /// Judges the mutant that is in the tree now.
    pub(super) fn verdict(&self, mutant: &Mutant) -> Result<Verdict> {
        for &step in mutant.of.steps {
            match self.built(step)? {
                Ended::Well => {}
                Ended::Badly => return Ok(Verdict::Unviable),
                Ended::TooLate => {
                    bail!("mutants: the compiler took more than {BUILD_LIMIT} s; is the machine too busy?");
                }
            }
            let limit = self.limits.get(&step).copied().unwrap_or(BUILD_LIMIT);
            match (self.ran(step, limit)?, step) {
                (Ended::Well, _) => {}
                (Ended::Badly, Step::Tests(_)) => return Ok(Verdict::CaughtByTests),
                (Ended::Badly, Step::Simulator) => return Ok(Verdict::CaughtBySimulator),
                (Ended::TooLate, _) => return Ok(Verdict::TimedOut),
            }
        }
        Ok(Verdict::Survived)
    }

    fn built(&self, step: Step) -> Result<Ended> {
        ended(&within(BUILD_LIMIT, &self.building(step)).in_dir(&self.tree))
    }

    fn ran(&self, step: Step, limit: u64) -> Result<Ended> {
        ended(&within(limit, &apart(&self.running(step))).in_dir(&self.tree))
    }

    fn building(&self, step: Step) -> Cmd {
        match step {
            Step::Tests(tests) => self.cargo("test --no-run").args(before_the_filter(tests)),
            Step::Simulator => self.cargo("build -p ferroce-sim"),
        }
    }

    fn running(&self, step: Step) -> Cmd {
        match step {
            Step::Tests(tests) => self.cargo("test").args(tests.split_whitespace()),
            Step::Simulator => {
                let cmd = Cmd::new(self.build.join("debug/ferroce-sim"));
                let cmd = cmd.args(["--stop", "--seeds", SEEDS]);
                match self.jobs {
                    Some(jobs) => cmd.arg("--jobs").arg(jobs.to_string()),
                    None => cmd,
                }
            }
        }
    }

    /// Cargo in the copy. Little is optimised: a mutant is built once and seldom run for long.
    fn cargo(&self, line: &str) -> Cmd {
        let mut cmd = Cmd::cargo(line).arg("--offline").arg("--target-dir").arg(&self.build);
        for profile in ["DEV", "TEST"] {
            cmd = cmd.env(&format!("CARGO_PROFILE_{profile}_OPT_LEVEL"), "1");
            cmd = cmd.env(&format!("CARGO_PROFILE_{profile}_DEBUG"), "0");
        }
        if let Some(jobs) = self.jobs {
            cmd = cmd.env("CARGO_BUILD_JOBS", jobs.to_string());
        }
        // These are the slowest to compile, and their tests do not mind.
        for (profile, slow) in ["dev", "test"].iter().flat_map(|profile| SLOW.map(|slow| (profile, slow))) {
            let setting = format!("profile.{profile}.package.ferroce-{slow}.opt-level=0");
            cmd = cmd.args(["--config", setting.as_str()]);
        }
        // No test asks another program for its opinion: that takes long, and the programs may be missing.
        cmd.env(setup::REQUIRE_ALL, "0").env("CARGO_INCREMENTAL", "1")
    }
}

/// Crates that are compiled without optimisation.
const SLOW: [&str; 5] = ["sys", "memory", "fabric", "switchboard", "device"];

/// The arguments for cargo alone.
fn before_the_filter(tests: &'static str) -> impl Iterator<Item = &'static str> {
    tests.split_whitespace().take_while(|word| *word != "--")
}

/// A command that is ended with all its children when its time is over.
fn within(seconds: u64, cmd: &Cmd) -> Cmd {
    cmd.wrapped("timeout", &["--kill-after=10", &seconds.to_string()])
}

/// A command in a network of its own, if we may make one: so nothing else on this machine meets its sockets.
fn apart(cmd: &Cmd) -> Cmd {
    if !setup::is_root() {
        return cmd.clone();
    }
    let script = "ip link set lo up && exec \"$@\"";
    cmd.wrapped("unshare", &["--net", "sh", "-c", script, "sh"])
}

fn ended(cmd: &Cmd) -> Result<Ended> {
    Ok(match cmd.code()? {
        Some(0) => Ended::Well,
        Some(124 | 137) | None => Ended::TooLate,
        Some(_) => Ended::Badly,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_well_or_badly_or_too_late() {
        let shell = |script: &str| ended(&within(1, &Cmd::new("sh").args(["-c", script]))).unwrap();
        assert_eq!(shell("exit 0"), Ended::Well);
        assert_eq!(shell("exit 101"), Ended::Badly);
        assert_eq!(shell("while :; do :; done"), Ended::TooLate);
    }

    #[test]
    fn a_filter_is_for_the_tests_and_not_for_cargo() {
        let words: Vec<_> = before_the_filter("-p one --lib -- two::").collect();
        assert_eq!(words, ["-p", "one", "--lib"]);
    }
}

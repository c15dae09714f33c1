//! `cargo xtask sim`: the seeded simulator, built as the tests are.

use anyhow::Result;

use crate::shell::{Cmd, target_dir};

/// Options of `cargo xtask sim`.
#[derive(clap::Args)]
#[command(after_help = TEACHES)]
pub(crate) struct Args {
    /// Handed to the simulator as they are; see below
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<String>,
}

/// What `cargo xtask sim --help` says first.
pub(crate) const ABOUT: &str = "\
Simulate queue pairs over bad links, one run per seed.

Links lose, repeat, delay and reorder packets, and in one seed of four a liar speaks on one connection:
in the names of both ends, with packets that they never sent. Checkers look at every step. The seed decides
everything, so the same seed gives the same packets, the same losses and the same end, on every
machine.";

/// What it says last.
const TEACHES: &str = "\
What to hand over:
  --seeds N          run the seeds 0 to N-1 and name those that fail
  --start S          begin at another seed, to see runs that were never seen
  --seed N           run one seed; if it fails, print the events before the failure
  --seed N --trace   print all its events, whether it fails or not
  --honest           without liars; with --planted: which bugs only a liar shows
  --planted          switch on known bugs, one after the other: each must be found
  --goodput          measure goodput in virtual time and print the table
  -- --help          everything the simulator takes

When a seed fails:
  1. cargo xtask sim --seed 1234          see which checker spoke, and the events before it
  2. cargo xtask sim --seed 1234 --trace  see the run from its start
  3. write a test with the few events that matter, named after the bug, and see it fail
  4. mend the bug, run the test, then the seed, then --seeds 2000";

pub(crate) fn run(args: &Args) -> Result<()> {
    run_with(&args.rest)
}

/// Runs the simulator with these arguments. Planted bugs need a build of their own.
pub(crate) fn run_with<T: AsRef<str>>(args: &[T]) -> Result<()> {
    let args = || args.iter().map(AsRef::as_ref);
    if args().any(|arg| arg == "--planted") {
        return Cmd::cargo("run --quiet -p ferroce-sim --features planted --").args(args()).run();
    }
    // As the tests are compiled, so that nothing is compiled twice.
    Cmd::cargo("build --quiet --workspace --bin ferroce-sim").run()?;
    Cmd::new(target_dir().join("debug/ferroce-sim")).args(args()).run()
}

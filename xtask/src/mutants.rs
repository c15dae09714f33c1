//! `cargo xtask mutants`: small mistakes, made one at a time, and whether a test or the simulator notices.
//!
//! cargo-mutants only lists the mistakes. They are made here, in a copy of the tree with a build folder of its own,
//! because its own way would run all tests of a crate for each of them, and knows nothing of the simulator.

mod judge;
mod known;
mod list;
mod tally;
mod tree;

use anyhow::{Result, bail, ensure};
use clap::builder::PossibleValuesParser;

use crate::clock::Stopwatch;
use crate::say::say;
use judge::{Judge, Verdict};
use known::Known;
use list::{CRATES, Mutant};
use tally::Tally;
use tree::Tree;

/// What `cargo xtask mutants --help` says first.
pub(crate) const ABOUT: &str = "\
Make small mistakes, one at a time, and see whether a test notices.

A mutant is one small mistake in the code: a function that returns a fixed value, a `<` that became a `<=`. It is \
made in a copy of the tree and judged by the unit tests of its own crate, by 200 seeds of the simulator and by the \
integration tests, until one of them notices. Connection management is not in the simulator, and has its own \
tests. Of the soft NIC only `memory`, `lane` and `switchboard` take part, with their own tests and the integration tests \
nearest to them: all tests of the device would take minutes for each mutant, and the simulator does not contain \
the device.";

/// What it says last.
const TEACHES: &str = "\
A mutant that survives is either a test that is missing, which is then written under the name of what it checks, or \
it changes nothing that anything could notice: then it goes into xtask/mutants.toml, with the reason.

Which mutants are drawn depends on the seed and on the code. A mutant that makes the tests wait for ever counts as \
noticed; one that does not compile counts as nothing.";

/// Less than this share of the mutants noticed is a failure, in percent.
const ENOUGH: f64 = 95.0;

/// Options of `cargo xtask mutants`.
#[derive(clap::Args)]
#[command(after_help = TEACHES)]
pub(crate) struct Args {
    /// How many mutants to draw; all of them if not given
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Which draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only mutants of this crate; repeat for several
    #[arg(long, value_name = "CRATE", value_parser = PossibleValuesParser::new(CRATES.iter().map(|one| one.name)))]
    only: Vec<String>,
    /// Only mutants whose name contains this, as the list prints it; repeat for several
    #[arg(long, value_name = "TEXT")]
    named: Vec<String>,
    /// List the mutants that would be judged, and judge none
    #[arg(long)]
    list: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Threads of the compiler and of the simulator; as many as there are cores if not given
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut mutants = list::all()?;
    let known = Known::read()?;
    known.check_against(&mutants)?;
    mutants.retain(|mutant| args.only.is_empty() || args.only.iter().any(|name| name == mutant.of.name));
    mutants
        .retain(|mutant| args.named.is_empty() || args.named.iter().any(|text| mutant.name().contains(text)));
    if let Some(sample) = args.sample {
        mutants = list::draw(mutants, sample, args.seed);
    }
    ensure!(!mutants.is_empty(), "mutants: none has that name; see cargo xtask mutants --list");
    if args.list {
        for mutant in &mutants {
            say!("{}", mutant.name());
        }
        return Ok(());
    }
    let tally = judge_all(args, &mutants, &known)?;
    if args.json {
        say!("{}", tally.json());
    } else {
        say!("\n{tally}");
    }
    if tally.percentage() < ENOUGH {
        bail!(
            "mutants: {:.1} % were noticed, {ENOUGH} % are asked for; see the survivors above",
            tally.percentage()
        );
    }
    Ok(())
}

fn judge_all(args: &Args, mutants: &[Mutant], known: &Known) -> Result<Tally> {
    // Now, and not when their turn comes: by then the files may have changed.
    let reasons: Vec<Option<&str>> = mutants.iter().map(|mutant| known.reason(mutant)).collect();
    let tree = Tree::copied()?;
    let judge = Judge::prepared(&tree, mutants.iter().map(|mutant| mutant.of), args.jobs)?;
    let total = Stopwatch::start();
    let mut tally = Tally::default();
    for (index, (mutant, reason)) in mutants.iter().zip(reasons).enumerate() {
        let watch = Stopwatch::start();
        let verdict = match reason {
            Some(reason) => Verdict::Equivalent { reason: reason.to_owned() },
            None => tree.with(mutant, || judge.verdict(mutant))??,
        };
        say!(
            "[{}/{}, {}] {:22} {:>12}  {}",
            index + 1,
            mutants.len(),
            total.read(),
            verdict.name(),
            watch.read(),
            mutant.name()
        );
        tally.push(mutant.clone(), verdict);
    }
    Ok(tally)
}

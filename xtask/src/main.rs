//! The one door for hands and CI: everything that is run on this repository is a subcommand here.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod clock;
mod conformance;
mod failures;
mod fuzz;
mod install;
mod interop;
mod link_abi;
mod linked;
mod mutants;
mod no_std;
mod picture;
mod place;
mod report;
mod say;
mod setup;
mod shell;
mod sim;
mod soak;
mod test;
mod tidy;

use say::{complain, say};

/// The one door for hands and CI.
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    after_help = "`cargo xtask test` is what CI runs; run it before you send a change."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything a change must pass, from set-up to tidy
    Test(test::Args),
    /// Install the programs the tests need, or say how to
    Setup,
    /// Check the repository's own rules
    Tidy(tidy::Args),
    /// Fuzz the parsers on a copy of the committed corpus
    Fuzz(fuzz::Args),
    /// The long forms of the tests: minutes to hours
    Soak(soak::Args),
    /// Simulate queue pairs over bad links, one run per seed
    #[command(long_about = sim::ABOUT)]
    Sim(sim::Args),
    /// Make small mistakes, one at a time, and see whether a test notices
    #[command(long_about = mutants::ABOUT)]
    Mutants(mutants::Args),
    /// Meet the Linux kernel's soft-RoCE, which runs in a guest
    Interop(interop::Args),
    /// Run rdma-core's own test suite on the drop-in library
    Conformance(conformance::Args),
    /// Link the drop-in libibverbs.so.1 and librdmacm.so.1
    LinkAbi(link_abi::Args),
    /// Run the benchmarks
    Bench(bench::Args),
    /// Install the binary, its manual and its completions
    Install(install::Args),
    /// Make the picture of the demo anew
    Picture,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Setup => setup::run().map(|note| say!("setup: {note}")),
        Command::Tidy(args) => tidy::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Interop(args) => interop::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::LinkAbi(args) => link_abi::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Picture => picture::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

//! The one door for hands and CI: everything that is run on this repository is a subcommand here.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod clock;
mod fuzz;
mod report;
mod setup;
mod shell;
mod soak;
mod test;
mod tidy;

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
    /// Everything a change must pass: set-up, format, clippy, tests, no_std, docs, tidy
    Test(test::Args),
    /// Install the programs the tests need, or say how to
    Setup,
    /// Check the repository's own rules
    Tidy(tidy::Args),
    /// Fuzz the parsers on a copy of the committed corpus
    Fuzz(fuzz::Args),
    /// The long forms of the tests: minutes to hours
    Soak(soak::Args),
    /// Run the benchmarks
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Setup => setup::run().map(|note| println!("setup: {note}")),
        Command::Tidy(args) => tidy::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
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

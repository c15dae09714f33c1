//! The runner: many seeds, one seed, planted bugs, goodput.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}

//! Probes over datagrams between network cards, with six timestamps each.
//!
//! README.md says what is measured and where the times come from.
#![forbid(unsafe_code)]

mod end;
mod measured;
mod packet;
mod prober;
mod responder;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure how long packets take between network cards, and how long the programs behind them do
#[derive(Debug, Parser)]
#[command(name = "ferroce-prober", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer probes, until an interrupt or a request to terminate
    Respond(responder::Args),
    /// Send probes to responders, and show what came back
    ///
    /// The exit code is 0 if every target has answered, 1 if one has not, and 2 if the prober could not work.
    Probe(prober::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Respond(args) => responder::run(&args).map(|()| true),
        Command::Probe(args) => prober::run(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ferroce-prober: {error:#}");
            ExitCode::from(2)
        }
    }
}

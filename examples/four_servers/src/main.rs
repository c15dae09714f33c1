//! Four servers with two threads each: thread i of a server talks to thread i of every other.
//!
//! README.md says what they do and what is checked.
#![forbid(unsafe_code)]

mod children;
mod lane;
mod office;
mod packet;
mod peer;
mod report;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Four servers with two threads each, which send, write, read and count in each other's memory
#[derive(Debug, Parser)]
#[command(name = "ferroce-four-servers", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    office: office::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be one of the servers; without this, four of them are started
    Server(server::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::Server(args)) => server::run(args),
        None => office::run(&cli.office),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-four-servers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

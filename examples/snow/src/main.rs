//! A server that is callbacks only, and clients that send it messages of 1 byte to 1 MiB; one of them is killed.
//!
//! README.md says what they do and what is checked.
#![forbid(unsafe_code)]

mod children;
mod client;
mod counts;
mod office;
mod plan;
mod server;
mod settings;
mod talk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A server that is callbacks only, and clients that send it messages of 1 byte to 1 MiB; one of them is killed
#[derive(Debug, Parser)]
#[command(name = "ferroce-snow", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    office: office::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be the server, until standard input ends; without a command, all of it is started
    Server(server::Args),
    /// Be a client
    Client(client::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::Server(args)) => server::run(args),
        Some(Command::Client(args)) => client::run(args),
        None => office::run(&cli.office),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-snow: {error:#}");
            ExitCode::FAILURE
        }
    }
}

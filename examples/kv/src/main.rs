//! A replicated key-value store over RDMA, and a load generator that checks what it promises.
//!
//! README.md says how it works and what it does not do.
#![forbid(unsafe_code)]

mod client;
mod history;
mod layout;
mod load;
mod member;
mod node;
mod report;
#[cfg(test)]
mod wing_gong;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A replicated key-value store over RDMA whose gets need no thread of the server
#[derive(Debug, Parser)]
#[command(name = "ferroce-kv", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Hold a share of the keys, until standard input ends
    Node(node::Args),
    /// Start nodes and clients on loopback, measure, and check that the history is linearizable
    Load(load::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Node(args) => node::run(&args),
        Command::Load(args) => load::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-kv: {error:#}");
            ExitCode::FAILURE
        }
    }
}

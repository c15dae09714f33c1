//! Many connections whose futures are cancelled in flight, and what must hold all the same.
//!
//! README.md says what is done and what is checked.
#![forbid(unsafe_code)]

mod client;
mod draw;
mod ledger;
mod race;
mod server;
mod story;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use clap::Parser;

/// Cancel sends, receives, connects and atomics of many connections in flight, and check that nothing is lost
#[derive(Debug, Parser)]
#[command(name = "ferroce-cancelled", version)]
struct Cli {
    /// Connections that stay for the whole time
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2000))]
    connections: u32,
    /// Rounds of each connection: three sends and two atomics in each, and a connect in one of four
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// What is done, and when it is cancelled, is drawn from this
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The address of the end that accepts; the other one follows it
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(127, 0, 104, 1))]
    address: Ipv4Addr,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
}

fn main() -> ExitCode {
    match story::run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-cancelled: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The `ferroce` command.

mod decode;
mod switchboard;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// RDMA on every machine: tools around RoCEv2.
///
/// RoCEv2 is RDMA over ordinary networks: the InfiniBand transport in UDP datagrams
/// to port 4791.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Decode(decode::Args),
    Switchboard(switchboard::Args),
}

const AFTER_HELP: &str = "\
Examples:
  ferroce decode trace.pcap            every header of every RoCEv2 frame
  ferroce decode --short trace.pcap    one line per frame
  ferroce switchboard                  which processes share a port
  ferroce decode --help                all about one command

Exit codes:
  0  done
  1  the work failed; one line on standard error says why
  2  the command line is wrong";

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::Decode(args) => decode::run(&args),
        Command::Switchboard(args) => switchboard::run(&args),
    };
    match result {
        Err(error) if !is_broken_pipe(&error) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = writeln!(io::stderr(), "ferroce: {error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Whether the reader of our output went away, as `head` does when it has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

//! The `ferroce` command: one file per command, and one line for each in the table below.

mod addresses;
mod completions;
mod decode;
mod demo;
mod devices;
mod doctor;
mod env;
mod files;
mod interrupt;
mod man;
mod mesh;
mod mesh_perf;
mod output;
mod perf;
mod ping;
mod probe;
mod run;
mod secret;
mod selftest;
mod stat;
mod switchboard;
mod trace;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// RDMA on every machine: a RoCEv2 network card in userspace, and tools around it.
///
/// RDMA lets one program read and write the memory of another one over the network, without
/// waking it: a network card does the work. RoCEv2 is RDMA over ordinary networks, in UDP datagrams to
/// port 4791. Ferroce is such a card made of software: no hardware, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, arg_required_else_help = true)]
#[command(after_help = AFTER_HELP, after_long_help = AFTER_HELP)]
struct Cli {
    /// Colours: auto, always or never; auto means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    #[arg(hide_possible_values = true, display_order = 900)]
    color: output::Color,

    #[command(subcommand)]
    command: Command,
}

/// Writes down each command once: its name, the module with its `Args` and `run`.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident => $module:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$doc])* $name($module::Args),)*
        }

        impl Command {
            fn run(&self) -> anyhow::Result<()> {
                match self {
                    $(Self::$name(args) => $module::run(args),)*
                }
            }
        }
    };
}

commands! {
    Demo => demo,
    Devices => devices,
    Doctor => doctor,
    Selftest => selftest,
    Perf => perf,
    MeshPerf => mesh_perf,
    Ping => ping,
    Probe => probe,
    Mesh => mesh,
    Secret => secret,
    Run => run,
    Env => env,
    Stat => stat,
    Switchboard => switchboard,
    Decode => decode,
    Trace => trace,
    Completions => completions,
    Man => man,
}

const AFTER_HELP: &str = "\
Where to begin:
  ferroce demo                         everything once, explained, in a few seconds
  ferroce devices                      which network cards there are, and how to open more
  ferroce doctor                       what is wrong with RDMA on this machine, with remedies
  ferroce selftest --device mlx5_0     whether a card does what RDMA must do
  ferroce perf write --lat             how long a small write takes on this machine
  ferroce perf send --bw --path wire   how much goes through, as UDP packets
  ferroce mesh-perf --members 4        how fast everybody is to everybody
  ferroce ping 127.0.0.1 --count 10    round trips and loss, to a `ferroce probe responder`
  ferroce mesh findings                which card, switch or link is bad, by the probes of all agents
  ferroce secret --file mesh.secret    what the members of a mesh know each other by
  ferroce run -- ib_write_bw           any verbs program, unchanged, on this card
  ferroce decode --short trace.pcap    what others put on the wire, one line per frame
  ferroce trace explain run.ftrace     what went wrong in a recorded run, and why
  ferroce stat                         what all queue pairs of your programs do, live
  ferroce switchboard                  which processes share a port
  ferroce help perf                    all about one command

Exit codes:
  0  done
  1  the work failed; one line on standard error says why
  2  the command line is wrong";

fn main() -> ExitCode {
    let Cli { color, command } = Cli::parse();
    output::set_color(color);
    match command.run() {
        Err(error) if !is_broken_pipe(&error) => {
            // There is nowhere left to tell it when standard error is gone too.
            let _ = writeln!(io::stderr(), "ferroce: {error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The command line's definition: what completions and man pages are made from.
fn definition() -> clap::Command {
    Cli::command()
}

/// Ends the program because of a mistake in the command line that clap cannot see, as clap ends it for others: with
/// the usage of this command, and exit code 2.
fn usage(command: &str, error: &anyhow::Error) -> ! {
    let mut definition = definition();
    definition.build();
    let mut command = definition.find_subcommand(command).cloned().unwrap_or(definition);
    command.error(clap::error::ErrorKind::ValueValidation, format!("{error:#}")).exit()
}

/// Whether the reader of our output went away, as `head` does when it has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::definition().debug_assert();
    }
}

//! `ferroce trace`: what happened to each work request, from the record of a device.

mod attach;
mod explain;
pub(crate) mod export;
mod files;
mod reading;
mod record;
mod select;
mod show;
mod stats;

use clap::Subcommand;

/// Follow each work request from its post to its completion, in the record of a run
///
/// A device that records writes down what happens to each work request: the call that posts it, the doorbell, each
/// packet with its headers, what it waits for, its completion, and the call that takes that. Without one of the commands
/// below a program is run and recorded, or one that runs already (--attach). The commands read records, also while they
/// are written, and also if the program was killed.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true, after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    record: record::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Show(show::Args),
    Explain(explain::Args),
    Stats(stats::Args),
    Export(export::Args),
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce trace -o run.ftrace -- ./my-program  record a program, and all that it starts
  ferroce trace --attach 1234 --for 5          record a program that runs, for five seconds
  ferroce trace explain --attach 1234          why does it hang?
  ferroce trace explain run.ftrace             what went wrong, and why, in sentences
  ferroce trace show --errors run.ftrace       the requests that failed, with all their packets
  ferroce trace show --slowest 5 run.ftrace    where the time of the slowest requests went
  ferroce trace stats run.ftrace               the same for all requests, as percentiles
  ferroce trace explain here.ftrace there.ftrace
          Both ends on one time-line: what one end did, and what the other made of it. Clocks of
          two machines are brought together by the packets that both saw.

Several records:
  Processes of one run write run.ftrace, run.2.ftrace, run.3.ftrace and so on. Given the first, all
  of them are read, unless --alone is said.

Exit codes:
  That of the program that was run, if it is not 0; 128 and the signal if it was ended by one.
  0  done; for explain: nothing went wrong
  1  a file is empty, foreign, cut off or cannot be read: what could be read was shown, and one
     line on standard error says what is wrong; or explain found errors
  2  the command line is wrong";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        None => record::run(&args.record),
        Some(Command::Show(args)) => show::run(args),
        Some(Command::Explain(args)) => explain::run(args),
        Some(Command::Stats(args)) => stats::run(args),
        Some(Command::Export(args)) => export::run(args),
    }
}

//! `ferroce selftest`: does a device do what RDMA must do?

mod anonymous;
mod judged;
mod machine;
mod report;
#[cfg(test)]
mod tests;

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use ferroce::Path;
use ferroce::time::now;
use ferroce_conformance::known::Driver;
use ferroce_conformance::{CASES, Case, Ended, GROUPS, Runner, Under, child};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::anonymous::Names;
use self::machine::Device;
use self::report::Report;
use crate::interrupt;
use crate::output::Style;

/// Try everything that RDMA must do on a device, and say what it does otherwise
///
/// Runs the conformance cases that Ferroce's own card is held to, over any card: both ends are queue pairs of the one
/// device, so no second machine is needed. Each case is a process of its own; one that hangs or crashes is a result like
/// any other. What the device does not have is no failure: it is named. Without --device, the devices are listed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The device, such as mlx5_0, rxe0 or ferroce_lo
    #[arg(short, long, value_name = "DEVICE")]
    device: Option<String>,

    /// Which of the device's addresses queue pairs have, if not the first
    #[arg(long, value_name = "ADDRESS", requires = "device")]
    address: Option<IpAddr>,

    /// Which way packets take where the device leaves the choice, as Ferroce's own does: wire (if nothing is said), local
    /// or shared
    #[arg(long, value_enum, value_name = "PATH", requires = "device", hide_possible_values = true)]
    path: Option<Way>,

    /// Only these groups, and cases whose names contain this, with commas between them; `--list` names all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// Write a report to send us to this file, as JSON; - is standard output, and nothing else is printed there then
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Leave nothing out of the report: names of the host and of users, addresses, GUIDs and paths stay in it
    #[arg(long, requires = "json")]
    whole: bool,

    /// Say what is tried; try nothing
    #[arg(long, conflicts_with_all = ["json", "case"])]
    list: bool,

    /// A line for each case when it has ended
    #[arg(short, long)]
    verbose: bool,

    /// Seconds that a case may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,

    /// Cases that run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,

    /// Run this one case in this process, and print what became of it as one line of JSON: this is how each case is started,
    /// and what a debugger is for
    #[arg(long, value_name = "CASE", requires = "device", conflicts_with_all = ["json", "only"])]
    case: Option<String>,
}

/// A path, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// UDP packets.
    Wire,
    /// Both queue pairs meet in one process.
    Local,
    /// Packets through memory.
    Shared,
}

impl Way {
    const fn path(self) -> Path {
        match self {
            Self::Wire => Path::Wire,
            Self::Local => Path::Local,
            Self::Shared => Path::Shared,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Local => "local",
            Self::Shared => "shared",
        }
    }
}

const AFTER_LONG_HELP: &str = "\
What becomes of a case:
  passed             the device does what it must
  not possible here  the device says that it does not have what the case needs, and the report names it (docs/cards.md)
  as known           it does something else, as is known of this driver; the report has the reason, and it is no failure
  failed             it does something else, or has not what this driver is known to have; the report has what the case saw
  timed out          something never came; the report has what the case waited for, if that is known
  crashed            its process ended without a word, in the card's driver or in ours

The report (--json) has the results, driver, firmware and limits of the device, its kind of link, and the versions of the
kernel and of rdma-core. Names of hosts and users, addresses, GUIDs and paths are taken out, unless --whole is given. Look at
it before you send it.

Examples:
  ferroce selftest
          Which devices there are.
  ferroce selftest --device mlx5_0 --json mlx5.json
          All cases, and a report to send us.
  ferroce selftest --device ferroce_lo --only operations,windows
          Two groups of cases on Ferroce's own card, over loopback.
  ferroce selftest --list --only datagrams
          What is tried of datagrams.
  gdb --args ferroce selftest --device rxe0 --limit 3600 --case read_brings
          One case in a debugger.

Exit codes:
  0  every case passed, is not possible here, or went as is known of this driver
  1  cases failed, timed out or crashed, or Ctrl-C ended it before all were run; one line on standard error counts them
  2  nothing could be run: no such device, it cannot be opened, or the command line is wrong";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let cases = chosen(&args.only).unwrap_or_else(|error| crate::usage("selftest", &error));
    if args.list {
        return list(&cases);
    }
    let Some(device) = &args.device else {
        let mut out = io::stdout().lock();
        machine::list(&mut out).unwrap_or_else(|error| cannot_run(&error));
        out.flush()?;
        cannot_run(&anyhow!("no device was named; try `ferroce selftest --device NAME`"))
    };
    let under = Under { device: device.clone(), address: args.address, path: args.path.map(Way::path) };
    let limit = Duration::from_secs(args.limit);
    if let Some(name) = &args.case {
        let none = || anyhow!("--case {name}: there is no such case; `ferroce selftest --list` names all");
        let case = Case::find(name).ok_or_else(none);
        let case = case.unwrap_or_else(|error| crate::usage("selftest", &error));
        child::run(case, limit, || under.open());
        return Ok(());
    }
    let device = Device::look(&under).unwrap_or_else(|error| cannot_run(&error));
    // A report that cannot be written is better known before the minutes that it takes.
    let file = args.json.as_deref().filter(|path| path.as_os_str() != "-");
    let file =
        file.map(|path| File::create(path).with_context(|| format!("{} cannot be written", path.display())));
    let file = file.transpose().unwrap_or_else(|error| cannot_run(&error));
    interrupt::listen()?;
    let patience = interrupt::be_patient();
    let began = now();
    let results = run_cases(args, &under, &cases, device.known()).unwrap_or_else(|error| cannot_run(&error));
    let report = Report {
        device,
        under,
        limit,
        at_once: args.at_once,
        only: args.only.clone(),
        interrupted: interrupt::is_asked(),
        took: now().since(began),
        wanted: cases.len(),
        results,
    };
    drop(patience);
    write(args, file, &report)?;
    report.verdict().map_or(Ok(()), |line| Err(anyhow!(line)))
}

/// Ends the program: there is nothing to report on.
fn cannot_run(error: &anyhow::Error) -> ! {
    // There is nowhere left to tell it when standard error is gone too.
    let _ = writeln!(io::stderr(), "ferroce: {error:#}");
    process::exit(2)
}

/// The cases that were asked for.
fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Case>> {
    let is_group = |word: &str| GROUPS.iter().any(|(name, _)| *name == word);
    let fits =
        |case: &Case, word: &str| if is_group(word) { case.group == word } else { case.name.contains(word) };
    for word in only {
        if word.is_empty() || !CASES.iter().any(|case| fits(case, word)) {
            return Err(anyhow!(
                "--only {word}: there is no such group or case; `ferroce selftest --list` names all"
            ));
        }
    }
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|word| fits(case, word));
    Ok(CASES.iter().filter(wanted).collect())
}

fn list(cases: &[&Case]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (group, about) in GROUPS {
        let mut names = cases.iter().filter(|case| case.group == *group).map(|case| case.name).peekable();
        if names.peek().is_some() {
            writeln!(out, "{}: {about}", Style::Title.of(group))?;
        }
        for name in names {
            writeln!(out, "  {name}")?;
        }
    }
    Ok(out.flush()?)
}

fn run_cases(
    args: &Args,
    under: &Under,
    cases: &[&Case],
    driver: Option<&'static Driver>,
) -> anyhow::Result<Vec<Ended<'static>>> {
    let program = own_program().context("the system does not tell where this program is")?;
    let command = |name: &str| {
        let mut command = Command::new(&program);
        command.args(["selftest", "--case", name, "--device", &under.device]);
        command.args(["--limit", &args.limit.to_string()]);
        if let Some(address) = under.address {
            command.args(["--address", &address.to_string()]);
        }
        if let Some(way) = args.path {
            command.args(["--path", way.name()]);
        }
        command
    };
    let names: Vec<&'static str> = cases.iter().map(|case| case.name).collect();
    let bar = bar(names.len(), args.verbose);
    let ended = |ended: &Ended<'_>| {
        if args.verbose {
            let line = report::line(ended, driver);
            // A bar is not drawn then.
            let _ = if args.json.as_deref().is_some_and(|path| path.as_os_str() == "-") {
                writeln!(io::stderr(), "{line}")
            } else {
                writeln!(io::stdout(), "{line}")
            };
        }
        bar.inc(1);
    };
    let runner = Runner {
        limit: Duration::from_secs(args.limit),
        at_once: args.at_once.into(),
        stop: &interrupt::is_asked,
        ..Runner::new(&command)
    };
    let all = runner.run(&names, &|name| bar.set_message(name), &ended);
    bar.finish_and_clear();
    all.context("the process of a case cannot be started")
}

/// What starts this program again. If it was started by a loader (`ld.so PROGRAM`), the process is that of the loader, and the
/// program is what the command line says first.
fn own_program() -> io::Result<PathBuf> {
    let process = env::current_exe()?;
    let is_loader = process.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-"));
    let named = env::args_os().next().filter(|_| is_loader).map(PathBuf::from);
    Ok(named.unwrap_or(process))
}

/// A bar on standard error, if that is a terminal.
fn bar(cases: usize, verbose: bool) -> ProgressBar {
    let target = if verbose || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(10)
    };
    let bar = ProgressBar::with_draw_target(Some(cases as u64), target);
    let style = ProgressStyle::with_template("{bar:30} {pos:>3} of {len} cases, {elapsed}: {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn write(args: &Args, file: Option<File>, report: &Report) -> anyhow::Result<()> {
    let names = if args.whole { Names::none() } else { Names::of_this_machine(&report.device.secrets) };
    let mut out = io::stdout().lock();
    match (&args.json, file) {
        (Some(path), Some(mut file)) => {
            let written = writeln!(file, "{:#}", report.to_json(&names)).and_then(|()| file.sync_all());
            written.with_context(|| format!("{} cannot be written", path.display()))?;
            report.print(&mut out)?;
            let what = if args.whole { "everything is in it" } else { "look at it before you send it" };
            writeln!(out, "The report is in {}; {what}.", path.display())?;
        }
        (Some(_), None) => writeln!(out, "{:#}", report.to_json(&names))?,
        (None, _) => report.print(&mut out)?,
    }
    Ok(out.flush()?)
}

//! `ferroce trace -- PROGRAM` and `ferroce trace --attach PID`: records are made.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ferroce_record::{Mode, RecordConfig, Recorder, Trace, TraceError, numbered};
use serde_json::{Value, json};

use super::attach::{self, Session};
use super::files::note;
use crate::run::Settings;

/// What is recorded, and how.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The record; what further processes do is beside it, in run.2.ftrace and so on
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Keep only the last events, in so many MiB, instead of all
    #[arg(long, value_name = "MIB", num_args = 0..=1, default_missing_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    flight: Option<u32>,

    /// Record one work request of so many: 1/100
    #[arg(long, value_name = "1/N", value_parser = sample)]
    sample: Option<u32>,

    /// Record a program that runs, until Ctrl-C or its end
    #[arg(long, value_name = "PID", conflicts_with_all = ["program", "netdev", "faults", "pcap", "path", "service", "log"])]
    attach: Option<u32>,

    /// With --attach: stop after this time, such as 10, 300ms or 20us
    #[arg(long = "for", value_name = "TIME", requires = "attach", conflicts_with = "program", value_parser = duration)]
    time: Option<Duration>,

    /// With --attach: copy what the program has recorded so far, and let it go on
    #[arg(long, requires = "attach", conflicts_with_all = ["program", "flight", "sample", "time"])]
    dump: bool,

    /// Print what was recorded as one JSON document
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: Settings,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Reads 1/N, or N.
fn sample(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text).parse();
    number.ok().filter(|number| *number > 0).ok_or_else(|| "expected a share such as 1/100".into())
}

/// Reads a time.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    super::select::time(text).map(Duration::from_nanos)
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    match args.attach {
        Some(pid) if args.dump => dump(args, pid),
        Some(pid) => follow(args, pid),
        None => record(args),
    }
}

/// Runs a program, and records what it and all that it starts do.
fn record(args: &Args) -> anyhow::Result<()> {
    let [program, rest @ ..] = args.program.as_slice() else {
        let error = anyhow::anyhow!("a program is missing: ferroce trace -o run.ftrace -- PROGRAM");
        crate::usage("trace", &error)
    };
    let file = args.output.clone().unwrap_or_else(|| "run.ftrace".into());
    let path = std::path::absolute(&file).with_context(|| format!("{}", file.display()))?;
    make_room(&path)?;
    args.settings.clear_old_capture()?;
    let mut command = Command::new(program);
    command.args(rest).envs(args.settings.own_variables()?).env("FERROCE_TRACE", &path);
    match args.settings.library_variables() {
        Ok(variables) => {
            command.envs(variables);
        }
        Err(error) => note(&format!("only programs that have ferroce built in are recorded: {error:#}")),
    }
    for name in ["FERROCE_TRACE_FLIGHT", "FERROCE_TRACE_SAMPLE"] {
        command.env_remove(name);
    }
    if let Some(mib) = args.flight {
        command.env("FERROCE_TRACE_FLIGHT", mib.to_string());
    }
    if let Some(sample) = args.sample {
        command.env("FERROCE_TRACE_SAMPLE", sample.to_string());
    }
    // A Ctrl-C is for the program: what it has done until then is told here.
    crate::interrupt::listen()?;
    let _patience = crate::interrupt::be_patient();
    let mut child = command.spawn().map_err(|error| not_started(Path::new(program), &error))?;
    crate::interrupt::hand_on(child.id())?;
    let status = child.wait().context("the program cannot be waited for")?;
    let records: Vec<PathBuf> =
        (1..).map(|number| numbered(&file, number)).take_while(|path| path.is_file()).collect();
    tell(args, &records, Some(status));
    let made = if records.is_empty() { Err(why_none(&path)) } else { Ok(()) };
    // As shells say it.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    if code == 0 {
        return made;
    }
    if let Err(why) = made {
        note(&format!("{why:#}"));
    }
    if let Some(signal) = status.signal() {
        note(&format!("the program was ended by signal {signal}"));
    }
    std::process::exit(code);
}

/// Why a program left no record: it could not make one, or had nothing to record.
fn why_none(path: &Path) -> anyhow::Error {
    match Recorder::create(path, &RecordConfig::of_this_process(Mode::Flight)) {
        Ok(_) => {
            // It was only tried.
            let _ = fs::remove_file(path);
            anyhow::anyhow!("the program opened no device: nothing was recorded")
        }
        Err(error) => anyhow::Error::new(error).context("nothing was recorded"),
    }
}

fn not_started(program: &Path, error: &io::Error) -> anyhow::Error {
    let hint =
        if error.kind() == io::ErrorKind::NotFound { "; is it installed, and on the path?" } else { "" };
    anyhow::anyhow!("{} cannot be run: {error}{hint}", program.display())
}

/// Records of an earlier run make room; nothing else is removed.
pub(super) fn make_room(path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        bail!("there is no folder {}", folder.display());
    }
    let mut old = Vec::new();
    for number in 1.. {
        let path = numbered(path, number);
        match fs::symlink_metadata(&path) {
            Ok(about) => {
                check_old(&path, &about).with_context(|| format!("{} is not replaced", path.display()))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        old.push(path);
    }
    for path in old {
        fs::remove_file(&path).with_context(|| format!("{} cannot be replaced", path.display()))?;
    }
    Ok(())
}

/// Whether what has the name is a record that no program writes.
fn check_old(path: &Path, about: &Metadata) -> anyhow::Result<()> {
    anyhow::ensure!(about.is_file(), "it is no file");
    match Trace::open(path) {
        Ok(trace) => {
            // One that has ended may be locked for a moment longer.
            let is_locked = matches!(File::open(path)?.try_lock(), Err(TryLockError::WouldBlock));
            if is_locked && !trace.header().has_ended {
                bail!("process {} writes it", trace.header().pid);
            }
        }
        Err(TraceError::Version { .. } | TraceError::Empty(_) | TraceError::Cut(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Records a program that runs.
fn follow(args: &Args, pid: u32) -> anyhow::Result<()> {
    let file = args.output.clone().unwrap_or_else(|| format!("attach-{pid}.ftrace").into());
    let path = std::path::absolute(&file).with_context(|| format!("{}", file.display()))?;
    make_room(&path)?;
    let session = Session::start(pid, &path, args.flight.map(|mib| u64::from(mib) << 20), args.sample)?;
    if args.time.is_none() {
        note(&format!("process {pid} is recorded into {}; Ctrl-C ends that", file.display()));
    }
    session.wait(args.time)?;
    let records = [session.stop()?];
    tell(args, &records, None);
    Ok(())
}

/// Copies what a program has recorded so far.
fn dump(args: &Args, pid: u32) -> anyhow::Result<()> {
    let from = attach::current(pid)?;
    let file = args.output.clone().unwrap_or_else(|| format!("attach-{pid}.ftrace").into());
    let path = std::path::absolute(&file).with_context(|| format!("{}", file.display()))?;
    anyhow::ensure!(path != from, "{} is the record itself: give the copy another name", file.display());
    make_room(&path)?;
    fs::copy(&from, &file).with_context(|| format!("{} cannot be copied", from.display()))?;
    tell(args, &[file], None);
    Ok(())
}

/// Says what was recorded, and what to do with it.
fn tell(args: &Args, records: &[PathBuf], status: Option<ExitStatus>) {
    let opened: Vec<(&PathBuf, Trace)> =
        records.iter().filter_map(|path| Some((path, Trace::open(path).ok()?))).collect();
    if args.json {
        let one = |(path, trace): &(&PathBuf, Trace)| -> Value {
            let lost: u64 = trace.rings().map(|ring| ring.lost).sum();
            let header = trace.header();
            json!({ "file": path.display().to_string(), "program": header.program, "pid": header.pid,
                    "events": trace.len(), "lost": lost })
        };
        let code = status.and_then(|status| status.code());
        println!("{:#}", json!({ "records": opened.iter().map(one).collect::<Vec<_>>(), "exit_code": code }));
        return;
    }
    for (path, trace) in &opened {
        let lost: u64 = trace.rings().map(|ring| ring.lost).sum();
        let lost = if lost > 0 { format!(", {lost} more could not be kept") } else { String::new() };
        let (path, events, header) = (path.display(), trace.len(), trace.header());
        note(&format!("{path}: {events} events{lost}; {}, process {}", header.program, header.pid));
    }
    if let Some((first, _)) = opened.first() {
        note(&format!("what went wrong: ferroce trace explain {}", first.display()));
    }
}

//! `ferroce perf`: how fast is it?

mod end;
mod latency;
mod line;
mod pattern;
pub(crate) mod report;
mod server;
pub(crate) mod session;
mod stream;
mod target;
pub(crate) mod task;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::ArgGroup;
use ferroce::{ContextBuilder, PathPolicy};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{parse_size, size};
use crate::{addresses, interrupt};
use line::{Card, Talk};
use report::{Report, Row};
use server::{PORT, Server};
use session::Place;
use task::{Limit, Measure, Target, Task, Verb, Way};

/// Measure bandwidth, latency or message rate
///
/// Without more it is both ends itself: two threads of this process, each with a network card of its
/// own on loopback, and RoCEv2 packets that go through the kernel between them. The cards share
/// nothing, so one process tells the same as two; use --server and --connect for two processes or
/// machines. With --path local both queue pairs are on one card and meet directly, without
/// packets; with --path shared packets go through memory in common, as between two processes of
/// this machine, or between the two processes themselves.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
#[command(group = ArgGroup::new("measure").args(["bw", "lat", "rate"]))]
#[command(group = ArgGroup::new("role").args(["server", "connect"]))]
#[command(group = ArgGroup::new("limit").args(["iterations", "duration"]))]
pub(crate) struct Args {
    /// What is posted
    #[arg(value_enum, required_unless_present = "server", conflicts_with = "server")]
    verb: Option<Verb>,

    /// Bandwidth: many messages under way, in GB/s (this is measured if nothing is said)
    #[arg(long, conflicts_with = "server")]
    bw: bool,

    /// Latency: one message at a time, as percentiles
    #[arg(long, conflicts_with = "server")]
    lat: bool,

    /// Rate: small messages, posted in lists, in messages per second
    #[arg(long, conflicts_with = "server")]
    rate: bool,

    /// Bytes of a message, such as 64, 4K or 1M [default: 64K for --bw, 8 for --lat, 64 for --rate]
    #[arg(long, short, value_name = "BYTES", value_parser = parse_size, conflicts_with = "server")]
    size: Option<usize>,

    /// Every power of two from 1 byte to 8 MiB
    #[arg(long, conflicts_with_all = ["size", "server"])]
    all_sizes: bool,

    /// Queue pairs side by side
    #[arg(long, short, value_name = "N", default_value_t = 1, conflicts_with = "server")]
    qps: usize,

    /// Messages under way on each queue pair [default: 16 for --bw, 128 for --rate]
    #[arg(long, value_name = "N", conflicts_with = "server")]
    depth: Option<u32>,

    /// Stop each row after so many messages
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "server")]
    iterations: Option<u64>,

    /// Stop each row after so many seconds [default: 1, or 0.2 with --all-sizes]
    #[arg(long, short = 'd', value_name = "SECONDS", value_parser = seconds, conflicts_with = "server")]
    duration: Option<Duration>,

    /// The way between the two ends [default: wire]
    #[arg(long, value_enum, value_name = "WAY", conflicts_with = "server")]
    path: Option<Way>,

    /// What the target's program does meanwhile
    ///
    /// With --lat a row for each; poll and spin if nothing is said (a SEND is polled for). Otherwise the
    /// target of a SEND polls, and that of one-sided work sleeps: its network card does it.
    #[arg(long, value_enum, value_name = "HOW", value_delimiter = ',', conflicts_with = "server")]
    target: Vec<Target>,

    /// Look at the contents of messages; it takes time, so the figures are lower
    #[arg(long, conflicts_with = "server")]
    verify: bool,

    /// Be the target for one ferroce perf --connect elsewhere, then end; --forever goes on
    #[arg(long)]
    server: bool,

    /// With --server: serve one after the other until Ctrl-C, instead of once
    #[arg(long, requires = "server", conflicts_with = "verb")]
    forever: bool,

    /// Measure against the server on this host, such as 192.0.2.1, name:47911 or [::1]:47911
    #[arg(long, value_name = "HOST[:PORT]", value_parser = Server::parse)]
    connect: Option<Server>,

    /// The TCP port on which the two ends agree [default: 47910]
    #[arg(long, short)]
    port: Option<u16>,

    /// With --server: the address to listen at; the network card is the one that has it
    #[arg(long, value_name = "ADDRESS", requires = "server", conflicts_with = "verb", default_value_t = Ipv4Addr::LOCALHOST.into())]
    bind: IpAddr,

    /// The address of our network card [default: the one by which the other end is reached; on loopback one
    /// of 127.0.0.0/8 that no other process has]
    #[arg(long, value_name = "ADDRESS", requires = "role")]
    address: Option<IpAddr>,

    /// One JSON object at the end: "rows" is a list, times are in nanoseconds
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce perf write --lat
          Half a round trip of 8 bytes, with a target that polls and one that spins on memory.
  ferroce perf write --bw --all-sizes
  ferroce perf send --rate --qps 4 --depth 256
  ferroce perf read --bw --size 1M --path local --verify
  ferroce perf --server --bind 192.0.2.1        and on another machine
  ferroce perf write --connect 192.0.2.1
          Both with FERROCE_NETDEV=eth0: only loopback is open otherwise. The server serves once.
  ferroce perf --server --forever --port 47911  serves one after the other, until Ctrl-C
  ferroce perf write --connect 127.0.0.1:47911
  ferroce perf write --lat --path shared --connect 127.0.0.1:47911
          Two processes of this machine, by memory that both have in common.
  FERROCE_FAULTS=loss=0.01,seed=1 ferroce perf write --bw --size 1M
          Under one percent of loss, the same one every time.
  ferroce perf write --lat --json | jq '.rows[].latency_ns.p99'

How it is measured:
  bandwidth and rate  messages that were completed after a warm-up, by the time this took
  latency             WRITE and SEND: a message and the same one back, halved; READ and atomic: from
                      posting to completion. The first 200 messages are not counted, or a
                      tenth of the time.
  Data is gathered from registered memory, never inline. The path that was taken stands above the table.

Ctrl-C ends a measurement early and shows what was found so far; the exit code is then 1.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    if args.server {
        return serve(args);
    }
    let tasks = args.tasks();
    for task in &tasks {
        if let Err(error) = task.check() {
            crate::usage("perf", &error);
        }
    }
    if args.connect.is_some() && args.path == Some(Way::Local) {
        crate::usage("perf", &anyhow!("--path local is for both ends in one process: leave out --connect"));
    }
    if let Some(error) = args.connect.as_ref().and_then(|server| server.disagrees(args.port)) {
        crate::usage("perf", &error);
    }
    let mut report = Report::new(args.json);
    let patience = interrupt::be_patient();
    let found = match &args.connect {
        Some(server) => {
            let mut talk = session::connect(&server.host, server.port.or(args.port).unwrap_or(PORT))?;
            let place = Place::beside(&talk, args.address, args.path.unwrap_or(Way::Wire), None)?;
            args.measure_all(&mut talk, &place, &tasks, &mut |row| report.add(row))
        }
        None => both_ends(args, &tasks, &mut |row| report.add(row)),
    };
    drop(patience);
    let interrupted = interrupt::is_asked();
    report.finish(interrupted)?;
    found?;
    if interrupted {
        bail!("interrupted; the figures are of what was done until then");
    }
    Ok(())
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no number of seconds from 0.001 to 86400");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.001..=86_400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

impl Args {
    const fn measure(&self) -> Measure {
        match (self.lat, self.rate) {
            (true, _) => Measure::Latency,
            (_, true) => Measure::Rate,
            _ => Measure::Bandwidth,
        }
    }

    /// The rows that are wanted.
    fn tasks(&self) -> Vec<Task> {
        let measure = self.measure();
        let verb = self.verb.unwrap_or(Verb::Write);
        let usual = match (verb, measure) {
            (Verb::Atomic, _) | (_, Measure::Latency) => 8,
            (_, Measure::Rate) => 64,
            (_, Measure::Bandwidth) => 64 << 10,
        };
        let sizes: Vec<usize> = match self.all_sizes {
            true if verb != Verb::Atomic => (0..=23).map(|power| 1 << power).collect(),
            _ => vec![self.size.unwrap_or(usual)],
        };
        let usual: &[Target] = match (measure, verb) {
            (_, Verb::Send) => &[Target::Poll],
            (Measure::Latency, _) => &[Target::Poll, Target::Spin],
            _ => &[Target::Sleep],
        };
        let targets = if self.target.is_empty() { usual } else { &self.target };
        let usual = if measure == Measure::Rate { 128 } else { 16 };
        let depth = self.depth.unwrap_or(usual);
        let way = self.path.unwrap_or(Way::Wire);
        let (qps, verify) = (self.qps, self.verify);
        let of = |&target: &Target| {
            sizes.iter().map(move |&size| Task { verb, measure, size, qps, depth, target, verify, way })
        };
        targets.iter().flat_map(of).collect()
    }

    fn limit(&self) -> Limit {
        match (self.iterations, self.duration) {
            (Some(messages), _) => Limit::Messages(messages),
            (None, Some(time)) => Limit::Time(time),
            (None, None) if self.all_sizes => Limit::Time(Duration::from_millis(200)),
            (None, None) => Limit::Time(Duration::from_secs(1)),
        }
    }

    fn measure_all(
        &self,
        talk: &mut Talk,
        place: &Place,
        tasks: &[Task],
        add: &mut dyn FnMut(Row) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let bar = bar(tasks.len(), self.json);
        for (index, task) in tasks.iter().enumerate() {
            if interrupt::is_asked() {
                break;
            }
            let mut name = format!("{} {}", task.verb.name(), size(task.size));
            if tasks.len() > 1 {
                write!(name, ", row {} of {}", index + 1, tasks.len())?;
            }
            bar.set_message(name);
            let base = 1000 * index as u64;
            let mut tick = |share: f64| bar.set_position(base + thousandths(share));
            let row = session::measure(talk, place, task, self.limit(), &mut tick);
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    bar.finish_and_clear();
                    return Err(error);
                }
            };
            bar.suspend(|| add(row))?;
        }
        bar.finish_and_clear();
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
fn thousandths(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1000.0) as u64
}

/// A bar on the terminal; nothing elsewhere.
pub(crate) fn bar(rows: usize, json: bool) -> ProgressBar {
    let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let bar = ProgressBar::with_draw_target(Some(1000 * rows as u64), target);
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Measures between two threads of this process.
fn both_ends(args: &Args, tasks: &[Task], add: &mut dyn FnMut(Row) -> io::Result<()>) -> anyhow::Result<()> {
    let way = args.path.unwrap_or(Way::Wire);
    let (near, far) = two_places(way)?;
    between(&near, &far, |talk| args.measure_all(talk, &near, tasks, add))
}

/// Has `work` done against a target in another thread.
pub(crate) fn between<T>(
    near: &Place,
    far: &Place,
    work: impl FnOnce(&mut Talk) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    debug_assert!(near.address.is_loopback() && far.address.is_loopback());
    let (mut talk, mut other) = session::both_ends()?;
    thread::scope(|scope| {
        let far = far.clone();
        let serving = move || session::serve(&mut other, |_, _, _| Ok(far), |_| Ok(()));
        let target =
            thread::Builder::new().name("target".into()).spawn_scoped(scope, serving).context("no thread")?;
        let found = work(&mut talk);
        drop(talk);
        let served = target.join().map_err(|_| anyhow!("the target's thread panicked"))?;
        let found = found?;
        served.context("the target")?;
        Ok(found)
    })
}

/// Two network cards on loopback, or one that is both ends.
pub(crate) fn two_places(way: Way) -> anyhow::Result<(Place, Place)> {
    if way == Way::Shared {
        let both = shared_place()?;
        return Ok((both.clone(), both));
    }
    let near = place([127, 0, 0, 2].into(), 0, |builder| builder)?;
    let far = match way {
        Way::Local | Way::Shared => near.clone(),
        Way::Wire => place([127, 0, 0, 3].into(), 1, |builder| builder)?,
    };
    Ok((near, far))
}

/// A network card with two engines that share memory, as those of two processes do.
pub(crate) fn shared_place() -> anyhow::Result<Place> {
    place([127, 0, 0, 6].into(), 2, sharing)
}

/// A card that shares memory, and has an engine for each end.
fn sharing(builder: ContextBuilder) -> ContextBuilder {
    builder.engines(2).shared(true).path(PathPolicy::Shared)
}

/// A network card on this address of loopback, or on one that no other process has if it is taken.
pub(crate) fn place(
    wanted: IpAddr,
    part: u8,
    with: impl Fn(ContextBuilder) -> ContextBuilder,
) -> anyhow::Result<Place> {
    let open = |address: IpAddr| with(ferroce::Context::builder(addresses::LOOPBACK).address(address)).open();
    let (context, address) = addresses::first_free([wanted].into_iter().chain(addresses::own(part)), open)?;
    Ok(Place { context, address })
}

/// Is the target for others.
fn serve(args: &Args) -> anyhow::Result<()> {
    if !args.bind.is_loopback() && !args.bind.is_unspecified() {
        session::device_with(args.bind)?;
    }
    let listener = session::listen(args.bind, args.port.unwrap_or(PORT))?;
    let address = listener.local_addr()?;
    let how_often =
        if args.forever { "serves until Ctrl-C" } else { "serves once and ends (--forever goes on)" };
    let (ip, port) = (address.ip(), address.port());
    tell(
        args,
        &format!(
            "listening at {address}, {how_often}; now run: ferroce perf VERB --connect {ip} --port {port}"
        ),
    )?;
    loop {
        let (stream, peer) = listener.accept().context("cannot accept a connection")?;
        let begin = |task: &Task| {
            let Task { verb, measure, qps, target, .. } = task;
            let (verb, measure, target) = (verb.name(), measure.name(), target.name());
            let qps = if *qps == 1 { String::new() } else { format!(" on {qps} queue pairs") };
            tell(args, &format!("{peer}: {verb} {measure} of {}{qps}, target {target}", size(task.size)))
        };
        let place = |talk: &Talk, task: &Task, card: &Card| {
            Place::beside(talk, args.address, task.way, card.qps.first().map(|qp| qp.gid.ip()))
        };
        let talk = Talk::new(stream).context("cannot talk to the other end");
        let served = talk.and_then(|mut talk| session::serve(&mut talk, place, begin));
        match served {
            Ok(rows) => tell(args, &format!("{peer}: {rows} measured"))?,
            Err(error) if args.forever => eprintln!("ferroce: {peer}: {error:#}"),
            Err(error) => return Err(error.context(peer.to_string())),
        }
        if !args.forever {
            return Ok(());
        }
    }
}

/// A line for the user of the server: text, or JSON.
fn tell(args: &Args, line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::json!({ "server": line }))?,
        false => writeln!(out, "{line}")?,
    }
    out.flush()
}

//! What the soft NIC costs, beside plain sockets and plain copies of the same moment.
//!
//! `cargo xtask bench --only device` runs this and prints a table. By itself it writes one JSON object
//! per line: first the machine, then a sample for each side of each figure of each repeat. The two ends
//! of a wire are two processes: this program starts itself again as the other one.
#![allow(unsafe_code, reason = "socket options, affinity and CPU time need system calls")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock, and waits by it to see idling")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::time::Duration;

mod alone;
mod company;
mod crowd;
mod elsewhere;
mod ends;
mod figures;
mod local;
mod neighbour;
mod peer;
mod pingpong;
mod raw;
mod samples;
mod stream;
mod system;

use elsewhere::NotInstalled;
use ferroce_testkit::process::Parent;
use figures::FIGURES;
use samples::{Sample, quoted};

/// What a measurement gives, or why there is none.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// How to measure.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// How long each side of a figure is measured; warming up takes a fifth more.
    duration: Duration,
    repeats: usize,
    /// Whether each process stays on a core of its own.
    pin: bool,
    /// Without baselines, for a profiler.
    only_ours: bool,
    /// The two processes share memory.
    shared: bool,
}

impl Settings {
    /// The same between processes that share memory.
    const fn near(&self) -> Self {
        Self { shared: true, ..*self }
    }
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let number = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    // Without `--bench` it is run by `cargo test`: to see that it works is enough.
    let quick = has("--quick") || !has("--bench");
    let settings = Settings {
        duration: Duration::from_millis(number("--millis").unwrap_or(if quick { 20 } else { 300 })),
        repeats: usize::try_from(number("--repeats").unwrap_or(if quick { 1 } else { 5 }))?,
        pin: has("--pin"),
        only_ours: has("--only-ours"),
        shared: has("--shared"),
    };
    if let Some(at) = args.iter().position(|arg| arg == "--peer") {
        let role = args.get(at + 1).ok_or("--peer needs the name of a role")?;
        system::pin_if(settings.pin, 1)?;
        return peer::play(role, Parent, &settings);
    }
    system::pin_if(settings.pin, 0)?;
    let filters: Vec<&str> = words(&args).collect();
    measure(&settings, &filters)
}

/// The arguments that are no flags and do not belong to one: parts of the names of figures.
fn words(args: &[String]) -> impl Iterator<Item = &str> {
    let takes_value = |arg: &str| matches!(arg, "--millis" | "--repeats" | "--peer");
    let follows = move |at: usize| at > 0 && takes_value(&args[at - 1]);
    let plain = args.iter().enumerate().filter(move |(at, arg)| !arg.starts_with("--") && !follows(*at));
    plain.map(|(_, arg)| arg.as_str())
}

/// Goes through all figures, again and again, so that a slow minute falls on both sides of all of them.
fn measure(settings: &Settings, filters: &[&str]) -> Outcome<()> {
    println!("{}", system::machine(settings));
    // A part of a name; with `$` behind it, the end of one.
    let matches = |name: &str, part: &str| match part.strip_suffix('$') {
        Some(end) => name.ends_with(end),
        None => name.contains(part),
    };
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|part| matches(name, part));
    let figures: Vec<_> = FIGURES.iter().filter(|figure| chosen(figure.name)).collect();
    let mut failed = 0;
    for repeat in 0..settings.repeats {
        for (at, figure) in figures.iter().enumerate() {
            progress(&format!("repeat {} of {}, {}", repeat + 1, settings.repeats, figure.name));
            let mut against = figure.against.to_owned();
            for (side, load) in [("raw", figure.raw.filter(|_| !settings.only_ours)), ("ours", figure.ours)] {
                let Some(load) = load else { continue };
                let bystanders = system::Bystanders::watch();
                match load(settings) {
                    Ok(sample) => {
                        println!(
                            "{}",
                            line(figure, at, (side, &against), repeat, &sample, bystanders.cores())
                        );
                    }
                    // It is said where the baseline is named.
                    Err(error) if error.is::<NotInstalled>() => against = format!("{against}; {error}"),
                    Err(error) => {
                        failed += 1;
                        progress("");
                        eprintln!("{} ({side}): {error}", figure.name);
                    }
                }
            }
        }
    }
    progress("");
    if failed > 0 { Err(format!("{failed} measurements failed").into()) } else { Ok(()) }
}

fn line(
    figure: &figures::Figure,
    at: usize,
    (side, against): (&str, &str),
    repeat: usize,
    sample: &Sample,
    others: f64,
) -> String {
    let figures::Figure { name, unit, .. } = figure;
    let Sample { value, note } = sample;
    format!(
        "{{\"kind\":\"sample\",\"order\":{at},\"figure\":{},\"unit\":{},\"against\":{},\"side\":\"{side}\",\
         \"repeat\":{repeat},\"value\":{value:.6},\"others\":{others:.2},\"note\":{}}}",
        quoted(name),
        quoted(unit),
        quoted(against),
        quoted(note),
    )
}

/// One line that is written over, on a terminal only. An empty one takes it away.
fn progress(text: &str) {
    let mut to = std::io::stderr().lock();
    if to.is_terminal() {
        let _ = write!(to, "\r\x1b[K{text}").and_then(|()| to.flush());
    }
}

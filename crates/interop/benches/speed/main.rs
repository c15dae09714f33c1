//! What `ib_write_bw`, `ib_write_lat` and `ib_send_bw` measure, through the safe API.
//!
//! Two processes with a device each, at two addresses of loopback: what is measured is the way over the wire. Sizes,
//! queue depths, and how often a completion is asked for, are those of the tools. `cargo xtask interop --speed` runs
//! it in a guest, beside the tools themselves.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod ends;
mod latency;
mod stream;

use std::error::Error;
use std::process::ExitCode;
use std::thread;

use clap::{Parser, ValueEnum};
use ends::End;
use ferroce_testkit::process::{Parent, Peer};

/// What went wrong, in words: this is a test, and its user a person.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures the way over the wire between two processes on loopback
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// What to measure
    shape: Shape,
    /// How many messages
    #[arg(short = 'n', long, default_value_t = 5000)]
    messages: u32,
    /// Be the other process
    #[arg(long, hide = true)]
    other: bool,
}

/// What is measured, by the name of the tool that does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// 64 KiB WRITEs, 128 under way
    #[value(name = "write_bw")]
    WriteBandwidth,
    /// 8 B WRITEs to and fro, both sides looking at their memory
    #[value(name = "write_lat")]
    WriteLatency,
    /// 64 B SENDs, 128 under way
    #[value(name = "send_bw")]
    SendBandwidth,
}

impl Shape {
    /// Bytes of a message.
    const fn len(self) -> usize {
        match self {
            Self::WriteBandwidth => 65_536,
            Self::WriteLatency => 8,
            Self::SendBandwidth => 64,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match if args.other { answer(args) } else { measure(args) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-speed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says one line: messages and bytes in a second, or microseconds of half a round trip.
fn measure(args: Args) -> Result<()> {
    let name = args.shape.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut other = Peer::start([&name, "-n", &args.messages.to_string(), "--other"])?;
    let end = End::open([127, 0, 0, 2], args.shape.len())?;
    other.say(end.card()?)?;
    let remote = end.connect(&other.hear()?)?;
    // It is ready when it says so.
    other.hear()?;
    let figure = match args.shape {
        Shape::WriteLatency => latency::ping(&end, remote, args.messages)?,
        Shape::WriteBandwidth => stream::push(&end, Some(remote), args.messages)?,
        Shape::SendBandwidth => stream::push(&end, None, args.messages)?,
    };
    other.stop()?;
    println!("{figure} {}", end.note());
    Ok(())
}

/// The other process.
fn answer(args: Args) -> Result<()> {
    let end = End::open([127, 0, 0, 3], args.shape.len())?;
    let remote = end.connect(&Parent.hear()?)?;
    if args.shape == Shape::SendBandwidth {
        stream::prepare(&end)?;
    }
    Parent.say(end.card()?)?;
    Parent.say("ready")?;
    // From here on this process ends with the first one, also in the middle of a message.
    Parent.follow();
    match args.shape {
        Shape::WriteLatency => latency::pong(&end, remote, args.messages)?,
        Shape::SendBandwidth => stream::take(&end, args.messages)?,
        Shape::WriteBandwidth => {}
    }
    // The first process still needs our acknowledgements.
    loop {
        thread::park();
    }
}

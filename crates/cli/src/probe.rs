//! `ferroce probe`: the other end of `ferroce ping`.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Context as _;
use ferroce::Context;
use ferroce_probe::net::{ResponderEnd, SERVICE_PORT};
use ferroce_probe::{ResponderConfig, ResponderCounters};
use serde_json::{Map, Value, json};

use crate::output::Style;
use crate::{addresses, interrupt, perf};

/// Answer probes of `ferroce ping`
///
/// A probe measures the network by four times that the kernels of both hosts take: when it left, when it came,
/// when the answer left, and when that came. So it needs a program at the other end: this one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Part,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce probe responder
          Answers programs of this machine, at 127.0.0.1; then: ferroce ping 127.0.0.1
  FERROCE_NETDEV=eth0 ferroce probe responder --bind 192.0.2.7
          Answers other machines, by the interface eth0; on another one: ferroce ping 192.0.2.7";

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Answer probes until Ctrl-C, then say what came
    #[command(after_long_help = AFTER_LONG_HELP)]
    Responder(Responder),
}

#[derive(Debug, clap::Args)]
struct Responder {
    /// The address to answer at
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    /// The name under which probers find it: a number like that of a port, but no port is opened
    #[arg(long, value_name = "NUMBER", default_value_t = SERVICE_PORT)]
    service: u16,

    /// Probes of one source that are answered in a second; each costs two packets
    #[arg(long, value_name = "N", default_value_t = 25_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,

    /// At the end, one JSON object: all counters, and the probes of each source and port; that it is ready is said on
    /// standard error then
    #[arg(long)]
    json: bool,
}

/// How often it is looked whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Part::Responder(args) = &args.part;
    interrupt::listen()?;
    let address = args.bind;
    let context = open(address)?;
    let config = ResponderConfig { rate: args.rate, ..ResponderConfig::default() };
    let mut responder = ResponderEnd::open(&context, address, Some(args.service), config)
        .with_context(|| format!("cannot answer probes at {address}"))?;
    let patience = interrupt::be_patient();
    say_ready(args, responder.qpn())?;
    while !interrupt::is_asked() {
        responder.turn()?;
        responder.sleep(LOOK);
    }
    drop(patience);
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", to_json(&mut responder))?;
    } else {
        print(&mut out, responder.counters(), responder.unsure_stamps())?;
    }
    Ok(out.flush()?)
}

/// Says that probes are answered from now on. Beside JSON, it does so where it is not taken for JSON.
fn say_ready(args: &Responder, qpn: u32) -> io::Result<()> {
    let service = match args.service {
        SERVICE_PORT => String::new(),
        other => format!(" --service {other}"),
    };
    let address = args.bind;
    let text = format!(
        "queue pair {qpn} at {address} answers probes until Ctrl-C; now run: ferroce ping {address}{service}\n"
    );
    if args.json {
        return io::stderr().lock().write_all(text.as_bytes());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The device that has this address: on the loopback interface, one of this address alone; elsewhere one of all
/// addresses of the interface, as other programs open it. If some program has it otherwise, as that has it.
pub(crate) fn open(address: IpAddr) -> anyhow::Result<Context> {
    let alone = |device: &str| Context::builder(device).address(address).open();
    let opened = if address.is_loopback() {
        let device = addresses::LOOPBACK;
        alone(device).or_else(|error| if error.overlaps() { Context::open(device) } else { Err(error) })
    } else {
        let device = perf::session::device_with(address)?;
        Context::open(&device).or_else(|error| if error.overlaps() { alone(&device) } else { Err(error) })
    };
    opened.with_context(|| format!("cannot open {address}"))
}

fn print(out: &mut impl Write, counters: &ResponderCounters, unsure: u64) -> io::Result<()> {
    writeln!(out, "{}", Style::Title.of(format!("{} probes answered", counters.answered)))?;
    let rest = counters.iter().filter(|(name, count)| *name != "answered" && *count > 0);
    for (name, count) in rest.chain(Some(("unsure_stamps", unsure)).filter(|(_, count)| *count > 0)) {
        writeln!(out, "{count:>10} {}", name.replace('_', " "))?;
    }
    Ok(())
}

fn to_json(responder: &mut ResponderEnd) -> Value {
    let counters: Map<String, Value> =
        responder.counters().iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let unsure = responder.unsure_stamps();
    let sources: Vec<Value> = responder
        .take_tallies()
        .into_iter()
        .map(|((source, port), probes)| json!({ "source": source, "port": port, "probes": probes }))
        .collect();
    json!({ "counters": counters, "unsure_stamps": unsure, "sources": sources })
}

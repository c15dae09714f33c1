//! `ferroce mesh`: agents that probe each other, and what is bad in between.

mod agent;
mod analyzer;
mod certificates;
mod controller;
mod database;
mod demo;
mod findings;
mod outlets;
mod tls;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use ferroce_device::park;
use ferroce_meshd::tls::Credentials;
use ferroce_meshd::{Listener, MeshListenError};

use crate::interrupt;

/// Probe a network all the time, and say which card, switch, link or host of it is bad
///
/// On each host runs an agent. It answers the probes of others, and probes those that the controller names: all
/// below its own ToR, and some of each other ToR. Each 20 seconds it tells the analyzer how its probes ended, and
/// the analyzer works out what explains all losses and delays best.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Part,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce mesh demo
          All of it on this machine: a network, agents, a fault after 20 seconds, and a page.
  ferroce mesh controller
  ferroce mesh analyzer
  ferroce mesh agent --address 127.0.0.2 --tor rack1
  ferroce mesh agent --address 127.0.0.3 --tor rack1
  ferroce mesh agent --address 127.0.0.4 --tor rack2
  ferroce mesh findings
          Each in a terminal of its own. A host with several RNICs names them all:
          --address 10.0.1.1@rack1 --address 10.0.2.1@rack2

With `ferroce mesh analyzer --topology FILE`, links and switches above ToRs are told apart. A file has a part like this for each
switch; agents tell the RNICs themselves:
  [[switch]]
  name = \"rack1\"
  tier = \"tor\"                  (tor, aggregation or core)
  addresses = [\"10.0.1.1\"]      (all that it may name itself by in traces)
  above = [\"agg1\", \"agg2\"]      (what it is cabled to)

Any part may start first, end and come back: the others say what they miss, and go on trying. Agents go on probing
what they probed last, and keep an hour of windows until the analyzer is there again.

Across machines, everything is encrypted, and each part shows a certificate. For a trial:
  ferroce mesh certificates --out mesh-tls controller=10.0.0.1 analyzer=10.0.0.1 host1 host2
  ferroce mesh controller --listen 10.0.0.1:50051 --tls mesh-tls/controller
  ferroce mesh analyzer --listen 10.0.0.1:50052 --controller https://10.0.0.1:50051 --tls mesh-tls/analyzer
  ferroce mesh agent --address 10.0.1.1 --tor rack1 --controller https://10.0.0.1:50051 --tls mesh-tls/host1
  ferroce mesh findings --analyzer https://10.0.0.1:50052 --tls mesh-tls/host1
          An agent may only be what its certificate says: here host1. Without certificates, the services listen on
          loopback addresses only, and agents talk to no others.

With a PostgreSQL database, several controllers and several analyzers know the same: one of each leads, and when it
is gone, another goes on within seconds. The tables are made in the schema ferroce_mesh:
  ferroce mesh controller --listen 127.0.0.1:50051 --database postgres://mesh@127.0.0.1/mesh
  ferroce mesh controller --listen 127.0.0.1:50061 --database postgres://mesh@127.0.0.1/mesh
  ferroce mesh analyzer --controller 127.0.0.1:50051,127.0.0.1:50061 --database postgres://mesh@127.0.0.1/mesh
  ferroce mesh agent --address 127.0.0.2 --tor rack1 --controller 127.0.0.1:50051,127.0.0.1:50061

Agents of the public rebuild of R-Pingmesh can register with the controller, too.";

/// Each command of this one has the same examples.
#[derive(Debug, clap::Subcommand)]
enum Part {
    Controller(controller::Args),
    Analyzer(Box<analyzer::Args>),
    Agent(agent::Args),
    Findings(findings::Args),
    Certificates(certificates::Args),
    Demo(demo::Args),
}

/// Where the controller is, if nothing else is said.
const CONTROLLER: &str = "127.0.0.1:50051";

/// Where the analyzer is, if nothing else is said.
const ANALYZER: &str = "127.0.0.1:50052";

/// How often it is looked whether Ctrl-C was pressed, or something is to be told.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.part {
        Part::Controller(args) => controller::run(args),
        Part::Analyzer(args) => analyzer::run(args),
        Part::Agent(args) => agent::run(args),
        Part::Findings(args) => findings::run(args),
        Part::Certificates(args) => certificates::run(args),
        Part::Demo(args) => demo::run(args),
    }
}

/// Prints what a service is like whenever that changes, until Ctrl-C.
fn tell(mut line: impl FnMut() -> String) -> anyhow::Result<()> {
    let patience = interrupt::be_patient();
    let mut told = String::new();
    while !interrupt::is_asked() {
        let next = line();
        if next != told {
            say(&next)?;
            told = next;
        }
        park(Some(LOOK));
    }
    drop(patience);
    Ok(())
}

/// Prints a line at once.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Listens: with certificates anywhere, and without them on loopback addresses.
fn listen(address: SocketAddr, credentials: Option<&Credentials>) -> Result<Listener, MeshListenError> {
    match credentials {
        Some(credentials) => Listener::bind_tls(address, credentials),
        None => Listener::bind(address),
    }
}

/// Prints those counters that count something, by their names.
fn print_counters(counters: impl Iterator<Item = (&'static str, u64)>) -> anyhow::Result<()> {
    for (name, count) in counters.filter(|(_, count)| *count > 0) {
        say(&format!("{count:>10} {}", name.replace('_', " ")))?;
    }
    Ok(())
}

/// The name of this host.
fn host() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    Ok(name.context("cannot read the name of this host; say --host and --name")?.trim().to_owned())
}

/// One of something, or several.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

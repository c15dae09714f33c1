//! `ferroce mesh agent`.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use ferroce_meshd::{Agent, AgentConfig, AgentRnic, AgentState};

use super::tls::TlsArgs;
use super::{AFTER_LONG_HELP, CONTROLLER, count, host, say, tell};
use crate::{interrupt, probe};

/// Answer probes, probe what the controller says, and report to the analyzer, until Ctrl-C
///
/// Probes are those of `ferroce ping`. While the controller is away, it probes what it probed last; while the
/// analyzer is away, it keeps the windows of an hour.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// The address of an RNIC to probe with, and the ToR that it hangs on; once for each RNIC of this host
    #[arg(long, value_name = "ADDRESS[@TOR]", required = true)]
    address: Vec<Place>,

    /// The ToR of RNICs that are given without one, by any name that is the same for all its RNICs
    #[arg(long, value_name = "NAME")]
    tor: Option<String>,

    /// Where the controller is; named again, or after a comma, where others are that stand by
    #[arg(long, value_name = "URL", default_value = CONTROLLER, value_delimiter = ',')]
    controller: Vec<String>,

    /// The name of the agent, which no other one has, instead of that in its certificate, or else the host's with the
    /// address
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The name of the host, instead of that which the system has
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Probes of each RNIC in a second at most, whatever the controller says
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    #[command(flatten)]
    tls: TlsArgs,
}

/// An RNIC, and the ToR that it hangs on.
#[derive(Clone, Debug)]
struct Place {
    address: IpAddr,
    tor: Option<String>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, tor) = text.split_once('@').map_or((text, None), |(address, tor)| (address, Some(tor)));
        let address = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        if tor.is_some_and(str::is_empty) {
            return Err(format!("no name of a ToR follows {address}@"));
        }
        Ok(Self { address, tor: tor.map(str::to_owned) })
    }
}

/// How long the end waits for the analyzer to take the last windows.
const FLUSH: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    let host = args.host.clone().map_or_else(host, Ok)?;
    let credentials = args.tls.credentials()?;
    let rnics = args.address.iter().map(|place| open(place, args.tor.as_deref()));
    let rnics = rnics.collect::<anyhow::Result<Vec<_>>>()?;
    let addresses: Vec<String> = rnics.iter().map(|rnic| rnic.address.to_string()).collect();
    let carried = credentials.as_ref().and_then(|credentials| credentials.names().first().cloned());
    let name = args.name.clone().or(carried).unwrap_or_else(|| format!("{host}-{}", addresses[0]));
    let config = AgentConfig {
        rate: args.rate,
        credentials,
        controllers: args.controller.clone(),
        ..AgentConfig::new(&name, &host, CONTROLLER)
    };
    let agent = Agent::start(config, rnics)?;
    say(&format!("agent {name} answers probes at {} until Ctrl-C", addresses.join(" and ")))?;
    tell(|| line(&agent.state()))?;
    let state = agent.stop(FLUSH);
    let outcomes = state.outcomes;
    say(&format!(
        "{} probes ok, {} lost; {} kept by the analyzer, {} left behind",
        outcomes.ok,
        outcomes.time_out + outcomes.ack1_lost,
        count(usize::try_from(state.settled).unwrap_or(usize::MAX), "window"),
        state.waiting
    ))
}

fn open(place: &Place, tor: Option<&str>) -> anyhow::Result<AgentRnic> {
    let address = place.address;
    let tor = place.tor.as_deref().or(tor);
    let tor =
        tor.with_context(|| format!("which ToR does {address} hang on? say --tor, or {address}@TOR"))?;
    let context = probe::open(address)?;
    let device = context.query().name;
    Ok(AgentRnic { context, address, tor: tor.to_owned(), device })
}

/// What there is to say of an agent, as far as it does not change all the time.
fn line(state: &AgentState) -> String {
    let mut line = match state.controller_trouble.as_str() {
        "" if state.is_registered => count(state.targets, "RNIC") + " to probe",
        "" => "looking for the controller".to_owned(),
        trouble => {
            format!("{trouble}; it is tried again, {} to probe meanwhile", count(state.targets, "RNIC"))
        }
    };
    if !state.services_trouble.is_empty() {
        line += &format!("; services are not known: {}", state.services_trouble);
    }
    if !state.analyzer_trouble.is_empty() {
        line += &format!("; {}, it is tried again", state.analyzer_trouble);
    }
    if state.dropped > 0 {
        line += "; windows had to be dropped";
    }
    if !state.refusal.is_empty() {
        line += &format!("; the analyzer refuses windows: {}", state.refusal);
    }
    if !state.unsent_trouble.is_empty() {
        line += &format!("; probes are not sent: {}", state.unsent_trouble);
    }
    line
}

//! The process that starts the servers, kills one in the middle, and compares what all of them counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferroce::broker::Members;
use ferroce::time::{Time, now};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::children::{Children, Heard};
use crate::report::{self, Death, Reports};
use crate::server::{LANES, Order, Settings};

/// Servers of the mesh.
pub(crate) const SERVERS: u32 = 4;

/// The server that is killed.
const VICTIM: u32 = 3;

/// The port of the first lane.
const PORT: u16 = 7471;

/// Options of `ferroce-four-servers`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests that each thread has done for each peer, at least, before it is over
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(8..=1_000_000_000))]
    messages: u64,
    /// Kill no server
    #[arg(long)]
    no_kill: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The address of the first server; the others follow it
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(127, 0, 125, 1))]
    address: Ipv4Addr,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.address.is_loopback(), "{} is no address of loopback", args.address);
    let address = |id: u32| SocketAddr::new(Ipv4Addr::from_bits(args.address.to_bits() + id).into(), PORT);
    let members = Members::new((0..SERVERS).map(|id| (id, address(id))))?;
    let begin = now();
    let mut office = Office {
        children: Children::start(members, args.settings.clone())?,
        lanes: BTreeMap::new(),
        deadline: begin + Duration::from_secs(args.limit),
        messages: args.messages,
        bar: bar(args),
    };
    let death = if args.no_kill { None } else { Some(office.kill_and_return()?) };
    office.wait("enough work everywhere", |lanes| is_enough(lanes, args.messages))?;
    office.children.order_all(Order::Finish)?;
    office.wait("quiet", |lanes| all(lanes, |lane| lane.is_settled))?;
    office.children.order_all(Order::Report)?;
    office.wait("the reports", |lanes| all(lanes, |lane| lane.report.is_some()))?;
    office.bar.finish_and_clear();
    let Office { mut children, lanes, .. } = office;
    // One server tells all others that it is over.
    children.order(0, Order::Terminate)?;
    children.end(Duration::from_secs(60))?;

    let reports: Reports =
        lanes.into_iter().filter_map(|(place, lane)| Some((place, lane.report?))).collect();
    report::compare(&reports)?;
    let took = now() - begin;
    if args.json {
        println!("{}", report::to_json(&reports, death.as_ref(), took));
    } else {
        print!("{}", report::to_text(&reports, death.as_ref(), took)?);
    }
    Ok(())
}

/// What is known of one thread of one server.
#[derive(Debug, Default)]
struct LaneState {
    /// Requests that are done, in its life.
    done: u64,
    /// Requests that are done for the peer for which the fewest are, on the connection that there is now.
    least: u64,
    /// Peers that are there.
    there: u32,
    /// How much was done when it saw that a peer was gone.
    done_at_loss: Option<u64>,
    is_settled: bool,
    report: Option<Value>,
}

type Lanes = BTreeMap<(u32, u8), LaneState>;

struct Office {
    children: Children,
    lanes: Lanes,
    deadline: Time,
    /// Requests for each peer that are enough.
    messages: u64,
    bar: ProgressBar,
}

impl Office {
    /// Kills a server in the middle of its work, and starts it again when the others have noticed and gone on.
    fn kill_and_return(&mut self) -> anyhow::Result<Death> {
        let half = self.messages / 2;
        self.wait("half of the work of the server that is to die", |lanes| {
            let of_victim = || lanes.iter().filter(|((server, _), _)| *server == VICTIM);
            is_complete(lanes) && of_victim().all(|(_, lane)| lane.least >= half && lane.there == SERVERS - 1)
        })?;
        let killed = self.children.kill(VICTIM)?;
        self.lanes.retain(|(server, _), _| *server != VICTIM);
        let mut noticed = killed;
        let mut waiting: BTreeSet<(u32, u8)> = self.lanes.keys().copied().collect();
        while !waiting.is_empty() {
            let heard = self.children.hear(self.deadline, "news of the death")?;
            self.note(&heard)?;
            let line = heard.line.as_deref().unwrap_or_default();
            if let ["left", lane, peer, ..] = words(line)[..]
                && peer.parse() == Ok(VICTIM)
            {
                waiting.remove(&(heard.server, lane.parse()?));
                noticed = noticed.max(heard.at);
            }
        }
        let survivors = usize::try_from(SERVERS - 1)? * usize::from(LANES);
        self.wait("work among the others", |lanes| {
            let goes_on = |lane: &LaneState| lane.done_at_loss.is_some_and(|before| lane.done > before);
            lanes.values().filter(|lane| goes_on(lane)).count() == survivors
        })?;
        self.children.start_again(VICTIM)?;
        self.wait("the server that comes back", |lanes| {
            is_complete(lanes) && all(lanes, |lane| lane.there == SERVERS - 1)
        })?;
        Ok(Death { server: VICTIM, noticed: noticed - killed, returned: now() - killed })
    }

    /// Hears what servers say until a condition holds.
    fn wait(&mut self, what: &str, holds: impl Fn(&Lanes) -> bool) -> anyhow::Result<()> {
        self.bar.set_message(what.to_owned());
        while !holds(&self.lanes) {
            let heard = self.children.hear(self.deadline, what);
            self.note(&heard.with_context(|| describe(&self.lanes))?)?;
        }
        Ok(())
    }

    fn note(&mut self, heard: &Heard) -> anyhow::Result<()> {
        let line = heard.line.as_deref().unwrap_or_default();
        if let Some(json) = line.strip_prefix("report ") {
            let report: Value = serde_json::from_str(json).context("a report that is no JSON")?;
            let lane = report["lane"].as_u64().and_then(|lane| u8::try_from(lane).ok());
            self.lane(heard.server, lane.context("a report of no lane")?).report = Some(report);
            return Ok(());
        }
        match words(line)[..] {
            ["progress", lane, done, least, there] => {
                let state = self.lane(heard.server, lane.parse()?);
                (state.done, state.least, state.there) = (done.parse()?, least.parse()?, there.parse()?);
                let least = self.lanes.values().map(|lane| lane.least.min(self.messages));
                self.bar.set_position(least.sum());
            }
            ["left", lane, _, done, ..] => {
                self.lane(heard.server, lane.parse()?).done_at_loss = Some(done.parse()?);
            }
            ["settled", lane] => self.lane(heard.server, lane.parse()?).is_settled = true,
            _ => {}
        }
        Ok(())
    }

    fn lane(&mut self, server: u32, lane: u8) -> &mut LaneState {
        self.lanes.entry((server, lane)).or_default()
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Whether something has been heard of every thread.
fn is_complete(lanes: &Lanes) -> bool {
    lanes.len() == usize::from(LANES) * SERVERS as usize
}

fn all(lanes: &Lanes, holds: impl Fn(&LaneState) -> bool) -> bool {
    is_complete(lanes) && lanes.values().all(holds)
}

/// How far all threads are, for an error.
fn describe(lanes: &Lanes) -> String {
    let one = |((server, lane), state): (&(u32, u8), &LaneState)| {
        let LaneState { done, least, there, is_settled, .. } = state;
        let quiet = if *is_settled { ", and is quiet" } else { "" };
        format!(
            "server {server} lane {lane} has done {done}, at least {least} for each of {there} peers{quiet}"
        )
    };
    match lanes.is_empty() {
        true => "nothing was heard of any server".to_owned(),
        false => lanes.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

fn is_enough(lanes: &Lanes, messages: u64) -> bool {
    all(lanes, |lane| lane.there == SERVERS - 1 && lane.least >= messages)
}

/// A bar on the terminal; nothing elsewhere.
fn bar(args: &Args) -> ProgressBar {
    let total = args.messages * u64::from(LANES) * u64::from(SERVERS);
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

//! All of it: both ends in one process, over the wire, and what must hold when it is over.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferroce::endpoint::{Listener, Options};
use ferroce::time::now;
use ferroce::{Context, PathPolicy};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Cli;
use crate::client::visit;
use crate::ledger::check;
use crate::race::Tally;
use crate::server::{Guests, serve_all};

/// The memory that each connection counts in.
pub(crate) const COUNT: &str = "count";

/// The first and only message of a connection that is made on the way, and the last one of all others.
pub(crate) const EXTRA: &[u8] = b"extra";
pub(crate) const LAST: &[u8] = b"last";

const PORT: u16 = 7471;

/// What all tasks share.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) seed: u64,
    pub(crate) rounds: usize,
    pub(crate) server: SocketAddr,
    /// Those of the end that connects.
    pub(crate) options: Options,
    pub(crate) sends: Tally,
    pub(crate) receives: Tally,
    pub(crate) connects: Tally,
    pub(crate) atomics: Tally,
    pub(crate) bar: ProgressBar,
}

/// What came out.
struct Outcome {
    /// Sends that were cancelled in flight, and arrived.
    arrived: u64,
    /// What all atomics add up to.
    sum: u64,
    /// Connects that were cancelled in flight, and that the server had accepted.
    given_up: u64,
    connections: usize,
    took: Duration,
}

pub(crate) fn run(cli: &Cli) -> anyhow::Result<()> {
    ensure!(cli.address.is_loopback(), "{} is no address of loopback", cli.address);
    let open = |ip: Ipv4Addr| {
        let context = Context::builder("ferroce_lo").address(ip).open();
        context.with_context(|| format!("cannot open a device at {ip}"))
    };
    let (theirs, ours) = (open(cli.address)?, open(Ipv4Addr::from_bits(cli.address.to_bits() + 1))?);
    let server = SocketAddr::from((cli.address, PORT));
    let listener = Arc::new(Listener::bind_with(server, &tight(&theirs))?);
    let story = Arc::new(Story {
        seed: cli.seed,
        rounds: cli.rounds as usize,
        server,
        options: tight(&ours),
        sends: Tally::default(),
        receives: Tally::default(),
        connects: Tally::default(),
        atomics: Tally::default(),
        bar: bar(cli),
    });
    let limit = Duration::from_secs(cli.limit);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let connections = cli.connections as usize;
    let told = runtime.block_on(async {
        let told = tokio::time::timeout(limit, tell(&story, &listener, connections)).await;
        told.with_context(|| format!("the time is over; so far: {story:?}"))?
    });
    story.bar.finish_and_clear();
    let outcome = told?;
    match cli.json {
        true => println!("{}", to_json(&story, &outcome)),
        false => print!("{}", to_text(&story, &outcome)?),
    }
    Ok(())
}

/// Little room for everything, so that calls have to wait, and packets between both ends.
fn tight(context: &Context) -> Options {
    Options::new()
        .context(context)
        .path(PathPolicy::Forbid)
        .backlog(512)
        .connect_timeout(Duration::from_secs(60))
        .name_timeout(Duration::from_secs(60))
        .eager(1024)
        .receive_depth(4)
        .send_depth(8)
        .signal_every(4)
        .max_message(1 << 20)
        .send_buffer(64 << 10)
        .read_ahead(64 << 10)
        .max_reads(1)
}

async fn tell(story: &Arc<Story>, listener: &Arc<Listener>, connections: usize) -> anyhow::Result<Outcome> {
    let begin = now();
    let mut serving = tokio::spawn(serve_all(Arc::clone(story), Arc::clone(listener)));
    let mut visits = JoinSet::new();
    for index in 0..connections {
        visits.spawn(visit(Arc::clone(story), index));
    }
    let mut all = Vec::new();
    while all.len() < connections {
        tokio::select! {
            Some(visit) = visits.join_next() => all.push(visit??),
            // A server that ends now has failed.
            ended = &mut serving => {
                ended??;
                anyhow::bail!("the server has ended too soon");
            }
        }
    }
    listener.close();
    let Guests { main, extra, given_up } = serving.await??;

    let (mut arrived, mut sum) = (0, 0);
    for (index, asked) in &all {
        let served = main.get(index).with_context(|| format!("the server has no connection {index}"))?;
        arrived += check(asked, served).with_context(|| format!("connection {index}"))?;
        sum += served.sum;
    }
    ensure!(main.len() == connections, "the server had {} connections of {connections}", main.len());
    let (made, in_flight) = (story.connects.finished(), story.connects.in_flight());
    ensure!(extra == made, "{made} further connections were made, and the server served {extra}");
    ensure!(
        given_up <= in_flight,
        "{given_up} connections were given up, but {in_flight} connects cancelled"
    );
    Ok(Outcome { arrived, sum, given_up, connections, took: now() - begin })
}

impl Story {
    fn kinds(&self) -> [(&'static str, &Tally); 4] {
        [
            ("sends", &self.sends),
            ("receives", &self.receives),
            ("connects", &self.connects),
            ("atomics", &self.atomics),
        ]
    }
}

fn to_json(story: &Story, outcome: &Outcome) -> Value {
    let kinds: Value =
        story.kinds().into_iter().map(|(name, tally)| (name.to_owned(), tally.to_json())).collect();
    let Outcome { arrived, sum, given_up, connections, took } = outcome;
    json!({
        "seed": story.seed,
        "rounds": story.rounds,
        "kinds": kinds,
        "cancelled_and_arrived": arrived,
        "sum_of_atomics": sum,
        "connections_given_up": given_up,
        "connections_that_work": connections,
        "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    })
}

fn to_text(story: &Story, outcome: &Outcome) -> anyhow::Result<String> {
    let mut text = String::from("call       finished  cancelled before  cancelled in flight\n");
    for (name, tally) in story.kinds() {
        let (finished, before, in_flight) = (tally.finished(), tally.before(), tally.in_flight());
        writeln!(text, "{name:<8} {finished:>10} {before:>17} {in_flight:>20}")?;
    }
    let Outcome { arrived, sum, given_up, connections, took } = outcome;
    let not = story.sends.in_flight() - arrived;
    writeln!(text, "sends cancelled in flight: {arrived} arrived whole, {not} not at all")?;
    let least = story.atomics.finished();
    let most = least + story.atomics.in_flight();
    writeln!(text, "atomics: they add up to {sum}, which lies between {least} and {most}")?;
    writeln!(text, "connects cancelled in flight: the server had accepted {given_up}, and let go of them")?;
    writeln!(
        text,
        "after {took:.1?}: no message lost, doubled or torn, and all {connections} connections still work"
    )?;
    Ok(text)
}

/// A bar on the terminal; nothing elsewhere.
fn bar(cli: &Cli) -> ProgressBar {
    let total = u64::from(cli.connections) * u64::from(cli.rounds);
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % of all rounds");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

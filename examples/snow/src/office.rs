//! The process that starts the server and the clients, kills one of them, and compares what all of them counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::time::{Time, now};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::children::{Children, Heard, Role};
use crate::counts::Counts;
use crate::settings::Settings;

/// The client that is killed. It would go on for ever.
const VICTIM: u32 = 0;

/// How many messages of it the server has when it is killed, at least.
const ENOUGH: u64 = 256;

const PORT: u16 = 7471;

/// Options of `ferroce-snow`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages of all clients that finish
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000_000))]
    messages: u32,
    /// Clients that finish; the first begins before another one is killed, the rest after that
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=10))]
    clients: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The address of the server; those of the clients follow it
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::new(127, 0, 121, 1))]
    address: Ipv4Addr,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.address.is_loopback(), "{} is no address of loopback", args.address);
    let begin = now();
    let mut office = Office {
        children: Children::new(),
        args,
        deadline: begin + Duration::from_secs(args.limit),
        seen: Seen::default(),
        bar: bar(args),
    };
    let mut server = vec!["server".to_owned(), format!("--address={}", office.server())];
    server.extend(args.settings.to_args());
    office.children.start(Role::Server, &server)?;
    office.wait("the server", |seen| seen.is_listening)?;

    let death = office.kill_one()?;
    for number in 2..=args.clients {
        office.start_client(number, share(args, number))?;
    }
    office.wait("the clients", |seen| seen.done.len() == args.clients as usize)?;
    office.wait("their ends", |seen| seen.closed.len() == args.clients as usize)?;
    office.children.tell(Role::Server, "stop")?;
    office.wait("the end of the server", |seen| seen.has_ended)?;
    office.bar.finish_and_clear();
    let seen = office.seen;
    let all = seen.compare(args)?;

    let took = now() - begin;
    if args.json {
        println!("{}", to_json(&seen, &all, &death, took));
    } else {
        print!("{}", to_text(&seen, &all, &death, took)?);
    }
    Ok(())
}

/// How many of the messages are a client's, counted from 1.
const fn share(args: &Args, number: u32) -> u32 {
    let (each, rest) = (args.messages / args.clients, args.messages % args.clients);
    if number <= rest { each + 1 } else { each }
}

/// How the server heard of a client that was killed.
struct Death {
    /// What the server had of it.
    counts: Counts,
    why: String,
    noticed: Duration,
}

/// What was heard so far.
#[derive(Debug, Default)]
struct Seen {
    is_listening: bool,
    /// Messages that the server has of each client.
    received: BTreeMap<u32, u64>,
    /// What a client counted, and what the server counted of it.
    done: BTreeMap<u32, Counts>,
    closed: BTreeMap<u32, Counts>,
    lost: Option<(Counts, String, Time)>,
    report: Option<Value>,
    has_ended: bool,
    /// A client was killed, and may end as it did.
    has_killed: bool,
}

struct Office<'a> {
    children: Children,
    args: &'a Args,
    deadline: Time,
    seen: Seen,
    bar: ProgressBar,
}

impl Office<'_> {
    fn server(&self) -> SocketAddr {
        (self.args.address, PORT).into()
    }

    fn start_client(&mut self, number: u32, messages: u32) -> anyhow::Result<()> {
        let address = Ipv4Addr::from_bits(self.args.address.to_bits() + 1 + number);
        let mut args = vec![
            "client".to_owned(),
            format!("--to={}", self.server()),
            format!("--address={address}"),
            format!("--number={number}"),
            format!("--messages={messages}"),
        ];
        args.extend(self.args.settings.to_args());
        self.children.start(Role::Client(number), &args)
    }

    /// Kills a client in the middle of its work, while another one works; how the server heard of it.
    fn kill_one(&mut self) -> anyhow::Result<Death> {
        self.start_client(VICTIM, u32::MAX)?;
        self.start_client(1, share(self.args, 1))?;
        self.wait("work of the client that is to die", |seen| {
            seen.received.get(&VICTIM).is_some_and(|messages| *messages >= ENOUGH)
        })?;
        self.seen.has_killed = true;
        let killed = self.children.kill(Role::Client(VICTIM))?;
        self.wait("news of the death", |seen| seen.lost.is_some())?;
        let (counts, why, heard) = self.seen.lost.clone().context("no news of the death")?;
        Ok(Death { counts, why, noticed: heard - killed })
    }

    /// Hears what processes say until a condition holds.
    fn wait(&mut self, what: &str, holds: impl Fn(&Seen) -> bool) -> anyhow::Result<()> {
        self.bar.set_message(what.to_owned());
        while !holds(&self.seen) {
            let heard = self.children.hear(self.deadline);
            let heard = heard.with_context(|| {
                let seen = &self.seen;
                format!("the time is over; still waiting for {what}; seen so far: {seen:?}")
            })?;
            self.note(&heard).with_context(|| format!("while waiting for {what}"))?;
        }
        Ok(())
    }

    fn note(&mut self, Heard { role, line, at }: &Heard) -> anyhow::Result<()> {
        let (role, seen) = (*role, &mut self.seen);
        let Some(line) = line else {
            if role == Role::Client(VICTIM) && seen.has_killed {
                return Ok(());
            }
            let status = self.children.end(role)?;
            ensure!(status.success(), "the {role:?} ended with {status}");
            if role == Role::Server {
                ensure!(seen.report.is_some(), "the server ended too soon");
                seen.has_ended = true;
            }
            return Ok(());
        };
        match (role, line.split(' ').collect::<Vec<_>>().as_slice()) {
            (Role::Server, ["listening", _]) => seen.is_listening = true,
            (Role::Server, ["progress", client, messages]) => {
                seen.received.insert(client.parse()?, messages.parse()?);
                let all = seen.received.iter().filter(|(client, _)| **client != VICTIM);
                self.bar.set_position(all.map(|(_, messages)| *messages).sum());
            }
            (Role::Server, ["closed", client, counts]) => {
                seen.closed.insert(client.parse()?, counts_of(counts)?);
            }
            (Role::Server, ["lost", client, counts, why @ ..]) => {
                ensure!(*client == VICTIM.to_string() && seen.has_killed, "the server said: {line}");
                ensure!(seen.lost.is_none(), "the server lost one client twice: {line}");
                seen.lost = Some((counts_of(counts)?, why.join(" "), *at));
            }
            (Role::Server, ["report", report]) => seen.report = Some(serde_json::from_str(report)?),
            (Role::Server, ["error" | "refused", ..]) => bail!("the server said: {line}"),
            (Role::Client(number), ["done", counts]) => {
                seen.done.insert(number, counts_of(counts)?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn counts_of(text: &str) -> anyhow::Result<Counts> {
    Counts::from_json(&serde_json::from_str(text)?)
}

impl Seen {
    /// What all clients that finished counted, if the server counted the same.
    fn compare(&self, args: &Args) -> anyhow::Result<Counts> {
        let mut all = Counts::default();
        for (number, client) in &self.done {
            let server = self.closed.get(number).with_context(|| format!("client {number} never ended"))?;
            ensure!(client == server, "client {number} counted {client:?}, and the server {server:?}");
            let share = u64::from(share(args, *number));
            ensure!(client.messages == share, "client {number} has sent {} of {share}", client.messages);
            all.add(client);
        }
        let report = self.report.as_ref().context("no report of the server")?;
        ensure!(report["accepted"] == args.clients + 1, "the server has accepted others: {report}");
        Ok(all)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn to_json(seen: &Seen, all: &Counts, death: &Death, took: Duration) -> Value {
    let clients: Vec<Value> = seen
        .done
        .iter()
        .map(|(number, counts)| json!({"client": number, "counts": counts.to_json()}))
        .collect();
    json!({
        "counts": all.to_json(),
        "clients": clients,
        "killed": {
            "client": VICTIM,
            "counts": death.counts.to_json(),
            "why": death.why,
            "noticed_ms": millis(death.noticed),
        },
        "milliseconds": millis(took),
        "same_on_both_sides": true,
    })
}

fn to_text(seen: &Seen, all: &Counts, death: &Death, took: Duration) -> anyhow::Result<String> {
    let mut text = String::from("client      messages   megabytes   answers    writes     reads\n");
    let mut row = |name: &str, counts: &Counts| {
        let Counts { messages, bytes, answers, writes, reads, .. } = counts;
        let megabytes = bytes / 1_000_000;
        writeln!(text, "{name:<10} {messages:>9} {megabytes:>11} {answers:>9} {writes:>9} {reads:>9}")
    };
    row(&format!("{VICTIM} (killed)"), &death.counts)?;
    for (number, counts) in &seen.done {
        row(&number.to_string(), counts)?;
    }
    row("finished", all)?;
    writeln!(
        text,
        "client {VICTIM} was killed: the server heard of it after {:.1?} ({}), and went on",
        death.noticed, death.why
    )?;
    writeln!(text, "after {took:.1?}: every byte right in both directions, and both sides counted the same")?;
    Ok(text)
}

/// A bar on the terminal; nothing elsewhere.
fn bar(args: &Args) -> ProgressBar {
    let total = Some(args.messages.into());
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

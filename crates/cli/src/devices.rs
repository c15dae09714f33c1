//! `ferroce devices`: which network cards there are, and how to open more.

use std::env;
use std::io::{self, Write};

use anyhow::Context as _;
use ferroce::{Card, CardInfo, Chain, DeviceInfo, Gid, Provider, ProviderReason};
use ferroce_device::discovery;
use ferroce_device::{Limits, memory};
use serde_json::{Value, json};

use crate::output::Style;

/// List the network cards that programs may open
///
/// RDMA exposes memory to any program that can send a packet, so only the loopback interface is a device
/// until you name others in the environment variable FERROCE_NETDEV. The interfaces that are still
/// closed are listed too, and the cards that the machine's libibverbs knows.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Also the limits: how much of everything a device has
    #[arg(short, long)]
    verbose: bool,

    /// One JSON object: "devices", "cards" and "closed" are lists, "limits" says how much there is
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce devices
  FERROCE_NETDEV=eth0 ferroce devices -v
          With this interface opened (and the loopback interface closed).
  FERROCE_NETDEV=lo,eth0 PROGRAM
          Opens both to a program.
  ferroce devices --json | jq -r '.devices[].name'";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let all = discovery::interfaces().context("the operating system did not list its interfaces")?;
    let open = ferroce::devices()?;
    let closed: Vec<&DeviceInfo> = all.iter().filter(|info| !open.contains(info)).collect();
    let cards = Cards::of_this_machine();
    let mut out = io::stdout().lock();
    if args.json {
        let report = json!({
            "devices": open.iter().map(to_json).collect::<Vec<_>>(),
            "cards": cards.to_json(),
            "no_cards_because": cards.why,
            "provider": cards.choice,
            "closed": closed.iter().map(|info| to_json(info)).collect::<Vec<_>>(),
            "limits": limits().into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into()))
                .collect::<serde_json::Map<_, _>>(),
        });
        writeln!(out, "{report:#}")?;
    } else {
        print(&mut out, &open, &closed, &cards, args.verbose)?;
    }
    Ok(out.flush()?)
}

fn print(
    out: &mut impl Write,
    open: &[DeviceInfo],
    closed: &[&DeviceInfo],
    cards: &Cards,
    verbose: bool,
) -> io::Result<()> {
    for info in open {
        print_device(out, info)?;
    }
    cards.print(out, verbose)?;
    if verbose {
        writeln!(out, "{}", Style::Title.of("limits of each device"))?;
        for (name, value) in limits() {
            writeln!(out, "  {name:28} {value}")?;
        }
    }
    for info in closed {
        let addresses: Vec<String> = info.addresses.iter().map(ToString::to_string).collect();
        let line = format!("{:20} closed; {}", info.name, addresses.join(" "));
        writeln!(out, "{}", Style::Faint.of(line))?;
    }
    let set = env::var("FERROCE_NETDEV").unwrap_or_default();
    match (closed.first(), set.as_str()) {
        (None, "") => writeln!(out, "This machine has no other interface that could be a device."),
        (None, _) => Ok(()),
        (Some(first), "") => writeln!(
            out,
            "Closed interfaces expose no memory. To open one, name it in the environment:\n  \
             FERROCE_NETDEV={},{} PROGRAM",
            open.first().map_or("lo", |info| info.interface.as_str()),
            first.interface
        ),
        (Some(first), set) => {
            writeln!(out, "FERROCE_NETDEV is {set}; add {} to open it too.", first.interface)
        }
    }
}

fn print_device(out: &mut impl Write, info: &DeviceInfo) -> io::Result<()> {
    writeln!(out, "{}", Style::Title.of(&info.name))?;
    let state = if info.up { "active" } else { "down" };
    let kind = if info.loopback { ", reaches only this machine" } else { "" };
    writeln!(out, "  interface  {} (MTU {}){kind}", info.interface, info.mtu)?;
    writeln!(out, "  port 1     {state}, RoCEv2 over UDP port 4791, path MTU {}", info.active_mtu())?;
    writeln!(out, "  node GUID  {}", guid(info))?;
    for (index, address) in info.addresses.iter().enumerate() {
        writeln!(out, "  GID {index:<6} {} ({address})", Gid::from(*address))?;
    }
    if info.loopback {
        writeln!(out, "             and every other address of 127.0.0.0/8 that is asked for")?;
    }
    Ok(())
}

fn to_json(info: &DeviceInfo) -> Value {
    let gid = |address: &std::net::IpAddr| json!({ "gid": Gid::from(*address).to_string(), "address": address.to_string() });
    json!({
        "name": info.name,
        "provider": Provider::Soft.name(),
        "reason": ProviderReason::SoftName.to_string(),
        "driver": "ferroce",
        "interface": info.interface,
        "interface_mtu": info.mtu,
        "loopback": info.loopback,
        "port": 1,
        "state": if info.up { "active" } else { "down" },
        "active_mtu": info.active_mtu().bytes(),
        "node_guid": guid(info),
        "gids": info.addresses.iter().map(gid).collect::<Vec<_>>(),
    })
}

/// The cards of this machine, as far as they can be seen.
struct Cards {
    seen: Vec<Seen>,
    /// Why none are listed.
    why: Option<String>,
    /// What `FERROCE_PROVIDER` says.
    choice: String,
}

/// A card, and what it is like, or why that is not known.
struct Seen {
    card: Card,
    info: Result<CardInfo, String>,
}

impl Cards {
    fn of_this_machine() -> Self {
        let choice = env::var("FERROCE_PROVIDER").unwrap_or_default();
        let choice = if choice.is_empty() { "auto".to_owned() } else { choice };
        match ferroce::cards() {
            Ok(cards) => {
                let look = |card: Card| {
                    let info = card.info().map_err(|error| Chain::of(&error).to_string());
                    Seen { card, info }
                };
                let seen: Vec<Seen> = cards.into_iter().map(look).collect();
                let none = "libibverbs lists none: their drivers are not loaded, or there are none";
                let why = seen.is_empty().then(|| none.to_owned());
                Self { seen, why, choice }
            }
            Err(error) => Self { seen: Vec::new(), why: Some(Chain::of(&error).to_string()), choice },
        }
    }

    fn print(&self, out: &mut impl Write, verbose: bool) -> io::Result<()> {
        for seen in &self.seen {
            seen.print(out)?;
        }
        if self.choice != "auto" {
            writeln!(out, "FERROCE_PROVIDER is {}: programs get no other devices.", self.choice)?;
        }
        match &self.why {
            Some(why) if verbose => writeln!(out, "{}", Style::Faint.of(format!("No cards: {why}"))),
            _ => Ok(()),
        }
    }

    fn to_json(&self) -> Vec<Value> {
        self.seen.iter().map(Seen::to_json).collect()
    }
}

impl Seen {
    /// Why a program that opens it by its name gets it, or does not.
    fn reason(&self) -> String {
        if self.card.is_ours() {
            return "it is a soft device behind our drop-in library; FERROCE_PROVIDER=system makes it a card"
                .to_owned();
        }
        ProviderReason::CardName.to_string()
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", Style::Title.of(self.card.name()))?;
        let library = self.card.library().display();
        writeln!(out, "  card       {}, by {library}", self.card.file())?;
        writeln!(out, "  provider   {}: {}", Provider::System, self.reason())?;
        let info = match &self.info {
            Ok(info) => info,
            Err(why) => return writeln!(out, "  closed     {why}"),
        };
        let driver = info.driver.as_deref().unwrap_or("not told");
        writeln!(out, "  driver     {driver}, firmware {}", info.firmware)?;
        let state = if info.up { "active" } else { "down" };
        let link = if info.ethernet { "Ethernet (RoCE)" } else { "InfiniBand, which is not used" };
        let mtu = info.active_mtu.map_or_else(|| "not told".to_owned(), |mtu| mtu.to_string());
        writeln!(out, "  port 1     {state}, {link}, path MTU {mtu}")?;
        writeln!(out, "  node GUID  {}", as_guid(self.card.guid()))?;
        for (index, gid, is_roce_v2) in &info.gids {
            let kind = if *is_roce_v2 { "RoCEv2" } else { "not RoCEv2" };
            writeln!(out, "  GID {index:<6} {gid} ({}, {kind})", gid.ip())?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut told = json!({
            "name": self.card.name(),
            "provider": Provider::System.name(),
            "reason": self.reason(),
            "file": self.card.file(),
            "library": self.card.library().display().to_string(),
            "drop_in": self.card.is_ours(),
            "node_guid": as_guid(self.card.guid()),
            "port": 1,
        });
        let more = match &self.info {
            Err(why) => json!({ "closed": why }),
            Ok(info) => {
                let gid = |(index, gid, is_roce_v2): &(usize, Gid, bool)| {
                    json!({
                        "index": index,
                        "gid": gid.to_string(),
                        "address": gid.ip().to_string(),
                        "roce_v2": is_roce_v2,
                    })
                };
                json!({
                    "driver": info.driver,
                    "firmware": info.firmware,
                    "state": if info.up { "active" } else { "down" },
                    "link": if info.ethernet { "ethernet" } else { "infiniband" },
                    "active_mtu": info.active_mtu.map(ferroce::PathMtu::bytes),
                    "gids": info.gids.iter().map(gid).collect::<Vec<_>>(),
                })
            }
        };
        if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
            told.extend(more);
        }
        told
    }
}

fn guid(info: &DeviceInfo) -> String {
    as_guid(info.node_guid())
}

fn as_guid(number: u64) -> String {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}")
}

fn limits() -> Vec<(&'static str, u64)> {
    vec![
        ("queue pairs", Limits::QUEUE_PAIRS as u64),
        ("completion queues", Limits::COMPLETION_QUEUES as u64),
        ("shared receive queues", Limits::SHARED_QUEUES as u64),
        ("address handles", Limits::ADDRESS_HANDLES as u64),
        ("protection domains", Limits::DOMAINS as u64),
        ("memory regions", memory::MAX_REGIONS as u64),
        ("requests of a queue", Limits::QUEUE_DEPTH.into()),
        ("pieces of a request", Limits::SGE.into()),
        ("inline bytes of a request", Limits::INLINE.into()),
        ("completions of a queue", Limits::COMPLETIONS.into()),
        ("reads and atomics under way", Limits::READ_DEPTH.into()),
    ]
}

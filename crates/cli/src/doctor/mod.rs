//! `ferroce doctor`: what is wrong with RDMA on this machine, and what to do about it.
//!
//! A check is a function from [`Facts`] to findings, and one line in the table below. It touches nothing, and asks for
//! nothing that the facts do not have.

mod card;
mod devices;
mod facts;
mod finding;
mod firewall;
mod gids;
mod libraries;
mod links;
mod live;
mod lossless;
mod memlock;
mod mtu;
mod permissions;
#[cfg(test)]
mod planted;
mod port;
mod rdma;
mod report;
mod rp_filter;
mod switchboard;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;

use self::facts::Facts;
use self::finding::Finding;
use self::live::{Elsewhere, Machine};

/// Say what is wrong with RDMA on this machine, and what to do about it
///
/// Looks at Ferroce's own card and at the RDMA devices of the kernel: real cards, and soft-RoCE. For each finding it
/// says what was seen, and where something is wrong, a remedy that can be pasted into a shell. It changes nothing.
/// What cannot be read is said to be not known, and never guessed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Only these checks, with commas between them; `--list` names them
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names(), hide_possible_values = true)]
    only: Vec<String>,

    /// Say what each check looks at, and why it matters; check nothing
    #[arg(long)]
    list: bool,

    /// Also say what was seen where all is well
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,

    /// One JSON object: "findings" is a list, "summary" counts them by level (docs/doctor.md)
    #[arg(long)]
    json: bool,

    /// Read /sys, /proc, /dev, /etc and /lib below this folder, such as copies of those of another machine; nothing
    /// that is not a file is asked then
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

const AFTER_LONG_HELP: &str = "\
Levels:
  ok         as it should be
  note       nothing is wrong; worth knowing
  not known  it could not be read, often because only root may
  warning    it works, but not for all or not well
  fault      it does not work

Examples:
  ferroce doctor
  sudo ferroce doctor
          With what only root may read, such as the rules of a firewall.
  ferroce doctor --list --only memlock,gids
          What these two look at.
  ferroce doctor --json | jq -r '.findings[] | select(.level == \"fault\") | .check'
  ulimit -l 64; ferroce doctor --only memlock
          As a program started from this shell would find it.

Exit codes:
  0  no faults
  1  faults; one line on standard error counts them
  2  the command line is wrong";

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Ferroce's own card, which every machine can have.
    Own,
    /// The RDMA devices of the kernel.
    Kernel,
}

impl Group {
    const ALL: [Self; 2] = [Self::Own, Self::Kernel];

    const fn title(self) -> &'static str {
        match self {
            Self::Own => "Ferroce's own card, and the network under it",
            Self::Kernel => "RDMA devices of the kernel: real cards, and soft-RoCE",
        }
    }
}

/// A check.
struct Check {
    name: &'static str,
    group: Group,
    /// Whether it has nothing to look at where the kernel has no RDMA device.
    needs_device: bool,
    run: fn(&Facts) -> Vec<Finding>,
    /// What it looks at, and why.
    teaches: &'static str,
}

/// Writes down each check once.
macro_rules! checks {
    ($($group:ident $name:literal ($needs_device:literal) $run:path: $teaches:literal;)*) => {
        const CHECKS: &[Check] = &[$(Check {
            name: $name,
            group: Group::$group,
            needs_device: $needs_device,
            run: $run,
            teaches: $teaches,
        },)*];
    };
}

checks! {
    Own "card" (false) card::card:
        "Whether the interfaces that FERROCE_NETDEV names (the loopback interface, if it names none) are there, on, \
         and have an address. Each of them is a card of Ferroce.";
    Own "port-4791" (false) port::check:
        "Which programs have UDP port 4791, by /proc/net/udp. A card of Ferroce needs it; the kernel's soft-RoCE and \
         other programs may have it.";
    Own "switchboard" (false) switchboard::check:
        "Whether the process that leads each group of processes on one address answers. One that is stopped keeps \
         newcomers out.";
    Own "descriptors" (false) card::descriptors:
        "How many files a process may open, by /proc/self/limits. A card takes a socket for each process that could \
         share its address.";
    Own "firewall" (false) firewall::check:
        "Whether packets to UDP port 4791 pass: one is sent on loopback, and the rules of nftables and iptables are \
         followed for each interface. They concern Ferroce's card and soft-RoCE; cards carry RDMA past them.";
    Own "rp-filter" (false) rp_filter::check:
        "Whether two interfaces are in one subnet. The kernel answers by one of them; with rp_filter=1 it drops what \
         comes by the other one, and with arp_ignore=0 each answers for both.";
    Kernel "devices" (false) devices::devices:
        "Which RDMA devices there are, by /sys/class/infiniband, and which cards could be one and are not.";
    Kernel "modules" (false) devices::modules:
        "Whether ib_uverbs and rdma_ucm are loaded. Without the first no program can open a device, without the \
         second none can connect by address.";
    Kernel "links" (true) links::check:
        "Whether the ports of devices are active, and if not, whether their interface is off or has no link.";
    Kernel "gids" (true) gids::check:
        "Whether each port has a RoCEv2 GID made from an IP address. Programs name it by its index (-x of perftest); \
         RoCEv1 crosses no router, and a link-local GID none either.";
    Kernel "mtu" (true) mtu::check:
        "Which path MTU the interfaces of ports have room for, and whether interfaces that belong together are alike. \
         Both ends and all switches must carry it: this sees one end only.";
    Kernel "permissions" (true) permissions::check:
        "Whether this user, and others, may open /dev/infiniband/uverbs* and /dev/infiniband/rdma_cm. They are opened \
         for a moment.";
    Kernel "memlock" (false) memlock::check:
        "How much memory a process may lock, by /proc/self/limits. Memory that a card reads and writes is locked; \
         registering more than that fails with 'cannot allocate memory'.";
    Kernel "libraries" (false) libraries::check:
        "Whether libibverbs and librdmacm are installed, with the provider of each device. Nothing is loaded.";
    Kernel "lossless" (true) lossless::check:
        "Whether cards have priority flow control (PFC) and congestion control (ECN), as far as files and the program \
         dcb tell. Switches must be set alike. Software needs neither.";
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CHECKS.iter().map(|check| check.name))
}

/// What a check has said; nothing if it had nothing to look at.
struct Said {
    check: &'static Check,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let chosen = || {
        CHECKS.iter().filter(|check| args.only.is_empty() || args.only.iter().any(|name| name == check.name))
    };
    let mut out = io::stdout().lock();
    if args.list {
        let text = if args.json { report::list_json(chosen()) } else { report::list(chosen()) };
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    }
    let facts = match &args.root {
        None => Facts::new("/", Box::new(Machine)),
        Some(root) if root.is_dir() => Facts::new(root, Box::new(Elsewhere)),
        Some(root) => crate::usage("doctor", &anyhow!("--root {}: there is no such folder", root.display())),
    };
    let all = examine(&facts, chosen());
    let text = match args.json {
        true => report::json(&facts, &all),
        false => report::text(&facts, &all, args.verbose),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    report::faults(&all).map_or(Ok(()), |line| Err(anyhow!(line)))
}

fn examine(facts: &Facts, checks: impl Iterator<Item = &'static Check>) -> Vec<Said> {
    let has_devices = !facts.devices().is_empty();
    checks
        .map(|check| {
            let has_object = has_devices || !check.needs_device;
            Said { check, findings: if has_object { (check.run)(facts) } else { Vec::new() } }
        })
        .collect()
}

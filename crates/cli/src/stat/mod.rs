//! `ferroce stat`: what the queue pairs of this user's processes do, live.

mod http;
mod json;
mod ledger;
mod prometheus;
mod rates;
mod table;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, bail};
use ferroce_device::switchboard::{ProcessStats, SwitchError, stats};
use ferroce_device::{now, until, wait_readable};
use serde_json::json;

use self::ledger::Ledger;

/// Show live rates, errors and queues of all queue pairs of your processes
///
/// Each process of your user that has a device open is asked twice, and the difference is shown per second:
/// also programs under `ferroce run`. They count these things anyway, so looking costs them next to nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
#[command(group = clap::ArgGroup::new("exposition").args(["prometheus", "listen"]))]
pub(crate) struct Args {
    /// Only these processes; all of this user if none is given
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Two looks and an end, instead of going on: the same as `--count 1`
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Ends after so many tables, instead of going on
    #[arg(long, value_name = "N", value_parser = parse_count)]
    count: Option<NonZeroU32>,

    /// Seconds between two looks, 0.1 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    /// Shows how full queues are, and were at most, instead of rates
    #[arg(long, conflicts_with = "json")]
    queues: bool,

    /// JSON: one object for each pair of looks, in a line of its own
    #[arg(long)]
    json: bool,

    /// One look, in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "queues", "once", "count", "interval", "listen"])]
    prometheus: bool,

    /// Serves the same at http://ADDR:PORT/metrics until Ctrl-C, a look for each request; port 0 is any free
    /// one
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_LISTEN,
        value_parser = parse_listen,
        conflicts_with_all = ["json", "queues", "once", "count", "interval"],
    )]
    listen: Option<SocketAddr>,

    /// Lets --listen take an address that other machines reach: all of them may then read the figures, as
    /// there is no password and no encryption
    #[arg(long, requires = "listen")]
    allow_remote: bool,

    /// Leaves single queue pairs and queues out of the text for Prometheus: what is left does not grow with
    /// their number
    #[arg(long, requires = "exposition")]
    totals: bool,
}

/// Where `--listen` listens if nothing else is said.
const DEFAULT_LISTEN: &str = "127.0.0.1:9791";

const AFTER_LONG_HELP: &str = "\
What the columns say, all but the first five per second:
  QP      its number; the top byte is the slot of its engine (`ferroce switchboard`)
  TY      its service: RC, UC or UD
  STATE   RESET, INIT, RTR, RTS, SQD, SQE or ERR
  PATH    local (its peer is in the same process) or wire (packets over UDP)
  PEER    the queue pair that it is connected to, and where
  POST    sends posted
  DONE    sends done and receives completed, also those of a shared receive queue
  PKTS    packets sent and received; of the local path, messages
  RETX    packets sent again
  RNR     times that one side had no receive posted
  ERR     requests refused, messages dropped, time-outs, and work that did not end well

With --queues, one line for each queue: what it holds now, the most that it held so far, and what it has
room for. A send or receive holds its place until the program has taken its completion off.
  SQ RQ   send queue and receive queue of a queue pair
  CQ      completion queue; of several engines, each has room for as many; overrun: completions were lost
  SRQ     shared receive queue

On a terminal the most active 20 queue pairs of each process are shown again and again until Ctrl-C; a pipe gets all of
them as plain lines. A queue pair that the first look did not see has no rates yet (-). An engine that does not answer
within 50 milliseconds is called busy, and its queue pairs are not seen.

Examples:
  ferroce stat
  ferroce stat --interval 5 --count 12 4711
  ferroce stat --queues --once
  ferroce stat --json --interval 5 | jq '.processes[].queue_pairs[] | {qpn, done_per_s}'
  ferroce stat --listen --totals";

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 1 or 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.1 and 3600 seconds are possible".to_owned())
    }
}

fn parse_count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "a number of tables, 1 or more".to_owned())
}

/// An address and a port, or a port of the loopback address.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let known = text.parse().or_else(|_| text.parse().map(port));
    known.map_err(|_| "an address and a port such as 127.0.0.1:9791 or [::1]:9791, or a port".to_owned())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(address) = args.listen {
        check_reach(address.ip(), args.allow_remote)?;
    }
    for pid in &args.pids {
        check_process(*pid)?;
    }
    if let Some(address) = args.listen {
        return http::serve(address, args);
    }
    if args.prometheus {
        return print_exposition(args);
    }
    let mut before = look(&args.pids)?;
    if before.all.is_empty() && before.silent.is_empty() {
        if let Some(pid) = args.pids.first() {
            bail!("process {pid} has no device open");
        }
        let mut out = io::stdout().lock();
        if args.json {
            writeln!(out, "{}", json!({ "processes": [] }))?;
        } else {
            writeln!(out, "No process of this user has a device open here.")?;
        }
        return Ok(());
    }
    let mut left = args.count.map_or(u32::from(args.once), NonZeroU32::get);
    let is_endless = left == 0;
    loop {
        pause(args.interval)?;
        let mut after = look(&args.pids)?;
        show(args, &before, &after, is_endless)?;
        left = left.saturating_sub(1);
        if (left == 0 && !is_endless) || after.all.is_empty() {
            let silent = after.silent.drain(..).next();
            return silent.map_or(Ok(()), |(_, error)| Err(error.into()));
        }
        before = after;
    }
}

/// The text for Prometheus, once.
fn print_exposition(args: &Args) -> anyhow::Result<()> {
    let look = look(&args.pids)?;
    if look.all.is_empty()
        && look.silent.is_empty()
        && let Some(pid) = args.pids.first()
    {
        bail!("process {pid} has no device open");
    }
    let mut ledger = Ledger::default();
    ledger.enter(&look);
    let mut out = io::stdout().lock();
    out.write_all(prometheus::text(&ledger, &look, args.totals).as_bytes())?;
    out.flush()?;
    let silent = look.silent.into_iter().next();
    silent.map_or(Ok(()), |(_, error)| Err(error.into()))
}

/// Figures are shown to other machines only if the user says so.
fn check_reach(address: IpAddr, allow_remote: bool) -> anyhow::Result<()> {
    if !address.is_loopback() && !allow_remote {
        bail!(
            "{address} can be reached from other machines, and all of them could read the figures; say --allow-remote \
             if that is wanted, or listen at 127.0.0.1 or [::1]"
        );
    }
    Ok(())
}

/// A process that may be asked: there is one, and it is of this user.
pub(crate) fn check_process(pid: u32) -> anyhow::Result<()> {
    let owner = |path: &str| std::fs::metadata(path).map(|process| process.uid());
    let ours = owner("/proc/self").context("/proc tells nothing of this process")?;
    match owner(&format!("/proc/{pid}")) {
        Ok(uid) if uid != ours => bail!(
            "process {pid} belongs to another user (uid {uid}); only those of your own user (uid {ours}) tell you"
        ),
        Ok(_) => Ok(()),
        Err(_) => bail!("there is no process {pid}"),
    }
}

/// What was seen in one look.
struct Look {
    all: Vec<ProcessStats>,
    /// The processes that did not answer, and why.
    silent: Vec<(u32, SwitchError)>,
}

fn look(pids: &[u32]) -> anyhow::Result<Look> {
    let mut look = Look { all: Vec::new(), silent: Vec::new() };
    for told in stats(pids)? {
        match told {
            Ok(process) => look.all.push(process),
            // One that cannot be asked does not hide the others.
            Err(silent) => look.silent.push(silent),
        }
    }
    Ok(look)
}

/// Lets time pass.
fn pause(time: Duration) -> anyhow::Result<()> {
    let (quiet, _open) = io::pipe().context("no pipe")?;
    let end = now() + time;
    while until(end) > Duration::ZERO {
        wait_readable(quiet.as_fd(), Some(until(end))).context("waiting")?;
    }
    Ok(())
}

fn show(args: &Args, before: &Look, after: &Look, is_endless: bool) -> anyhow::Result<()> {
    let text = if args.json {
        json::line(before, after)
    } else {
        table::text(before, after, is_endless, args.queues)?
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "3601", "nan", ""] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_to_listen_is_an_address_and_a_port_or_a_port() {
        let here = |port: u16| Ok(SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(parse_listen("9000"), here(9000));
        assert_eq!(parse_listen(DEFAULT_LISTEN), here(9791));
        assert_eq!(parse_listen("[::1]:1"), Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1))));
        for wrong in ["", "65536", "127.0.0.1", "localhost:80", "::1", "-1"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_machines_read_only_what_they_are_meant_to() {
        for local in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(check_reach(local.parse().unwrap(), false).is_ok());
        }
        for other in ["0.0.0.0", "::", "192.0.2.1", "::ffff:127.0.0.1"] {
            assert!(check_reach(other.parse().unwrap(), false).is_err(), "{other}");
            assert!(check_reach(other.parse().unwrap(), true).is_ok());
        }
    }
}

//! `ferroce stat`: what the queue pairs of this user's processes do, live.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, bail};
use ferroce_device::switchboard::{Group, ProcessStats, QpStats, Refusals, SwitchError, stats};
use ferroce_device::{Path, now, until, wait_readable};
use ferroce_wire::Qpn;
use serde_json::{Value, json};

use crate::output::Style;

/// Show live rates and errors of all queue pairs of your processes
///
/// Each process of your user that has a device open is asked twice, and the difference is shown per second:
/// also programs under `ferroce run`. They count these things anyway, so looking costs them next to nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Only these processes; all of this user if none is given
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Two looks and an end, instead of going on
    #[arg(long)]
    once: bool,

    /// Seconds between two looks, 0.1 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    /// JSON: one object for each pair of looks, in a line of its own
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
What the columns say, all but the first five per second:
  QP      its number; the top byte is the slot of its engine (`ferroce switchboard`)
  TY      its service: RC, UC or UD
  STATE   RESET, INIT, RTR, RTS, SQD, SQE or ERR
  PATH    local (its peer is in the same process) or wire (packets over UDP)
  PEER    the queue pair that it is connected to, and where
  POST    sends posted
  DONE    sends done and receives taken; those of a shared receive queue are not counted
  PKTS    packets sent and received; of the local path, messages
  RETX    packets sent again
  RNR     times that one side had no receive posted
  ERR     requests refused, messages dropped, and time-outs

On a terminal the most active 20 queue pairs of each process are shown again and again until Ctrl-C; a pipe gets all of
them as plain lines. A queue pair that the first look did not see has no rates yet (-). An engine that works without any
pause for some milliseconds is called busy, and its queue pairs are not seen.

Examples:
  ferroce stat
  ferroce stat --once 4711
  ferroce stat --json --interval 5 | jq '.processes[].queue_pairs[] | {qpn, done_per_s}'";

/// Queue pairs of a process that a terminal shows.
const SHOWN: usize = 20;

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 1 or 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.1 and 3600 seconds are possible".to_owned())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for pid in &args.pids {
        check_process(*pid)?;
    }
    let mut before = look(args)?;
    if before.all.is_empty() && before.silent.is_none() {
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
    loop {
        pause(args.interval)?;
        let after = look(args)?;
        show(args, &before, &after)?;
        let is_over = after.all.is_empty();
        if args.once || is_over {
            return after.silent.map_or(Ok(()), |error| Err(error.into()));
        }
        before = after;
    }
}

/// A process that may be asked: there is one, and it is of this user.
fn check_process(pid: u32) -> anyhow::Result<()> {
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
    /// The first process that did not answer.
    silent: Option<SwitchError>,
}

fn look(args: &Args) -> anyhow::Result<Look> {
    let mut look = Look { all: Vec::new(), silent: None };
    for told in stats(&args.pids)? {
        match told {
            Ok(process) => look.all.push(process),
            // One that cannot be asked does not hide the others.
            Err((_, error)) => look.silent = look.silent.or(Some(error)),
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

/// A queue pair between two looks.
struct Row<'a> {
    now: &'a QpStats,
    /// `None` if the first look did not see it.
    rates: Option<Rates>,
}

/// What happened in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    posted: f64,
    sends_done: f64,
    receives_done: f64,
    packets_sent: f64,
    packets_received: f64,
    direct: f64,
    retransmitted: f64,
    rnr_received: f64,
    rnr_sent: f64,
    timeouts: f64,
    errors: f64,
    waits: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "nobody counts that far between two looks")]
    fn between(before: &QpStats, now: &QpStats, seconds: f64) -> Self {
        let short = |before: u32, now: u32| f64::from(now.wrapping_sub(before)) / seconds;
        // A queue pair that was made anew under the same number has counted from nothing.
        let long = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Self {
            posted: short(before.sends_posted, now.sends_posted),
            sends_done: short(before.sends_done, now.sends_done),
            receives_done: short(before.receives_done, now.receives_done),
            packets_sent: long(before.packets_sent, now.packets_sent),
            packets_received: long(before.packets_received, now.packets_received),
            direct: long(before.direct, now.direct),
            retransmitted: long(before.retransmitted, now.retransmitted),
            rnr_received: long(before.rnr_received, now.rnr_received),
            rnr_sent: long(before.rnr_sent, now.rnr_sent),
            timeouts: long(before.timeouts, now.timeouts),
            errors: long(before.errors, now.errors),
            waits: long(before.waits, now.waits),
        }
    }

    const fn done(&self) -> f64 {
        self.sends_done + self.receives_done
    }

    const fn packets(&self) -> f64 {
        self.packets_sent + self.packets_received + self.direct
    }
}

/// The queue pairs of a process, the most active first. One that was not there before has no rates yet.
fn rows<'a>(before: &Look, now: &'a ProcessStats) -> (f64, Vec<Row<'a>>) {
    let is_same = |other: &&ProcessStats| (other.pid, &other.group) == (now.pid, &now.group);
    let before = before.all.iter().find(is_same);
    let seconds = before.map_or(0.0, |before| now.time.since(before.time).as_secs_f64());
    let known: HashMap<Qpn, &QpStats> =
        before.iter().flat_map(|before| before.rows.iter().map(|row| (row.qpn, row))).collect();
    let row = |row: &'a QpStats| {
        let before = known.get(&row.qpn).filter(|_| seconds > 0.0);
        Row { now: row, rates: before.map(|before| Rates::between(before, row, seconds)) }
    };
    let mut rows: Vec<Row<'_>> = now.rows.iter().map(row).collect();
    rows.sort_by(|one, other| {
        let active =
            |row: &Row<'_>| row.rates.map_or(0.0, |rates| rates.done() + rates.packets() + rates.posted);
        active(other).total_cmp(&active(one)).then(one.now.qpn.cmp(&other.now.qpn))
    });
    (seconds, rows)
}

fn show(args: &Args, before: &Look, after: &Look) -> anyhow::Result<()> {
    let mut text = String::new();
    if args.json {
        let all: Vec<Value> = after.all.iter().map(|process| to_json(before, process)).collect();
        writeln!(text, "{}", json!({ "processes": all }))?;
    } else {
        let redraws = !args.once && io::stdout().is_terminal();
        if redraws {
            text.push_str("\x1b[H\x1b[J");
        }
        if after.all.is_empty() {
            text.push_str("No process of this user has a device open here any more.\n");
        }
        let most = if redraws { SHOWN } else { usize::MAX };
        for process in &after.all {
            print(&mut text, before, process, most)?;
        }
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn print(text: &mut String, before: &Look, process: &ProcessStats, most: usize) -> anyhow::Result<()> {
    let ProcessStats { pid, program, group, busy, engines, queue_pairs, refused, .. } = process;
    let (_, rows) = rows(before, process);
    let plural = if *queue_pairs == 1 { "" } else { "s" };
    let title = format!("process {pid} ({program}) on {group}: {queue_pairs} queue pair{plural}");
    writeln!(text, "{}", Style::Title.of(title))?;
    if *busy > 0 {
        writeln!(text, "  busy: {busy} of {engines} engines worked without a pause, and told nothing")?;
    }
    if *refused != Refusals::default() {
        writeln!(text, "  refused: {refused}")?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "{}", Style::Faint.of(HEAD))?;
    for Row { now, rates } in rows.iter().take(most) {
        let path = now.path.map_or("-", path_name);
        let [posted, done, packets, again, rnr, faults] = rates.map_or([const { None }; 6], |rates| {
            let rnr = rates.rnr_received + rates.rnr_sent;
            let faults = rates.errors + rates.timeouts;
            [rates.posted, rates.done(), rates.packets(), rates.retransmitted, rnr, faults].map(Some)
        });
        let short = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
        write!(text, "{} {:2} {:5} {path:5} ", now.qpn, now.service.name(), now.state)?;
        write!(text, "{:18} {:>6} {:>6} ", peer(now.peer), short(posted), short(done))?;
        write!(text, "{:>6} {:>5} {:>4} ", short(packets), short(again), short(rnr))?;
        writeln!(text, "{:>4}", short(faults))?;
    }
    let told = process.rows.len();
    let hidden = (told.saturating_sub(most)) + (*queue_pairs as usize).saturating_sub(told);
    if hidden > 0 {
        writeln!(text, "  and {hidden} more")?;
    }
    Ok(())
}

const HEAD: &str = "QP       TY STATE PATH  PEER                 POST   DONE   PKTS  RETX  RNR  ERR";

const fn path_name(path: Path) -> &'static str {
    match path {
        Path::Local => "local",
        Path::Wire => "wire",
    }
}

/// Where a queue pair is connected to, in 18 columns.
fn peer(peer: Option<(Qpn, std::net::IpAddr)>) -> String {
    let Some((qpn, address)) = peer else { return "-".to_owned() };
    let mut text = format!("{:06x}@{address}", qpn.get());
    if text.len() > 18 {
        text.truncate(17);
        text.push('~');
    }
    text
}

/// A rate in at most 5 columns: 0, 0.25, 17, 9999, 12.3k, 4.56M.
fn short(rate: f64) -> String {
    match rate {
        _ if rate < 0.005 => "0".to_owned(),
        _ if rate < 9.995 => format!("{rate:.2}"),
        _ if rate < 9999.5 => format!("{rate:.0}"),
        _ if rate < 99_950.0 => format!("{:.1}k", rate / 1e3),
        _ if rate < 999_500.0 => format!("{:.0}k", rate / 1e3),
        _ if rate < 9.995e6 => format!("{:.2}M", rate / 1e6),
        _ if rate < 99.95e6 => format!("{:.1}M", rate / 1e6),
        _ => format!("{:.0}M", rate / 1e6),
    }
}

fn to_json(before: &Look, process: &ProcessStats) -> Value {
    let (seconds, rows) = rows(before, process);
    let Group { interface, address } = &process.group;
    let row = |Row { now, rates }: &Row<'_>| {
        let rate = |of: fn(&Rates) -> f64| rates.as_ref().map(of);
        json!({
            "qpn": now.qpn.get(),
            "engine": now.engine,
            "type": now.service.name(),
            "state": now.state.name(),
            "path": now.path.map(path_name),
            "peer_qpn": now.peer.map(|(qpn, _)| qpn.get()),
            "peer": now.peer.map(|(_, address)| address.to_string()),
            "posted_per_s": rate(|rates| rates.posted),
            "done_per_s": rate(Rates::done),
            "sends_done_per_s": rate(|rates| rates.sends_done),
            "receives_done_per_s": rate(|rates| rates.receives_done),
            "packets_sent_per_s": rate(|rates| rates.packets_sent),
            "packets_received_per_s": rate(|rates| rates.packets_received),
            "direct_per_s": rate(|rates| rates.direct),
            "retransmitted_per_s": rate(|rates| rates.retransmitted),
            "rnr_received_per_s": rate(|rates| rates.rnr_received),
            "rnr_sent_per_s": rate(|rates| rates.rnr_sent),
            "timeouts_per_s": rate(|rates| rates.timeouts),
            "errors_per_s": rate(|rates| rates.errors),
            "waits_per_s": rate(|rates| rates.waits),
            "packets_sent": now.packets_sent,
            "packets_received": now.packets_received,
            "retransmitted": now.retransmitted,
            "timeouts": now.timeouts,
            "errors": now.errors,
        })
    };
    json!({
        "pid": process.pid,
        "program": process.program,
        "interface": interface,
        "address": address.map(|address| address.to_string()),
        "engines": process.engines,
        "busy_engines": process.busy,
        "queue_pair_count": process.queue_pairs,
        "refused": process.refused.iter().collect::<BTreeMap<_, _>>(),
        "seconds": seconds,
        "queue_pairs": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let rates = [0.0, 0.25, 17.2, 9999.0, 12_345.0, 456_700.0, 4_560_000.0, 33_300_000.0, 1e9];
        let texts = rates.map(short);
        assert_eq!(texts, ["0", "0.25", "17", "9999", "12.3k", "457k", "4.56M", "33.3M", "1000M"]);
        assert!(texts.iter().all(|text| text.len() <= 5));
    }

    #[test]
    fn a_line_has_80_columns_at_most() {
        assert_eq!(HEAD.len(), 79);
        let long = peer(Some((Qpn::new(0x12_3456), "fd00:1234:5678:9abc::1".parse().unwrap())));
        assert_eq!(long.len(), 18);
        assert_eq!(peer(Some((Qpn::new(5), [127, 0, 0, 2].into()))), "000005@127.0.0.2");
    }

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "3601", "nan", ""] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}

//! `ferroce ping`: how long packets take to a host and back, on which paths, and how many are lost.

mod figures;
mod paths;
mod picture;
mod report;
mod search;

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use ferroce_probe::net::{ProbeEndError, ProberEnd, SERVICE_PORT, stamp_now};
use ferroce_probe::paths::{FIRST_PORT, Steering};
use ferroce_probe::{Peer, ProbeEvent, ProberConfig};

use self::figures::Figures;
use self::report::{Reporter, Summary};
use self::search::Search;
use crate::{addresses, interrupt, probe};

/// Measure round trips, delays and loss to a host, on one path or on all
///
/// Like ping, but for the packets of RDMA: probes are RoCEv2 datagrams, and take the ways that RoCEv2 takes. Each has two
/// answers, of a responder at the host: `ferroce probe responder`. All times are those of the kernels as packets
/// pass, so that neither a slow responder nor a slow prober looks like a slow network.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The host, by name or address; a responder must run there
    #[arg(value_name = "HOST")]
    host: String,

    /// Ends after so many probes, instead of going on until Ctrl-C
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Seconds between two probes, 0.0001 to 3600
    #[arg(long, short, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Sends no more probes after so many seconds
    #[arg(long, short = 'w', value_name = "S", value_parser = crate::perf::seconds)]
    deadline: Option<Duration>,

    /// Seconds after which an answer is late; what has not come ten times later never will
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = crate::perf::seconds)]
    timeout: Duration,

    /// The UDP source port that all probes leave from, and no other: it decides which path they take
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), conflicts_with_all = ["paths", "all_ports"])]
    port: Option<u16>,

    /// Traces ports until all paths are known, then probes each path from a port of its own
    #[arg(long)]
    paths: bool,

    /// How many paths there should be; fewer are said to be polarised
    #[arg(long, value_name = "N", requires = "paths", value_parser = clap::value_parser!(u32).range(1..=1024))]
    expect: Option<u32>,

    /// Each probe leaves from another port, 49152 to 65535 in turn
    #[arg(long, conflicts_with = "paths")]
    all_ports: bool,

    /// As fast as answers come, 64 under way; ends after 100000 probes or 10 seconds, unless --count or --deadline says otherwise
    #[arg(long, conflicts_with = "interval")]
    flood: bool,

    /// The name under which the responder is found (`--service` there)
    #[arg(long, value_name = "NUMBER", default_value_t = SERVICE_PORT)]
    service: u16,

    /// The queue pair of the responder, instead of asking the host for it
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair, conflicts_with = "service")]
    qpn: Option<u32>,

    /// The address to probe from, instead of the one that the kernel would take
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,

    /// Prints no line for each probe
    #[arg(long, short)]
    quiet: bool,

    /// JSON: one object for each probe with all seven times, then one with the summary, each in a line of its own
    #[arg(long)]
    json: bool,

    /// Writes round trips over time as a picture, too: SVG
    #[arg(long, value_name = "FILE", value_parser = crate::mesh_perf::picture_file)]
    plot: Option<PathBuf>,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce ping 127.0.0.1 -c 10
          Needs `ferroce probe responder` in another terminal.
  ferroce ping 192.0.2.7 --paths -c 1000 -i 0.01
          One port for each path that routers name, and what each path is like.
  ferroce ping 192.0.2.7 --flood -c 50000 --plot rtt.svg
  ferroce ping 192.0.2.7 --json -c 100 | jq 'select(.probe).round_trip_ns'

What is measured; T1, T2, T5, T6 and T7 are on the clock of this host, T3 and T4 on that of the other:
  T1 posted           T2 left             T3 came there       T4 first answer left there
  T5 it came          T6 it was handled   T7 the second answer, which tells T4, was handled
  round trip  (T5 - T2) - (T4 - T3)       in the network alone, both ways
  responder   T4 - T3                     in the other host
  prober      (T6 - T1) - (T5 - T2)       in this host

How a probe ends:
  ok         both answers in time
  ack2-lost  the first answer only: the probe was delivered, and nothing is known of the round trip
  ack1-lost  the second answer only: loss on the way back
  time-out   no answer: loss on the way there, or on the way back
  late       both answers, after --timeout
  invalid    times that cannot be true, or a clock that was set
  host       this host stood still meanwhile, so nothing is said of the network
Only time-outs and ack1-lost are loss. First answers tell how many probes came so far, so of all before the last answer
it is known how many were lost on the way there, and how many on the way back.

While this host is busy, probes leave at 1/2, 1/4 or 1/10 of the pace, and it says so. Ctrl-C ends it and shows the
summary. The exit code is 1 if no probe was answered. More: docs/probing.md";

/// Probes under way at once, of a flood.
const WINDOW: usize = 64;

/// Where a flood ends if nothing else is said.
const FLOOD: (u64, Duration) = (100_000, Duration::from_secs(10));

/// How often it is looked whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of the question for a responder, with the headers of IPv4: a probe has 92.
const QUESTION: usize = 308;

/// How long a host may take to tell the queue pair of its responder.
const FIND: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    // A picture that cannot be written should not cost the measurement.
    let plot = args.plot.as_deref().map(|path| {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()));
        file.map(|file| (file, path))
    });
    let plot = plot.transpose()?;
    let host = resolve(&args.host)?;
    let mut end = open(args, host)?;
    let target = find(args, &end, host)?;
    let patience = interrupt::be_patient();
    let steering =
        if args.paths { Some(paths::find(&mut end, target, args.expect, args.json)?) } else { None };
    let ports = Ports::choose(args, &mut end, target, steering.as_ref())?;
    let mut reporter = Reporter::new(args.json, args.quiet, args.all_ports || args.paths);
    reporter.begin(&args.host, target)?;
    let mut figures = Figures::new(plot.is_some());
    let service = args.qpn.is_none().then_some(args.service);
    let mut search = Search::new(end.finder(), (host, service), target, args.timeout);
    let pinging = Pinging { args, search: &mut search, ports, sent: 0 };
    let probed = pinging.run(&mut end, &mut reporter, &mut figures);
    drop(patience);
    let target = search.target();
    let steering = steering.as_ref();
    reporter.summary(&Summary { end: &end, target, figures: &figures, steering, search: &search })?;
    if let Some((mut file, path)) = plot {
        let title = format!("queue pair {} at {}", target.qpn, target.address);
        let written =
            file.write_all(picture::draw(&title, &figures).as_bytes()).and_then(|()| file.sync_all());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    probed?;
    if figures.answered() == 0 {
        bail!("{}", report::why_no_answer(&end, target, figures.probes()));
    }
    Ok(())
}

/// Which port each probe leaves from.
enum Ports {
    /// All from one, or from that of the card's choice.
    One(Option<u16>),
    /// One after the other.
    Turn(Vec<u16>),
    /// All of them.
    All,
}

impl Ports {
    fn choose(
        args: &Args,
        end: &mut ProberEnd,
        target: Peer,
        steering: Option<&Steering>,
    ) -> anyhow::Result<Self> {
        if let Some(steering) = steering {
            return Ok(Self::Turn(steering.kept().iter().map(|kept| kept.port).collect()));
        }
        if args.all_ports {
            // One that another program has is left out, but that all of these are has another reason.
            let mut first = end.port_to(target.address, Some(FIRST_PORT));
            for port in FIRST_PORT + 1..FIRST_PORT + 64 {
                if first.is_err() && end.port_to(target.address, Some(port)).is_ok() {
                    first = Ok(port);
                }
            }
            return first.map(|_| Self::All).map_err(Into::into);
        }
        if let Some(port) = args.port {
            end.port_to(target.address, Some(port))?;
            return Ok(Self::One(Some(port)));
        }
        // What routers say of a probe comes back only to a port of its own.
        let port = FIRST_PORT | u16::try_from(end.qpn() & 0x3fff).unwrap_or(0);
        Ok(Self::One(end.port_to(target.address, Some(port)).ok()))
    }

    fn of(&self, number: u64) -> Option<u16> {
        let within = |len: usize| usize::try_from(number % (len as u64)).unwrap_or(0);
        match self {
            Self::One(port) => *port,
            Self::Turn(ports) => ports.get(within(ports.len().max(1))).copied(),
            Self::All => u16::try_from(within(1 << 14)).ok().map(|offset| FIRST_PORT + offset),
        }
    }
}

/// Probes as they are sent.
struct Pinging<'a> {
    args: &'a Args,
    search: &'a mut Search,
    ports: Ports,
    sent: u64,
}

impl Pinging<'_> {
    fn run(
        mut self,
        end: &mut ProberEnd,
        reporter: &mut Reporter,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let Args { count, deadline, flood, .. } = *self.args;
        let is_endless = flood && count.is_none() && deadline.is_none();
        let count = count.or(is_endless.then_some(FLOOD.0)).unwrap_or(u64::MAX);
        let limit = deadline.or(is_endless.then_some(FLOOD.1));
        let begin = stamp_now();
        let last = limit.map(|limit| begin.plus(limit));
        let mut next = begin;
        figures.begin(begin);
        loop {
            end.turn()?;
            while let Some(event) = end.poll() {
                if let ProbeEvent::Ended(report) = &event {
                    figures.add(report);
                }
                reporter.event(&event)?;
                if let Some(change) = self.search.event(&event, stamp_now()) {
                    reporter.change(&change)?;
                }
            }
            if let Some(change) = end.pace_change() {
                reporter.pace(&change)?;
            }
            let now = stamp_now();
            figures.end(now);
            if let Some(change) = self.search.look(now) {
                reporter.change(&change)?;
            }
            let is_over = self.sent >= count || last.is_some_and(|last| now >= last);
            if interrupt::is_asked() || is_over && end.pending() == 0 {
                return Ok(());
            }
            let mut wake = now.plus(LOOK);
            if is_over {
                // Only answers are waited for.
            } else if self.args.flood {
                while end.pending() < WINDOW && self.sent < count && self.probe(end, figures)? {}
                wake = now.plus(Duration::from_millis(1));
            } else {
                if now >= next {
                    self.probe(end, figures)?;
                    // After a stall, what was missed is not made up for.
                    let interval = end.pace().stretch(self.args.interval);
                    next = next.plus(interval).max(now);
                }
                wake = wake.min(next);
            }
            end.sleep_until(wake);
        }
    }

    /// Sends one. Whether it left: if too many are under way, it is for later.
    fn probe(&mut self, end: &mut ProberEnd, figures: &mut Figures) -> anyhow::Result<bool> {
        match end.probe(self.search.target(), self.ports.of(self.sent)) {
            Ok(_) => {
                self.sent += 1;
                Ok(true)
            }
            Err(ProbeEndError::Busy { .. } | ProbeEndError::Start(_)) => Ok(false),
            // A port of many that is taken is left out and counted, and the next one comes.
            Err(error @ ProbeEndError::Port { .. }) if self.args.all_ports => {
                figures.refuse(&error);
                self.sent += 1;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The address of a host.
fn resolve(host: &str) -> anyhow::Result<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(address);
    }
    let found =
        (host, 4791).to_socket_addrs().with_context(|| format!("{host:?} is no host that can be found"))?;
    found.map(|address| address.ip()).next().ok_or_else(|| anyhow!("{host:?} has no address"))
}

/// A prober on the device that leads to the host.
fn open(args: &Args, host: IpAddr) -> anyhow::Result<ProberEnd> {
    let (context, address) = match (args.from, host) {
        (None, IpAddr::V4(host)) if host.is_loopback() => {
            addresses::open_loopback(None, 0, |builder| builder)?
        }
        (from, host) => {
            let address = from.map_or_else(|| source_for(host), Ok)?;
            (probe::open(address)?, address)
        }
    };
    let config = ProberConfig { timeout: args.timeout, late: 10 * args.timeout, ..ProberConfig::default() };
    ProberEnd::open(&context, address, config).with_context(|| format!("cannot probe from {address}"))
}

/// The address that the kernel takes for packets to this host; none is sent.
fn source_for(host: IpAddr) -> anyhow::Result<IpAddr> {
    let any: SocketAddr = if host.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let ask = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect((host, 4791))?;
        socket.local_addr()
    };
    Ok(ask().with_context(|| format!("no way leads to {host}"))?.ip())
}

fn find(args: &Args, end: &ProberEnd, host: IpAddr) -> anyhow::Result<Peer> {
    if let Some(qpn) = args.qpn {
        return Ok(Peer { address: host, qpn });
    }
    let bind = if host.is_loopback() && host == IpAddr::from([127, 0, 0, 1]) {
        String::new()
    } else {
        format!(" --bind {host}")
    };
    end.find(host, args.service, FIND)
        .with_context(|| {
            format!(
                "cannot ping {host}; on that host, run: ferroce probe responder{bind} (if it runs, all of the way must \
                 carry packets of {QUESTION} bytes, or --qpn say the number that it shows)"
            )
        })
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 1 or 0.01".to_owned())?;
    if (0.0001..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.0001 and 3600 seconds are possible; --flood is faster".to_owned())
    }
}

fn queue_pair(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let number = number.filter(|number| (2..1 << 24).contains(number));
    number.ok_or_else(|| format!("{text:?} is no queue pair number: 2 to 16777215, or 0x2 to 0xffffff"))
}

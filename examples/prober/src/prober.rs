//! Sends probes and gathers what comes back.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ferroce::time::now;
use ferroce::{AddressHandle, AddressVector, Gid, Qpn, Time};
use serde_json::json;

use crate::end::{Arrival, End, Happened, Place};
use crate::measured::{Measured, Times};
use crate::packet::{Kind, Packet};

/// Where the times come from, as every report says.
const CLOCK: &str = "T2 to T5 are completion times of a soft network card. It reads its clock when a turn of its \
                     engine begins, so a time may be early by the length of a turn";

/// Options of `ferroce-prober probe`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// A responder, as it prints itself: ADDRESS/QUEUE PAIR
    #[arg(long = "target", value_name = "ADDRESS/QP", required = true)]
    targets: Vec<Target>,
    /// Probes to each target
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Between two probes to a target
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    interval: u64,
    /// After how long a probe is lost
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: u64,
    /// Decides the way through a network with several ways; 0 lets the card choose
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..1 << 20))]
    flow_label: u32,
    /// IPv4 type of service or IPv6 traffic class
    #[arg(long, value_name = "N", default_value_t = 0)]
    traffic_class: u8,
    /// Hops that a probe may take
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    hop_limit: u8,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    address: IpAddr,
    qpn: Qpn,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not ADDRESS/QUEUE PAIR, such as 127.0.126.1/0x000012");
        let (address, qpn) = text.split_once('/').ok_or_else(wrong)?;
        let number = match qpn.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => qpn.parse(),
        };
        let number = number.ok().filter(|number| (2..0xff_ffff).contains(number)).ok_or_else(wrong)?;
        Ok(Self { address: address.parse().map_err(|_| wrong())?, qpn: Qpn::new(number) })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{:#08x}", self.address, self.qpn.get())
    }
}

/// Whether every target has answered.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let mut prober = Prober::open(args)?;
    prober.run(args)?;
    let has_answers = prober.routes.iter().all(|route| route.measured.answered() > 0);
    if args.json {
        let targets: Vec<_> =
            prober.routes.iter().map(|route| route.measured.to_json(&route.target.to_string())).collect();
        let (strange, failed) = (prober.strange, prober.failed);
        println!("{}", json!({"targets": targets, "strange": strange, "failed": failed, "times": CLOCK}));
    } else {
        for route in &prober.routes {
            print!("{}\n{}", route.target, route.measured);
        }
        println!("{CLOCK}.");
    }
    Ok(has_answers)
}

/// The way to a target, and what came back over it.
struct Route {
    target: Target,
    handle: AddressHandle,
    measured: Measured,
}

/// A probe that is not over.
#[derive(Debug)]
struct Open {
    route: usize,
    t1: Time,
    t2: Option<Time>,
    /// T3 and T4, as the second answer says.
    there: Option<(Time, Time)>,
    t5: Option<Time>,
    t6: Option<Time>,
}

struct Prober {
    end: End,
    routes: Vec<Route>,
    /// The upper half of all sequence numbers: what another run of the program sent is not ours.
    epoch: u32,
    open: BTreeMap<u64, Open>,
    timeout: Duration,
    strange: u64,
    failed: u64,
}

impl Prober {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let end = End::open(&args.place)?;
        let mut routes = Vec::new();
        for target in args.targets.iter().copied() {
            let vector = AddressVector {
                flow_label: args.flow_label,
                traffic_class: args.traffic_class,
                hop_limit: args.hop_limit,
                ..AddressVector::new(Gid::from(target.address), 0)
            };
            routes.push(Route { target, handle: end.handle(&vector)?, measured: Measured::new()? });
        }
        let epoch = u32::from_be_bytes(end.context.random_bytes());
        let timeout = Duration::from_millis(args.timeout);
        Ok(Self { end, routes, epoch, open: BTreeMap::new(), timeout, strange: 0, failed: 0 })
    }

    fn run(&mut self, args: &Args) -> anyhow::Result<()> {
        let interval = Duration::from_millis(args.interval);
        let mut next = now();
        let mut rounds = 0;
        let mut happened = Vec::new();
        while rounds < args.count || !self.open.is_empty() {
            if rounds < args.count && next <= now() {
                (0..self.routes.len()).try_for_each(|route| self.probe(route))?;
                rounds += 1;
                next = next + interval;
            }
            let expiry = self.open.first_key_value().map(|(_, open)| open.t1 + self.timeout);
            let wake = match expiry {
                Some(expiry) if rounds < args.count => expiry.min(next),
                Some(expiry) => expiry,
                None => next,
            };
            self.end.wait(wake, &mut happened)?;
            for happened in happened.drain(..) {
                self.handle(&happened);
            }
            self.give_up();
        }
        Ok(())
    }

    fn probe(&mut self, index: usize) -> anyhow::Result<()> {
        let route = &mut self.routes[index];
        // The number of the next send is what its departure is told under, so it is the counter.
        let number = self.end.next_number();
        let sequence = u64::from(self.epoch) << 32 | number & 0xffff_ffff;
        let t1 = now();
        let packet = Packet { kind: Kind::Probe, sequence, t1, t3: Time::ZERO, t4: Time::ZERO };
        self.end.send(&route.handle, route.target.qpn, &packet)?;
        route.measured.sent += 1;
        self.open.insert(number, Open { route: index, t1, t2: None, there: None, t5: None, t6: None });
        Ok(())
    }

    fn handle(&mut self, happened: &Happened) {
        match happened {
            Happened::Sent { number, time } => {
                if let Some(open) = self.open.get_mut(number) {
                    open.t2 = Some(*time);
                }
                self.conclude(*number);
            }
            Happened::Arrived(arrival) => self.take_answer(arrival),
            Happened::Strange => self.strange += 1,
            Happened::Failed(error) => {
                self.failed += 1;
                eprintln!("ferroce-prober: {error}");
            }
        }
    }

    fn take_answer(&mut self, arrival: &Arrival) {
        let Arrival { packet, header, from, time } = arrival;
        let (epoch, number) = (packet.sequence >> 32, packet.sequence & 0xffff_ffff);
        let sender = Target { address: header.source.ip(), qpn: *from };
        let route = self.routes.iter().position(|route| route.target == sender);
        let Some(index) = route.filter(|_| epoch == u64::from(self.epoch) && packet.kind != Kind::Probe)
        else {
            self.strange += 1;
            return;
        };
        let measured = &mut self.routes[index].measured;
        measured.header = Some(*header);
        let open = self.open.get_mut(&number).filter(|open| open.route == index);
        match (open, packet.kind) {
            (Some(open @ Open { t5: None, .. }), Kind::FirstAnswer) => open.t5 = Some(*time),
            (Some(open @ Open { there: None, .. }), Kind::SecondAnswer) => {
                open.there = Some((packet.t3, packet.t4));
                open.t6 = Some(now());
            }
            _ => measured.late += 1,
        }
        self.conclude(number);
    }

    /// If all six times of a probe are known, it is over.
    fn conclude(&mut self, number: u64) {
        if let Some(Open { route, t1, t2: Some(t2), there: Some((t3, t4)), t5: Some(t5), t6: Some(t6) }) =
            self.open.get(&number)
        {
            let times = Times { t1: *t1, t2: *t2, t3: *t3, t4: *t4, t5: *t5, t6: *t6 };
            self.routes[*route].measured.add(&times);
            self.open.remove(&number);
        }
    }

    /// Probes whose time is over are lost. The oldest comes first.
    fn give_up(&mut self) {
        let now = now();
        while let Some(entry) = self.open.first_entry()
            && entry.get().t1 + self.timeout <= now
        {
            self.routes[entry.remove().route].measured.lost += 1;
        }
    }
}

//! A simulated network with a bad link, as windows that were judged: what a page has to hold.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_mesh::{FlowKey, Outcomes, Priority, RnicId, Severity, Tier, Topology, TopologyBuilder, Trouble};
use ferroce_meshd::Histogram;
use ferroce_meshd::board::{
    Board, BoardAffected, BoardFinding, BoardFlow, BoardHost, BoardImpact, BoardService, BoardSuspect,
    BoardWindow, Kind, TopFlow, Trips,
};
use ferroce_probe::paths::Path;

/// When the first window begins, in nanoseconds of the Unix clock.
pub const START: u64 = 1_700_000_000_000_000_000;

/// How long a window is.
pub const LENGTH: u64 = 20_000_000_000;

pub struct Simulated {
    pub topology: Arc<Topology>,
    pub tors: u32,
    /// RNICs below each ToR.
    pub below: u32,
    ports: u16,
    aggregations: u32,
    seed: u64,
}

impl Simulated {
    pub fn new(tors: u32, below: u32, ports: u16) -> Self {
        let aggregations = (tors / 4).clamp(2, 32);
        let mut builder = TopologyBuilder::default();
        let name = |kind: &str, number: u32| format!("{kind}{}", number + 1);
        for core in 0..(aggregations / 2).max(2) {
            builder.switch(&name("core", core), Tier::Core, [router(3, core)]).unwrap();
        }
        for aggregation in 0..aggregations {
            let own = name("agg", aggregation);
            builder.switch(&own, Tier::Aggregation, [router(2, aggregation)]).unwrap();
            for core in 0..(aggregations / 2).max(2) {
                builder.cable(&own, &name("core", core)).unwrap();
            }
        }
        for tor in 0..tors {
            let own = name("rack", tor);
            builder.switch(&own, Tier::Tor, [router(1, tor)]).unwrap();
            for aggregation in 0..aggregations {
                builder.cable(&own, &name("agg", aggregation)).unwrap();
            }
            for rnic in 0..below {
                let number = tor * below + rnic;
                let host = format!("host{}", number / 2 + 1);
                builder.rnic(&card(number).to_string(), card(number), &host, &own).unwrap();
            }
        }
        let topology = Arc::new(builder.build());
        Self { topology, tors, below, ports, aggregations, seed: 7 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    /// The aggregation that probes of a tuple cross.
    fn above(&self, from: u32, to: u32, port: u16) -> u32 {
        (from * 31 + to * 17 + u32::from(port) * 7) % self.aggregations
    }

    /// Each RNIC probes all below its ToR, and an RNIC of as many other ToRs as it takes.
    fn pairs(&self) -> Vec<(u32, u32)> {
        let others = (self.tors - 1).div_ceil(self.below);
        let mut pairs = Vec::new();
        for from in 0..self.tors * self.below {
            let (tor, place) = (from / self.below, from % self.below);
            pairs.extend(
                (0..self.below).filter(|other| *other != place).map(|other| (from, tor * self.below + other)),
            );
            for round in 0..others {
                let to = (tor + 1 + (place + self.below * round) % (self.tors - 1)) % self.tors;
                pairs.push((from, to * self.below + (place + round) % self.below));
            }
        }
        pairs
    }

    /// The window with this number, the first is 0. From `since` on, the link from rack2 to agg1 loses a
    /// part.
    pub fn window(&mut self, number: u64, since: u64) -> BoardWindow {
        let is_bad = number >= since;
        let start = START + number * LENGTH;
        let mut flows = Vec::new();
        let mut top: Vec<TopFlow> = Vec::new();
        let (mut crossings, mut losses) = (0.0, 0.0);
        for (from, to) in self.pairs() {
            for port in 50_000..50_000 + self.ports {
                let probes = 20;
                let (from_tor, to_tor) = (from / self.below, to / self.below);
                let crosses = from_tor != to_tor && from_tor == 1 && self.above(from, to, port) == 0;
                let lost = if is_bad && crosses { 1 + u32::try_from(self.draw(6)).unwrap() } else { 0 };
                let mut histogram = Histogram::default();
                for _ in 0..2 {
                    let far = if from_tor == to_tor { 12_000 } else { 30_000 };
                    histogram.add(Duration::from_nanos(far + self.draw(9_000)));
                }
                let mut trips = Trips::default();
                trips.add(&histogram);
                let outcomes = Outcomes { ok: probes - lost, time_out: lost, ..Outcomes::default() };
                let key = FlowKey { from: RnicId(from), to: RnicId(to), port, reply_port: port + 1000 };
                if crosses {
                    crossings += f64::from(probes);
                    losses += f64::from(lost);
                }
                if lost > 0 && top.len() < 5 {
                    let (from, to) = (self.topology.rnic(key.from), self.topology.rnic(key.to));
                    top.push(TopFlow {
                        from: from.address,
                        to: to.address,
                        from_tor: self.topology.switch(from.tor).name.clone(),
                        to_tor: self.topology.switch(to.tor).name.clone(),
                        port,
                        reply_port: key.reply_port,
                        packets: lost.into(),
                    });
                }
                flows.push(BoardFlow { key, outcomes, trips });
            }
        }
        let stalled =
            BoardHost { host: "host3".into(), stalls: 2, longest: 41_000_000, ..BoardHost::default() };
        BoardWindow {
            start,
            end: start + LENGTH,
            agents: self.tors * self.below / 2,
            is_complete: true,
            topology: Arc::clone(&self.topology),
            flows,
            hosts: if number % 3 == 1 { vec![stalled] } else { Vec::new() },
            open: if number > since {
                vec![bad_link(START + since * LENGTH, crossings, losses, top)]
            } else {
                Vec::new()
            },
            over: Vec::new(),
            services: vec![service(number > since)],
            services_left_out: 0,
        }
    }

    /// The traces of all tuples of inter-ToR flows, or of so many.
    pub fn trace(&self, board: &mut Board, most: usize) {
        let at = board.newest().map_or(START, |kept| kept.record.start);
        let tuples = self.pairs().into_iter().flat_map(|(from, to)| {
            (50_000..50_000 + self.ports).flat_map(move |port| [(from, to, port), (to, from, port + 1000)])
        });
        for (from, to, port) in tuples.take(most) {
            let (first, last) = (from / self.below, to / self.below);
            let mut routers = vec![router(1, first)];
            if first != last {
                routers.extend([router(2, self.above(from, to, port)), router(1, last)]);
            }
            let path = Path { routers: routers.into_iter().map(Some).collect(), reaches: true };
            board.trace(card(from), card(to), port, path, at);
        }
    }
}

fn bad_link(since: u64, crossings: f64, losses: f64, top: Vec<TopFlow>) -> BoardFinding {
    let link = |from: &str, to: &str| BoardSuspect {
        kind: Kind::Link,
        name: format!("link {from} -> {to}"),
        parts: vec![from.to_owned(), to.to_owned()],
    };
    BoardFinding {
        id: 4,
        trouble: Trouble::Loss,
        severity: Severity::Critical,
        suspects: vec![link("rack2", "agg1")],
        since,
        over: 0,
        crossings,
        losses,
        expected: 0.2,
        gain: 812.5,
        rate: losses / crossings.max(1.0),
        share: 0.0,
        runner_up: Some((link("agg1", "rack2"), 240.0)),
        top,
        impact: Some(BoardImpact {
            priority: Priority::P0,
            services: vec![BoardAffected {
                service: SERVICE.to_owned(),
                priority: Priority::P0,
                flows: 2,
                examples: vec![(card(2), card(9), 50_000)],
            }],
            left_out: 0,
        }),
    }
}

/// A service whose packets cross the link from rack2 to agg1.
pub const SERVICE: &str = "train <b>";

fn service(suffers: bool) -> BoardService {
    BoardService {
        service: SERVICE.to_owned(),
        hosts: 1,
        some_hosts: vec!["host2".to_owned()],
        flows: 4,
        crossing: if suffers { 2 } else { 0 },
        sent: 9000,
        again: if suffers { 77 } else { 0 },
        priority: suffers.then_some(Priority::P0),
        findings: if suffers { vec![4] } else { Vec::new() },
    }
}

/// The address of an RNIC.
fn card(number: u32) -> IpAddr {
    let [_, high, middle, low] = number.to_be_bytes();
    IpAddr::from([10, high, middle, low])
}

/// The address of a switch of a tier.
fn router(tier: u8, number: u32) -> IpAddr {
    let [_, _, high, low] = number.to_be_bytes();
    IpAddr::from([172, 16 + tier, high, low])
}

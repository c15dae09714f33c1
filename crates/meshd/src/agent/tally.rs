//! How probes ended since the window began.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_mesh::Outcomes;
use ferroce_probe::paths;
use ferroce_probe::{Outcome, Report};

use crate::histogram::Histogram;
use crate::service_flow::{SERVICE_FLOWS, ServiceFlowReport};
use crate::trace::{TRACES, TraceReport};
use crate::window::{FLOWS, Flow, HostState, WindowReport};

/// Round trips after which it is known what is usual on a path.
const USUAL: u64 = 1000;

/// Round trips after which the older half of them is forgotten.
const FORGETS: u64 = 8 * USUAL;

/// A round trip is slow that is longer than this part of the path's own.
const SLOW: f64 = 0.999;

/// From, to, and the UDP source port: what a path follows from, on the way there.
type Path = (IpAddr, IpAddr, u16);

#[derive(Debug)]
pub(super) struct Tally {
    start: u64,
    flows: HashMap<(Path, u16), (Outcomes, Histogram)>,
    usual: HashMap<Path, Usual>,
    host: HostState,
    untold: u64,
    /// What the cards had dropped when the window began.
    drops: u64,
    traces: HashMap<Path, paths::Path>,
    /// Queue pairs of services by address and number, and whether they are still there.
    services: BTreeMap<(IpAddr, u32), (ServiceFlowReport, bool)>,
    services_left_out: u64,
}

/// What is usual on a path.
#[derive(Debug, Default)]
struct Usual {
    round_trips: Histogram,
    /// The port that answers came from last: that of answers which do not come.
    reply_port: Option<u16>,
    /// Longer ones are slow.
    limit: Option<Duration>,
    is_used: bool,
}

impl Tally {
    /// Nothing, since this time of the Unix clock.
    pub(super) fn new(start: u64) -> Self {
        Self {
            start,
            flows: HashMap::new(),
            usual: HashMap::new(),
            host: HostState::default(),
            untold: 0,
            drops: 0,
            traces: HashMap::new(),
            services: BTreeMap::new(),
            services_left_out: 0,
        }
    }

    /// These queue pairs of services are there now, and did this since they were looked at before; so many more are not
    /// told.
    pub(super) fn serve(&mut self, flows: Vec<ServiceFlowReport>, left_out: u64) {
        self.services.values_mut().for_each(|(_, is_there)| *is_there = false);
        for flow in flows {
            let key = (flow.from, flow.qpn);
            let before = self.services.get(&key).map(|(before, _)| before);
            let is_same = |one: &&ServiceFlowReport| {
                (&one.service, one.to, one.port, one.peer_qpn)
                    == (&flow.service, flow.to, flow.port, flow.peer_qpn)
            };
            let (sent, again) = before.filter(is_same).map_or((0, 0), |one| (one.sent, one.again));
            let flow = ServiceFlowReport {
                sent: flow.sent.saturating_add(sent),
                again: flow.again.saturating_add(again),
                ..flow
            };
            if self.services.len() < SERVICE_FLOWS || self.services.contains_key(&key) {
                self.services.insert(key, (flow, true));
            }
        }
        self.services_left_out = left_out;
    }

    /// A probe of an RNIC is over.
    pub(super) fn ended(&mut self, from: IpAddr, report: &Report) {
        let path = (from, report.target.address, report.port);
        let is_full = self.usual.len() >= FLOWS && !self.usual.contains_key(&path);
        let told = report.answer_ports.map(|ports| ports.sent).filter(|port| *port != 0);
        let (reply_port, is_slow) = if is_full {
            (told.unwrap_or(report.port), false)
        } else {
            let usual = self.usual.entry(path).or_default();
            usual.is_used = true;
            usual.reply_port = told.or(usual.reply_port);
            let trip = report.delays.map(|delays| delays.round_trip);
            let is_slow = trip.zip(usual.limit).is_some_and(|(trip, limit)| trip > limit);
            (usual.reply_port.unwrap_or(report.port), is_slow)
        };
        let key = (path, reply_port);
        if self.flows.len() >= FLOWS && !self.flows.contains_key(&key) {
            self.untold += 1;
            return;
        }
        let (outcomes, round_trips) = self.flows.entry(key).or_default();
        *match report.outcome {
            Outcome::Ok => &mut outcomes.ok,
            Outcome::Ack2Lost => &mut outcomes.ack2_lost,
            Outcome::Ack1Lost => &mut outcomes.ack1_lost,
            Outcome::TimeOut => &mut outcomes.time_out,
            Outcome::Late => &mut outcomes.late,
            Outcome::Invalid(_) => &mut outcomes.invalid,
            Outcome::Host(_) => &mut outcomes.host,
        } += 1;
        if let Some(delays) = report.delays.filter(|_| matches!(report.outcome, Outcome::Ok | Outcome::Late))
        {
            round_trips.add(delays.round_trip);
            outcomes.slow += u32::from(is_slow && report.outcome == Outcome::Ok);
        }
    }

    /// A path was traced. Beyond so many in a window, the rest is traced again before long.
    pub(super) fn traced(&mut self, from: IpAddr, to: IpAddr, port: u16, path: paths::Path) {
        if self.traces.len() < TRACES || self.traces.contains_key(&(from, to, port)) {
            self.traces.insert((from, to, port), path);
        }
    }

    /// Our own host stood still for so long.
    pub(super) fn stalled(&mut self, time: Duration) {
        self.host.stalls += 1;
        self.host.longest = self.host.longest.max(time);
    }

    /// The window ends, and the next one begins. `drops` is what the cards have dropped in all.
    pub(super) fn close(&mut self, now: u64, drops: u64) -> WindowReport {
        let mut flows: Vec<Flow> = Vec::with_capacity(self.flows.len());
        for (((from, to, port), reply_port), (outcomes, round_trips)) in self.flows.drain() {
            if let Some(usual) = self.usual.get_mut(&(from, to, port)) {
                usual.learn(&round_trips);
            }
            flows.push(Flow { from, to, port, reply_port, outcomes, round_trips });
        }
        flows.sort_unstable_by_key(|flow| (flow.from, flow.to, flow.port, flow.reply_port));
        // Ports change in time: what was not probed in a window is forgotten.
        self.usual.retain(|_, usual| std::mem::take(&mut usual.is_used));
        let mut host = std::mem::take(&mut self.host);
        host.receive_drops = drops.saturating_sub(std::mem::replace(&mut self.drops, drops));
        let start = std::mem::replace(&mut self.start, now).min(now);
        let traces = std::mem::take(&mut self.traces).into_iter();
        let traces = traces.map(|((from, to, port), path)| TraceReport { from, to, port, path }).collect();
        let services = self.services.values().map(|(flow, _)| flow.clone()).collect();
        self.services.retain(|_, (flow, is_there)| {
            (flow.sent, flow.again) = (0, 0);
            *is_there
        });
        WindowReport {
            start,
            end: now,
            flows,
            host,
            untold: std::mem::take(&mut self.untold),
            traces,
            services,
            services_left_out: self.services_left_out,
        }
    }
}

impl Usual {
    fn learn(&mut self, more: &Histogram) {
        self.round_trips.merge(more);
        let count = self.round_trips.count();
        if count >= USUAL {
            self.limit = self.round_trips.percentile(SLOW);
        }
        if count >= FORGETS {
            self.round_trips.halve();
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_probe::{Delays, HostFault, Peer, Ports, Sequence, Times};

    use super::*;

    fn from() -> IpAddr {
        IpAddr::from([10, 0, 0, 1])
    }

    fn report(outcome: Outcome, micros: u64) -> Report {
        let round_trip = Duration::from_micros(micros);
        let delays = Delays { round_trip, responder: Duration::ZERO, prober: Duration::ZERO };
        Report {
            sequence: Sequence(1),
            target: Peer { address: IpAddr::from([10, 0, 0, 2]), qpn: 7 },
            port: 50_000,
            answer_ports: (outcome == Outcome::Ok).then_some(Ports { sent: 50_007, reply: 50_000 }),
            outcome,
            times: Times::default(),
            delays: (outcome == Outcome::Ok).then_some(delays),
        }
    }

    #[test]
    fn every_probe_is_in_one_window_and_under_the_port_of_its_answers() {
        let mut tally = Tally::new(5);
        tally.ended(from(), &report(Outcome::Ok, 20));
        tally.ended(from(), &report(Outcome::TimeOut, 0));
        tally.ended(from(), &report(Outcome::Host(HostFault::Stalled), 0));
        tally.stalled(Duration::from_millis(70));
        let window = tally.close(9, 3);
        assert_eq!((window.start, window.end, window.flows.len()), (5, 9, 1), "{window:?}");
        let flow = &window.flows[0];
        assert_eq!((flow.port, flow.reply_port, flow.round_trips.count()), (50_000, 50_007, 1));
        assert_eq!(flow.outcomes, Outcomes { ok: 1, time_out: 1, host: 1, ..Outcomes::default() });
        let host = HostState { stalls: 1, longest: Duration::from_millis(70), receive_drops: 3 };
        assert_eq!(window.host, host);
        let next = tally.close(12, 4);
        assert_eq!((next.start, next.flows.len(), next.host.receive_drops), (9, 0, 1));
        assert_eq!(
            tally.close(11, 4).start,
            11,
            "a clock that was set back makes no window of negative length"
        );
    }

    #[test]
    fn slow_is_what_is_longer_than_usual_on_this_path() {
        let mut tally = Tally::new(0);
        for micros in 0..USUAL {
            tally.ended(from(), &report(Outcome::Ok, 20 + micros % 5));
        }
        tally.ended(from(), &report(Outcome::Ok, 500));
        assert_eq!(tally.close(1, 0).flows[0].outcomes.slow, 0, "nothing was usual yet");
        tally.ended(from(), &report(Outcome::Ok, 24));
        tally.ended(from(), &report(Outcome::Ok, 501));
        let outcomes = tally.close(2, 0).flows[0].outcomes;
        assert_eq!((outcomes.ok, outcomes.slow), (2, 1));
    }

    #[test]
    fn what_services_do_is_told_in_the_window_in_which_it_is_seen() {
        let flow = |qpn: u32, sent: u64, again: u64| ServiceFlowReport {
            service: "train".to_owned(),
            from: from(),
            to: IpAddr::from([10, 0, 0, 2]),
            port: 50_000,
            qpn,
            peer_qpn: 7,
            sent,
            again,
        };
        let mut tally = Tally::new(0);
        tally.serve(vec![flow(1, 100, 0), flow(2, 5, 5)], 0);
        tally.serve(vec![flow(1, 10, 1)], 3);
        let window = tally.close(1, 0);
        assert_eq!(window.services, [flow(1, 110, 1), flow(2, 5, 5)], "also what ended meanwhile");
        assert_eq!(window.services_left_out, 3);
        assert_eq!(tally.close(2, 0).services, [flow(1, 0, 0)], "it is there, and did nothing");
        let other = ServiceFlowReport { port: 50_001, ..flow(1, 3, 0) };
        tally.serve(vec![other.clone()], 0);
        assert_eq!(tally.close(3, 0).services, [other], "connected anew");
        tally.serve(Vec::new(), 0);
        let _ = tally.close(4, 0);
        assert!(tally.close(5, 0).services.is_empty());
    }

    #[test]
    fn a_responder_that_answers_from_ever_new_ports_fills_no_memory() {
        let mut tally = Tally::new(0);
        for port in 0..=u16::MAX {
            let mut one = report(Outcome::Ok, 20);
            one.answer_ports = Some(Ports { sent: port, reply: 50_000 });
            tally.ended(from(), &one);
        }
        let window = tally.close(1, 0);
        let told: u64 = window.flows.iter().map(|flow| u64::from(flow.outcomes.ok)).sum();
        assert_eq!((window.flows.len(), told + window.untold), (FLOWS, 65_536));
    }
}

//! Traces of an RNIC: rounds of ports to one target, between its probes.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_mesh::agent::{TracePlan, TracePlanConfig, TraceRound};
use ferroce_probe::net::{ProbeEndError, ProberEnd};
use ferroce_probe::paths::TracerConfig;
use ferroce_probe::{Peer, Stamp};

use super::schedule::{Pair, Wanted};
use super::state::Shared;

/// How long a turn of traces may hold up the probes.
const TURN: Duration = Duration::from_millis(2);

/// After so long a round is given up.
const ROUND: Duration = Duration::from_secs(10);

/// How often it is said that paths are still taken.
const REFRESH: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Tracing {
    plan: TracePlan,
    paths: Vec<(Peer, u16)>,
    refresh: Stamp,
    round: Option<Round>,
}

#[derive(Debug)]
struct Round {
    target: Peer,
    /// Ports whose traces are not finished.
    open: usize,
    end: Stamp,
}

impl Tracing {
    pub(super) fn new(config: TracePlanConfig) -> Self {
        Self { plan: TracePlan::new(config), paths: Vec::new(), refresh: Stamp::default(), round: None }
    }

    /// From now on, packets go there, also those of services.
    pub(super) fn set(&mut self, wanted: &Wanted, borrowed: &Wanted) {
        let paths = |(address, pair): (&IpAddr, &Pair)| {
            let target = Peer { address: *address, qpn: pair.qpn };
            let ports = pair.ports.iter().chain(&pair.answer_ports);
            ports.map(|port| (target, *port)).collect::<Vec<_>>()
        };
        // What services take comes first: no other packet tells where it goes.
        self.paths = borrowed.iter().chain(wanted).flat_map(paths).collect();
        self.refresh = Stamp::default();
    }

    /// Whether a round is under way, so that there is something to do soon.
    pub(super) const fn is_busy(&self) -> bool {
        self.round.is_some()
    }

    /// Traces a little.
    pub(super) fn turn(
        &mut self,
        shared: &Shared,
        place: usize,
        prober: &mut ProberEnd,
    ) -> Result<(), ProbeEndError> {
        let now = prober.now();
        if now >= self.refresh {
            self.refresh = now.plus(REFRESH);
            self.paths.iter().for_each(|(target, port)| self.plan.want(*target, *port, now));
        }
        if self.round.is_none() {
            self.round = self.plan.round(now).and_then(|round| begin(shared, prober, &round));
        }
        let Some(round) = &mut self.round else { return Ok(()) };
        let from = shared.rnics[place].address;
        while let Some(trace) = prober.next_trace(now.plus(TURN))? {
            shared.tally().traced(from, round.target.address, trace.port(), trace.path());
            shared.change(|state| state.traces += 1);
            round.open = round.open.saturating_sub(1);
        }
        if round.open == 0 || now >= round.end {
            self.round = None;
        }
        Ok(())
    }
}

/// Begins to trace; none if no packet can leave from any of these ports, as on loopback addresses.
fn begin(shared: &Shared, prober: &mut ProberEnd, round: &TraceRound) -> Option<Round> {
    prober.trace_to(round.target, TracerConfig::default());
    let mut open = 0;
    for port in &round.ports {
        match prober.trace_port(*port) {
            Ok(()) => open += 1,
            Err(_) => shared.change(|state| state.untraced += 1),
        }
    }
    (open > 0).then(|| Round { target: round.target, open, end: prober.now().plus(ROUND) })
}

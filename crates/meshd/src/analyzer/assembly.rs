//! The windows of all agents, put together by time. It is pure: times are passed in, in nanoseconds of the Unix clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_mesh::{
    Analyzer, FlowKey, HostReport, Observation, Outcomes, Paths, TopologyBuilder, Window, WiringError,
};
use ferroce_probe::paths::Path;

use super::AnalyzerServerConfig;
use super::verdicts::Verdicts;
use super::wiring::{Member, Wiring, members};
use crate::clock;
use crate::counters::AnalyzerCounters;
use crate::ledger::{Inbox, Mark, Taken};
use crate::proto::v1;
use crate::trace::TraceReport;
use crate::window::{HostState, WindowReport, named};

/// From, to, port, port of answers.
type FlowAddress = (IpAddr, IpAddr, u16, u16);

#[derive(Debug)]
pub(super) struct Assembly {
    config: AnalyzerServerConfig,
    /// How long a window is; 0 until the controller says it.
    length: u64,
    live: BTreeSet<String>,
    /// The switches of the topology file.
    switches: Option<TopologyBuilder>,
    wiring: Wiring,
    /// The newest trace of each tuple: another wiring is to know them, too.
    traces: HashMap<(IpAddr, IpAddr, u16), Path>,
    /// When the queue pair of an RNIC became another one.
    changed: HashMap<IpAddr, u64>,
    agents: BTreeMap<String, Reporter>,
    slots: BTreeMap<u64, Slot>,
    /// Slots before this one were looked at.
    closed: u64,
    /// When the newest slot that was looked at ended.
    through: u64,
    verdicts: Option<Verdicts>,
    over: VecDeque<v1::Finding>,
    pub(super) counters: AnalyzerCounters,
}

/// What an agent has told.
#[derive(Debug, Default)]
struct Reporter {
    inbox: Inbox,
    /// The sums of all outcomes, in the order of their names.
    sums: [u64; 8],
    /// When its latest window ended.
    through: u64,
}

/// What all agents tell of one stretch of time.
#[derive(Debug, Default)]
struct Slot {
    flows: HashMap<FlowAddress, Outcomes>,
    hosts: BTreeMap<String, HostState>,
}

impl Assembly {
    pub(super) fn new(config: &AnalyzerServerConfig) -> Result<Self, WiringError> {
        let switches = config.topology.as_deref().map(TopologyBuilder::read).transpose()?;
        Ok(Self {
            config: config.clone(),
            switches,
            traces: HashMap::new(),
            length: 0,
            live: BTreeSet::new(),
            wiring: Wiring::default(),
            changed: HashMap::new(),
            agents: BTreeMap::new(),
            slots: BTreeMap::new(),
            closed: 0,
            through: 0,
            verdicts: None,
            over: VecDeque::new(),
            counters: AnalyzerCounters::default(),
        })
    }

    /// How often to let time pass.
    pub(super) fn every(&self) -> Duration {
        Duration::from_nanos(self.length / 8).clamp(Duration::from_millis(10), Duration::from_millis(500))
    }

    /// Which RNICs there are now.
    pub(super) fn roster(&mut self, state: &v1::RosterState, now: u64) {
        let length = clock::nanos(Duration::from_millis(state.window_ms));
        if length != self.length {
            // Slots of another length have other numbers.
            self.slots.clear();
            self.length = length;
            self.closed = now.checked_div(length).unwrap_or_default();
        }
        let members = members(state);
        self.live = members.values().map(|member| member.agent.clone()).collect();
        for (address, member) in &members {
            let before = self.wiring.members.get(address);
            if before.is_some_and(|before| before.qpn != member.qpn) {
                self.changed.insert(*address, now);
            }
        }
        if self.wiring.has(&members) {
            // RNICs that are gone keep their places: they may come back.
            self.wiring.members.extend(members);
            return;
        }
        let (wiring, topology) = Wiring::new(members, self.switches.as_ref());
        self.counters.misplaced += wiring.misplaced;
        self.counters.topologies += 1;
        self.changed.retain(|address, _| wiring.members.contains_key(address));
        self.wiring = wiring;
        let mut paths = Paths::new(topology);
        for ((from, to, port), path) in &self.traces {
            if let Some(tuple) = self.wiring.tuple(*from, *to, *port) {
                paths.trace(tuple, path);
            }
        }
        self.verdicts = Some(Verdicts::new(Analyzer::new(paths, self.config.analyzer)));
    }

    /// An agent begins a stream: how far its windows are settled.
    pub(super) fn hello(&mut self, agent: &str) -> Result<Mark, &'static str> {
        if !self.live.contains(agent) {
            self.counters.streams_refused += 1;
            return Err("the agent is not registered with the controller, or that is not known here yet");
        }
        if !self.agents.contains_key(agent) && self.agents.len() >= self.config.agents {
            let Self { agents, live, .. } = self;
            agents.retain(|name, _| live.contains(name));
            if agents.len() >= self.config.agents {
                self.counters.streams_refused += 1;
                return Err("there are as many agents as there may be");
            }
        }
        self.counters.streams += 1;
        Ok(self.agents.entry(agent.to_owned()).or_default().inbox.settled())
    }

    /// An agent tells a window: how far its windows are settled now, and why this one was refused.
    pub(super) fn take(&mut self, agent: &str, message: &v1::Window, now: u64) -> (Mark, Option<String>) {
        let Some(known) = self.agents.get_mut(agent) else {
            return (Mark::default(), Some("the agent has said no hello".to_owned()));
        };
        let mark = Mark { epoch: message.epoch, number: message.number };
        let (start, end) = (message.start_unix_ns, message.end_unix_ns);
        let lost = known.inbox.lost;
        let taken = known.inbox.take(mark, start, end, now, &self.config.inbox);
        self.counters.lost = self.counters.lost.saturating_add(known.inbox.lost.saturating_sub(lost));
        let settled = known.inbox.settled();
        match taken {
            Taken::Replay => {
                self.counters.replays += 1;
                (settled, None)
            }
            Taken::Refused(refusal) => {
                self.counters.refused += 1;
                (settled, Some(refusal.to_string()))
            }
            Taken::Kept => match WindowReport::from_message(message) {
                Ok(window) => {
                    self.keep(agent, &window);
                    (settled, None)
                }
                Err(error) => {
                    // It is no window, and would be none if it came again.
                    known.inbox.kept -= 1;
                    known.inbox.refused += 1;
                    self.counters.malformed += 1;
                    (settled, Some(error.to_string()))
                }
            },
        }
    }

    fn keep(&mut self, agent: &str, window: &WindowReport) {
        self.counters.kept += 1;
        let Some(known) = self.agents.get_mut(agent) else { return };
        known.through = known.through.max(window.end);
        for flow in &window.flows {
            for (sum, (_, count)) in known.sums.iter_mut().zip(named(&flow.outcomes)) {
                *sum = sum.saturating_add(count);
            }
        }
        for trace in &window.traces {
            self.trace(agent, trace);
        }
        // A window belongs to the slot that its last moment is in.
        let Some(number) = window.end.saturating_sub(1).checked_div(self.length) else { return };
        if number < self.closed {
            self.counters.too_late += 1;
            return;
        }
        let slot = self.slots.entry(number).or_default();
        for flow in &window.flows {
            match self.wiring.members.get(&flow.from) {
                Some(member) if member.agent == agent => {}
                _ => {
                    self.counters.foreign_flows += 1;
                    continue;
                }
            }
            let key = (flow.from, flow.to, flow.port, flow.reply_port);
            if !self.wiring.rnics.contains_key(&flow.to)
                || (slot.flows.len() >= self.config.flows && !slot.flows.contains_key(&key))
            {
                self.counters.unknown_flows += 1;
                continue;
            }
            slot.flows.entry(key).or_default().add(&flow.outcomes);
        }
        let host =
            self.wiring.members.values().find(|member| member.agent == agent).map(|member| &member.host);
        if let Some(host) = host.filter(|_| window.host != HostState::default()) {
            let state = slot.hosts.entry(host.clone()).or_default();
            state.stalls = state.stalls.saturating_add(window.host.stalls);
            state.longest = state.longest.max(window.host.longest);
            state.receive_drops = state.receive_drops.saturating_add(window.host.receive_drops);
        }
    }

    /// An agent has traced a path of its own packets.
    fn trace(&mut self, agent: &str, trace: &TraceReport) {
        let TraceReport { from, to, port, path } = trace;
        let is_theirs =
            from != to && self.wiring.members.get(from).is_some_and(|member| member.agent == agent);
        let key = (*from, *to, *port);
        let is_full = self.traces.len() >= self.config.flows && !self.traces.contains_key(&key);
        let Some(tuple) = self.wiring.tuple(*from, *to, *port).filter(|_| is_theirs && !is_full) else {
            self.counters.foreign_traces += 1;
            return;
        };
        self.counters.traces += 1;
        if let Some(verdicts) = &mut self.verdicts {
            verdicts.trace(tuple, path);
        }
        self.traces.insert(key, path.clone());
    }

    /// Lets time pass: slots that are complete, or have waited long enough, are looked at in order.
    pub(super) fn advance(&mut self, now: u64) {
        while let Some(number) = self.slots.keys().next().copied() {
            let end = (number + 1).saturating_mul(self.length);
            let is_complete = self.has_all(end);
            let is_over = now >= end.saturating_add(clock::nanos(self.config.grace));
            if !(is_over || is_complete && now >= end) {
                return;
            }
            if let Some(slot) = self.slots.remove(&number) {
                self.counters.windows += 1;
                self.counters.incomplete += u64::from(!is_complete);
                self.look_at(&slot, end - self.length, end);
            }
            self.closed = number + 1;
        }
    }

    /// Whether all agents that report have told everything up to this time.
    fn has_all(&self, end: u64) -> bool {
        let reports =
            |(name, known): &(&String, &Reporter)| self.live.contains(*name) && known.inbox.kept > 0;
        self.agents.iter().filter(reports).all(|(_, known)| known.through >= end)
    }

    fn look_at(&mut self, slot: &Slot, start: u64, end: u64) {
        let Self { wiring, live, changed, verdicts, over, through, .. } = self;
        *through = end;
        let Some(verdicts) = verdicts else { return };
        let rnic = |address: &IpAddr| wiring.rnics.get(address).copied();
        let observation = |((from, to, port, reply_port), outcomes): (&FlowAddress, &Outcomes)| {
            let flow = FlowKey { from: rnic(from)?, to: rnic(to)?, port: *port, reply_port: *reply_port };
            Some(Observation { flow, outcomes: *outcomes })
        };
        let mut observations: Vec<Observation> = slot.flows.iter().filter_map(observation).collect();
        observations.sort_unstable_by_key(|one| one.flow);
        let recent = start.saturating_sub(end - start);
        changed.retain(|_, at| *at >= recent);
        let mut hosts = BTreeMap::new();
        for (name, state) in &slot.hosts {
            let Some(host) = wiring.host(name) else { continue };
            let longest = clock::nanos(state.longest);
            let (stalls, receive_drops) = (state.stalls, state.receive_drops);
            hosts.insert(host, HostReport { stalls, longest, receive_drops, ..HostReport::of(host) });
        }
        for (address, Member { agent, host, .. }) in &wiring.members {
            let (is_lapsed, has_changed) =
                (!live.contains(agent), changed.get(address).is_some_and(|at| *at < end));
            let Some(host) = wiring.host(host).filter(|_| is_lapsed || has_changed) else { continue };
            let report = hosts.entry(host).or_insert(HostReport::of(host));
            report.lapsed |= is_lapsed;
            report.changed_qpn |= has_changed;
        }
        let window = Window { observations, hosts: hosts.into_values().collect() };
        verdicts.window(&window, start, end, over);
    }

    /// What is bad.
    pub(super) fn findings(&self) -> v1::FindingsReply {
        let is_live =
            |(name, known): &(&String, &Reporter)| self.live.contains(*name) && known.through >= self.through;
        let agents = self.agents.iter().filter(is_live).count();
        v1::FindingsReply {
            windows: self.counters.windows,
            through_unix_ns: self.through,
            open: self.verdicts.as_ref().map(|verdicts| verdicts.open().to_vec()).unwrap_or_default(),
            over: self.over.iter().cloned().collect(),
            agents: u32::try_from(agents).unwrap_or(u32::MAX),
        }
    }

    /// What came.
    pub(super) fn tallies(&self) -> v1::TalliesReply {
        let tally = |(name, known): (&String, &Reporter)| {
            let names = named(&Outcomes::default());
            let count = |(sum, (name, _)): (&u64, &(&'static str, u64))| v1::Counter {
                name: (*name).to_owned(),
                count: *sum,
            };
            let Inbox { kept, replays, refused, lost, .. } = known.inbox;
            let outcomes = known.sums.iter().zip(&names).map(count).collect();
            v1::AgentTally { agent: name.clone(), kept, replays, refused, lost, outcomes }
        };
        v1::TalliesReply {
            counters: self.counters.to_message(),
            agents: self.agents.iter().map(tally).collect(),
        }
    }
}

#[cfg(test)]
mod tests;

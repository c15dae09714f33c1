//! The windows of all agents, put together by time. It is pure: times are passed in, in nanoseconds of the Unix clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_mesh::Outcomes;

use super::AnalyzerServerConfig;
use super::judge::Judged;
use super::slot::{Due, Slot};
use super::wiring::{Member, Members, members};
use crate::board::SharedBoard;
use crate::clock;
use crate::counters::AnalyzerCounters;
use crate::ledger::{Inbox, Mark, Taken};
use crate::outlet::{Teller, WindowSink};
use crate::proto::v1;
use crate::store::{AgentRow, Kept, News};
use crate::trace::TraceReport;
use crate::window::{HostState, WindowReport, named};

/// Findings that are over and still told.
const OVER: usize = 256;

/// How long an RNIC that is gone keeps its place in the wiring, in nanoseconds: a day.
const GONE: u64 = 86_400_000_000_000;

/// Traces to RNICs that the controller has not told of yet, at most: agents may hear of them first.
const EARLY: usize = 65_536;

/// Slots that such a trace waits for its RNIC.
const EARLY_SLOTS: u64 = 2;

#[derive(Debug)]
pub(super) struct Assembly {
    config: AnalyzerServerConfig,
    /// How long a window is; 0 until the controller says it.
    length: u64,
    live: Arc<BTreeSet<String>>,
    /// RNICs that are gone keep their places for a day: they may come back.
    members: Arc<Members>,
    /// Since when an RNIC is gone.
    gone: HashMap<IpAddr, u64>,
    /// The host of each agent.
    hosts: HashMap<String, String>,
    /// When the queue pair of an RNIC became another one.
    changed: HashMap<IpAddr, u64>,
    agents: BTreeMap<String, Reporter>,
    slots: BTreeMap<u64, Slot>,
    /// What was traced since a slot was judged last.
    traces: Vec<TraceReport>,
    /// Traces to RNICs that are not known yet, which agent told them, and the slot that was next then.
    early: Vec<(String, TraceReport, u64)>,
    /// Slots before this one were judged, or are being judged.
    closed: u64,
    /// What was judged and is not kept yet, by generation: it is told when it is kept.
    untold: VecDeque<(u64, Judged)>,
    /// When the newest slot ended that is told.
    through: u64,
    open: Vec<v1::Finding>,
    over: VecDeque<v1::Finding>,
    /// The number of the next finding.
    next: u64,
    /// Services, and how many there are beyond.
    services: (Vec<v1::ServiceState>, u32),
    /// What people look at, if they do.
    pub(super) board: Option<SharedBoard>,
    /// What takes windows as they are told, if something does.
    pub(super) raw: Option<WindowSink>,
    /// Agents and findings of which something is new since it was kept last.
    unkept: Unkept,
    /// How often something became new.
    generation: u64,
    pub(super) counters: AnalyzerCounters,
}

/// What an agent has told.
#[derive(Debug, Default)]
struct Reporter {
    row: AgentRow,
    /// All windows up to this one are kept.
    kept: Mark,
}

/// What is not kept yet.
#[derive(Debug, Default)]
struct Unkept {
    agents: BTreeSet<String>,
    findings: BTreeMap<u64, v1::Finding>,
}

impl Assembly {
    pub(super) fn new(config: &AnalyzerServerConfig) -> Self {
        Self {
            config: config.clone(),
            length: 0,
            live: Arc::default(),
            members: Arc::default(),
            gone: HashMap::new(),
            hosts: HashMap::new(),
            changed: HashMap::new(),
            agents: BTreeMap::new(),
            slots: BTreeMap::new(),
            traces: Vec::new(),
            early: Vec::new(),
            closed: 0,
            untold: VecDeque::new(),
            through: 0,
            open: Vec::new(),
            over: VecDeque::new(),
            next: 0,
            services: (Vec::new(), 0),
            board: None,
            raw: None,
            unkept: Unkept::default(),
            generation: 0,
            counters: AnalyzerCounters::default(),
        }
    }

    /// Goes on from what was kept by another life of the analyzer.
    pub(super) fn restore(&mut self, kept: &Kept) {
        let agent = |(name, row): &(String, AgentRow)| {
            (name.clone(), Reporter { row: *row, kept: row.inbox.settled() })
        };
        self.agents = kept.agents.iter().map(agent).collect();
        self.open.clone_from(&kept.open);
        self.over = kept.over.iter().cloned().collect();
        self.next = kept.next;
    }

    /// Begins anew, from what was kept by another analyzer; what people look at and what leaves stay. Generations go
    /// on: what waits for one of this life is not answered by one of the last.
    pub(super) fn begin_anew(&mut self, kept: &Kept) {
        let mut anew = Self::new(&self.config);
        anew.restore(kept);
        if let Some(board) = &self.board {
            // Windows that come again are not counted twice.
            board.clear();
        }
        (anew.board, anew.raw) = (self.board.take(), self.raw.take());
        (anew.counters, anew.generation) = (self.counters, self.generation + 1);
        *self = anew;
    }

    /// What another judge goes on from, if one was lost over a slot.
    pub(super) fn judge_lost(&mut self) -> Kept {
        self.counters.judges_lost += 1;
        let open = self.untold.back().map_or(&self.open, |(_, judged)| &judged.open).clone();
        Kept { open, next: self.next, ..Kept::default() }
    }

    /// How often something became new; what was new by then is kept as soon as [`kept`](Self::kept) is told so.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// What is new since this was asked last, and the generation that it is.
    pub(super) fn unkept(&mut self) -> (News, u64) {
        let Unkept { agents, findings } = std::mem::take(&mut self.unkept);
        let row = |name: String| self.agents.get(&name).map(|known| (name, known.row));
        let agents = agents.into_iter().filter_map(row).collect();
        (News { agents, findings: findings.into_values().collect() }, self.generation)
    }

    /// What was new up to this generation was kept, and may be told.
    pub(super) fn kept(&mut self, news: &News, generation: u64) {
        self.tell(generation);
        for (name, row) in &news.agents {
            if let Some(known) = self.agents.get_mut(name) {
                known.kept = known.kept.max(row.inbox.settled());
            }
        }
    }

    /// This could not be kept; it is new still.
    pub(super) fn not_kept(&mut self, news: News) {
        self.counters.not_kept += 1;
        self.tell_unkept();
        self.unkept.agents.extend(news.agents.into_iter().map(|(name, _)| name));
        for finding in news.findings {
            // What became of it meanwhile is newer.
            self.unkept.findings.entry(finding.id).or_insert(finding);
        }
    }

    /// Tells what was judged though it is not kept: to know that something is bad is worth more than to know it for
    /// ever.
    pub(super) fn tell_unkept(&mut self) {
        self.tell(self.generation);
    }

    /// All that is known is kept once more: a database may have lost what it said to have.
    pub(super) fn keep_all_again(&mut self) {
        self.unkept.agents.extend(self.agents.keys().cloned());
        for finding in self.over.iter().chain(&self.open) {
            self.unkept.findings.entry(finding.id).or_insert_with(|| finding.clone());
        }
    }

    /// When the newest slot ended that is told.
    pub(super) const fn through(&self) -> u64 {
        self.through
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
        self.live = Arc::new(members.values().map(|member| member.agent.clone()).collect());
        for (address, member) in &members {
            let before = self.members.get(address);
            if before.is_some_and(|before| before.qpn != member.qpn) {
                self.changed.insert(*address, now);
            }
        }
        let hosts = members.values().map(|member| (member.agent.clone(), member.host.clone()));
        self.hosts = hosts.collect();
        self.forget(&members, now);
        Arc::make_mut(&mut self.members).extend(members);
        for (agent, trace, since) in std::mem::take(&mut self.early) {
            self.trace(&agent, &trace, since);
        }
    }

    /// Forgets RNICs that are gone for a day.
    fn forget(&mut self, live: &Members, now: u64) {
        self.gone.retain(|address, _| !live.contains_key(address));
        for address in self.members.keys().filter(|address| !live.contains_key(address)) {
            self.gone.entry(*address).or_insert(now);
        }
        let is_over = |since: &u64| now.saturating_sub(*since) >= GONE;
        if self.gone.values().any(is_over) {
            let members = Arc::make_mut(&mut self.members);
            members.retain(|address, _| !self.gone.get(address).is_some_and(is_over));
            self.gone.retain(|_, since| !is_over(since));
        }
    }

    /// An agent begins a stream: how far its windows are settled. From now on its windows are waited for.
    pub(super) fn hello(&mut self, agent: &str, now: u64) -> Result<Mark, &'static str> {
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
        let known = self.agents.entry(agent.to_owned()).or_default();
        if known.row.through == 0 {
            known.row.through = now;
        }
        Ok(if self.config.store.is_some() { known.kept } else { known.row.inbox.settled() })
    }

    /// An agent tells a window: how far its windows are settled now, and why this one was refused.
    pub(super) fn take(&mut self, agent: &str, message: &v1::Window, now: u64) -> (Mark, Option<String>) {
        let Some(known) = self.agents.get_mut(agent) else {
            return (Mark::default(), Some("the agent has said no hello".to_owned()));
        };
        let mark = Mark { epoch: message.epoch, number: message.number };
        let (start, end) = (message.start_unix_ns, message.end_unix_ns);
        let inbox = &mut known.row.inbox;
        let lost = inbox.lost;
        let taken = inbox.take(mark, start, end, now, &self.config.inbox);
        self.counters.lost = self.counters.lost.saturating_add(inbox.lost.saturating_sub(lost));
        let settled = inbox.settled();
        self.generation += 1;
        if !self.unkept.agents.contains(agent) {
            self.unkept.agents.insert(agent.to_owned());
        }
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
                    inbox.kept -= 1;
                    inbox.refused += 1;
                    self.counters.malformed += 1;
                    (settled, Some(error.to_string()))
                }
            },
        }
    }

    fn keep(&mut self, agent: &str, window: &WindowReport) {
        self.counters.kept += 1;
        let Some(Reporter { row, .. }) = self.agents.get_mut(agent) else { return };
        row.through = row.through.max(window.end);
        for flow in &window.flows {
            for (sum, (_, count)) in row.sums.iter_mut().zip(named(&flow.outcomes)) {
                *sum = sum.saturating_add(count);
            }
        }
        self.count(agent, window);
        self.hand_out(agent, window);
        for trace in &window.traces {
            self.trace(agent, trace, self.closed);
        }
        self.counters.untold_services =
            self.counters.untold_services.saturating_add(window.services_left_out);
        // A window belongs to the slot that its last moment is in.
        let Some(number) = window.end.saturating_sub(1).checked_div(self.length) else { return };
        if number < self.closed {
            self.counters.too_late += 1;
            return;
        }
        let slot = self.slots.entry(number).or_default();
        for flow in &window.flows {
            if self.members.get(&flow.from).is_none_or(|member| member.agent != agent) {
                self.counters.foreign_flows += 1;
                continue;
            }
            let key = (flow.from, flow.to, flow.port, flow.reply_port);
            let is_full = slot.flows.len() >= self.config.flows && !slot.flows.contains_key(&key);
            if is_full || !self.members.contains_key(&flow.to) {
                self.counters.unknown_flows += 1;
                continue;
            }
            let told = slot.flows.entry(key).or_default();
            told.outcomes.add(&flow.outcomes);
            if self.board.is_some() {
                told.trips.add(&flow.round_trips);
            }
        }
        for flow in &window.services {
            if self.members.get(&flow.from).is_none_or(|member| member.agent != agent) {
                self.counters.foreign_services += 1;
                continue;
            }
            let key = (flow.from, flow.qpn);
            let is_full = slot.services.len() >= self.config.services && !slot.services.contains_key(&key);
            if is_full || flow.from == flow.to || !self.members.contains_key(&flow.to) {
                self.counters.unknown_services += 1;
                continue;
            }
            self.counters.services += 1;
            slot.services.insert(key, flow.clone());
        }
        if let Some(host) = self.hosts.get(agent).filter(|_| window.host != HostState::default()) {
            let state = slot.hosts.entry(host.clone()).or_default();
            state.stalls = state.stalls.saturating_add(window.host.stalls);
            state.longest = state.longest.max(window.host.longest);
            state.receive_drops = state.receive_drops.saturating_add(window.host.receive_drops);
        }
    }

    /// Sums count all that an agent tells, also what comes too late to be judged.
    fn count(&self, agent: &str, window: &WindowReport) {
        let Some(board) = &self.board else { return };
        let mut board = board.lock();
        for flow in &window.flows {
            let from = self.members.get(&flow.from).filter(|member| member.agent == agent);
            let tor = |member: &'_ Member| Arc::clone(&member.tor);
            let (from, to) = (from.map(tor), self.members.get(&flow.to).map(tor));
            board.flow(from.as_deref(), to.as_deref(), &flow.outcomes, &flow.round_trips);
        }
    }

    /// Raw windows are those that count in sums.
    fn hand_out(&self, agent: &str, window: &WindowReport) {
        let Some(raw) = &self.raw else { return };
        let tor = |address: IpAddr, is_theirs: bool| {
            let member = self.members.get(&address)?;
            (!is_theirs || member.agent == agent).then(|| Arc::clone(&member.tor))
        };
        // The last windows of an agent may come after its lease.
        let members = window.flows.iter().filter_map(|flow| self.members.get(&flow.from));
        let own = members.into_iter().find(|member| member.agent == agent);
        let host = own.map_or("", |member| member.host.as_str());
        raw.take(&Teller { agent, host, tor: &tor }, window);
    }

    /// An agent has traced a path of its own packets, and told it when this slot was next.
    fn trace(&mut self, agent: &str, trace: &TraceReport, since: u64) {
        let TraceReport { from, to, .. } = trace;
        let is_theirs = self.members.get(from).is_some_and(|member| member.agent == agent);
        let is_known = self.members.contains_key(to);
        if is_theirs && !is_known && self.early.len() < EARLY {
            self.early.push((agent.to_owned(), trace.clone(), since));
            return;
        }
        if !is_theirs || !is_known || from == to || self.traces.len() >= self.config.flows {
            self.counters.foreign_traces += 1;
            return;
        }
        self.counters.traces += 1;
        self.traces.push(trace.clone());
    }

    /// Lets time pass: the next slot that is complete, or has waited long enough, is to be judged now.
    pub(super) fn due(&mut self, now: u64) -> Option<Due> {
        let number = self.slots.keys().next().copied()?;
        let end = (number + 1).saturating_mul(self.length);
        let late = self.late(end);
        let is_complete = late.is_empty();
        let is_over = now >= end.saturating_add(clock::nanos(self.config.grace));
        if !(is_over || is_complete && now >= end) {
            return None;
        }
        let mut live = Arc::clone(&self.live);
        if !is_complete {
            // Of a host that said nothing of this time, nothing is known, as of one whose lease is over.
            Arc::make_mut(&mut live).retain(|name| !late.contains(name.as_str()));
        }
        let slot = self.slots.remove(&number)?;
        self.closed = number + 1;
        let waiting = self.early.len();
        self.early.retain(|(.., since)| self.closed.saturating_sub(*since) <= EARLY_SLOTS);
        self.counters.foreign_traces += (waiting - self.early.len()) as u64;
        self.counters.incomplete += u64::from(!is_complete);
        let start = end - self.length;
        let recent = start.saturating_sub(self.length);
        self.changed.retain(|_, at| *at >= recent);
        let changed = self.changed.iter().filter(|(_, at)| **at < end).map(|(address, _)| *address);
        Some(Due {
            slot,
            start,
            end,
            members: Arc::clone(&self.members),
            live,
            changed: changed.collect(),
            agents: self.told(end),
            is_complete,
            traces: std::mem::take(&mut self.traces),
        })
    }

    /// A slot was judged.
    pub(super) fn judged(&mut self, judged: Judged) {
        self.counters.windows += 1;
        self.counters.topologies += u64::from(judged.is_rewired);
        self.counters.misplaced += judged.misplaced;
        self.counters.unknown_flows += judged.unknown_flows;
        self.generation += 1;
        for finding in judged.open.iter().chain(&judged.over) {
            self.next = self.next.max(finding.id + 1);
            self.unkept.findings.insert(finding.id, finding.clone());
        }
        self.untold.push_back((self.generation, judged));
        if self.config.store.is_none() {
            self.unkept = Unkept::default();
            self.tell(self.generation);
        }
    }

    /// Tells what was judged up to a generation.
    fn tell(&mut self, generation: u64) {
        while let Some((_, judged)) = self.untold.pop_front_if(|(judged, _)| *judged <= generation) {
            self.through = judged.end;
            self.open = judged.open;
            self.services = judged.services;
            for finding in judged.over {
                if self.over.len() >= OVER {
                    self.over.pop_front();
                }
                self.over.push_back(finding);
            }
        }
    }

    /// Agents that report, and have not told everything up to this time.
    fn late(&self, end: u64) -> HashSet<String> {
        let is_late =
            |(name, known): &(&String, &Reporter)| self.live.contains(*name) && known.row.through < end;
        self.agents.iter().filter(is_late).map(|(name, _)| name.clone()).collect()
    }

    /// Agents whose leases run and that told everything up to this time.
    fn told(&self, end: u64) -> u32 {
        let is_live = |(name, known): &(&String, &Reporter)| {
            self.live.contains(*name) && known.row.inbox.kept > 0 && known.row.through >= end
        };
        u32::try_from(self.agents.iter().filter(is_live).count()).unwrap_or(u32::MAX)
    }

    /// What is bad.
    pub(super) fn findings(&self) -> v1::FindingsReply {
        v1::FindingsReply {
            windows: self.counters.windows,
            through_unix_ns: self.through,
            open: self.open.clone(),
            over: self.over.iter().cloned().collect(),
            agents: self.told(self.through),
            services: self.services.0.clone(),
            services_left_out: self.services.1,
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
            let Inbox { kept, replays, refused, lost, .. } = known.row.inbox;
            let outcomes = known.row.sums.iter().zip(&names).map(count).collect();
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

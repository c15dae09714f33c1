//! Judges one slot after the other: what is bad, in names and times.
//!
//! It takes a second in a large network, so it stands apart from what reports wait for.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ferroce_mesh::{
    Analyzer, Finding, FindingId, FlowKey, HostReport, Observation, Paths, TopologyBuilder, Verdict, Window,
    WiringError,
};

use super::AnalyzerServerConfig;
use super::picture::{self, Picture};
use super::slot::{Due, FlowAddress, FlowTold};
use super::wiring::{Member, Wiring};
use crate::board::{BoardFinding, BoardWindow};
use crate::clock;
use crate::proto::v1;

/// Windows whose times are known.
const TIMES: usize = 16_384;

/// The machine of findings, with the times of its windows.
#[derive(Debug)]
pub(super) struct Judge {
    config: AnalyzerServerConfig,
    /// The switches of the topology file.
    switches: Option<TopologyBuilder>,
    wiring: Wiring,
    analyzer: Option<Analyzer>,
    /// When windows began; the last is the newest.
    starts: VecDeque<u64>,
    next: u64,
    open: Vec<v1::Finding>,
    picture: Picture,
}

/// What is to be said after a slot.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// When it ended.
    pub(super) end: u64,
    /// Findings that are open.
    pub(super) open: Vec<v1::Finding>,
    /// Findings that ended with it.
    pub(super) over: Vec<v1::Finding>,
    /// Whether the wiring has changed.
    pub(super) is_rewired: bool,
    /// RNICs that have no place in the new wiring.
    pub(super) misplaced: u64,
    /// Flows of RNICs that have no place in the wiring.
    pub(super) unknown_flows: u64,
    /// The same for people, if they look.
    pub(super) board: Option<BoardWindow>,
}

impl Judge {
    pub(super) fn new(config: &AnalyzerServerConfig) -> Result<Self, WiringError> {
        Ok(Self {
            config: config.clone(),
            switches: config.topology.as_deref().map(TopologyBuilder::read).transpose()?,
            wiring: Wiring::default(),
            analyzer: None,
            starts: VecDeque::new(),
            next: 0,
            open: Vec::new(),
            picture: Picture::default(),
        })
    }

    /// Judges a slot.
    pub(super) fn judge(&mut self, due: &Due) -> Judged {
        let mut judged = Judged { end: due.end, ..Judged::default() };
        self.rewire(due, &mut judged);
        self.trace(due);
        let window = self.window(due, &mut judged);
        if self.starts.len() >= TIMES {
            self.starts.pop_front();
        }
        self.starts.push_back(due.start);
        let Some(analyzer) = &mut self.analyzer else { return judged };
        let Verdict { number, open, over, .. } = analyzer.window(&window);
        self.next = number + 1;
        if self.config.page.is_some() {
            judged.board = self.board(due, &window, &open, &over);
        }
        self.open = open.iter().map(|finding| self.told(finding, 0)).collect();
        judged.open.clone_from(&self.open);
        judged.over.extend(over.iter().map(|finding| self.told(finding, due.end)));
        judged
    }

    /// Puts RNICs in that are new, and those that hang elsewhere now. What was seen stays.
    fn rewire(&mut self, due: &Due, judged: &mut Judged) {
        if self.wiring.has(&due.members) {
            return;
        }
        let (wiring, topology) = Wiring::new(&due.members, self.switches.as_ref());
        judged.is_rewired = true;
        judged.misplaced = wiring.misplaced;
        self.wiring = wiring;
        match &mut self.analyzer {
            Some(analyzer) => {
                let gone = analyzer.rewire(topology);
                judged.over = self.close(&gone, due.end);
            }
            None => self.analyzer = Some(Analyzer::new(Paths::new(topology), self.config.analyzer)),
        }
    }

    /// Findings that are over, since nothing that they name is there any more.
    fn close(&self, gone: &[FindingId], end: u64) -> Vec<v1::Finding> {
        let is_gone = |finding: &&v1::Finding| gone.contains(&FindingId(finding.id));
        let close = |finding: &v1::Finding| v1::Finding { over_unix_ns: end, ..finding.clone() };
        self.open.iter().filter(is_gone).map(close).collect()
    }

    fn trace(&mut self, due: &Due) {
        let Some(analyzer) = &mut self.analyzer else { return };
        // There and back.
        let most = self.config.flows.saturating_mul(2);
        for trace in &due.traces {
            let Some(tuple) = self.wiring.tuple(trace.from, trace.to, trace.port) else { continue };
            let paths = analyzer.paths_mut();
            if paths.len() < most || paths.knows(tuple) {
                paths.trace(tuple, &trace.path);
            }
        }
    }

    fn window(&self, due: &Due, judged: &mut Judged) -> Window {
        let wiring = &self.wiring;
        let rnic = |address: &IpAddr| wiring.rnics.get(address).copied();
        let observation = |((from, to, port, reply_port), told): (&FlowAddress, &FlowTold)| {
            let flow = FlowKey { from: rnic(from)?, to: rnic(to)?, port: *port, reply_port: *reply_port };
            Some(Observation { flow, outcomes: told.outcomes })
        };
        let mut observations: Vec<Observation> = due.slot.flows.iter().filter_map(observation).collect();
        observations.sort_unstable_by_key(|one| one.flow);
        judged.unknown_flows = (due.slot.flows.len() - observations.len()) as u64;
        let mut hosts = BTreeMap::new();
        for (name, state) in &due.slot.hosts {
            let Some(host) = wiring.host(name) else { continue };
            let longest = clock::nanos(state.longest);
            let (stalls, receive_drops) = (state.stalls, state.receive_drops);
            hosts.insert(host, HostReport { stalls, longest, receive_drops, ..HostReport::of(host) });
        }
        for (address, Member { agent, host, .. }) in &*due.members {
            let (is_lapsed, has_changed) = (!due.live.contains(agent), due.changed.contains(address));
            let Some(host) = wiring.host(host).filter(|_| is_lapsed || has_changed) else { continue };
            let report = hosts.entry(host).or_insert(HostReport::of(host));
            report.lapsed |= is_lapsed;
            report.changed_qpn |= has_changed;
        }
        Window { observations, hosts: hosts.into_values().collect() }
    }

    /// What people look at after a slot.
    fn board(
        &mut self,
        due: &Due,
        window: &Window,
        open: &[Finding],
        over: &[Finding],
    ) -> Option<BoardWindow> {
        let topology = self.picture.of(self.analyzer.as_ref()?.paths());
        let told = |over| {
            let topology = &topology;
            let this = &*self;
            move |finding: &Finding| BoardFinding::of(finding, topology, this.since(finding), over)
        };
        let open: Vec<BoardFinding> = open.iter().map(told(0)).collect();
        let over: Vec<BoardFinding> = over.iter().map(told(due.end)).collect();
        let gone = self.picture.close(&open, &over, due.end);
        Some(picture::window(due, window, &self.wiring, topology, open, [gone, over].concat()))
    }

    /// When the window began in which a finding was seen first.
    fn since(&self, finding: &Finding) -> u64 {
        let ago = usize::try_from(self.next - finding.since).unwrap_or(usize::MAX);
        let place = self.starts.len().saturating_sub(ago);
        self.starts.get(place).copied().unwrap_or_default()
    }

    fn told(&self, finding: &Finding, over_unix_ns: u64) -> v1::Finding {
        let evidence = &finding.evidence;
        let name = |suspect: &ferroce_mesh::Suspect| {
            let topology = self.analyzer.as_ref()?.paths().topology();
            Some(suspect.name(topology))
        };
        v1::Finding {
            id: finding.id.0,
            trouble: format!("{:?}", finding.trouble).to_lowercase(),
            suspects: finding.suspects.iter().filter_map(name).collect(),
            severity: format!("{:?}", finding.severity).to_lowercase(),
            since_unix_ns: self.since(finding),
            over_unix_ns,
            crossings: evidence.crossings,
            losses: evidence.losses,
            expected: evidence.expected,
            gain: evidence.gain,
        }
    }
}

//! Judges one slot after the other: what is bad, in names and times.
//!
//! It takes a second in a large network, so it stands apart from what reports wait for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use ferroce_mesh::{
    Analyzer, Evidence, Finding, FindingId, FlowKey, Guilt, HostReport, Observation, Paths, Severity,
    Suspect, TopologyBuilder, Trouble, Verdict, Window, WiringError,
};

use super::AnalyzerServerConfig;
use super::picture::{self, Picture};
use super::services::Services;
use super::slot::{Due, FlowAddress, FlowTold};
use super::wiring::{Member, Wiring};
use crate::board::{BoardAffected, BoardFinding, BoardService, BoardWindow, priority_name};
use crate::clock;
use crate::proto::v1;
use crate::store::Kept;

/// Windows whose times are known.
const TIMES: usize = 16_384;

/// Windows that findings of another life are waited for whose suspects are not there.
const PATIENCE: u32 = 15;

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
    services: Services,
    /// Findings of another life, until what they name is there.
    kept: Vec<v1::Finding>,
    /// Windows that they are waited for.
    patience: u32,
    /// When findings of another life began.
    since: BTreeMap<u64, u64>,
    /// Findings get larger numbers than those of other lives.
    next_id: u64,
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
    /// Services, and how many there are beyond.
    pub(super) services: (Vec<v1::ServiceState>, u32),
    /// The same for people, if they look.
    pub(super) board: Option<BoardWindow>,
}

impl Judge {
    pub(super) fn new(config: &AnalyzerServerConfig, kept: &Kept) -> Result<Self, WiringError> {
        Ok(Self {
            config: config.clone(),
            switches: config.topology.as_deref().map(TopologyBuilder::read).transpose()?,
            wiring: Wiring::default(),
            analyzer: None,
            starts: VecDeque::new(),
            next: 0,
            open: Vec::new(),
            picture: Picture::default(),
            services: Services::default(),
            kept: kept.open.clone(),
            patience: PATIENCE,
            since: kept.open.iter().map(|finding| (finding.id, finding.since_unix_ns)).collect(),
            next_id: kept.next,
        })
    }

    /// Judges a slot.
    pub(super) fn judge(&mut self, due: &Due) -> Judged {
        let mut judged = Judged { end: due.end, ..Judged::default() };
        self.rewire(due, &mut judged);
        self.reopen(&mut judged);
        self.trace(due);
        let window = self.window(due, &mut judged);
        if self.starts.len() >= TIMES {
            self.starts.pop_front();
        }
        self.starts.push_back(due.start);
        let Some(analyzer) = &mut self.analyzer else { return judged };
        let Verdict { number, open, over, .. } = analyzer.window(&window);
        self.next = number + 1;
        self.services.window(due, &self.wiring, analyzer.paths_mut(), &open, &over);
        judged.services = (self.services.list.iter().map(service).collect(), self.services.left_out);
        if self.config.has_board() {
            judged.board = self.board(due, &window, &open, &over);
        }
        self.open = open.iter().map(|finding| self.told(finding, 0)).collect();
        judged.open = self.open.iter().chain(&self.kept).cloned().collect();
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
            None => {
                let mut analyzer = Analyzer::new(Paths::new(topology), self.config.analyzer);
                analyzer.number_from(FindingId(self.next_id));
                self.analyzer = Some(analyzer);
            }
        }
    }

    /// Goes on with findings of another life whose suspects are there; after a while, with no others.
    fn reopen(&mut self, judged: &mut Judged) {
        let Some(analyzer) = self.analyzer.as_mut().filter(|_| !self.kept.is_empty()) else { return };
        self.patience = self.patience.saturating_sub(1);
        let topology = analyzer.paths().topology();
        let by_name: HashMap<String, Suspect> =
            Suspect::all(topology).map(|suspect| (suspect.name(topology), suspect)).collect();
        self.kept.retain(|kept| match reopened(kept, &by_name) {
            Some(finding) => {
                analyzer.reopen(finding);
                false
            }
            None if self.patience == 0 => {
                judged.over.push(v1::Finding { over_unix_ns: judged.end, ..kept.clone() });
                false
            }
            None => true,
        });
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
            move |finding: &Finding| BoardFinding {
                impact: this.services.impact(finding.id).cloned(),
                ..BoardFinding::of(finding, topology, this.since_of(finding), over)
            }
        };
        let open: Vec<BoardFinding> = open.iter().map(told(0)).collect();
        let over: Vec<BoardFinding> = over.iter().map(told(due.end)).collect();
        let gone = self.picture.close(&open, &over, due.end);
        let window = picture::window(due, window, &self.wiring, topology, open, [gone, over].concat());
        let Services { list, left_out, .. } = &self.services;
        Some(BoardWindow { services: list.clone(), services_left_out: *left_out, ..window })
    }

    /// When the window began in which a finding was seen first.
    fn since_of(&self, finding: &Finding) -> u64 {
        let ago = usize::try_from(self.next - finding.since).unwrap_or(usize::MAX);
        let place = self.starts.len().saturating_sub(ago);
        let since = self.since.get(&finding.id.0);
        since.or(self.starts.get(place)).copied().unwrap_or_default()
    }

    fn told(&self, finding: &Finding, over_unix_ns: u64) -> v1::Finding {
        let evidence = &finding.evidence;
        let name = |suspect: &Suspect| {
            let topology = self.analyzer.as_ref()?.paths().topology();
            Some(suspect.name(topology))
        };
        let impact = self.services.impact(finding.id);
        let affected = impact.map(|impact| impact.services.iter().map(affected).collect());
        v1::Finding {
            id: finding.id.0,
            trouble: named(&finding.trouble),
            suspects: finding.suspects.iter().filter_map(name).collect(),
            severity: named(&finding.severity),
            since_unix_ns: self.since_of(finding),
            over_unix_ns,
            crossings: evidence.crossings,
            losses: evidence.losses,
            expected: evidence.expected,
            gain: evidence.gain,
            priority: impact.map_or("", |impact| priority_name(impact.priority)).to_owned(),
            services: affected.unwrap_or_default(),
            services_left_out: impact.map_or(0, |impact| impact.left_out),
        }
    }
}

fn affected(one: &BoardAffected) -> v1::Affected {
    let tuple = |(from, to, port): &(IpAddr, IpAddr, u16)| v1::Tuple {
        from: from.to_string(),
        to: to.to_string(),
        port: (*port).into(),
    };
    v1::Affected {
        service: one.service.clone(),
        priority: priority_name(one.priority).to_owned(),
        flows: one.flows,
        examples: one.examples.iter().map(tuple).collect(),
    }
}

fn service(one: &BoardService) -> v1::ServiceState {
    v1::ServiceState {
        service: one.service.clone(),
        hosts: one.hosts,
        some_hosts: one.some_hosts.clone(),
        flows: one.flows,
        sent: one.sent,
        again: one.again,
        priority: one.priority.map(priority_name).unwrap_or_default().to_owned(),
        findings: one.findings.clone(),
    }
}

/// A finding of another life, if anything that it names is there.
fn reopened(kept: &v1::Finding, by_name: &HashMap<String, Suspect>) -> Option<Finding> {
    let suspects: Vec<Suspect> = kept.suspects.iter().filter_map(|name| by_name.get(name).copied()).collect();
    let trouble = [Trouble::Loss, Trouble::Delay].into_iter().find(|one| named(one) == kept.trouble)?;
    let severities = [Severity::Minor, Severity::Major, Severity::Critical];
    let severity = severities.into_iter().find(|one| named(one) == kept.severity)?;
    let v1::Finding { id, crossings, losses, expected, gain, .. } = *kept;
    let rate = ((losses - expected) / crossings.max(1.0)).clamp(0.0, 1.0);
    let guilt = Guilt { rate, share: 0.0 };
    let evidence = Evidence { guilt, gain, crossings, losses, expected, runner_up: None, top: Vec::new() };
    let finding = Finding::open(FindingId(id), trouble, severity, suspects, evidence);
    (!finding.suspects.is_empty()).then_some(finding)
}

fn named(one: &impl std::fmt::Debug) -> String {
    format!("{one:?}").to_lowercase()
}

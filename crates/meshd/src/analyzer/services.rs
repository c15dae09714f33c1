//! Services of the last windows, and what findings mean for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use ferroce_mesh::{Finding, FindingId, Outcomes, Paths, Priority, ServiceFlow, Tuple};

use super::slot::Due;
use super::wiring::{Members, Wiring};
use crate::board::{BoardAffected, BoardImpact, BoardService};
use crate::service_flow::ServiceFlowReport;

/// Windows that are looked at together: as many as a finding is made of.
const WINDOWS: usize = 3;

/// Services that are listed, and those that one finding names.
const LISTED: usize = 256;
const NAMED: usize = 32;

/// Hosts of a service, and findings of it, that are named.
const HOSTS: usize = 8;
const FINDINGS: usize = 16;

/// A queue pair, by its address and number.
type Place = (IpAddr, u32);

/// Services of the last windows.
#[derive(Debug, Default)]
pub(super) struct Services {
    recent: VecDeque<BTreeMap<Place, Told>>,
    /// What findings meant when they were looked at last.
    impacts: HashMap<FindingId, BoardImpact>,
    /// The services now.
    pub(super) list: Vec<BoardService>,
    /// Services beyond those.
    pub(super) left_out: u32,
}

/// A queue pair in a window, and probes that took its way.
#[derive(Clone, Debug)]
struct Told {
    flow: ServiceFlowReport,
    probes: Outcomes,
}

impl Services {
    /// Another window, with what is bad after it, and what ended with it.
    pub(super) fn window(
        &mut self,
        due: &Due,
        wiring: &Wiring,
        paths: &mut Paths,
        open: &[Finding],
        over: &[Finding],
    ) {
        if self.recent.len() >= WINDOWS {
            self.recent.pop_front();
        }
        self.recent.push_back(told(due));
        let flows = self.merged();
        let service_flows = service_flows(&flows, wiring);
        self.impacts.retain(|id, _| open.iter().chain(over).any(|finding| finding.id == *id));
        for finding in open {
            self.impacts.insert(finding.id, impact(paths, finding, &service_flows));
        }
        self.summarise(&flows, &due.members, open);
    }

    /// What a finding means, or meant when it was looked at last.
    pub(super) fn impact(&self, id: FindingId) -> Option<&BoardImpact> {
        self.impacts.get(&id)
    }

    /// Queue pairs of all windows that are looked at together: as they are now, with what they did in all.
    fn merged(&self) -> BTreeMap<Place, Told> {
        let mut all: BTreeMap<Place, Told> = BTreeMap::new();
        for (place, new) in self.recent.iter().flatten() {
            let mut new = new.clone();
            let before = all.get(place).filter(|before| is_same(&before.flow, &new.flow));
            if let Some(Told { flow, probes }) = before {
                new.flow.sent = new.flow.sent.saturating_add(flow.sent);
                new.flow.again = new.flow.again.saturating_add(flow.again);
                new.probes.add(probes);
            }
            all.insert(*place, new);
        }
        all
    }

    fn summarise(&mut self, flows: &BTreeMap<Place, Told>, members: &Members, open: &[Finding]) {
        let mut all: BTreeMap<&str, (BoardService, BTreeSet<&str>)> = BTreeMap::new();
        for Told { flow, .. } in flows.values() {
            let (sum, hosts) = all.entry(&flow.service).or_default();
            sum.flows = sum.flows.saturating_add(1);
            sum.sent = sum.sent.saturating_add(flow.sent);
            sum.again = sum.again.saturating_add(flow.again);
            hosts.extend(members.get(&flow.from).map(|member| member.host.as_str()));
        }
        for (finding, impact) in open.iter().filter_map(|one| Some((one.id, self.impacts.get(&one.id)?))) {
            for one in &impact.services {
                let Some((sum, _)) = all.get_mut(one.service.as_str()) else { continue };
                sum.priority = Some(sum.priority.map_or(one.priority, |known| known.min(one.priority)));
                sum.crossing = sum.crossing.max(one.flows);
                if sum.findings.len() < FINDINGS {
                    sum.findings.push(finding.0);
                }
            }
        }
        let mut list: Vec<BoardService> = all
            .into_iter()
            .map(|(service, (sum, hosts))| BoardService {
                service: service.to_owned(),
                hosts: short(hosts.len()),
                some_hosts: hosts.into_iter().take(HOSTS).map(str::to_owned).collect(),
                ..sum
            })
            .collect();
        list.sort_by_key(|one| (one.priority.unwrap_or(Priority::P2), std::cmp::Reverse(one.flows)));
        self.left_out = short(list.len().saturating_sub(LISTED));
        list.truncate(LISTED);
        self.list = list;
    }
}

fn is_same(one: &ServiceFlowReport, other: &ServiceFlowReport) -> bool {
    let name = |flow: &ServiceFlowReport| (flow.to, flow.port, flow.peer_qpn);
    name(one) == name(other) && one.service == other.service
}

/// What was told in a window, with the probes from the same ports to the same RNICs.
fn told(due: &Due) -> BTreeMap<Place, Told> {
    let mut probes: HashMap<(IpAddr, IpAddr, u16), Outcomes> = HashMap::new();
    for flow in due.slot.services.values() {
        probes.insert((flow.from, flow.to, flow.port), Outcomes::default());
    }
    if !probes.is_empty() {
        for ((from, to, port, _), told) in &due.slot.flows {
            if let Some(sum) = probes.get_mut(&(*from, *to, *port)) {
                sum.add(&told.outcomes);
            }
        }
    }
    let told = |(place, flow): (&Place, &ServiceFlowReport)| {
        let probes = probes.get(&(flow.from, flow.to, flow.port)).copied().unwrap_or_default();
        (*place, Told { flow: flow.clone(), probes })
    };
    due.slot.services.iter().map(told).collect()
}

/// Queue pairs in the numbers of the wiring, each with the port of what comes back: that of its peer, if the agent over
/// there tells of it.
fn service_flows(all: &BTreeMap<Place, Told>, wiring: &Wiring) -> Vec<ServiceFlow> {
    let flow = |Told { flow, probes }: &Told| {
        let peer = all.get(&(flow.to, flow.peer_qpn)).map(|peer| &peer.flow);
        let is_back = |peer: &&ServiceFlowReport| (peer.to, peer.peer_qpn) == (flow.from, flow.qpn);
        Some(ServiceFlow {
            service: flow.service.clone(),
            tuple: wiring.tuple(flow.from, flow.to, flow.port)?,
            back: peer.filter(is_back).map(|peer| peer.port),
            sent: flow.sent,
            again: flow.again,
            probes: *probes,
        })
    };
    all.values().filter_map(flow).collect()
}

fn impact(paths: &mut Paths, finding: &Finding, flows: &[ServiceFlow]) -> BoardImpact {
    let mut impact = paths.impact(finding, flows);
    let left_out = short(impact.services.len().saturating_sub(NAMED));
    impact.services.truncate(NAMED);
    let topology = paths.topology();
    let addresses =
        |tuple: Tuple| (topology.rnic(tuple.from).address, topology.rnic(tuple.to).address, tuple.port);
    let services = impact.services.into_iter().map(|one| BoardAffected {
        service: one.service,
        priority: one.priority,
        flows: one.flows,
        examples: one.examples.into_iter().map(addresses).collect(),
    });
    BoardImpact { priority: impact.priority, services: services.collect(), left_out }
}

fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

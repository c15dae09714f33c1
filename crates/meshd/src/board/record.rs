//! A window as the board keeps it: sums of each pair of ToRs, and as many flows as there is room for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferroce_mesh::{HostId, Outcomes, RnicId, Topology};

use super::detail::{Detail, KeptFlow, trouble};
use super::finding::BoardFinding;
use super::input::{BoardFlow, BoardHost, BoardWindow};
use super::matrix::Matrix;
use super::service::BoardService;
use super::tors::TorPlace;
use super::trips::quantile;

/// A window that was judged.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number on the board; the first one is 1.
    pub number: u64,
    /// When it began, in nanoseconds of the Unix clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Agents that told of it.
    pub agents: u32,
    /// Whether all agents told of it.
    pub is_complete: bool,
    /// From ToR to ToR.
    pub matrix: Matrix,
    /// What was bad.
    pub open: Vec<BoardFinding>,
    /// Flows of RNICs that the wiring does not have.
    pub unknown: u64,
    /// Services, those in trouble first.
    pub services: Vec<BoardService>,
    /// Services beyond those.
    pub services_left_out: u32,
}

impl Record {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.matrix.bytes()
            + self.open.iter().map(BoardFinding::bytes).sum::<usize>()
            + self.services.iter().map(BoardService::bytes).sum::<usize>()
    }
}

/// A window that is ready for the board.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) record: Record,
    pub(super) detail: Detail,
    pub(super) over: Vec<BoardFinding>,
    pub(super) topology: Arc<Topology>,
}

/// Puts a window together. `tors` has the place on the board of each switch of the wiring, in the order in
/// which the matrix shows them; `most` is how many flows are kept.
pub(super) fn prepare(window: BoardWindow, tors: &Places, most: usize) -> Prepared {
    let BoardWindow { start, end, agents, is_complete, topology, flows, hosts, open, over, .. } = window;
    let (services, services_left_out) = (window.services, window.services_left_out);
    let mut matrix = Matrix::new(tors.order.clone());
    let cards = topology.rnics().len();
    let is_known = |rnic: RnicId| (rnic.0 as usize) < cards;
    let place = |flow: &BoardFlow| {
        let (from, to) = (flow.key.from, flow.key.to);
        let row = |rnic| tors.rows.get(&topology.rnic(rnic).tor.0).copied();
        (is_known(from) && is_known(to)).then(|| Some(row(from)? * tors.order.len() + row(to)?)).flatten()
    };
    let by_pair = ByPair::new(matrix.probes().len(), flows.iter().map(place));
    let each = (most / by_pair.pairs().max(1)).max(1);
    let mut kept = Vec::with_capacity(flows.len().min(most));
    let mut buckets = Vec::new();
    for (pair, members) in by_pair.iter() {
        let mut sum = Outcomes::default();
        buckets.clear();
        for flow in members.iter().map(|number| &flows[*number as usize]) {
            sum.add(&flow.outcomes);
            buckets.extend_from_slice(flow.trips.buckets());
        }
        buckets.sort_unstable();
        let (half, nearly_all) = (quantile(&buckets, 0.5), quantile(&buckets, 0.99));
        matrix.set(pair, probes(&sum), sum.lossy(), half, nearly_all);
        let mut members = members.to_vec();
        members.sort_by_key(|number| Reverse(trouble(&flows[*number as usize].outcomes)));
        let room = most.saturating_sub(kept.len());
        for number in members.into_iter().take(each.min(room)) {
            let BoardFlow { key, outcomes, trips } = &flows[number as usize];
            kept.push(KeptFlow {
                place: u32::try_from(pair).unwrap_or(u32::MAX),
                from: topology.rnic(key.from).address,
                to: topology.rnic(key.to).address,
                port: key.port,
                reply_port: key.reply_port,
                outcomes: *outcomes,
                trips: trips.clone(),
            });
        }
    }
    let hosts = rows(&topology, hosts, flows.iter().filter(|flow| is_known(flow.key.from)));
    let unknown = by_pair.unknown;
    let number = 0;
    let record = Record {
        number,
        start,
        end,
        agents,
        is_complete,
        matrix,
        open,
        unknown,
        services,
        services_left_out,
    };
    Prepared { record, detail: Detail::new(kept, hosts), over, topology }
}

/// Where the ToRs of a wiring are.
#[derive(Debug)]
pub(super) struct Places {
    /// The ToRs in the order of rows.
    pub(super) order: Vec<TorPlace>,
    /// The row of each switch that is a ToR.
    pub(super) rows: HashMap<u32, usize>,
}

/// All probes that ended.
pub(super) const fn probes(outcomes: &Outcomes) -> u32 {
    outcomes.told().saturating_add(outcomes.host)
}

/// What hosts said, with the probes that they sent; a row for each host.
fn rows<'a>(
    topology: &Topology,
    said: Vec<BoardHost>,
    flows: impl Iterator<Item = &'a BoardFlow>,
) -> Vec<BoardHost> {
    let mut said: BTreeMap<String, BoardHost> =
        said.into_iter().map(|host| (host.host.clone(), host)).collect();
    let row = |host: &ferroce_mesh::Host| BoardHost {
        sent: 0,
        ok: 0,
        lost: 0,
        ..said
            .remove(&host.name)
            .unwrap_or_else(|| BoardHost { host: host.name.clone(), ..BoardHost::default() })
    };
    let mut rows: Vec<BoardHost> = topology.hosts().iter().map(row).collect();
    for flow in flows {
        let HostId(host) = topology.rnic(flow.key.from).host;
        let row = &mut rows[host as usize];
        row.sent += u64::from(probes(&flow.outcomes));
        row.ok += u64::from(flow.outcomes.ok);
        row.lost += u64::from(flow.outcomes.lossy());
    }
    rows
}

/// Numbers of flows, by the place of their pair.
struct ByPair {
    /// Where the flows of each pair begin.
    starts: Vec<u32>,
    numbers: Vec<u32>,
    unknown: u64,
}

impl ByPair {
    fn new(cells: usize, places: impl Iterator<Item = Option<usize>> + Clone) -> Self {
        let mut starts = vec![0_u32; cells + 1];
        let mut unknown = 0;
        for place in places.clone() {
            match place {
                Some(place) => starts[place + 1] += 1,
                None => unknown += 1,
            }
        }
        for place in 0..cells {
            starts[place + 1] += starts[place];
        }
        let mut next = starts.clone();
        let mut numbers = vec![0; starts.last().map_or(0, |all| *all as usize)];
        for (number, place) in (0..).zip(places) {
            if let Some(place) = place {
                numbers[next[place] as usize] = number;
                next[place] += 1;
            }
        }
        Self { starts, numbers, unknown }
    }

    /// Pairs that have flows.
    fn pairs(&self) -> usize {
        self.iter().count()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let members =
            |(pair, ends): (usize, &[u32])| (pair, &self.numbers[ends[0] as usize..ends[1] as usize]);
        self.starts.windows(2).enumerate().map(members).filter(|(_, members)| !members.is_empty())
    }
}

//! From traces to what packets cross. Where a trace has holes, a way is a mixture of all paths that it may be.
//!
//! Traces are believed before the description: a link that only traces know is learnt, and a card whose traces
//! begin at another ToR is moved there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use ferroce_probe::paths::Path;

use crate::observation::Tuple;
use crate::suspect::{Row, Suspect};
use crate::topology::{LinkId, Node, RnicId, SwitchId, Topology};

/// No more paths are kept for one way; beyond them, nothing is said of its middle.
const MOST_CANDIDATES: usize = 256;
/// A card is moved to another ToR when so many more traces speak for it than against it.
const MOVES_AFTER: i32 = 3;

/// The paths of all tuples, as far as they are known.
#[derive(Clone, Debug)]
pub struct Paths {
    topology: Topology,
    row: Row,
    ways: HashMap<Tuple, WayId>,
    list: Vec<Way>,
    middles: Vec<Middle>,
    /// Candidates of all middles: places of what they cross.
    candidates: Vec<Range<u32>>,
    crossed: Vec<u32>,
    /// What the candidates of a mixture cross, with weights.
    weights: Vec<(u32, f32)>,
    known: HashMap<u64, Vec<MiddleId>>,
    mixtures: HashMap<Asked, MiddleId>,
    /// Ways that a trace does not tell whole, with what it tells.
    incomplete: HashMap<WayId, Path>,
    votes: HashMap<RnicId, (SwitchId, i32)>,
    moved: Vec<RnicId>,
    learnt: u32,
}

/// A way, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WayId(u32);

impl WayId {
    /// No way.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MiddleId(u32);

/// The two ends of a way, which are known; and its middle, between ToRs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    /// Places of: the card that sends, its link, its ToR; the link to the card that receives, and that card.
    ends: [u32; 5],
    middle: MiddleId,
}

#[derive(Clone, Debug)]
struct Middle {
    candidates: Range<u32>,
    weights: Range<u32>,
}

type Asked = (SwitchId, SwitchId, Vec<Option<SwitchId>>, bool);

/// What a way crosses in its middle.
pub(crate) enum Crossed<'a> {
    /// Exactly this.
    Known(&'a [u32]),
    /// This, with a weight each, less than 1 or 1.
    Mixture(&'a [(u32, f32)]),
}

impl Paths {
    /// Nothing is traced yet.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let row = Row::new(&topology);
        Self {
            topology,
            row,
            ways: HashMap::new(),
            list: Vec::new(),
            middles: Vec::new(),
            candidates: Vec::new(),
            crossed: Vec::new(),
            weights: Vec::new(),
            known: HashMap::new(),
            mixtures: HashMap::new(),
            incomplete: HashMap::new(),
            votes: HashMap::new(),
            moved: Vec::new(),
            learnt: 0,
        }
    }

    /// The topology, with what was learnt.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Links that traces have shown and the description lacks, and cards that hang elsewhere.
    #[must_use]
    pub const fn learnt(&self) -> u32 {
        self.learnt
    }

    /// A trace of a tuple. The newest one counts; what names no switch of the topology counts as silence.
    pub fn trace(&mut self, tuple: Tuple, path: &Path) {
        let hops = self.hops(path);
        self.vote(tuple.from, hops.first().copied().flatten());
        if path.reaches {
            self.vote(tuple.to, hops.last().copied().flatten());
        }
        let way = self.resolve(tuple, &hops, path.reaches);
        let id = self.put(tuple, way);
        if path.reaches && hops.iter().all(Option::is_some) {
            self.incomplete.remove(&id);
        } else {
            self.incomplete.insert(id, path.clone());
        }
    }

    /// Forgets tuples that are not probed any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Tuple) -> bool) {
        // Numbers of ways stay as they are; those that are free are few, since ports are rotated slowly.
        let incomplete = &mut self.incomplete;
        self.ways.retain(|tuple, id| {
            let kept = keep(tuple);
            if !kept {
                incomplete.remove(id);
            }
            kept
        });
    }

    /// Resolves anew what depends on cards that have moved. Called before a window is judged.
    pub(crate) fn settle(&mut self) {
        if self.moved.is_empty() {
            return;
        }
        let moved = std::mem::take(&mut self.moved);
        let touched: Vec<(Tuple, WayId)> = self
            .ways
            .iter()
            .filter(|(tuple, id)| {
                self.incomplete.contains_key(id) && (moved.contains(&tuple.from) || moved.contains(&tuple.to))
            })
            .map(|(tuple, id)| (*tuple, *id))
            .collect();
        for (tuple, id) in touched {
            let Some(path) = self.incomplete.get(&id).cloned() else { continue };
            let hops = self.hops(&path);
            self.list[id.0 as usize] = self.resolve(tuple, &hops, path.reaches);
        }
    }

    /// The way of a tuple; one that was never traced is a mixture of all that is possible.
    pub(crate) fn way(&mut self, tuple: Tuple) -> WayId {
        if let Some(id) = self.ways.get(&tuple) {
            return *id;
        }
        let way = self.resolve(tuple, &[], false);
        let id = self.put(tuple, way);
        self.incomplete.insert(id, Path::default());
        id
    }

    pub(crate) const fn row(&self) -> &Row {
        &self.row
    }

    pub(crate) fn places(&self) -> usize {
        self.row.len(&self.topology)
    }

    /// Places of the ends of a way: all of them are crossed for sure.
    pub(crate) fn ends(&self, way: WayId) -> &[u32; 5] {
        &self.list[way.0 as usize].ends
    }

    pub(crate) fn crossed(&self, way: WayId) -> Crossed<'_> {
        let middle = &self.middles[self.list[way.0 as usize].middle.0 as usize];
        if middle.candidates.len() == 1 {
            let range = &self.candidates[middle.candidates.start as usize];
            Crossed::Known(&self.crossed[range.start as usize..range.end as usize])
        } else {
            Crossed::Mixture(&self.weights[middle.weights.start as usize..middle.weights.end as usize])
        }
    }

    /// What each possible path crosses in the middle; all are as likely.
    pub(crate) fn candidates(&self, way: WayId) -> impl ExactSizeIterator<Item = &[u32]> {
        let middle = &self.middles[self.list[way.0 as usize].middle.0 as usize];
        let ranges = &self.candidates[middle.candidates.start as usize..middle.candidates.end as usize];
        ranges.iter().map(|range| &self.crossed[range.start as usize..range.end as usize])
    }

    fn put(&mut self, tuple: Tuple, way: Way) -> WayId {
        let next = WayId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let id = *self.ways.entry(tuple).or_insert(next);
        if id == next {
            self.list.push(way);
        } else {
            self.list[id.0 as usize] = way;
        }
        id
    }

    fn hops(&self, path: &Path) -> Vec<Option<SwitchId>> {
        let switch = |address: &Option<_>| match self.topology.owner((*address)?) {
            Some(Node::Switch(id)) => Some(id),
            _ => None,
        };
        path.routers.iter().map(switch).collect()
    }

    /// The first and the last router of a trace say where a card hangs.
    fn vote(&mut self, rnic: RnicId, hop: Option<SwitchId>) {
        let Some(seen) = hop else { return };
        let current = self.topology.rnic(rnic).tor;
        if seen == current && !self.votes.contains_key(&rnic) {
            return;
        }
        let (wish, votes) = self.votes.entry(rnic).or_insert((seen, 0));
        match seen {
            _ if seen == current => *votes = (*votes - 1).max(0),
            _ if seen == *wish => *votes += 1,
            _ => (*wish, *votes) = (seen, 1),
        }
        if *votes >= MOVES_AFTER {
            let to = *wish;
            self.votes.remove(&rnic);
            self.topology.move_rnic(rnic, to);
            self.moved.push(rnic);
            self.learnt += 1;
        }
    }

    fn resolve(&mut self, tuple: Tuple, hops: &[Option<SwitchId>], reaches: bool) -> Way {
        let tor = |rnic: RnicId| self.topology.rnic(rnic).tor;
        let start = hops.first().copied().flatten().unwrap_or_else(|| tor(tuple.from));
        let told = if reaches { hops.last().copied().flatten() } else { None };
        let end = told.unwrap_or_else(|| tor(tuple.to));
        let (from, to) = (Node::Rnic(tuple.from), Node::Rnic(tuple.to));
        let first = self.link(from, Node::Switch(start));
        let last = self.link(Node::Switch(end), to);
        let place = |link| self.row.place(Suspect::Link(link));
        let ends = [
            self.row.node(from),
            place(first),
            self.row.node(Node::Switch(start)),
            place(last),
            self.row.node(to),
        ];
        Way { ends, middle: self.middle(start, end, hops, reaches) }
    }

    fn link(&mut self, from: Node, to: Node) -> LinkId {
        let before = self.topology.links().len();
        let id = self.topology.learn_link(from, to);
        if self.topology.links().len() > before {
            self.learnt += 1;
            // Mixtures that were made without the link stay as they are; new ones have it.
            self.mixtures.clear();
        }
        id
    }

    fn middle(
        &mut self,
        start: SwitchId,
        end: SwitchId,
        hops: &[Option<SwitchId>],
        reaches: bool,
    ) -> MiddleId {
        if reaches && !hops.is_empty() && hops.iter().all(Option::is_some) {
            let switches: Vec<SwitchId> = hops.iter().copied().flatten().collect();
            return self.known(&switches);
        }
        let asked = (start, end, hops.to_vec(), reaches);
        if let Some(id) = self.mixtures.get(&asked) {
            return *id;
        }
        let mut all = self.possible(start, end);
        all.retain(|path| fits(path, hops, reaches));
        if all.is_empty() {
            // The description contradicts the trace: what the trace names beyond doubt is all that is known.
            all = bridged(&self.topology, start, end, hops, reaches);
        }
        let id = match all.as_slice() {
            [] => self.store(&[]),
            [one] => self.known(&one.clone()),
            several => {
                let several: Vec<Vec<u32>> =
                    several.to_vec().iter().map(|path| self.places_of(path)).collect();
                self.store(&several)
            }
        };
        self.mixtures.insert(asked, id);
        id
    }

    /// Switches in a row as what is crossed behind the first of them.
    fn places_of(&mut self, switches: &[SwitchId]) -> Vec<u32> {
        let mut places = Vec::with_capacity(switches.len() * 2);
        for pair in switches.windows(2) {
            let [from, to] = [pair[0], pair[1]].map(Node::Switch);
            let link = self.link(from, to);
            places.push(self.row.place(Suspect::Link(link)));
            places.push(self.row.node(to));
        }
        places
    }

    fn known(&mut self, switches: &[SwitchId]) -> MiddleId {
        let places = self.places_of(switches);
        let mut hasher = DefaultHasher::new();
        places.hash(&mut hasher);
        let key = hasher.finish();
        for id in self.known.get(&key).into_iter().flatten() {
            let start = self.middles[id.0 as usize].candidates.start;
            let range = &self.candidates[start as usize];
            if self.crossed[range.start as usize..range.end as usize] == places {
                return *id;
            }
        }
        let id = self.store(&[places]);
        self.known.entry(key).or_default().push(id);
        id
    }

    fn store(&mut self, paths: &[Vec<u32>]) -> MiddleId {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let first = number(self.candidates.len());
        for path in paths {
            let start = number(self.crossed.len());
            self.crossed.extend(path);
            self.candidates.push(start..number(self.crossed.len()));
        }
        let weights = number(self.weights.len());
        if paths.len() > 1 {
            let mut all: Vec<u32> = paths.iter().flatten().copied().collect();
            all.sort_unstable();
            #[expect(clippy::cast_precision_loss, reason = "at most 256")]
            let share = |count: usize| count as f32 / paths.len() as f32;
            self.weights.extend(all.chunk_by(u32::eq).map(|same| (same[0], share(same.len()))));
        }
        let middle = Middle {
            candidates: first..number(self.candidates.len()),
            weights: weights..number(self.weights.len()),
        };
        self.middles.push(middle);
        MiddleId(number(self.middles.len() - 1))
    }

    /// All shortest paths that go up and then down; none if there are too many.
    fn possible(&self, start: SwitchId, end: SwitchId) -> Vec<Vec<SwitchId>> {
        if start == end {
            return vec![vec![start]];
        }
        let (mut ups, mut downs) = (vec![vec![start]], vec![vec![end]]);
        for _ in 0..3 {
            ups = self.raised(&ups);
            downs = self.raised(&downs);
            let mut by_top: HashMap<SwitchId, Vec<&Vec<SwitchId>>> = HashMap::new();
            for down in &downs {
                if let Some(top) = down.last() {
                    by_top.entry(*top).or_default().push(down);
                }
            }
            let mut joined = Vec::new();
            for up in &ups {
                let Some(top) = up.last() else { continue };
                for down in by_top.get(top).into_iter().flatten() {
                    joined.push(up.iter().chain(down.iter().rev().skip(1)).copied().collect());
                }
            }
            if joined.len() > MOST_CANDIDATES {
                return Vec::new();
            }
            if !joined.is_empty() {
                return joined;
            }
        }
        Vec::new()
    }

    fn raised(&self, paths: &[Vec<SwitchId>]) -> Vec<Vec<SwitchId>> {
        let mut raised = Vec::new();
        for path in paths {
            let Some(top) = path.last() else { continue };
            for above in &self.topology.switch(*top).above {
                raised.push(path.iter().copied().chain([*above]).collect());
            }
        }
        raised
    }
}

/// Whether a path may be what a trace tells in parts.
fn fits(path: &[SwitchId], hops: &[Option<SwitchId>], reaches: bool) -> bool {
    let length = if reaches { path.len() == hops.len() } else { path.len() >= hops.len() };
    length && path.iter().zip(hops).all(|(switch, hop)| hop.is_none_or(|hop| hop == *switch))
}

/// Paths through the named hops, with one switch in each hole that is a neighbour of both sides.
fn bridged(
    topology: &Topology,
    start: SwitchId,
    end: SwitchId,
    hops: &[Option<SwitchId>],
    reaches: bool,
) -> Vec<Vec<SwitchId>> {
    if !reaches || hops.len() < 3 {
        return Vec::new();
    }
    let mut hops = hops.to_vec();
    let last = hops.len() - 1;
    (hops[0], hops[last]) = (Some(start), Some(end));
    let mut paths: Vec<Vec<SwitchId>> = vec![vec![start]];
    for place in 1..hops.len() {
        let mut longer = Vec::new();
        for path in &paths {
            let Some(before) = path.last().copied() else { continue };
            let next: Vec<SwitchId> = match (hops[place], hops.get(place + 1).copied().flatten()) {
                (Some(hop), _) => vec![hop],
                (None, Some(behind)) => between(topology, before, behind),
                (None, None) => Vec::new(),
            };
            longer.extend(next.into_iter().map(|switch| {
                let mut path = path.clone();
                path.push(switch);
                path
            }));
        }
        paths = longer;
        if paths.len() > MOST_CANDIDATES {
            return Vec::new();
        }
    }
    paths
}

/// Switches with a link from one and to the other.
fn between(topology: &Topology, before: SwitchId, behind: SwitchId) -> Vec<SwitchId> {
    let has_links = |switch: &SwitchId| {
        let link = |from, to| topology.link(Node::Switch(from), Node::Switch(to)).is_some();
        link(before, *switch) && link(*switch, behind)
    };
    let count = u32::try_from(topology.switches().len()).unwrap_or(u32::MAX);
    (0..count).map(SwitchId).filter(has_links).collect()
}

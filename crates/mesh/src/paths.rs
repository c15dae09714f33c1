//! From traces to what packets cross. Where a trace has holes, a way is a mixture of all paths that it may be.
//!
//! Traces are believed before the description: a link that only traces know is learnt, and a card whose traces
//! begin at another ToR is moved there.

use std::collections::HashMap;

use ferroce_probe::paths::Path;

use crate::climbs::{Climbs, bridged};
use crate::mixture::{Choices, Mixture};
use crate::observation::Tuple;
use crate::quick::QuickMap;
use crate::renaming::Renaming;
use crate::suspect::{Row, Suspect};
use crate::topology::{LinkId, Node, RnicId, SwitchId, Topology};

/// No more routers of a path are kept.
const MOST_HOPS: usize = 16;
/// A card is moved to another ToR when so many more traces speak for it than against it.
const MOVES_AFTER: i32 = 3;

/// The paths of all tuples, as far as they are known.
#[derive(Clone, Debug)]
pub struct Paths {
    topology: Topology,
    row: Row,
    ways: QuickMap<Tuple, WayId>,
    list: Vec<Way>,
    /// What ways cross whose middle is known; each has a stretch of its own.
    known: Vec<u32>,
    /// Middles that are not known, shared by all ways of which as much is known.
    mixtures: Vec<Mixture>,
    by_asked: HashMap<Asked, u32>,
    climbs: Climbs,
    /// Ways that a trace does not tell whole, with what it tells.
    incomplete: QuickMap<WayId, Path>,
    votes: HashMap<RnicId, (SwitchId, i32)>,
    moved: Vec<RnicId>,
    /// Cards that traces have moved, with the ToRs that are described.
    homes: HashMap<RnicId, SwitchId>,
    learnt: u32,
}

/// A way, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WayId(u32);

/// The two ends of a way, which are known; and its middle, between ToRs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    /// Places of: the card that sends, its link, its ToR; the link to the card that receives, and that card.
    ends: [u32; 5],
    middle: Middle,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Middle {
    /// A stretch of what is known: where it begins, and how long it is.
    Known(u32, u8),
    /// One of the mixtures.
    Mixture(u32),
    /// Nothing can be said.
    Unknown,
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
            ways: QuickMap::default(),
            list: Vec::new(),
            known: Vec::new(),
            mixtures: Vec::new(),
            by_asked: HashMap::new(),
            climbs: Climbs::default(),
            incomplete: QuickMap::default(),
            votes: HashMap::new(),
            moved: Vec::new(),
            homes: HashMap::new(),
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
        let id = self.put(tuple, &hops, path.reaches);
        if path.reaches && hops.iter().all(Option::is_some) {
            self.incomplete.remove(&id);
        } else {
            self.incomplete.insert(id, path.clone());
        }
    }

    /// How many tuples are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ways.len()
    }

    /// Whether no tuple is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Whether a tuple is known, traced or not.
    #[must_use]
    pub fn knows(&self, tuple: Tuple) -> bool {
        self.ways.contains_key(&tuple)
    }

    /// The same paths in another description, as far as they are to be kept; and the numbers of things there.
    pub(crate) fn onto(&self, topology: Topology, keep: impl Fn(&Tuple) -> bool) -> (Self, Renaming) {
        let names = Renaming::new(&self.topology, &topology);
        let mut paths = Self::new(topology);
        for (rnic, home) in &self.homes {
            // Traces are believed as long as the description says what it said when they spoke against it.
            if let (Some(rnic), Some(home), Some(tor)) =
                (names.rnic(*rnic), names.switch(*home), names.switch(self.topology.rnic(*rnic).tor))
                && [home, tor].contains(&paths.topology.rnic(rnic).tor)
            {
                paths.topology.move_rnic(rnic, tor);
                paths.homes.insert(rnic, home);
            }
        }
        let mut ways: Vec<(&Tuple, &WayId)> = self.ways.iter().filter(|(tuple, _)| keep(tuple)).collect();
        ways.sort_unstable_by_key(|(_, id)| id.0);
        for (before, id) in ways {
            let Some(tuple) = names.tuple(*before) else { continue };
            let (hops, reaches, told) = match self.incomplete.get(id) {
                Some(path) => (paths.hops(path), path.reaches, Some(path.clone())),
                None => {
                    let hops: Vec<_> = self.switches(*id).map(|switch| names.switch(switch)).collect();
                    let told = Path { routers: vec![None; hops.len()], reaches: true };
                    let is_whole = hops.iter().all(Option::is_some);
                    (hops, true, (!is_whole).then_some(told))
                }
            };
            let id = paths.put(tuple, &hops, reaches);
            if let Some(path) = told {
                paths.incomplete.insert(id, path);
            }
        }
        paths.learnt = paths.learnt.max(self.learnt);
        (paths, names)
    }

    /// What is suspected, in another description; a link that is not described there is learnt.
    pub(crate) fn renamed(&mut self, suspect: Suspect, before: &Self, names: &Renaming) -> Option<Suspect> {
        Some(match suspect {
            Suspect::Rnic(id) => Suspect::Rnic(names.rnic(id)?),
            Suspect::Switch(id) => Suspect::Switch(names.switch(id)?),
            Suspect::Host(id) => Suspect::Host(names.host(id)?),
            Suspect::Link(id) => {
                let (from, to) = before.topology.ends(id);
                Suspect::Link(self.link(names.node(from)?, names.node(to)?))
            }
        })
    }

    /// The switches of a way that was traced whole.
    fn switches(&self, way: WayId) -> impl Iterator<Item = SwitchId> {
        let Way { ends, middle } = self.list[way.0 as usize];
        let behind = match middle {
            Middle::Known(start, len) => self.stretch(start, len),
            _ => &[],
        };
        std::iter::once(ends[2]).chain(behind.iter().copied()).filter_map(|place| {
            match self.row.suspect(place) {
                Suspect::Switch(id) => Some(id),
                _ => None,
            }
        })
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
            self.resolve(id, tuple, &hops, path.reaches);
        }
    }

    /// The way of a tuple; one that was never traced is a mixture of all that is possible.
    pub(crate) fn way(&mut self, tuple: Tuple) -> WayId {
        if let Some(id) = self.ways.get(&tuple) {
            return *id;
        }
        let id = self.put(tuple, &[], false);
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
        match self.list[way.0 as usize].middle {
            Middle::Known(start, len) => Crossed::Known(self.stretch(start, len)),
            Middle::Mixture(number) => Crossed::Mixture(self.mixtures[number as usize].weights()),
            Middle::Unknown => Crossed::Mixture(&[]),
        }
    }

    /// How many paths a way may take; none if nothing can be said.
    pub(crate) fn choices(&self, way: WayId) -> usize {
        match self.list[way.0 as usize].middle {
            Middle::Known(..) => 1,
            Middle::Mixture(number) => self.mixtures[number as usize].choices(),
            Middle::Unknown => 0,
        }
    }

    /// Which of the possible paths of a way cross a place in the middle; all are as likely.
    pub(crate) fn through(&self, way: WayId, place: u32) -> Choices {
        let mut paths = Choices::default();
        match self.list[way.0 as usize].middle {
            Middle::Known(start, len) => {
                if self.stretch(start, len).contains(&place) {
                    paths.insert(0);
                }
            }
            Middle::Mixture(number) => {
                paths = self.mixtures[number as usize].through(place);
            }
            Middle::Unknown => {}
        }
        paths
    }

    fn stretch(&self, start: u32, len: u8) -> &[u32] {
        &self.known[start as usize..start as usize + usize::from(len)]
    }

    /// Resolves the way of a tuple anew.
    fn put(&mut self, tuple: Tuple, hops: &[Option<SwitchId>], reaches: bool) -> WayId {
        let next = WayId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let id = *self.ways.entry(tuple).or_insert(next);
        if id == next {
            self.list.push(Way { ends: [0; 5], middle: Middle::Unknown });
        }
        self.resolve(id, tuple, hops, reaches);
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
            self.homes.entry(rnic).or_insert(current);
            self.topology.move_rnic(rnic, to);
            self.moved.push(rnic);
            self.learnt += 1;
        }
    }

    fn resolve(&mut self, id: WayId, tuple: Tuple, hops: &[Option<SwitchId>], reaches: bool) {
        let tor = |rnic: RnicId| self.topology.rnic(rnic).tor;
        let start = hops.first().copied().flatten().unwrap_or_else(|| tor(tuple.from));
        let told = if reaches { hops.last().copied().flatten() } else { None };
        let end = told.unwrap_or_else(|| tor(tuple.to));
        let (from, to) = (Node::Rnic(tuple.from), Node::Rnic(tuple.to));
        let first = self.link(from, Node::Switch(start));
        let last = self.link(Node::Switch(end), to);
        let place = |link| self.row.place(Suspect::Link(link));
        let (sends, below, takes) =
            (self.row.node(from), self.row.node(Node::Switch(start)), self.row.node(to));
        let ends = [sends, place(first), below, place(last), takes];
        let before = self.list[id.0 as usize].middle;
        let middle = self.middle(before, start, end, hops, reaches);
        self.list[id.0 as usize] = Way { ends, middle };
    }

    fn link(&mut self, from: Node, to: Node) -> LinkId {
        let before = self.topology.links().len();
        let id = self.topology.learn_link(from, to);
        if self.topology.links().len() > before {
            self.learnt += 1;
            // Mixtures that were made without the link stay as they are; new ones have it.
            self.by_asked.clear();
            self.climbs.clear();
        }
        id
    }

    fn middle(
        &mut self,
        before: Middle,
        start: SwitchId,
        end: SwitchId,
        hops: &[Option<SwitchId>],
        reaches: bool,
    ) -> Middle {
        if reaches && !hops.is_empty() && hops.iter().all(Option::is_some) {
            return self.keep(before, hops.iter().copied().flatten());
        }
        let asked = (start, end, hops.to_vec(), reaches);
        if let Some(number) = self.by_asked.get(&asked) {
            return Middle::Mixture(*number);
        }
        let all = self.climbs.possible(&self.topology, start, end, hops, reaches);
        if all.is_empty() {
            // The description contradicts the trace: what the trace names beyond doubt is all that is known.
            let all = bridged(&self.topology, start, end, hops, reaches);
            return self.one_of(before, asked, &all);
        }
        self.one_of(before, asked, &all)
    }

    fn one_of<P: AsRef<[SwitchId]>>(&mut self, before: Middle, asked: Asked, all: &[P]) -> Middle {
        match all {
            [] => Middle::Unknown,
            [one] => self.keep(before, one.as_ref().iter().copied()),
            _ => {
                let number = u32::try_from(self.mixtures.len()).unwrap_or(u32::MAX);
                let mixture = self.mixture(all);
                self.mixtures.push(mixture);
                self.by_asked.insert(asked, number);
                Middle::Mixture(number)
            }
        }
    }

    /// Keeps what is crossed behind the first of some switches, in the place of what was kept before.
    fn keep(&mut self, before: Middle, switches: impl Iterator<Item = SwitchId>) -> Middle {
        let mut places = [0_u32; 2 * MOST_HOPS];
        let (mut len, mut last) = (0, None);
        for switch in switches {
            if let Some(last) = last
                && len + 2 <= places.len()
            {
                let [from, to] = [last, switch].map(Node::Switch);
                let link = self.link(from, to);
                places[len] = self.row.place(Suspect::Link(link));
                places[len + 1] = self.row.node(to);
                len += 2;
            }
            last = Some(switch);
        }
        let length = u8::try_from(len).unwrap_or(u8::MAX);
        if let Middle::Known(start, kept) = before
            && kept >= length
        {
            self.known[start as usize..start as usize + len].copy_from_slice(&places[..len]);
            return Middle::Known(start, length);
        }
        let start = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.known.extend(&places[..len]);
        Middle::Known(start, length)
    }

    fn mixture<P: AsRef<[SwitchId]>>(&mut self, paths: &[P]) -> Mixture {
        let mut crossed = Vec::with_capacity(paths.len() * 8);
        // Paths that follow each other share their beginnings.
        let mut last = [None; MOST_HOPS];
        for (number, path) in (0..).zip(paths) {
            for (hop, pair) in path.as_ref().windows(2).enumerate() {
                let known = last.get(hop).copied().flatten();
                let place = match known {
                    Some((ends, place)) if ends == (pair[0], pair[1]) => place,
                    _ => {
                        let [from, to] = [pair[0], pair[1]].map(Node::Switch);
                        let link = self.link(from, to);
                        self.row.place(Suspect::Link(link))
                    }
                };
                if let Some(last) = last.get_mut(hop) {
                    *last = Some(((pair[0], pair[1]), place));
                }
                crossed.push((place, number));
                crossed.push((self.row.node(Node::Switch(pair[1])), number));
            }
        }
        Mixture::new(paths.len(), crossed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::topology::{Tier, TopologyBuilder};

    fn address(kind: u8, number: u8) -> IpAddr {
        IpAddr::from([10, 0, kind, number])
    }

    /// Two pods of two ToRs and two aggregations; two cores in each plane; a card below each ToR.
    fn builder() -> TopologyBuilder {
        let mut builder = Topology::builder();
        for (kind, tier, count) in [(1, Tier::Tor, 4), (2, Tier::Aggregation, 4), (3, Tier::Core, 4)] {
            for number in 0..count {
                builder.switch(&format!("{kind}.{number}"), tier, [address(kind, number)]).unwrap();
            }
        }
        for tor in 0..4 {
            builder
                .rnic(&format!("r{tor}"), address(0, tor), &format!("h{tor}"), &format!("1.{tor}"))
                .unwrap();
            for plane in 0..2 {
                builder.cable(&format!("1.{tor}"), &format!("2.{}", tor / 2 * 2 + plane)).unwrap();
            }
        }
        for above in 0..4 {
            for core in 0..2 {
                builder.cable(&format!("2.{above}"), &format!("3.{}", above % 2 * 2 + core)).unwrap();
            }
        }
        builder
    }

    fn paths() -> Paths {
        Paths::new(builder().build())
    }

    fn tuple(from: u32, to: u32, port: u16) -> Tuple {
        Tuple { from: RnicId(from), to: RnicId(to), port }
    }

    fn path(hops: &[(u8, u8)]) -> Path {
        let router = |(kind, number): &(u8, u8)| (*kind > 0).then(|| address(*kind, *number));
        Path { routers: hops.iter().map(router).collect(), reaches: true }
    }

    #[test]
    fn holes_of_a_trace_become_mixtures_only_where_there_is_a_choice() {
        let mut paths = paths();
        let none = (0, 0);
        for (hops, choices) in [
            (vec![(1, 0), (2, 0), (3, 1), (2, 2), (1, 2)], 1),
            (vec![none, none, (3, 1), none, none], 1),
            (vec![(1, 0), (2, 0), none, none, (1, 2)], 2),
            (vec![none, none, none, none, none], 4),
        ] {
            paths.trace(tuple(0, 2, 50_000), &path(&hops));
            let way = paths.way(tuple(0, 2, 50_000));
            assert_eq!(paths.choices(way), choices, "{hops:?}");
        }
        let way = paths.way(tuple(0, 2, 50_001));
        assert_eq!(paths.choices(way), 4, "it was never traced");
        let Crossed::Mixture(weights) = paths.crossed(way) else { panic!("it is not known") };
        let total: f32 = weights.iter().map(|weight| weight.1).sum();
        assert!((total - 8.0).abs() < 1e-6, "every path crosses four links and four switches: {total}");
        let inside = paths.way(tuple(0, 1, 50_000));
        assert_eq!(paths.choices(inside), 2, "in a pod, nothing goes over cores");
    }

    #[test]
    fn traces_are_believed_before_the_description() {
        let mut paths = paths();
        let links = paths.topology().links().len();
        // A cable that nothing describes.
        paths.trace(tuple(0, 2, 50_000), &path(&[(1, 0), (2, 0), (3, 3), (2, 2), (1, 2)]));
        assert_eq!((paths.topology().links().len(), paths.learnt()), (links + 2, 2));
        // A card that hangs on another ToR; the way that was resolved before follows.
        let early = paths.way(tuple(1, 3, 50_007));
        for port in 50_000..50_003 {
            paths.trace(tuple(1, 3, port), &path(&[(1, 0), (2, 0), (3, 0), (2, 2), (1, 3)]));
        }
        assert_eq!(paths.topology().rnic(RnicId(1)).tor, SwitchId(0));
        paths.settle();
        let tor = paths.row().node(Node::Switch(SwitchId(0)));
        assert_eq!(paths.ends(early)[2], tor);
        // They are believed in another description, too; and what is not kept is gone.
        let mut more = builder();
        more.rnic("r9", address(0, 9), "h9", "1.3").unwrap();
        let (later, names) = paths.onto(more.build(), |tuple| tuple.port == 50_007);
        assert_eq!((later.len(), later.knows(tuple(1, 3, 50_007))), (1, true));
        assert_eq!(later.topology().rnic(RnicId(1)).tor, SwitchId(0));
        assert_eq!((names.rnic(RnicId(1)), later.learnt()), (Some(RnicId(1)), paths.learnt()));
        let way = later.ways[&tuple(1, 3, 50_007)];
        assert_eq!(later.ends(way)[2], later.row().node(Node::Switch(SwitchId(0))));
    }

    #[test]
    fn whole_traces_are_the_same_in_another_description() {
        let mut paths = paths();
        let hops = [(1, 0), (2, 0), (3, 1), (2, 2), (1, 2)];
        paths.trace(tuple(0, 2, 50_000), &path(&hops));
        paths.trace(tuple(0, 2, 50_001), &path(&[(1, 0), (2, 0), (0, 0), (0, 0), (1, 2)]));
        // The same switches in another order, without the one core.
        let mut builder = Topology::builder();
        for (kind, tier, numbers) in [
            (3, Tier::Core, vec![3, 2, 0]),
            (2, Tier::Aggregation, vec![3, 2, 1, 0]),
            (1, Tier::Tor, vec![2, 0]),
        ] {
            for number in numbers {
                builder.switch(&format!("{kind}.{number}"), tier, [address(kind, number)]).unwrap();
            }
        }
        for tor in [2, 0] {
            let (name, host, above) = (format!("r{tor}"), format!("h{tor}"), format!("1.{tor}"));
            builder.rnic(&name, address(0, tor), &host, &above).unwrap();
            for plane in 0..2 {
                builder.cable(&above, &format!("2.{}", tor / 2 * 2 + plane)).unwrap();
            }
        }
        for (above, core) in [(0, 0), (2, 0), (1, 2), (1, 3), (3, 2), (3, 3)] {
            builder.cable(&format!("2.{above}"), &format!("3.{core}")).unwrap();
        }
        let (mut later, names) = paths.onto(builder.build(), |_| true);
        assert_eq!((names.rnic(RnicId(0)), names.rnic(RnicId(1))), (Some(RnicId(1)), None));
        assert_eq!(names.switch(SwitchId(9)), None, "the core 3.1 is gone");
        for port in [50_000, 50_001] {
            let way = later.way(tuple(1, 0, port));
            let crossed: Vec<String> =
                later.switches(way).map(|id| later.topology().switch(id).name.clone()).collect();
            assert_eq!(crossed, ["1.0", "2.0", "3.0", "2.2", "1.2"], "nothing else is left: {port}");
        }
        let core = Suspect::Switch(SwitchId(9));
        assert_eq!(later.renamed(core, &paths, &names), None);
        let link =
            Suspect::Link(paths.topology().link(Node::Rnic(RnicId(2)), Node::Switch(SwitchId(2))).unwrap());
        let renamed = later.renamed(link, &paths, &names).unwrap();
        assert_eq!(renamed.name(later.topology()), "link r2 -> 1.2");
    }
}

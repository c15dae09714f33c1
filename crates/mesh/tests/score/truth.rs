//! Right and wrong: what was named, held against what is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ferroce_clos::{Fault, Node as Place, Shape, Trouble};
use ferroce_mesh::{Node, Suspect, Topology};

use crate::scene::Scene;

/// What can be named, in the words of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Thing {
    Node(Place),
    Link(Place, Place),
    Host(u32),
}

impl Thing {
    pub(crate) fn of(suspect: Suspect, topology: &Topology, shape: &Shape) -> Self {
        let place = |node: Node| match node {
            Node::Rnic(id) => Place::Rnic(id.0),
            Node::Switch(id) if id.0 < shape.all_tors() => Place::Tor(id.0),
            Node::Switch(id) if id.0 < shape.all_tors() + shape.all_aggregations() => {
                Place::Aggregation(id.0 - shape.all_tors())
            }
            Node::Switch(id) => Place::Core(id.0 - shape.all_tors() - shape.all_aggregations()),
        };
        match suspect {
            Suspect::Rnic(id) => Self::Node(place(Node::Rnic(id))),
            Suspect::Switch(id) => Self::Node(place(Node::Switch(id))),
            Suspect::Host(id) => Self::Host(id.0),
            Suspect::Link(id) => {
                let (from, to) = topology.ends(id);
                Self::Link(place(from), place(to))
            }
        }
    }

    fn of_fault(fault: &Fault, shape: &Shape) -> Self {
        match fault.place {
            ferroce_clos::Place::Node(node) => Self::Node(node),
            ferroce_clos::Place::Link(link) => {
                let (from, to) = shape.ends(link);
                Self::Link(from, to)
            }
        }
    }

    fn class(self) -> Class {
        match self {
            Self::Node(Place::Rnic(_))
            | Self::Host(_)
            | Self::Link(Place::Rnic(_), _)
            | Self::Link(_, Place::Rnic(_)) => Class::Rnic,
            Self::Node(_) => Class::Switch,
            Self::Link(..) => Class::Link,
        }
    }
}

/// Kinds of faults, by where they are; and those of which all packets of some tuples are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Link,
    Switch,
    Rnic,
    BlackHole,
}

/// What is right and wrong, by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    by_class: BTreeMap<Class, Tally>,
    pub(crate) all: Tally,
    /// Faults of less than one packet in a hundred, which are told apart.
    pub(crate) weak: Tally,
    /// Faults that no packet crosses: nothing can be said of them.
    pub(crate) unseen: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) found: f64,
    pub(crate) missed: f64,
    pub(crate) wrong: f64,
}

impl Tally {
    pub(crate) fn precision(&self) -> f64 {
        if self.found + self.wrong > 0.0 { self.found / (self.found + self.wrong) } else { 1.0 }
    }

    pub(crate) fn recall(&self) -> f64 {
        if self.found + self.missed > 0.0 { self.found / (self.found + self.missed) } else { 1.0 }
    }

    pub(crate) fn f1(&self) -> f64 {
        let all = 2.0 * self.found + self.wrong + self.missed;
        if all > 0.0 { 2.0 * self.found / all } else { 1.0 }
    }

    fn add(&mut self, other: &Self) {
        self.found += other.found;
        self.missed += other.missed;
        self.wrong += other.wrong;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, missed, wrong } = self;
        write!(
            f,
            "F1 {:.3}  precision {:.3}  recall {:.3}  ({found} found, {missed} missed, {wrong} wrong)",
            self.f1(),
            self.precision(),
            self.recall()
        )
    }
}

impl Score {
    pub(crate) fn add(&mut self, other: &Self) {
        for (class, tally) in &other.by_class {
            self.by_class.entry(*class).or_default().add(tally);
        }
        self.all.add(&other.all);
        self.weak.add(&other.weak);
        self.unseen += other.unseen;
    }

    pub(crate) fn class(&self, class: Class) -> Tally {
        self.by_class.get(&class).copied().unwrap_or_default()
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  all        {}", self.all)?;
        for class in [Class::Link, Class::Switch, Class::Rnic] {
            writeln!(f, "  {:10} {}", format!("{class:?}"), self.class(class))?;
        }
        let holes = self.class(Class::BlackHole);
        let holes =
            format!("recall {:.3}  ({} of {})", holes.recall(), holes.found, holes.found + holes.missed);
        write!(f, "  black hole {holes}")
    }
}

/// The truth of a scene, ready to be held against.
pub(crate) struct Truth {
    faults: Vec<(Thing, Fault)>,
    stalling: BTreeSet<u32>,
    /// What exactly the same ways cross has the same mark; what no way crosses has none.
    marks: BTreeMap<Thing, u64>,
    /// The same for flows, on either way.
    flows: BTreeMap<Thing, u64>,
}

impl Truth {
    /// Looks at the true routes of all flows with agents at both ends.
    pub(crate) fn of(scene: &Scene) -> Self {
        let shape = scene.shape();
        let [marks, flows] = marked(scene);
        let faults =
            scene.fabric.faults().iter().map(|fault| (Thing::of_fault(fault, shape), *fault)).collect();
        Self { faults, stalling: scene.fabric.stalls().map(|stall| stall.host).collect(), marks, flows }
    }

    /// The set that observations cannot separate from a fault. It is what exactly the same ways cross. Of what
    /// loses all packets of a tuple, nothing tells on which way: there it is what the same flows cross, each
    /// of them once or each of them both ways.
    fn inseparable(&self, thing: &Thing, trouble: &Trouble) -> BTreeSet<Thing> {
        let is_total = match *trouble {
            Trouble::Loss { rate } | Trouble::Corruption { rate } => rate > 0.999,
            Trouble::BlackHole { .. } => true,
            Trouble::Delay { .. } | Trouble::Flap { .. } => false,
        };
        let marks = if is_total { &self.flows } else { &self.marks };
        let mine = marks[thing];
        let is_same = |other: u64| {
            other == mine || (is_total && (other == mine.wrapping_mul(2) || other.wrapping_mul(2) == mine))
        };
        marks.iter().filter(|(_, mark)| is_same(**mark)).map(|(thing, _)| *thing).collect()
    }

    /// Scores what was named: sets of things that are said not to be told apart. Only the exact set is right; if
    /// it is lenient, one thing of it is right as well.
    pub(crate) fn score(&self, named: &[Vec<Thing>], is_lenient: bool) -> Score {
        let mut score = Score::default();
        let mut used = vec![false; named.len()];
        for (thing, fault) in &self.faults {
            if !self.marks.contains_key(thing) {
                score.unseen += 1;
                continue;
            }
            let class = self.inseparable(thing, &fault.trouble);
            let is_right = |set: &Vec<Thing>| {
                let is_exact = set.iter().copied().collect::<BTreeSet<_>>() == class;
                is_exact || (is_lenient && set.len() == 1 && class.contains(&set[0]))
            };
            let place = named.iter().position(is_right);
            let tally = match place {
                Some(place) => {
                    used[place] = true;
                    Tally { found: 1.0, ..Tally::default() }
                }
                None => Tally { missed: 1.0, ..Tally::default() },
            };
            if is_weak(&fault.trouble) {
                score.weak.add(&tally);
                continue;
            }
            score.all.add(&tally);
            score.by_class.entry(thing.class()).or_default().add(&tally);
            if matches!(fault.trouble, Trouble::BlackHole { .. }) {
                score.by_class.entry(Class::BlackHole).or_default().add(&tally);
            }
        }
        for (set, used) in named.iter().zip(used) {
            let is_stall =
                set.iter().all(|thing| matches!(thing, Thing::Host(host) if self.stalling.contains(host)));
            if !used && !is_stall {
                let wrong = Tally { wrong: 1.0, ..Tally::default() };
                score.all.add(&wrong);
                score.by_class.entry(set[0].class()).or_default().add(&wrong);
            }
        }
        score
    }

    /// What was missed and what was wrong, to look at.
    pub(crate) fn differences(&self, named: &[Vec<Thing>]) -> String {
        let holds = |thing: &Thing| named.iter().any(|set| set.contains(thing));
        let missed: Vec<_> = self
            .faults
            .iter()
            .filter(|(thing, _)| !holds(thing))
            .map(|(thing, fault)| (thing, fault.trouble, self.marks.contains_key(thing)))
            .collect();
        let is_true = |thing: &Thing| self.faults.iter().any(|(fault, _)| fault == thing);
        let wrong: Vec<_> = named.iter().filter(|set| !set.iter().any(is_true)).collect();
        format!("missed {missed:?}, wrong {wrong:?}")
    }
}

/// For each thing the sum of the marks of all ways that cross it, on their true routes; and the same with marks
/// that are equal for both ways of a flow.
fn marked(scene: &Scene) -> [BTreeMap<Thing, u64>; 2] {
    let shape = scene.shape();
    let mut by_link = vec![[0_u64; 2]; shape.all_links() as usize];
    let mut cards = vec![[0_u64; 2]; shape.all_rnics() as usize];
    let add = |sum: &mut [u64; 2], marks: [u64; 2]| {
        for (sum, mark) in sum.iter_mut().zip(marks) {
            *sum = sum.wrapping_add(mark);
        }
    };
    for (number, flow) in (1_u64..).zip(&scene.plan.flows) {
        if scene.is_missing(flow.tuple.from) || scene.is_missing(flow.tuple.to) {
            continue;
        }
        for (salt, tuple) in [(1, flow.tuple), (2, flow.tuple.back(flow.reply_port))] {
            let marks = [mix(number * 4 + salt), mix(number << 40)];
            add(&mut cards[tuple.from as usize], marks);
            add(&mut cards[tuple.to as usize], marks);
            for link in scene.fabric.route(tuple).links() {
                add(&mut by_link[link.0 as usize], marks);
            }
        }
    }
    [0, 1].map(|kind| {
        let mut marks = BTreeMap::new();
        // A packet leaves each switch that it passes over exactly one link.
        let mut by_node: BTreeMap<Place, u64> = BTreeMap::new();
        for (number, mark) in (0..).zip(&by_link).map(|(number, mark)| (number, mark[kind])) {
            let (from, to) = shape.ends(ferroce_clos::Link(number));
            if mark != 0 {
                marks.insert(Thing::Link(from, to), mark);
                if !matches!(from, Place::Rnic(_)) {
                    let sum = by_node.entry(from).or_default();
                    *sum = sum.wrapping_add(mark);
                }
            }
        }
        marks.extend(by_node.into_iter().map(|(node, mark)| (Thing::Node(node), mark)));
        let cards = (0..).zip(&cards).filter(|(_, mark)| mark[kind] != 0);
        marks.extend(cards.map(|(card, mark)| (Thing::Node(Place::Rnic(card)), mark[kind])));
        marks
    })
}

fn is_weak(trouble: &Trouble) -> bool {
    match *trouble {
        Trouble::Loss { rate } | Trouble::Corruption { rate } => rate < 0.01,
        Trouble::BlackHole { .. } | Trouble::Delay { .. } | Trouble::Flap { .. } => false,
    }
}

const fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

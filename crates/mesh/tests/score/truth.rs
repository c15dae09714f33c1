//! Right and wrong: what was named, held against what is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ferroce_clos::{Fault, Node as Place, Shape, Trouble};
use ferroce_mesh::{Node, Outcomes, Suspect, Topology, Window};

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
    weak_by_class: BTreeMap<Class, Tally>,
    /// Faults that no packet crosses: nothing can be said of them.
    pub(crate) unseen: u32,
    /// Faults that are no black holes, and of whose flows nothing came back.
    pub(crate) silent: u32,
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
        for (class, tally) in &other.weak_by_class {
            self.weak_by_class.entry(*class).or_default().add(tally);
        }
        self.all.add(&other.all);
        self.weak.add(&other.weak);
        self.unseen += other.unseen;
        self.silent += other.silent;
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
        let recall = |tally: &Tally| {
            format!("recall {:.3}  ({} of {})", tally.recall(), tally.found, tally.found + tally.missed)
        };
        write!(f, "  black hole {}", recall(&self.class(Class::BlackHole)))?;
        if !self.weak_by_class.is_empty() {
            write!(f, "\n  below 1 %  {}", recall(&self.weak))?;
        }
        for (class, tally) in &self.weak_by_class {
            write!(f, "\n    {:8} {}", format!("{class:?}"), recall(tally))?;
        }
        Ok(())
    }
}

/// The truth of a scene, ready to be held against.
///
/// # What cannot be told apart
///
/// A set of suspects is right only if it is exactly the set that the observations cannot separate. That set
/// is a matter of the observations, and the same for all methods: another thing belongs to it if, at the loss
/// that suits it best, it gives *every* observation the chance that the fault itself gives it. All that is
/// observed of a flow is how many of its probes were answered twice, by the first ACK only, by the second
/// only, or not at all; and which links and nodes its two ways cross.
///
/// 1. *The same ways.* What exactly the same ways cross, as often each, has the same chances whatever it
///    does.
/// 2. *Black holes* lose all packets of some tuples. A flow is dead if the tuple of either of its ways is,
///    and a dead flow looks the same on whichever way it died: no probe is answered. A flow that lives lost
///    nothing. So only the chance to be dead counts, which is `s` for a thing that the flow crosses on one
///    way, and `1 - (1 - s)²` for one that it crosses on both. Two things that the same flows cross, as many
///    times each, have equal chances; and so have two of which one is crossed once by every flow and the
///    other twice by every flow, the one with the larger share. Every flow of a card crosses the card on both
///    ways, and each of its two links on one: these three cannot be told apart. Nor can they if the hole
///    takes all tuples.
/// 3. *Nothing came back* of any flow that crosses the fault. Whatever its rate is, a thing that loses all
///    and that the same flows cross, however often, gives these observations the chance 1. The rate does not
///    decide this but what was observed: of a card that loses 98 %, some answers may have come back, and then
///    their counts tell on which way the others were lost.
///
/// Other loss is seen on both ways: a lost ACK tells the way back from the way there, so that a card differs
/// from its links in what is expected of each count. That the counts of a weak fault may by bad luck speak
/// for a neighbour is no excuse: then the fault is missed. Nor is it one that a second fault hides the first.
pub(crate) struct Truth {
    faults: Vec<(Thing, Fault)>,
    stalling: BTreeSet<u32>,
    /// What no flow crosses of which something was observed has no mark.
    marks: BTreeMap<Thing, Marks>,
}

/// What crosses a thing: sums of numbers that stand for ways and flows.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Equal for what the same ways cross.
    ways: u64,
    /// Equal for what the same flows cross, however often.
    flows: u64,
    /// Equal for what the same flows cross, as many times each.
    times: u64,
    /// Whether an answer came back of a flow that crosses it.
    lives: bool,
    /// The number of the last flow that crossed it; the first flow has 1.
    last: u64,
}

impl Marks {
    /// A flow crosses it on one of its ways.
    fn cross(&mut self, flow: u64, way: u64, lives: bool) {
        self.ways = self.ways.wrapping_add(mix(flow * 4 + way));
        self.times = self.times.wrapping_add(mix(flow << 40));
        if self.last != flow {
            self.flows = self.flows.wrapping_add(mix(flow << 40));
        }
        self.lives |= lives;
        self.last = flow;
    }
}

impl Truth {
    /// Looks at the true routes of all flows of which something was observed.
    pub(crate) fn of(scene: &Scene, windows: &[Window]) -> Self {
        let shape = scene.shape();
        let faults =
            scene.fabric.faults().iter().map(|fault| (Thing::of_fault(fault, shape), *fault)).collect();
        let stalling = scene.fabric.stalls().map(|stall| stall.host).collect();
        Self { faults, stalling, marks: marked(scene, windows) }
    }

    /// The set that observations cannot separate from a fault: see above.
    fn inseparable(&self, thing: &Thing, trouble: &Trouble) -> BTreeSet<Thing> {
        let mine = self.marks[thing];
        let is_hole = matches!(trouble, Trouble::BlackHole { .. });
        let is_same = |other: &Marks| {
            other.ways == mine.ways
                || (!mine.lives && other.flows == mine.flows)
                || (is_hole
                    && (other.times == mine.times
                        || other.times == mine.times.wrapping_mul(2)
                        || other.times.wrapping_mul(2) == mine.times))
        };
        self.marks.iter().filter(|(_, marks)| is_same(marks)).map(|(thing, _)| *thing).collect()
    }

    /// Scores what was named: sets of things that are said not to be told apart. Only the exact set is right;
    /// if it is lenient, one thing of it is right as well, and so are others of it beside it.
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
            let mut is_found = false;
            for (place, _) in named.iter().enumerate().filter(|(_, set)| is_right(set)) {
                (is_found, used[place]) = (true, true);
            }
            let is_hole = matches!(fault.trouble, Trouble::BlackHole { .. });
            if !is_hole && !self.marks[thing].lives {
                score.silent += 1;
            }
            let mut tally = Tally::default();
            *(if is_found { &mut tally.found } else { &mut tally.missed }) += 1.0;
            if is_weak(&fault.trouble) {
                score.weak.add(&tally);
                score.weak_by_class.entry(thing.class()).or_default().add(&tally);
                continue;
            }
            score.all.add(&tally);
            score.by_class.entry(thing.class()).or_default().add(&tally);
            if is_hole {
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
        let mut text = String::new();
        let sets: Vec<BTreeSet<Thing>> = named.iter().map(|set| set.iter().copied().collect()).collect();
        let mut right = vec![false; sets.len()];
        for (thing, fault) in &self.faults {
            if !self.marks.contains_key(thing) {
                continue;
            }
            let class = self.inseparable(thing, &fault.trouble);
            match sets.iter().position(|set| *set == class) {
                Some(place) => right[place] = true,
                None => {
                    text += &format!("\n  missed {thing:?}, {:?}, to be told as {class:?}", fault.trouble);
                }
            }
        }
        for set in sets.iter().zip(right).filter_map(|(set, right)| (!right).then_some(set)) {
            text += &format!("\n  wrong {set:?}");
        }
        text
    }
}

/// What crosses each thing, on the true routes of all flows of which something was observed.
fn marked(scene: &Scene, windows: &[Window]) -> BTreeMap<Thing, Marks> {
    let shape = scene.shape();
    let mut links = vec![Marks::default(); shape.all_links() as usize];
    let mut nodes = vec![Marks::default(); places(shape).len()];
    let place_of = |node| match node {
        Place::Rnic(number) => number,
        Place::Tor(number) => shape.all_rnics() + number,
        Place::Aggregation(number) => shape.all_rnics() + shape.all_tors() + number,
        Place::Core(number) => shape.all_rnics() + shape.all_tors() + shape.all_aggregations() + number,
    } as usize;
    for (number, first) in windows[0].observations.iter().enumerate() {
        let key = first.flow;
        let mut ends = Outcomes::default();
        windows.iter().for_each(|window| ends.add(&window.observations[number].outcomes));
        if ends.told() == 0 || scene.is_missing(key.to.0) {
            continue;
        }
        let lives = ends.arrived() > 0;
        for (way, tuple) in (1..).zip([key.there(), key.back()]) {
            let cross = |marks: &mut Marks| marks.cross(number as u64 + 1, way, lives);
            let (from, to, port) = (tuple.from.0, tuple.to.0, tuple.port);
            cross(&mut nodes[place_of(Place::Rnic(to))]);
            // A packet leaves each node that it passes over exactly one link.
            for link in scene.fabric.route(ferroce_clos::Tuple { from, to, port }).links() {
                cross(&mut links[link.0 as usize]);
                cross(&mut nodes[place_of(shape.ends(*link).0)]);
            }
        }
    }
    let link = |number| {
        let (from, to) = shape.ends(ferroce_clos::Link(number));
        Thing::Link(from, to)
    };
    let links = (0..).zip(links).map(|(number, marks)| (link(number), marks));
    let nodes = places(shape).into_iter().map(Thing::Node).zip(nodes);
    links.chain(nodes).filter(|(_, marks)| marks.last > 0).collect()
}

/// All nodes: cards first, then from the bottom to the top.
fn places(shape: &Shape) -> Vec<Place> {
    let cards = (0..shape.all_rnics()).map(Place::Rnic).chain((0..shape.all_tors()).map(Place::Tor));
    let above = (0..shape.all_aggregations()).map(Place::Aggregation);
    cards.chain(above).chain((0..shape.all_cores()).map(Place::Core)).collect()
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

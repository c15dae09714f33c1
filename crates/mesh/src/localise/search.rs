//! Greedy search: the suspect that explains most is named, then the next one, until nothing explains enough.
//!
//! Whenever suspects have been named, the guilt of all of them is fitted anew, those that no longer explain
//! enough are let go, and each is held against its neighbours in the topology.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

use super::evidence::{Entry, Evidence, Guilt};
use crate::suspect::Suspect;
use crate::topology::{LinkId, Node};

/// Nothing is guiltier, so that one packet that passed does not make a suspect impossible.
const MOST: f64 = 0.9999;
/// Nothing smaller is looked for.
const LEAST: f64 = 1e-6;
/// A suspect must explain trouble of so many flows.
const FEWEST_FLOWS: u32 = 3;
/// Rounds of fitting, pruning and swapping.
const ROUNDS: u32 = 6;
/// A neighbour takes a suspect's place if it explains more by so many nats.
const BETTER: f64 = 0.5;

/// A suspect that is named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) place: u32,
    pub(crate) guilt: Guilt,
    /// By how much the logarithm of the likelihood would fall without it.
    pub(crate) gain: f64,
    /// It said itself that it was at fault: it is named in any case.
    pub(crate) is_known: bool,
}

pub(crate) struct Search<'a, 'b> {
    pub(crate) evidence: &'b mut Evidence<'a>,
    pub(crate) active: Vec<Active>,
    threshold: f64,
    stray: f64,
}

impl<'a, 'b> Search<'a, 'b> {
    pub(crate) const fn new(evidence: &'b mut Evidence<'a>, threshold: f64, stray: f64) -> Self {
        Self { evidence, active: Vec::new(), threshold, stray }
    }

    /// Names suspects. Those that are known to be at fault are there from the beginning.
    pub(crate) fn run(&mut self, known: &[u32]) {
        for place in known {
            let (_, guess) = self.screen(*place);
            let (gain, guilt) = self.fit(*place, guess);
            if gain > 0.0 {
                self.name(*place, guilt, gain, true);
            }
        }
        self.rounds();
    }

    /// Goes on from what was named, where more packets meet trouble for no reason than was thought.
    pub(crate) fn run_again(&mut self, stray: f64) {
        self.evidence.stray_more((1.0 - stray) / (1.0 - self.stray));
        self.stray = stray;
        self.refit_and_prune();
        self.rounds();
    }

    fn rounds(&mut self) {
        for _ in 0..ROUNDS {
            let added = self.greedy();
            let pruned = self.refit_and_prune();
            let swapped = self.swap();
            if !(added || pruned || swapped) {
                break;
            }
        }
    }

    pub(crate) const fn stray(&self) -> f64 {
        self.stray
    }

    fn name(&mut self, place: u32, guilt: Guilt, gain: f64, is_known: bool) {
        self.evidence.blame(place, guilt);
        self.active.push(Active { place, guilt, gain, is_known });
    }

    fn is_active(&self, place: u32) -> bool {
        self.active.iter().any(|one| one.place == place)
    }

    fn greedy(&mut self) -> bool {
        let places: BTreeSet<u32> = (0..u32::try_from(self.evidence.good.len()).unwrap_or(u32::MAX))
            .filter(|place| self.evidence.sure(*place).len() >= FEWEST_FLOWS as usize)
            .collect();
        let mut epoch = 0;
        let mut heap: BinaryHeap<Ranked> = places
            .into_iter()
            .filter(|place| !self.is_active(*place))
            .map(|place| Ranked { gain: self.screen(place).0, place, epoch })
            .collect();
        let mut added = false;
        while let Some(top) = heap.pop() {
            if top.gain < self.threshold / 2.0 {
                break;
            }
            let (gain, guess) = self.screen(top.place);
            if top.epoch < epoch {
                heap.push(Ranked { gain, epoch, ..top });
                continue;
            }
            let (gain, guilt) = self.fit(top.place, guess);
            if gain < self.threshold {
                continue;
            }
            self.name(top.place, guilt, gain, false);
            self.refit_beside(top.place);
            added = true;
            epoch += 1;
        }
        added
    }

    /// Fits those that share flows with a suspect anew.
    fn refit_beside(&mut self, place: u32) {
        let flows: BTreeSet<u32> = self.evidence.entries(place).iter().map(|entry| entry.flow).collect();
        for number in 0..self.active.len() {
            let other = self.active[number].place;
            let entries = self.evidence.entries(other);
            let shared = entries.iter().filter(|entry| flows.contains(&entry.flow)).count();
            // What shares little is fitted with all others at the end.
            if other == place || shared * 20 > entries.len() {
                self.refit(number);
            }
        }
    }

    fn refit(&mut self, number: usize) -> f64 {
        let Active { place, guilt, .. } = self.active[number];
        self.evidence.clear(place, guilt);
        let (gain, guilt) = self.fit_again(place, guilt);
        self.evidence.blame(place, guilt);
        let one = &mut self.active[number];
        (one.guilt, one.gain) = (guilt, gain);
        gain
    }

    fn refit_and_prune(&mut self) -> bool {
        let mut pruned = false;
        loop {
            for number in 0..self.active.len() {
                self.refit(number);
            }
            let weakest = (0..self.active.len())
                .filter(|number| !self.active[*number].is_known)
                .min_by(|one, other| self.active[*one].gain.total_cmp(&self.active[*other].gain));
            match weakest {
                Some(number) if self.active[number].gain < self.threshold => {
                    let gone = self.active.remove(number);
                    self.evidence.clear(gone.place, gone.guilt);
                    pruned = true;
                }
                _ => return pruned,
            }
        }
    }

    /// Holds each suspect against its neighbours.
    fn swap(&mut self) -> bool {
        let mut swapped = false;
        for number in 0..self.active.len() {
            let Active { place, guilt, gain, is_known } = self.active[number];
            if is_known {
                continue;
            }
            self.evidence.clear(place, guilt);
            let mut best = (gain, place, guilt);
            for other in self.neighbours(place) {
                if self.is_active(other) || self.evidence.sure(other).len() < FEWEST_FLOWS as usize {
                    continue;
                }
                let (screened, guess) = self.screen(other);
                if screened < best.0 / 2.0 {
                    continue;
                }
                let (gain, guilt) = self.fit(other, guess);
                if gain > best.0 + BETTER {
                    best = (gain, other, guilt);
                }
            }
            swapped |= best.1 != place;
            self.evidence.blame(best.1, best.2);
            self.active[number] = Active { place: best.1, guilt: best.2, gain: best.0, is_known };
        }
        swapped
    }

    /// What stands beside a suspect: the ends of a link, the links of a node, the cards of a host.
    pub(crate) fn neighbours(&self, place: u32) -> Vec<u32> {
        let (row, topology) = (self.evidence.paths.row(), self.evidence.paths.topology());
        let links_of = |node: Node| {
            let ends = (0..).zip(topology.links());
            ends.filter(move |(_, ends)| ends.0 == node || ends.1 == node)
                .map(|(number, _)| row.place(Suspect::Link(LinkId(number))))
        };
        match row.suspect(place) {
            Suspect::Link(id) => {
                let (from, to) = topology.ends(id);
                let mut all = vec![row.node(from), row.node(to)];
                all.extend(topology.link(to, from).map(|back| row.place(Suspect::Link(back))));
                for node in [from, to] {
                    if let Node::Rnic(rnic) = node {
                        all.push(row.place(Suspect::Host(topology.rnic(rnic).host)));
                    }
                }
                all
            }
            Suspect::Switch(id) => links_of(Node::Switch(id)).collect(),
            Suspect::Rnic(id) => {
                let host = row.place(Suspect::Host(topology.rnic(id).host));
                links_of(Node::Rnic(id)).chain([host]).collect()
            }
            Suspect::Host(id) => {
                let rnics = &topology.hosts()[id.0 as usize].rnics;
                let cards = rnics.iter().map(|rnic| row.place(Suspect::Rnic(*rnic)));
                cards.chain(rnics.iter().flat_map(|rnic| links_of(Node::Rnic(*rnic)))).collect()
            }
        }
    }

    /// How much a suspect explains at a first guess of its guilt, of flows that cross it for sure, as far as
    /// there are enough. It is for the order in which suspects are looked at: flows of which little is known
    /// would cost more time than all others, and say least.
    pub(crate) fn screen(&self, place: u32) -> (f64, Guilt) {
        let good = &self.evidence.good[place as usize];
        let (mut packets, mut ways) = (good.all_packets(), good.all_ways());
        let (mut lost, mut lost_else, mut dead, mut flows) = (0.0, 0.0, 0.0, 0_u32);
        let entries = self.evidence.at_first(place);
        for entry in entries {
            let counts = &self.evidence.troubled[entry.flow as usize].seen.counts;
            let (there, back, keeps) = self.evidence.chances(entry.flow);
            let (on_there, on_back) = (f64::from(entry.there), f64::from(entry.back));
            packets += on_there * (counts.there + counts.bad) + on_back * (counts.back + counts.back_bad);
            ways += on_there + on_back;
            // What is expected already is no reason to suspect another one.
            let on = on_there.max(on_back);
            let is_bad = counts.is_bad(there, back) + 1.0 - keeps;
            let mut bad = on * (counts.bad - is_bad * (counts.there + counts.bad)).max(0.0);
            bad += on_back * (counts.back_bad - (1.0 - back) * (counts.back + counts.back_bad)).max(0.0);
            lost += bad;
            if counts.is_dead() {
                dead += on * (1.0 - is_bad).max(0.0);
            } else {
                lost_else += bad;
            }
            flows += u32::from(bad > 0.1);
        }
        // What no flow crosses for sure is not named: mixtures may be wrong about it.
        if flows < FEWEST_FLOWS {
            return (f64::NEG_INFINITY, Guilt::default());
        }
        let held = |part: f64, of: f64| (part / of.max(1.0)).clamp(LEAST, MOST);
        let mut best = (f64::NEG_INFINITY, Guilt::default());
        let base = self.base(entries);
        let hits = self.evidence.hits(place, entries);
        let rate = Guilt { rate: held(lost, packets), share: 0.0 };
        let share = Guilt {
            rate: if lost_else > 0.0 { held(lost_else, packets) } else { 0.0 },
            share: held(dead, ways),
        };
        for guilt in [Some(rate), (dead > 0.5).then_some(share)].into_iter().flatten() {
            let gain = self.evidence.log_with(entries, &hits, guilt) - base + good.log(guilt);
            if gain > best.0 {
                best = (gain, guilt);
            }
        }
        best
    }

    fn base(&self, entries: &[Entry]) -> f64 {
        entries.iter().map(|entry| self.evidence.log(entry.flow)).sum()
    }

    /// The guilt that explains most, and how much.
    pub(crate) fn fit(&self, place: u32, guess: Guilt) -> (f64, Guilt) {
        self.fit_by(place, guess, &[0.7, 0.3, 0.1])
    }

    /// The same for a guilt that was fitted before: only if a small step leads to more, large ones are tried.
    fn fit_again(&self, place: u32, before: Guilt) -> (f64, Guilt) {
        self.fit_by(place, before, &[0.1, 0.7, 0.3, 0.1])
    }

    fn fit_by(&self, place: u32, guess: Guilt, steps: &[f64]) -> (f64, Guilt) {
        let entries = self.evidence.entries(place);
        let base = self.base(entries);
        let hits = self.evidence.hits(place, entries);
        let good = &self.evidence.good[place as usize];
        let gain = |guilt| self.evidence.log_with(entries, &hits, guilt) - base + good.log(guilt);
        let mut best = (gain(guess), guess);
        let has_dead =
            entries.iter().any(|entry| self.evidence.troubled[entry.flow as usize].seen.counts.is_dead());
        for step in steps.iter().copied() {
            let before = best.0;
            let Guilt { rate, share } = best.1;
            best = climb(best, rate, step, |rate| {
                let guilt = Guilt { rate, share };
                (gain(guilt), guilt)
            });
            if has_dead {
                let Guilt { rate, share } = best.1;
                best = climb(best, share, step, |share| {
                    let guilt = Guilt { rate, share };
                    (gain(guilt), guilt)
                });
            }
            if best.0 - before < 0.05 {
                break;
            }
        }
        best
    }
}

/// Looks for something better along one number, in ever smaller steps of its logarithm; zero is tried, too.
fn climb(start: (f64, Guilt), value: f64, step: f64, at: impl Fn(f64) -> (f64, Guilt)) -> (f64, Guilt) {
    let mut best = start;
    let mut value = value;
    if value > 0.0 {
        let none = at(0.0);
        if none.0 >= best.0 {
            (best, value) = (none, 0.0);
        }
    }
    if value <= 0.0 {
        for first in [1e-4, 1e-2, 0.3] {
            let tried = at(first);
            if tried.0 > best.0 {
                (best, value) = (tried, first);
            }
        }
        if value <= 0.0 {
            return best;
        }
    }
    let mut step = step;
    while step > 0.04 {
        let mut moved = false;
        for factor in [step.exp(), (-step).exp()] {
            let next = toward(value, factor);
            let tried = at(next);
            if tried.0 > best.0 {
                (best, value, moved) = (tried, next, true);
                break;
            }
        }
        if !moved {
            step /= 2.5;
        }
    }
    best
}

/// A rate times a factor: near 1, it is what passes that is scaled.
fn toward(value: f64, factor: f64) -> f64 {
    let odds = value / (1.0 - value) * factor;
    (odds / (1.0 + odds)).clamp(LEAST, MOST)
}

/// A suspect in the order of what it explains.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    gain: f64,
    place: u32,
    epoch: u32,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.place.cmp(&self.place))
    }
}

//! All flows of some windows, sorted by what each suspect needs of them.
//!
//! Of flows in which all went well, only sums are kept: each suspect's part in their likelihood depends on
//! no other suspect. Flows with trouble are kept one by one, with the chances that the suspects named so far
//! give them.

use super::counts::{Chance, Counts};
use super::side::Side;
use crate::mixture::Choices;
use crate::paths::{Crossed, Paths, WayId};
use crate::suspect::Suspect;

/// A flow and its counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Its number in the caller's list.
    pub(crate) number: u32,
    pub(crate) there: WayId,
    pub(crate) back: WayId,
    pub(crate) counts: Counts,
}

/// What the flows without trouble say of a suspect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Good {
    /// Packets that passed it for sure.
    pub(crate) packets: f64,
    /// Ways through it for sure.
    pub(crate) ways: f64,
    /// Weights of ways that may lead through it.
    maybe: f64,
    /// The same times their packets.
    maybe_packets: f64,
    /// Equal for suspects that the same ways cross.
    pub(crate) signature: u64,
    /// Equal for suspects that the same flows cross, if they do so equally often.
    flows: u64,
}

impl Good {
    /// Packets that passed it, about.
    pub(crate) const fn all_packets(&self) -> f64 {
        self.packets + self.maybe_packets
    }

    /// Ways through it, about.
    pub(crate) const fn all_ways(&self) -> f64 {
        self.ways + self.maybe
    }

    /// The logarithm of the chance that all this went well.
    pub(crate) fn log(&self, guilt: Guilt) -> f64 {
        let mut sum = self.packets * (1.0 - guilt.rate).ln() + self.ways * (1.0 - guilt.share).ln();
        if self.maybe > 0.0 {
            let packets = self.maybe_packets / self.maybe;
            let passes = (1.0 - guilt.rate).powf(packets) * (1.0 - guilt.share);
            sum -= self.maybe * (1.0 - passes);
        }
        sum
    }
}

/// What a suspect does: it harms so many packets, and all packets of so many tuples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guilt {
    /// The share of packets, from 0 to 1.
    pub rate: f64,
    /// The share of tuples of which nothing passes, from 0 to 1.
    pub share: f64,
}

/// A flow with trouble.
#[derive(Clone, Debug)]
pub(crate) struct Troubled {
    pub(crate) seen: Seen,
    /// Chances: there, back, and of the tuple to pass at all. They are means, if a way is not known.
    there: Chance,
    back: Chance,
    keeps: Chance,
    /// The host that probes arrive at.
    pub(crate) host: u32,
    /// The logarithm of the likelihood of all this.
    log: f64,
    mixed: Option<Box<Mixed>>,
}

/// The two ways, if one of them is not known.
#[derive(Clone, Debug)]
struct Mixed {
    there: Side,
    back: Side,
}

impl Troubled {
    /// Takes note that chances have changed.
    fn settle(&mut self) {
        let counts = &self.seen.counts;
        self.log = if let Some(mixed) = &self.mixed {
            let ((there, keeps_there), (back, keeps_back)) = (mixed.there.mean(), mixed.back.mean());
            let means = [there, back, keeps_there * keeps_back];
            [self.there, self.back, self.keeps] = means.map(Chance::of);
            let none = Choices::default();
            counts.log_mixed(mixed.there.parts(&none, 1.0, 1.0), mixed.back.parts(&none, 1.0, 1.0))
        } else {
            counts.log(self.there, self.back, self.keeps)
        };
    }
}

/// A flow that crosses, or may cross, a suspect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) flow: u32,
    pub(crate) there: f32,
    pub(crate) back: f32,
}

/// So many flows are enough for a first look at a suspect.
const ENOUGH: usize = 8;

pub(crate) struct Evidence<'a> {
    pub(crate) paths: &'a Paths,
    pub(crate) good: Vec<Good>,
    pub(crate) troubled: Vec<Troubled>,
    /// Where the entries of each place begin; where those end of flows with known ways, which come first; and
    /// those of others that cross it as likely as not, which come second.
    starts: Vec<u32>,
    known: Vec<u32>,
    sure: Vec<u32>,
    entries: Vec<Entry>,
}

impl<'a> Evidence<'a> {
    /// Sorts flows. Packets are lost for no reason with chance `stray`, tuples with `stray_tuples`.
    pub(crate) fn new(
        paths: &'a Paths,
        flows: impl Iterator<Item = Seen>,
        stray: f64,
        stray_tuples: f64,
    ) -> Self {
        let mut good = vec![Good::default(); paths.places()];
        let mut troubled = Vec::new();
        let (passes, keeps) = (1.0 - stray, 1.0 - stray_tuples);
        for seen in flows {
            let ways = [seen.there, seen.back];
            if seen.counts.is_empty() || ways.iter().any(|way| paths.choices(*way) == 0) {
                continue;
            }
            let is_good = seen.counts.is_good();
            let flow = mix(u64::from(seen.number) ^ 0x5851_f42d_4c95_7f2d);
            for (way, packets, salt) in [(seen.there, seen.counts.there, 0), (seen.back, seen.counts.back, 1)]
            {
                let mark = mix(u64::from(seen.number) * 2 + salt + 1);
                each_place(paths, way, |place, weight| {
                    let sum = &mut good[place as usize];
                    let salt = if weight < 1.0 { mix(u64::from(weight.to_bits())) } else { 0 };
                    sum.signature = sum.signature.wrapping_add(mark ^ salt);
                    sum.flows = sum.flows.wrapping_add(flow ^ salt);
                    if !is_good {
                        return;
                    }
                    if weight < 1.0 {
                        sum.maybe += f64::from(weight);
                        sum.maybe_packets += f64::from(weight) * packets;
                    } else {
                        sum.packets += packets;
                        sum.ways += 1.0;
                    }
                });
            }
            let host = host_of(paths, seen.there);
            let sum = &mut good[host as usize];
            sum.signature = sum.signature.wrapping_add(mix(u64::from(seen.number) * 2 + 1));
            if is_good {
                sum.packets += seen.counts.there;
                sum.ways += 1.0;
            } else {
                let side = |way| Side::new(paths.choices(way), passes, keeps.sqrt());
                let is_mixed = ways.iter().any(|way| paths.choices(*way) > 1);
                let mixed =
                    is_mixed.then(|| Box::new(Mixed { there: side(seen.there), back: side(seen.back) }));
                let (way, keeps) = (Chance::of(passes), Chance::of(keeps));
                let mut flow = Troubled { seen, there: way, back: way, keeps, host, log: 0.0, mixed };
                flow.settle();
                troubled.push(flow);
            }
        }
        let (starts, [known, sure, _], entries) = index(paths, &troubled);
        Self { paths, good, troubled, starts, known, sure, entries }
    }

    /// The flows with trouble that cross a suspect, or may cross it.
    pub(crate) fn entries(&self, place: u32) -> &[Entry] {
        let place = place as usize;
        &self.entries[self.starts[place] as usize..self.starts[place + 1] as usize]
    }

    /// Those of them that cross it as likely as not, at least.
    pub(crate) fn sure(&self, place: u32) -> &[Entry] {
        let place = place as usize;
        &self.entries[self.starts[place] as usize..self.sure[place] as usize]
    }

    /// Those of them that are enough for a first look: flows with known ways, unless these are too few.
    pub(crate) fn at_first(&self, place: u32) -> &[Entry] {
        let sure = self.sure(place);
        let known = (self.known[place as usize] - self.starts[place as usize]) as usize;
        if known >= ENOUGH && known * 2 >= sure.len() { &sure[..known] } else { sure }
    }

    /// The logarithm of the likelihood of a flow as things stand.
    pub(crate) fn log(&self, flow: u32) -> f64 {
        self.troubled[flow as usize].log
    }

    /// The sum of the same for some flows, if a suspect that they cross did this besides. For flows with an
    /// unknown way, it takes what [`Evidence::hits`] says of them.
    pub(crate) fn log_with(&self, entries: &[Entry], hits: &[[Choices; 2]], guilt: Guilt) -> f64 {
        let mut hits = hits.iter();
        let (passes, keeps) = (Chance::of(1.0 - guilt.rate), Chance::of(1.0 - guilt.share));
        entries.iter().map(|entry| self.one_with(*entry, &mut hits, passes, keeps)).sum()
    }

    fn one_with<'h>(
        &self,
        entry: Entry,
        hits: &mut impl Iterator<Item = &'h [Choices; 2]>,
        passes: Chance,
        keeps: Chance,
    ) -> f64 {
        let flow = &self.troubled[entry.flow as usize];
        let counts = &flow.seen.counts;
        if let Some(mixed) = &flow.mixed
            && let Some([there, back]) = hits.next()
        {
            let (passes, keeps) = (passes.value, keeps.value);
            return counts
                .log_mixed(mixed.there.parts(there, passes, keeps), mixed.back.parts(back, passes, keeps));
        }
        let (mut there, mut back, mut tuple) = (flow.there, flow.back, flow.keeps);
        if entry.there > 0.0 {
            (there, tuple) = (there.and(passes), tuple.and(keeps));
        }
        if entry.back > 0.0 {
            (back, tuple) = (back.and(passes), tuple.and(keeps));
        }
        counts.log(there, back, tuple)
    }

    /// From now on, a suspect does this besides.
    pub(crate) fn blame(&mut self, place: u32, guilt: Guilt) {
        self.scale(place, 1.0 - guilt.rate, 1.0 - guilt.share);
    }

    /// A suspect that was blamed with this is blamed no more.
    pub(crate) fn clear(&mut self, place: u32, guilt: Guilt) {
        self.scale(place, 1.0 / (1.0 - guilt.rate), 1.0 / (1.0 - guilt.share));
    }

    /// What exactly the same ways cross as a suspect, and itself.
    pub(crate) fn on_same_ways(&self, place: u32) -> Vec<u32> {
        let signature = self.good[place as usize].signature;
        let all = (0..).zip(&self.good);
        all.filter(|(_, good)| good.signature == signature).map(|(place, _)| place).collect()
    }

    /// Whether the same flows cross two suspects, each of them once or each of them on both ways.
    pub(crate) fn on_same_flows(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|place| self.good[place as usize].flows);
        one == other || one == other.wrapping_mul(2) || one.wrapping_mul(2) == other
    }

    /// From now on, packets pass less often for no reason, by this factor on each way.
    pub(crate) fn stray_more(&mut self, passes: f64) {
        for flow in &mut self.troubled {
            if let Some(mixed) = &mut flow.mixed {
                for side in [&mut mixed.there, &mut mixed.back] {
                    side.scale(&Choices::ALL, passes, 1.0);
                }
            }
            for way in [&mut flow.there, &mut flow.back] {
                *way = Chance::of(way.value * passes);
            }
            flow.settle();
        }
    }

    fn scale(&mut self, place: u32, passes: f64, keeps: f64) {
        let range = self.starts[place as usize] as usize..self.starts[place as usize + 1] as usize;
        for number in range {
            let entry = self.entries[number];
            let [hit_there, hit_back] = self.hit(&self.troubled[entry.flow as usize], place);
            let flow = &mut self.troubled[entry.flow as usize];
            if let Some(mixed) = &mut flow.mixed {
                mixed.there.scale(&hit_there, passes, keeps);
                mixed.back.scale(&hit_back, passes, keeps);
            } else {
                let times = |chance: Chance, by: f64| Chance::of((chance.value * by).min(1.0));
                if entry.there > 0.0 {
                    (flow.there, flow.keeps) = (times(flow.there, passes), times(flow.keeps, keeps));
                }
                if entry.back > 0.0 {
                    (flow.back, flow.keeps) = (times(flow.back, passes), times(flow.keeps, keeps));
                }
            }
            flow.settle();
        }
    }

    /// Which of the paths that the flows with an unknown way among these may take cross a suspect.
    pub(crate) fn hits(&self, place: u32, entries: &[Entry]) -> Vec<[Choices; 2]> {
        let flows = entries.iter().map(|entry| &self.troubled[entry.flow as usize]);
        flows.filter(|flow| flow.mixed.is_some()).map(|flow| self.hit(flow, place)).collect()
    }

    fn hit(&self, flow: &Troubled, place: u32) -> [Choices; 2] {
        if flow.mixed.is_none() {
            return [Choices::default(); 2];
        }
        [(flow.seen.there, flow.host == place), (flow.seen.back, false)].map(|(way, is_host)| {
            if is_host || self.paths.ends(way).contains(&place) {
                Choices::first(self.paths.choices(way))
            } else {
                self.paths.through(way, place)
            }
        })
    }

    /// The mean chances of a flow: of its packets there and back, and of its tuple to pass.
    pub(crate) fn chances(&self, flow: u32) -> (f64, f64, f64) {
        let flow = &self.troubled[flow as usize];
        (flow.there.value, flow.back.value, flow.keeps.value)
    }
}

/// All places that a way crosses, with weights; ends first.
pub(crate) fn each_place(paths: &Paths, way: WayId, mut visit: impl FnMut(u32, f32)) {
    for place in paths.ends(way) {
        visit(*place, 1.0);
    }
    match paths.crossed(way) {
        Crossed::Known(places) => places.iter().for_each(|place| visit(*place, 1.0)),
        Crossed::Mixture(weights) => weights.iter().for_each(|(place, weight)| visit(*place, *weight)),
    }
}

/// The host that packets of a way arrive at.
fn host_of(paths: &Paths, way: WayId) -> u32 {
    let row = paths.row();
    match row.suspect(paths.ends(way)[4]) {
        Suspect::Rnic(id) => row.place(Suspect::Host(paths.topology().rnic(id).host)),
        Suspect::Switch(_) | Suspect::Link(_) | Suspect::Host(_) => 0,
    }
}

fn index(paths: &Paths, troubled: &[Troubled]) -> (Vec<u32>, [Vec<u32>; 3], Vec<Entry>) {
    let mut all: Vec<(u32, Entry)> = Vec::new();
    let mut mine: Vec<(u32, f32, f32)> = Vec::new();
    for (number, flow) in (0..).zip(troubled) {
        mine.clear();
        mine.push((flow.host, 1.0, 0.0));
        each_place(paths, flow.seen.there, |place, weight| mine.push((place, weight, 0.0)));
        each_place(paths, flow.seen.back, |place, weight| mine.push((place, 0.0, weight)));
        mine.sort_unstable_by_key(|one| one.0);
        for same in mine.chunk_by(|one, other| one.0 == other.0) {
            let there = same.iter().map(|one| one.1).sum::<f32>().min(1.0);
            let back = same.iter().map(|one| one.2).sum::<f32>().min(1.0);
            all.push((same[0].0, Entry { flow: number, there, back }));
        }
    }
    let mut starts = vec![0_u32; paths.places() + 1];
    for (place, _) in &all {
        starts[*place as usize + 1] += 1;
    }
    for place in 1..starts.len() {
        starts[place] += starts[place - 1];
    }
    let mut next = starts.clone();
    let mut entries = vec![Entry { flow: 0, there: 0.0, back: 0.0 }; all.len()];
    let rank = |entry: &Entry| match () {
        () if troubled[entry.flow as usize].mixed.is_none() => 0,
        () if entry.there >= 0.5 || entry.back >= 0.5 => 1,
        () => 2,
    };
    let ends = [0, 1, 2].map(|wanted| {
        for (place, entry) in all.iter().filter(|(_, entry)| rank(entry) == wanted) {
            entries[next[*place as usize] as usize] = *entry;
            next[*place as usize] += 1;
        }
        next.clone()
    });
    (starts, ends, entries)
}

/// Spreads 64 bits.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

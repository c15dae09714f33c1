//! All flows of some windows, sorted by what each suspect needs of them.
//!
//! Of flows in which all went well, only sums are kept: each suspect's part in their likelihood depends on
//! no other suspect. Flows with trouble are kept one by one, with the chances that the suspects named so far
//! give them.

use super::counts::{Counts, Part};
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
    /// Chances, if both ways are known: there, back, and of the tuple to pass at all.
    pub(crate) there: f64,
    pub(crate) back: f64,
    pub(crate) keeps: f64,
    /// The host that probes arrive at.
    pub(crate) host: u32,
    mixed: Option<Box<Mixed>>,
}

#[derive(Clone, Debug)]
struct Mixed {
    there: Vec<Part>,
    back: Vec<Part>,
    /// Whether some parts differ.
    touched: bool,
}

/// A flow that crosses, or may cross, a suspect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) flow: u32,
    pub(crate) there: f32,
    pub(crate) back: f32,
}

pub(crate) struct Evidence<'a> {
    pub(crate) paths: &'a Paths,
    pub(crate) good: Vec<Good>,
    pub(crate) troubled: Vec<Troubled>,
    starts: Vec<u32>,
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
                let parts = |way| {
                    let candidates = paths.choices(way);
                    #[expect(clippy::cast_precision_loss, reason = "at most 256")]
                    let weight = 1.0 / candidates as f64;
                    vec![Part { weight, passes, keeps: keeps.sqrt() }; candidates]
                };
                let is_mixed = ways.iter().any(|way| paths.choices(*way) > 1);
                let mixed = is_mixed.then(|| {
                    Box::new(Mixed { there: parts(seen.there), back: parts(seen.back), touched: false })
                });
                troubled.push(Troubled { seen, there: passes, back: passes, keeps, host, mixed });
            }
        }
        let (starts, entries) = index(paths, &troubled);
        Self { paths, good, troubled, starts, entries }
    }

    /// The flows with trouble that cross a suspect.
    pub(crate) fn entries(&self, place: u32) -> &[Entry] {
        let place = place as usize;
        &self.entries[self.starts[place] as usize..self.starts[place + 1] as usize]
    }

    /// The logarithm of the likelihood of a flow as things stand.
    pub(crate) fn log(&self, flow: u32) -> f64 {
        let flow = &self.troubled[flow as usize];
        match &flow.mixed {
            None => flow.seen.counts.log(flow.there, flow.back, flow.keeps),
            Some(mixed) => flow.seen.counts.log_mixed(&grouped(&mixed.there), &grouped(&mixed.back)),
        }
    }

    /// The same if a suspect did this besides.
    pub(crate) fn log_with(&self, place: u32, entry: Entry, guilt: Guilt) -> f64 {
        let flow = &self.troubled[entry.flow as usize];
        let counts = &flow.seen.counts;
        let (passes, keeps) = (1.0 - guilt.rate, 1.0 - guilt.share);
        let Some(mixed) = &flow.mixed else {
            let (mut there, mut back, mut tuple) = (flow.there, flow.back, flow.keeps);
            if entry.there > 0.0 {
                there *= passes;
                tuple *= keeps;
            }
            if entry.back > 0.0 {
                back *= passes;
                tuple *= keeps;
            }
            return counts.log(there, back, tuple);
        };
        if !mixed.touched {
            let there = split(mixed.there[0], f64::from(entry.there), passes, keeps);
            let back = split(mixed.back[0], f64::from(entry.back), passes, keeps);
            return counts.log_mixed(&there, &back);
        }
        let mut sides = [mixed.there.clone(), mixed.back.clone()];
        self.apply(flow, place, &mut sides, passes, keeps);
        counts.log_mixed(&grouped(&sides[0]), &grouped(&sides[1]))
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

    fn scale(&mut self, place: u32, passes: f64, keeps: f64) {
        let range = self.starts[place as usize] as usize..self.starts[place as usize + 1] as usize;
        for number in range {
            let entry = self.entries[number];
            let mut flow = std::mem::replace(&mut self.troubled[entry.flow as usize], vacant());
            if let Some(mixed) = &mut flow.mixed {
                mixed.touched = true;
                let mut sides = [std::mem::take(&mut mixed.there), std::mem::take(&mut mixed.back)];
                self.apply(&flow, place, &mut sides, passes, keeps);
                let [there, back] = sides;
                if let Some(mixed) = &mut flow.mixed {
                    (mixed.there, mixed.back) = (there, back);
                }
            } else {
                if entry.there > 0.0 {
                    flow.there = (flow.there * passes).min(1.0);
                    flow.keeps = (flow.keeps * keeps).min(1.0);
                }
                if entry.back > 0.0 {
                    flow.back = (flow.back * passes).min(1.0);
                    flow.keeps = (flow.keeps * keeps).min(1.0);
                }
            }
            self.troubled[entry.flow as usize] = flow;
        }
    }

    fn apply(&self, flow: &Troubled, place: u32, sides: &mut [Vec<Part>; 2], passes: f64, keeps: f64) {
        for (side, way) in sides.iter_mut().zip([flow.seen.there, flow.seen.back]) {
            let is_there = way == flow.seen.there;
            let at_end = self.paths.ends(way).contains(&place) || (is_there && flow.host == place);
            self.paths.each_candidate(way, place, |number, crosses| {
                if at_end || crosses {
                    let part = &mut side[number];
                    part.passes = (part.passes * passes).min(1.0);
                    part.keeps = (part.keeps * keeps).min(1.0);
                }
            });
        }
    }

    /// The mean chances of a flow: of its packets there and back, and of its tuple to pass.
    pub(crate) fn chances(&self, flow: u32) -> (f64, f64, f64) {
        let flow = &self.troubled[flow as usize];
        let Some(mixed) = &flow.mixed else { return (flow.there, flow.back, flow.keeps) };
        let mean = |parts: &[Part], of: fn(&Part) -> f64| -> f64 {
            parts.iter().map(|part| part.weight * of(part)).sum()
        };
        let keeps = mean(&mixed.there, |part| part.keeps) * mean(&mixed.back, |part| part.keeps);
        (mean(&mixed.there, |part| part.passes), mean(&mixed.back, |part| part.passes), keeps)
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

fn index(paths: &Paths, troubled: &[Troubled]) -> (Vec<u32>, Vec<Entry>) {
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
    for (place, entry) in all {
        entries[next[place as usize] as usize] = entry;
        next[place as usize] += 1;
    }
    (starts, entries)
}

/// Parts that are alike, as one.
fn grouped(parts: &[Part]) -> Vec<Part> {
    let mut groups: Vec<Part> = Vec::new();
    for part in parts {
        #[expect(clippy::float_cmp, reason = "equal values come from equal products")]
        let same = groups.iter_mut().find(|one| one.passes == part.passes && one.keeps == part.keeps);
        match same {
            Some(group) => group.weight += part.weight,
            None => groups.push(*part),
        }
    }
    groups
}

/// A side of which a part crosses a suspect, and the rest does not.
fn split(part: Part, weight: f64, passes: f64, keeps: f64) -> [Part; 2] {
    let guilty = Part { weight, passes: part.passes * passes, keeps: part.keeps * keeps };
    [Part { weight: 1.0 - weight, ..part }, guilty]
}

/// What stands in a flow's place while the flow itself is changed.
fn vacant() -> Troubled {
    let counts = Counts::new(super::Trouble::Loss, &crate::Outcomes::default());
    let seen = Seen { number: 0, there: WayId::NONE, back: WayId::NONE, counts };
    Troubled { seen, there: 1.0, back: 1.0, keeps: 1.0, host: 0, mixed: None }
}

/// Spreads 64 bits.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

//! Which suspects explain what the flows met: greedy likelihood over cards, switches, directed links and hosts.

mod counts;
mod evidence;
mod search;
mod side;

pub(crate) use counts::Counts;
pub use counts::Trouble;
pub use evidence::Guilt;
pub(crate) use evidence::{Evidence, Seen, each_place};

use crate::paths::Paths;
use crate::suspect::Suspect;
use crate::topology::HostId;
use search::Search;

/// How much must be explained before something is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocaliseConfig {
    /// A suspect is named if it raises the logarithm of the likelihood by so much.
    pub threshold: f64,
    /// At least so many packets meet trouble for no reason that can be named, from 0 to 1.
    pub stray: f64,
    /// So many tuples never pass for no reason that can be named, from 0 to 1.
    pub stray_tuples: f64,
}

impl Default for LocaliseConfig {
    fn default() -> Self {
        Self { threshold: 16.0, stray: 1e-5, stray_tuples: 1e-6 }
    }
}

/// What is bad, and why it is believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// What is bad. If it is more than one, the same flows cross all of them, and all explain as much.
    pub suspects: Vec<Suspect>,
    /// What it does.
    pub guilt: Guilt,
    /// By how much the logarithm of the likelihood would fall without it.
    pub gain: f64,
    /// The best of its neighbours in its place: by how much less it explains.
    pub runner_up: Option<(Suspect, f64)>,
    /// Packets that crossed it.
    pub crossings: f64,
    /// Packets that crossed it and met trouble.
    pub losses: f64,
    /// How many of them would have met trouble without it.
    pub expected: f64,
    /// The flows with the most trouble: numbers in the caller's list, and packets.
    pub top: Vec<(u32, f64)>,
    /// A host that said itself that it was at fault.
    pub is_known: bool,
}

/// What the same flows cross is told apart if one of them explains more by so many nats. A flow that is dead
/// does not tell on which way it died.
const TOLD_APART: f64 = 0.5;

/// So many flows are named as evidence.
const TOP: usize = 5;

/// Names what explains the trouble of these flows. Hosts that said that they were at fault explain first.
pub(crate) fn localise(
    paths: &Paths,
    flows: &[Seen],
    hosts: &[HostId],
    config: &LocaliseConfig,
) -> Vec<Named> {
    let known: Vec<u32> = hosts.iter().map(|host| paths.row().place(Suspect::Host(*host))).collect();
    let mut evidence = Evidence::new(paths, flows.iter().copied(), config.stray, config.stray_tuples);
    let mut search = Search::new(&mut evidence, config.threshold, config.stray);
    search.run(&known);
    // If much is left, more is met for no reason than was thought: then less is worth naming.
    let stray = leftover(search.evidence);
    if stray > 2.0 * config.stray {
        search.run_again(stray);
    }
    told(&mut search)
}

/// The share of packets with trouble that nothing explains, for each way.
fn leftover(evidence: &Evidence<'_>) -> f64 {
    let mut all: f64 = evidence.good.iter().map(|good| good.packets).sum::<f64>() / PLACES_PER_WAY;
    let mut left = 0.0;
    for (number, flow) in (0..).zip(&evidence.troubled) {
        let counts = &flow.seen.counts;
        all += counts.there + counts.back;
        let (there, back, keeps) = evidence.chances(number);
        let unexplained = |chance: f64| if chance < 1e-3 { 1.0 } else { 0.0 };
        if counts.is_dead() && keeps < 0.999 {
            continue;
        }
        left +=
            counts.bad * unexplained(counts.is_bad(there, back)) + counts.back_bad * unexplained(1.0 - back);
    }
    left / all.max(1.0)
}

/// Places that a way crosses, about.
const PLACES_PER_WAY: f64 = 11.0;

fn told(search: &mut Search<'_, '_>) -> Vec<Named> {
    let mut named = Vec::new();
    for number in 0..search.active.len() {
        let one = search.active[number];
        let row = *search.evidence.paths.row();
        let mut same = search.evidence.on_same_ways(one.place);
        search.evidence.clear(one.place, one.guilt);
        let mut runner_up: Option<(Suspect, f64)> = None;
        let neighbours = if one.is_known { Vec::new() } else { search.neighbours(one.place) };
        // The reverse of a card's link is a neighbour of the card.
        let beyond: Vec<u32> = neighbours
            .iter()
            .filter(|place| matches!(row.suspect(**place), Suspect::Rnic(_)))
            .flat_map(|place| search.neighbours(*place))
            .collect();
        for place in neighbours.into_iter().chain(beyond) {
            if same.contains(&place) {
                continue;
            }
            let (mut gain, guess) = search.screen(place);
            let is_near = search.evidence.on_same_flows(one.place, place);
            if is_near && gain > 0.0 {
                gain = search.fit(place, guess).0;
            }
            let behind = one.gain - gain;
            if is_near && behind < TOLD_APART {
                same.push(place);
            } else if gain > 0.0 && runner_up.is_none_or(|(_, best)| behind < best) {
                runner_up = Some((row.suspect(place), behind));
            }
        }
        let suspects: Vec<Suspect> = same.iter().map(|place| row.suspect(*place)).collect();
        let evidence = &search.evidence;
        let good = &evidence.good[one.place as usize];
        let (mut crossings, mut losses, mut expected) = (good.all_packets(), 0.0, 0.0);
        let mut top = Vec::new();
        for entry in evidence.entries(one.place) {
            let flow = &evidence.troubled[entry.flow as usize];
            let counts = &flow.seen.counts;
            let (there, back, _) = evidence.chances(entry.flow);
            let on = f64::from(entry.there.max(entry.back));
            let (sent, answers) = (counts.there + counts.bad, counts.back + counts.back_bad);
            crossings += f64::from(entry.there) * sent + f64::from(entry.back) * answers;
            losses += on * counts.bad + f64::from(entry.back) * counts.back_bad;
            expected +=
                on * sent * counts.is_bad(there, back) + f64::from(entry.back) * answers * (1.0 - back);
            top.push((flow.seen.number, counts.troubled()));
        }
        expected += good.all_packets() * search.stray();
        search.evidence.blame(one.place, one.guilt);
        top.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        top.truncate(TOP);
        named.push(Named {
            suspects,
            guilt: one.guilt,
            gain: one.gain,
            runner_up,
            crossings,
            losses,
            expected,
            top,
            is_known: one.is_known,
        });
    }
    named.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    named
}

//! The analyzer: a window at a time goes in, findings come out.
//!
//! Suspects are named from the last few windows together, since small losses need many packets; but only what
//! the newest window alone speaks for, too, counts as seen in it.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::finding::{Finding, FindingId, Findings, Newest, Pace, Sighting, State, evidence};
use crate::localise::{Counts, LocaliseConfig, Named, Seen, Trouble, each_place, localise};
use crate::noise::{HostNote, Noise};
use crate::observation::{FlowKey, HostReport, Observation, Outcomes, Tuple, Window};
use crate::paths::{Paths, WayId};
use crate::quick::QuickMap;
use crate::suspect::Suspect;
use crate::topology::{HostId, Node, Topology};

/// How an analyzer judges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnalyzerConfig {
    /// How much must be explained before something is named.
    pub localise: LocaliseConfig,
    /// So many windows are looked at together.
    pub windows: usize,
    /// A finding opens when it was seen in so many windows in a row.
    pub opens_after: u32,
    /// A finding closes when nothing was seen of it in so many windows in a row.
    pub closes_after: u32,
    /// A flow that was not probed for so many windows is forgotten.
    pub forgets_after: u64,
}

impl Default for AnalyzerConfig {
    fn default() -> Self {
        Self {
            localise: LocaliseConfig::default(),
            windows: 3,
            opens_after: 2,
            closes_after: 3,
            forgets_after: 180,
        }
    }
}

/// Names what is bad, window by window.
#[derive(Clone, Debug)]
pub struct Analyzer {
    config: AnalyzerConfig,
    paths: Paths,
    keys: QuickMap<FlowKey, u32>,
    flows: Vec<Flow>,
    recent: VecDeque<Recent>,
    findings: Findings,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: FlowKey,
    there: WayId,
    back: WayId,
    last: u64,
}

/// A window, with flows as numbers.
#[derive(Clone, Debug)]
struct Recent {
    outcomes: Vec<(u32, Outcomes)>,
    hosts: Vec<HostReport>,
}

/// What is to be said after a window.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The number of the window; the first one is 0.
    pub number: u64,
    /// Findings that are open.
    pub open: Vec<Finding>,
    /// Findings that ended with this window.
    pub over: Vec<Finding>,
    /// Hosts that explain trouble, with what they said of themselves.
    pub hosts: Vec<HostNote>,
    /// Observations of cards that the topology does not have.
    pub unknown: u32,
}

impl Analyzer {
    /// An analyzer of these paths that has seen nothing.
    #[must_use]
    pub fn new(paths: Paths, config: AnalyzerConfig) -> Self {
        Self {
            config,
            paths,
            keys: QuickMap::default(),
            flows: Vec::new(),
            recent: VecDeque::new(),
            findings: Findings::default(),
            number: 0,
        }
    }

    /// The paths, to tell traces to.
    pub const fn paths_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }

    /// The paths.
    #[must_use]
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The wiring is described anew. What has the same name is the same thing, and what was seen of it stays.
    ///
    /// Returns the findings that are over since nothing that they suspect is described any more.
    pub fn rewire(&mut self, topology: Topology) -> Vec<FindingId> {
        self.recast(topology, 0, |_| true)
    }

    /// Goes on with a finding of another life: it stays if it is seen again, and else closes.
    pub fn reopen(&mut self, finding: Finding) {
        self.findings.reopen(finding);
    }

    /// Findings have this number, or larger ones.
    pub fn number_from(&mut self, next: FindingId) {
        self.findings.number_from(next);
    }

    /// Takes a window, and says what is to be said after it.
    pub fn window(&mut self, window: &Window) -> Verdict {
        self.paths.settle();
        let unknown = self.take(window);
        let noise = Noise::of(self.paths.topology(), self.recent.iter().flat_map(|recent| &recent.hosts));
        let sums = self.sums();
        let mut notes = self.notes(&noise, &sums);
        let uneasy = noise.uneasy();
        let (mut sightings, mut fresh) = (Vec::new(), Vec::new());
        for trouble in [Trouble::Loss, Trouble::Delay] {
            let named = if trouble == Trouble::Delay && !self.is_slow(&sums, &uneasy) {
                Vec::new()
            } else {
                let seen: Vec<Seen> = self.seen(trouble, &sums, &noise).collect();
                localise(&self.paths, &seen, &uneasy, &self.config.localise)
            };
            for one in named.iter().filter(|one| one.is_known) {
                let note =
                    notes.iter_mut().find(|note| one.suspects.contains(&Suspect::Host(note.report.host)));
                if let Some(note) = note {
                    note.losses += (one.losses - one.expected).max(0.0);
                }
            }
            // A host that explains trouble by itself is no finding; but one that was found bad stays so.
            let is_watched = |one: &Named| !one.is_known || self.findings.has_open(trouble, &one.suspects);
            let watched: Vec<Named> = named.into_iter().filter(is_watched).collect();
            let before = self.findings.all().iter().filter(|finding| finding.trouble == trouble);
            let mut suspects: Vec<(Suspect, f64)> =
                before.map(|finding| (finding.suspects[0], harm(finding.evidence.guilt))).collect();
            suspects.retain(|(suspect, _)| !watched.iter().any(|one| one.suspects.contains(suspect)));
            let gone = suspects.len();
            suspects.extend(watched.iter().map(|one| (one.suspects[0], harm(one.guilt))));
            if suspects.is_empty() {
                continue;
            }
            let newest = self.newest(trouble, &suspects, gone, &noise);
            fresh.extend(
                suspects[..gone]
                    .iter()
                    .zip(&newest)
                    .map(|((suspect, _), newest)| (trouble, *suspect, *newest)),
            );
            for (one, newest) in watched.into_iter().zip(newest[gone..].iter().copied()) {
                let evidence = evidence(&one, |flow| self.flows[flow as usize].key);
                sightings.push(Sighting { trouble, suspects: one.suspects, evidence, newest });
            }
        }
        let newest = |finding: &Finding| {
            let told = fresh.iter().find(|(trouble, suspect, _)| {
                *trouble == finding.trouble && finding.suspects.contains(suspect)
            });
            told.map_or(Newest::Denies(0.0), |(.., newest)| *newest)
        };
        let topology = self.paths.topology();
        let is_near = |one, other| is_near(topology, one, other) || is_near(topology, other, one);
        let pace = Pace { opens_after: self.config.opens_after, closes_after: self.config.closes_after };
        let over = self.findings.window(self.number, sightings, newest, is_near, pace);
        let open =
            self.findings.all().iter().filter(|finding| finding.state == State::Open).cloned().collect();
        let verdict = Verdict { number: self.number, open, over, hosts: notes, unknown };
        self.number += 1;
        self.forget();
        verdict
    }

    fn take(&mut self, window: &Window) -> u32 {
        let mut unknown = 0;
        let cards = u32::try_from(self.paths.topology().rnics().len()).unwrap_or(u32::MAX);
        let mut outcomes = Vec::with_capacity(window.observations.len());
        if self.flows.is_empty() {
            self.keys.reserve(window.observations.len());
            self.flows.reserve(window.observations.len());
        }
        for Observation { flow: key, outcomes: ends } in &window.observations {
            if key.from.0 >= cards || key.to.0 >= cards || key.from == key.to {
                unknown += 1;
                continue;
            }
            let next = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
            let number = *self.keys.entry(*key).or_insert(next);
            if number == next {
                let (there, back) = (self.paths.way(key.there()), self.paths.way(key.back()));
                self.flows.push(Flow { key: *key, there, back, last: self.number });
            }
            self.flows[number as usize].last = self.number;
            outcomes.push((number, *ends));
        }
        if self.recent.len() >= self.config.windows.max(1) {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent { outcomes, hosts: window.hosts.clone() });
        unknown
    }

    fn sums(&self) -> Vec<Outcomes> {
        let mut sums = vec![Outcomes::default(); self.flows.len()];
        for (number, outcomes) in self.recent.iter().flat_map(|recent| &recent.outcomes) {
            sums[*number as usize].add(outcomes);
        }
        sums
    }

    fn notes(&self, noise: &Noise, sums: &[Outcomes]) -> Vec<HostNote> {
        let mut notes: Vec<HostNote> =
            noise.reports().map(|report| HostNote { report: *report, taken_out: 0, losses: 0.0 }).collect();
        let topology = self.paths.topology();
        let mut place = HashMap::new();
        for (number, note) in notes.iter().enumerate() {
            place.insert(note.report.host, number);
        }
        for (flow, sum) in self.flows.iter().zip(sums) {
            let end = [flow.key.to, flow.key.from].into_iter().find(|rnic| noise.is_silent(*rnic));
            if let Some(rnic) = end.filter(|_| sum.told() > 0)
                && let Some(number) = place.get(&topology.rnic(rnic).host)
            {
                notes[*number].taken_out += 1;
            }
        }
        notes
    }

    fn seen<'a>(
        &'a self,
        trouble: Trouble,
        sums: &'a [Outcomes],
        noise: &'a Noise,
    ) -> impl Iterator<Item = Seen> + 'a {
        (0..).zip(self.flows.iter().zip(sums)).filter_map(move |(number, (flow, sum))| {
            let is_used = !noise.is_silent(flow.key.from) && !noise.is_silent(flow.key.to);
            let counts = Counts::new(trouble, sum);
            (is_used && !counts.is_empty()).then_some(Seen {
                number,
                there: flow.there,
                back: flow.back,
                counts,
            })
        })
    }

    /// Whether flows are slow, other than those to hosts that stood still.
    fn is_slow(&self, sums: &[Outcomes], uneasy: &[HostId]) -> bool {
        let topology = self.paths.topology();
        let mut slow = self.flows.iter().zip(sums).filter(|(_, sum)| sum.slow > 0);
        slow.any(|(flow, _)| uneasy.binary_search(&topology.rnic(flow.key.to).host).is_err())
    }

    /// What the newest window alone says of each of these suspects, which do so much harm. Only flows that
    /// cross one of the named alone are asked; the first `gone` are asked of flows that cross named ones, too.
    fn newest(
        &self,
        trouble: Trouble,
        suspects: &[(Suspect, f64)],
        gone: usize,
        noise: &Noise,
    ) -> Vec<Newest> {
        let row = self.paths.row();
        let mut mark = vec![0_u16; self.paths.places()];
        for (number, (suspect, _)) in (1..).zip(suspects) {
            mark[row.place(*suspect) as usize] = number;
        }
        let mut sums = vec![(0.0_f64, 0.0_f64); suspects.len()];
        let newest = self.recent.back().map(|recent| recent.outcomes.as_slice()).unwrap_or_default();
        let mut met: Vec<(u16, f64)> = Vec::new();
        for (number, outcomes) in newest {
            let flow = &self.flows[*number as usize];
            if noise.is_silent(flow.key.from) || noise.is_silent(flow.key.to) {
                continue;
            }
            let counts = Counts::new(trouble, outcomes);
            met.clear();
            for (way, packets) in
                [(flow.there, counts.there + counts.bad), (flow.back, counts.back + counts.back_bad)]
            {
                each_place(&self.paths, way, |place, weight| {
                    let number = mark[place as usize];
                    if number > 0 && weight >= 0.5 {
                        met.push((number, packets));
                    }
                });
            }
            let named = |number: u16| usize::from(number) > gone;
            for (number, packets) in &met {
                let alone =
                    met.iter().all(|(other, _)| other == number || !(named(*other) && named(*number)));
                if alone {
                    let sum = &mut sums[usize::from(*number) - 1];
                    sum.0 += packets;
                    sum.1 += counts.troubled();
                }
            }
        }
        let stray = self.config.localise.stray;
        suspects
            .iter()
            .zip(sums)
            .enumerate()
            .map(|(number, ((suspect, harm), (packets, bad)))| {
                // Hosts are no part of ways: what is named of them is believed, and what is not named is over. What else
                // is named is believed, if no flow crosses it alone.
                let is_named = number >= gone;
                match suspect {
                    Suspect::Host(_) if !is_named => return Newest::Denies(f64::INFINITY),
                    Suspect::Host(_) => return Newest::Speaks,
                    _ if is_named && packets <= 0.0 => return Newest::Speaks,
                    _ => {}
                }
                let (with, without) = (packets * harm.max(2.0 * stray), packets * stray);
                let gain = if packets > 0.0 { bad * (with / without).ln() - (with - without) } else { 0.0 };
                if gain > 0.0 { Newest::Speaks } else { Newest::Denies(-gain) }
            })
            .collect()
    }

    /// Forgets flows that are not probed any more, once they are many.
    fn forget(&mut self) {
        let limit = self.number.saturating_sub(self.config.forgets_after);
        let old = self.flows.iter().filter(|flow| flow.last < limit).count();
        if old * 4 < self.flows.len().max(4) {
            return;
        }
        let kept = self.flows.iter().filter(|flow| flow.last >= limit);
        let used: HashSet<Tuple> = kept.flat_map(|flow| [flow.key.there(), flow.key.back()]).collect();
        let topology = self.paths.topology().clone();
        // Everything is where it was, so that no finding goes.
        let _ = self.recast(topology, limit, |tuple| used.contains(tuple));
    }

    /// Puts everything on another description: flows that were seen since a window, and their paths.
    fn recast(&mut self, topology: Topology, since: u64, keep: impl Fn(&Tuple) -> bool) -> Vec<FindingId> {
        let (mut paths, names) = self.paths.onto(topology, keep);
        let mut places = vec![u32::MAX; self.flows.len()];
        let mut kept = Vec::new();
        for (place, flow) in places.iter_mut().zip(&self.flows).filter(|(_, flow)| flow.last >= since) {
            let Some(key) = names.flow(flow.key) else { continue };
            *place = u32::try_from(kept.len()).unwrap_or(u32::MAX);
            let (there, back) = (paths.way(key.there()), paths.way(key.back()));
            kept.push(Flow { key, there, back, last: flow.last });
        }
        for recent in &mut self.recent {
            recent.outcomes.retain_mut(|(number, _)| {
                *number = places[*number as usize];
                *number != u32::MAX
            });
            recent.hosts.retain_mut(|report| {
                names.host(report.host).is_some_and(|host| {
                    report.host = host;
                    true
                })
            });
        }
        self.keys = kept.iter().map(|flow| flow.key).zip(0..).collect();
        self.flows = kept;
        let before = std::mem::replace(&mut self.paths, paths);
        let paths = &mut self.paths;
        self.findings.rename(|suspect| paths.renamed(suspect, &before, &names), |flow| names.flow(flow))
    }
}

fn harm(guilt: crate::Guilt) -> f64 {
    guilt.rate + guilt.share
}

/// Whether the one is a part of the other, or the other way of it: a link of a card or a switch, a card of a host.
fn is_near(topology: &Topology, one: Suspect, other: Suspect) -> bool {
    match (one, other) {
        (Suspect::Link(link), Suspect::Link(other)) => {
            let (from, to) = topology.ends(link);
            topology.ends(other) == (to, from)
        }
        (Suspect::Link(link), Suspect::Rnic(card)) => {
            let (from, to) = topology.ends(link);
            [from, to].contains(&Node::Rnic(card))
        }
        (Suspect::Link(link), Suspect::Switch(switch)) => {
            let (from, to) = topology.ends(link);
            [from, to].contains(&Node::Switch(switch))
        }
        (Suspect::Rnic(card), Suspect::Host(host)) => topology.rnic(card).host == host,
        _ => false,
    }
}

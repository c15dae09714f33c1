//! Three published methods, on the same observations: 007's votes, a NetBouncer-style least-squares fit, and
//! deTector's PLL.
//!
//! They are treated better than the analyzer: they get the true routes of all flows, and flows to hosts that
//! said that they stood still or have no agent are left out for them. All of them look for links; what a bad
//! switch or card looks like to them is added in the way that their authors describe or that suits them best,
//! and they are scored at the best of many thresholds, chosen after the fact.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_clos::{Link, Node as Place, Route, Shape};
use ferroce_mesh::{Outcomes, Window};

use crate::scene::Scene;
use crate::truth::Thing;

/// What a method names at each of its thresholds.
pub(crate) type Sweep = Vec<Vec<Vec<Thing>>>;

/// The sum of all windows, flow by flow, with true routes.
pub(crate) struct Table {
    shape: Shape,
    rows: Vec<Row>,
}

struct Row {
    there: Vec<u32>,
    back: Vec<u32>,
    sent: f64,
    /// Nothing came back.
    silent: f64,
    /// Some answers came back and others did not.
    answers: f64,
    /// The probe counts as lost.
    lost: f64,
}

impl Row {
    fn links(&self) -> impl Iterator<Item = u32> {
        self.there.iter().chain(&self.back).copied()
    }
}

impl Table {
    pub(crate) fn new(scene: &Scene, windows: &[Window]) -> Self {
        let shape = *scene.shape();
        let uneasy: BTreeSet<u32> =
            windows.iter().flat_map(|window| &window.hosts).map(|report| report.host.0).collect();
        let route = |from, to, port| scene.fabric.route(ferroce_clos::Tuple { from, to, port });
        let links = |route: Route| route.links().iter().map(|link| link.0).collect::<Vec<u32>>();
        let mut rows = Vec::new();
        for (number, first) in windows[0].observations.iter().enumerate() {
            let key = first.flow;
            if [key.from, key.to].iter().any(|rnic| uneasy.contains(&shape.host_of(rnic.0))) {
                continue;
            }
            let mut ends = Outcomes::default();
            for window in windows {
                let one = &window.observations[number];
                assert_eq!(one.flow, key, "all windows have the same flows");
                ends.add(&one.outcomes);
            }
            if ends.told() == 0 {
                continue;
            }
            rows.push(Row {
                there: links(route(key.from.0, key.to.0, key.port)),
                back: links(route(key.to.0, key.from.0, key.reply_port)),
                sent: f64::from(ends.told()),
                silent: f64::from(ends.time_out),
                answers: f64::from(ends.ack1_lost + ends.ack2_lost),
                lost: f64::from(ends.time_out + ends.ack1_lost),
            });
        }
        Self { shape, rows }
    }

    /// The links of a card look like the card.
    fn thing(&self, link: u32) -> Thing {
        match self.shape.ends(Link(link)) {
            (card @ Place::Rnic(_), _) | (_, card @ Place::Rnic(_)) => Thing::Node(card),
            (from, to) => Thing::Link(from, to),
        }
    }

    /// As things are named: a card cannot be told from its links if it loses all, so either is right.
    fn named(&self, things: &BTreeSet<Thing>) -> Vec<Vec<Thing>> {
        things.iter().map(|thing| vec![*thing]).collect()
    }
}

/// 007: each flow with loss votes for all links on its route, one vote in all; the link with the most votes
/// is named, what crosses it is left out, and so on while votes are more than a share of all. A switch or
/// card whose votes do not come from one link is named itself.
pub(crate) fn voting(table: &Table) -> Sweep {
    const SHARES: [f64; 14] =
        [1e-6, 3e-6, 1e-5, 2e-5, 4e-5, 7e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 6e-4, 1e-3, 4e-3, 2e-2];
    const FROM_ONE: f64 = 0.7;
    let bad: Vec<(Vec<u32>, f64)> = table
        .rows
        .iter()
        .filter(|row| row.silent + row.answers > 0.0)
        .map(|row| if row.silent > 0.0 { (row.links().collect(), 1.0) } else { (row.back.clone(), 1.0) })
        .collect();
    let mut crossing: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut votes: BTreeMap<u32, f64> = BTreeMap::new();
    #[expect(clippy::cast_precision_loss, reason = "at most 12")]
    let vote = |links: &[u32]| 1.0 / links.len() as f64;
    for (number, (links, _)) in bad.iter().enumerate() {
        for link in links {
            crossing.entry(*link).or_default().push(number);
            *votes.entry(*link).or_default() += vote(links);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "flows are few")]
    let all = bad.len().max(1) as f64;
    let mut alive = vec![true; bad.len()];
    let mut order: Vec<(Thing, f64)> = Vec::new();
    while let Some((top, most)) =
        votes.iter().max_by(|one, other| one.1.total_cmp(other.1)).map(|(l, v)| (*l, *v))
    {
        if most < SHARES[0] * all || order.len() >= 200 {
            break;
        }
        let (from, to) = table.shape.ends(Link(top));
        let mut thing = table.thing(top);
        let mut links = vec![top];
        if let Thing::Node(card @ Place::Rnic(_)) = thing {
            links = both_ways(&table.shape, card);
        }
        // All votes for links of a switch, where one link has but a part of them, and many have as many.
        for node in [from, to].into_iter().filter(|node| !matches!(node, Place::Rnic(_))) {
            let around = both_ways(&table.shape, node);
            let sum: f64 = around.iter().filter_map(|link| votes.get(link)).sum();
            let even = around.iter().filter(|link| votes.get(link).is_some_and(|votes| *votes > most / 4.0));
            // Each route enters and leaves a switch: half of the votes are counted twice.
            if most < FROM_ONE * sum / 2.0 && even.count() * 4 > around.len() {
                (thing, links) = (Thing::Node(node), around);
                break;
            }
        }
        order.push((thing, most / all));
        for link in links {
            for number in crossing.remove(&link).unwrap_or_default() {
                if std::mem::replace(&mut alive[number], false) {
                    for other in &bad[number].0 {
                        if let Some(sum) = votes.get_mut(other) {
                            *sum -= vote(&bad[number].0);
                        }
                    }
                }
            }
            votes.remove(&link);
        }
    }
    let taken = |share: f64| -> BTreeSet<Thing> {
        order.iter().filter(|(_, votes)| *votes >= share).map(|(thing, _)| *thing).collect()
    };
    SHARES.iter().map(|share| table.named(&taken(*share))).collect()
}

/// NetBouncer-style: the chance of each link to pass is fitted so that products along routes match what came
/// back, by least squares with a penalty for links that are neither good nor bad. A switch is named if most
/// of its links are bad.
pub(crate) fn least_squares(table: &Table) -> Sweep {
    const RATES: [f64; 10] = [0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01, 0.02, 0.05, 0.1];
    const PENALTY: f64 = 1.0;
    /// More of them change nothing any more.
    const STEPS: u32 = 40;
    let links = table.shape.all_links() as usize;
    let mut passes = vec![1.0_f64; links];
    let mut suspect = vec![false; links];
    for row in table.rows.iter().filter(|row| row.lost > 0.0) {
        row.links().for_each(|link| suspect[link as usize] = true);
    }
    for _ in 0..STEPS {
        let (mut above, mut below) = (vec![0.0_f64; links], vec![0.0_f64; links]);
        for row in &table.rows {
            let product: f64 = row.links().map(|link| passes[link as usize]).product();
            let came = 1.0 - row.lost / row.sent;
            for link in row.links().filter(|link| suspect[*link as usize]) {
                let others = product / passes[link as usize];
                above[link as usize] += row.sent * came * others;
                below[link as usize] += row.sent * others * others;
            }
        }
        for link in (0..links).filter(|link| suspect[*link]) {
            let best = (above[link] - PENALTY / 2.0) / (below[link] - PENALTY).max(1e-9);
            // All links of a route are fitted at once, so each goes a part of the way.
            passes[link] = (passes[link] + 0.35 * (best.clamp(1e-6, 1.0) - passes[link])).clamp(1e-6, 1.0);
        }
    }
    let crossed: BTreeSet<u32> = table.rows.iter().flat_map(Row::links).collect();
    let taken = |rate: f64| {
        let bad: BTreeSet<u32> =
            crossed.iter().copied().filter(|l| 1.0 - passes[*l as usize] > rate).collect();
        let mut things = BTreeSet::new();
        let mut covered = BTreeSet::new();
        for node in switches(&table.shape) {
            let out: Vec<u32> = table.shape.links_from(node).iter().map(|link| link.0).collect();
            if out.iter().filter(|link| bad.contains(link)).count() * 10 > out.len() * 6 {
                things.insert(Thing::Node(node));
                covered.extend(both_ways(&table.shape, node));
            }
        }
        things.extend(bad.iter().filter(|link| !covered.contains(*link)).map(|link| table.thing(*link)));
        things
    };
    RATES.iter().map(|rate| table.named(&taken(*rate))).collect()
}

/// PLL of deTector: only what has loss in more than a share of its routes is a candidate; the candidate that
/// explains most lost probes is named, what crosses it is left out, and so on. Switches and cards are
/// candidates like links.
pub(crate) fn hit_ratio(table: &Table) -> Sweep {
    const RATIOS: [f64; 10] = [0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5];
    const FEWEST: usize = 3;
    let mut routes: BTreeMap<Thing, f64> = BTreeMap::new();
    let mut bad: BTreeMap<Thing, Vec<usize>> = BTreeMap::new();
    let mut by_place = vec![(0.0, Vec::new()); table.shape.all_links() as usize];
    for (number, row) in table.rows.iter().enumerate() {
        let is_bad = row.silent + row.answers > 0.0;
        for link in row.links() {
            let sum = &mut by_place[link as usize];
            sum.0 += 1.0;
            if is_bad && (row.silent > 0.0 || row.back.contains(&link)) {
                sum.1.push(number);
            }
        }
    }
    for (link, (count, numbers)) in (0..).zip(by_place) {
        let (from, _) = table.shape.ends(Link(link));
        let mut things = vec![table.thing(link)];
        // A packet leaves each switch that it passes over exactly one link.
        if !matches!(from, Place::Rnic(_)) {
            things.push(Thing::Node(from));
        }
        for thing in things {
            *routes.entry(thing).or_default() += count;
            bad.entry(thing).or_default().extend(&numbers);
        }
    }
    let mut sweep = Vec::new();
    for ratio in RATIOS {
        #[expect(clippy::cast_precision_loss, reason = "flows are few")]
        let candidates: Vec<Thing> = bad
            .iter()
            .filter(|(thing, flows)| flows.len() as f64 > ratio * routes[thing])
            .map(|(thing, _)| *thing)
            .collect();
        let mut alive = vec![true; table.rows.len()];
        let mut things = BTreeSet::new();
        let mut left: BTreeMap<Thing, usize> =
            candidates.iter().map(|thing| (*thing, bad[thing].len())).collect();
        while things.len() < 200 {
            // Counts only fall, so the largest is the right one as soon as it is counted anew.
            let Some((top, count)) = left.iter().max_by_key(|(_, count)| **count).map(|(t, c)| (*t, *c))
            else {
                break;
            };
            let now = bad[&top].iter().filter(|number| alive[**number]).count();
            if now < count {
                left.insert(top, now);
                continue;
            }
            if now < FEWEST {
                break;
            }
            things.insert(top);
            bad[&top].iter().for_each(|number| alive[*number] = false);
            left.remove(&top);
        }
        sweep.push(table.named(&things));
    }
    sweep
}

/// All links of a node, from it and to it.
fn both_ways(shape: &Shape, node: Place) -> Vec<u32> {
    let out = shape.links_from(node);
    let back = out.iter().filter_map(|link| {
        let (from, to) = shape.ends(*link);
        shape.link(to, from)
    });
    out.iter().copied().chain(back).map(|link| link.0).collect()
}

fn switches(shape: &Shape) -> impl Iterator<Item = Place> {
    let (tors, aggregations, cores) = (shape.all_tors(), shape.all_aggregations(), shape.all_cores());
    (0..tors)
        .map(Place::Tor)
        .chain((0..aggregations).map(Place::Aggregation))
        .chain((0..cores).map(Place::Core))
}

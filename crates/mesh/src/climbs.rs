//! All paths that a packet may take between two ToRs: up, and then down.

use std::collections::HashMap;

use crate::mixture::MOST_CANDIDATES;
use crate::topology::{Node, SwitchId, Topology};

/// Packets go up by no more tiers.
const HIGHEST: usize = 2;

/// The switches of a way up, from the ToR; a way that ends lower has its last switch again.
type Climb = [SwitchId; HIGHEST + 1];

/// The ways up from each ToR, by how high they lead, in the order of where they end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Climbs {
    by_tor: HashMap<SwitchId, [Vec<Climb>; HIGHEST]>,
}

/// A path from ToR to ToR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    all: [SwitchId; 2 * HIGHEST + 1],
    len: usize,
}

impl AsRef<[SwitchId]> for Switches {
    fn as_ref(&self) -> &[SwitchId] {
        &self.all[..self.len]
    }
}

impl Climbs {
    /// Forgets all, since the topology has changed.
    pub(crate) fn clear(&mut self) {
        self.by_tor.clear();
    }

    /// All shortest paths that go up and then down and fit a trace; none if there are too many.
    pub(crate) fn possible(
        &mut self,
        topology: &Topology,
        start: SwitchId,
        end: SwitchId,
        hops: &[Option<SwitchId>],
        reaches: bool,
    ) -> Vec<Switches> {
        if start == end {
            let here = Switches { all: [start; 2 * HIGHEST + 1], len: 1 };
            return if fits(here.as_ref(), hops, reaches) { vec![here] } else { Vec::new() };
        }
        for tor in [start, end] {
            self.by_tor.entry(tor).or_insert_with(|| climbs(topology, tor));
        }
        let (Some(ups), Some(downs)) = (self.by_tor.get(&start), self.by_tor.get(&end)) else {
            return Vec::new();
        };
        for (height, (ups, downs)) in ups.iter().zip(downs).enumerate() {
            let (mut joined, mut meets) = (Vec::new(), false);
            for up in ups {
                let top = up[HIGHEST];
                let first = downs.partition_point(|down| down[HIGHEST] < top);
                let others = downs[first..].iter().take_while(|down| down[HIGHEST] == top);
                meets |= downs.get(first).is_some_and(|down| down[HIGHEST] == top);
                let mut upward = up[..height + 2].iter().zip(hops);
                if !upward.all(|(switch, hop)| hop.is_none_or(|hop| hop == *switch)) {
                    continue;
                }
                for down in others {
                    let path = over(up, down, height);
                    if fits(path.as_ref(), hops, reaches) {
                        joined.push(path);
                    }
                }
            }
            if meets {
                return if joined.len() > MOST_CANDIDATES { Vec::new() } else { joined };
            }
        }
        Vec::new()
    }
}

/// Up one way, and down the other.
fn over(up: &Climb, down: &Climb, height: usize) -> Switches {
    let mut all = [up[0]; 2 * HIGHEST + 1];
    let (rises, falls) = (&up[..height + 2], down[..=height].iter().rev());
    for (place, switch) in all.iter_mut().zip(rises.iter().chain(falls)) {
        *place = *switch;
    }
    Switches { all, len: 2 * height + 3 }
}

fn climbs(topology: &Topology, tor: SwitchId) -> [Vec<Climb>; HIGHEST] {
    let mut below = vec![[tor; HIGHEST + 1]];
    std::array::from_fn(|height| {
        let mut raised = Vec::new();
        for path in &below {
            for above in &topology.switch(path[HIGHEST]).above {
                let mut path = *path;
                path[height + 1..].fill(*above);
                raised.push(path);
            }
        }
        raised.sort_by_key(|path| path[HIGHEST]);
        below.clone_from(&raised);
        raised
    })
}

/// Whether a path may be what a trace tells in parts.
fn fits(path: &[SwitchId], hops: &[Option<SwitchId>], reaches: bool) -> bool {
    let length = if reaches { path.len() == hops.len() } else { path.len() >= hops.len() };
    length && path.iter().zip(hops).all(|(switch, hop)| hop.is_none_or(|hop| hop == *switch))
}

/// Paths through the named hops, with one switch in each hole that is a neighbour of both sides.
pub(crate) fn bridged(
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

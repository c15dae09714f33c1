//! A network with its hashes, its clocks and its faults: the side of the truth.

use std::collections::BTreeMap;

use ferroce_probe::paths::Trace;
use ferroce_sim::Dice;

use crate::clock::Clock;
use crate::fault::{Fault, Place, Stall, Trouble};
use crate::hash::{Tuple, choose, mix, unit};
use crate::shape::{Link, Node, Shape};

/// Nanoseconds of an hour: clocks of hosts are off by no more.
const HOUR: u64 = 3_600_000_000_000;

/// A network and all that is true of it. Programs under test get its [`Shape`], and what follows from the
/// rest.
#[derive(Clone, Debug)]
pub struct Fabric {
    shape: Shape,
    seed: u64,
    polarised: bool,
    background: f64,
    drift: u32,
    faults: Vec<Fault>,
    /// By host.
    stalls: BTreeMap<u32, Stall>,
    /// Which of `lists` belongs to each link; the first one is empty.
    on_link: Vec<u32>,
    lists: Vec<Vec<Trouble>>,
}

/// The links that a packet crosses, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    links: [Link; 6],
    len: usize,
}

impl Route {
    /// The links.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links[..self.len]
    }
}

impl Fabric {
    /// A network in which nothing is wrong, all clocks show the truth, and each switch has a hash of its own.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            seed,
            polarised: false,
            background: 0.0,
            drift: 0,
            faults: Vec::new(),
            stalls: BTreeMap::new(),
            on_link: vec![0; shape.all_links() as usize],
            lists: vec![Vec::new()],
        }
    }

    /// The same with one more fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        // A packet leaves each switch that it passes over exactly one link; a card has one link each way.
        let links = match fault.place {
            Place::Link(link) => vec![link],
            Place::Node(node @ Node::Rnic(rnic)) => {
                let tor = Node::Tor(self.shape.tor_of(rnic));
                [self.shape.link(node, tor), self.shape.link(tor, node)].into_iter().flatten().collect()
            }
            Place::Node(node) => self.shape.links_from(node),
        };
        for link in links {
            let place = &mut self.on_link[link.0 as usize];
            if *place == 0 {
                *place = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
                self.lists.push(Vec::new());
            }
            self.lists[*place as usize].push(fault.trouble);
        }
        self
    }

    /// The same with a host that stalls.
    #[must_use]
    pub fn with_stall(mut self, stall: Stall) -> Self {
        self.stalls.insert(stall.host, stall);
        self
    }

    /// The same with one hash for all switches: they choose alike, and some ways are never used.
    #[must_use]
    pub fn polarised(self) -> Self {
        Self { polarised: true, ..self }
    }

    /// The same with this loss on each link, which is no fault.
    #[must_use]
    pub fn with_background(self, loss: f64) -> Self {
        Self { background: loss, ..self }
    }

    /// The same with clocks that are off by up to an hour, and too fast or too slow by up to so many
    /// millionths.
    #[must_use]
    pub fn with_clocks(self, ppm: u32) -> Self {
        Self { drift: ppm.max(1), ..self }
    }

    /// All that programs under test may know.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The truth: what is wrong with switches, links and cards.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The truth: which hosts stall.
    pub fn stalls(&self) -> impl Iterator<Item = &Stall> {
        self.stalls.values()
    }

    /// The truth: the way of a packet.
    #[must_use]
    pub fn route(&self, tuple: Tuple) -> Route {
        let (nodes, len) = self.nodes(tuple);
        let mut links = [Link(0); 6];
        for (place, pair) in links.iter_mut().zip(nodes[..len].windows(2)) {
            *place = self.shape.link(pair[0], pair[1]).unwrap_or(Link(0));
        }
        Route { links, len: len - 1 }
    }

    /// What a trace of a tuple says, if each router answers with this chance.
    #[must_use]
    pub fn trace(&self, tuple: Tuple, answers: f64, dice: &mut Dice) -> Trace {
        let (nodes, len) = self.nodes(tuple);
        let mut trace = Trace::new(tuple.port, 8);
        let routers = &nodes[1..len - 1];
        for (hop_limit, router) in (1..).zip(routers) {
            if unit(dice.word()) < answers {
                trace.router(hop_limit, self.shape.address(*router));
            }
        }
        trace.reached(u8::try_from(len - 1).unwrap_or(u8::MAX));
        trace
    }

    /// What is wrong on a link.
    pub(crate) fn troubles(&self, link: Link) -> &[Trouble] {
        &self.lists[self.on_link[link.0 as usize] as usize]
    }

    /// The loss on each link, which is no fault.
    pub(crate) const fn background(&self) -> f64 {
        self.background
    }

    /// The stalls of a host, if it has some.
    pub(crate) fn stall_of(&self, host: u32) -> Option<Stall> {
        self.stalls.get(&host).copied()
    }

    /// The clock of a host.
    pub(crate) fn clock_of(&self, host: u32) -> Clock {
        if self.drift == 0 {
            return Clock { beginning: 2 * HOUR, ppm: 0 };
        }
        let bits = mix(self.seed ^ mix(u64::from(host) | 1 << 40));
        let range = u64::from(self.drift) * 2 + 1;
        let ppm = i64::try_from(mix(bits) % range).unwrap_or(0) - i64::from(self.drift);
        Clock { beginning: HOUR + bits % (2 * HOUR), ppm: i32::try_from(ppm).unwrap_or(0) }
    }

    /// All nodes on the way of a packet, both cards included.
    fn nodes(&self, tuple: Tuple) -> ([Node; 7], usize) {
        let shape = &self.shape;
        let (start, end) = (shape.tor_of(tuple.from), shape.tor_of(tuple.to));
        let (card, target) = (Node::Rnic(tuple.from), Node::Rnic(tuple.to));
        if start == end {
            return ([card, Node::Tor(start), target, target, target, target, target], 3);
        }
        let plane = choose(self.seed_of(Node::Tor(start)), tuple, shape.aggregations);
        let up = start / shape.tors * shape.aggregations + plane;
        if shape.pod_of(tuple.from) == shape.pod_of(tuple.to) {
            let nodes =
                [card, Node::Tor(start), Node::Aggregation(up), Node::Tor(end), target, target, target];
            return (nodes, 5);
        }
        let core = plane * shape.cores + choose(self.seed_of(Node::Aggregation(up)), tuple, shape.cores);
        let down = end / shape.tors * shape.aggregations + plane;
        let (up, down) = (Node::Aggregation(up), Node::Aggregation(down));
        ([card, Node::Tor(start), up, Node::Core(core), down, Node::Tor(end), target], 7)
    }

    fn seed_of(&self, switch: Node) -> u64 {
        let number = match switch {
            _ if self.polarised => 0,
            Node::Tor(number) => u64::from(number) | 1 << 32,
            Node::Aggregation(number) => u64::from(number) | 2 << 32,
            Node::Core(number) | Node::Rnic(number) => u64::from(number) | 3 << 32,
        };
        mix(self.seed ^ mix(number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn routes_lead_from_card_to_card() {
        let fabric = Fabric::new(Shape::SMALL, 5);
        let shape = fabric.shape();
        for (from, to) in [(0, 1), (0, 3), (0, 7), (0, 31), (17, 2)] {
            let route = fabric.route(Tuple { from, to, port: 50_000 });
            assert_eq!(route.links().len(), shape.hops(from, to) as usize);
            let ends: Vec<_> = route.links().iter().map(|link| shape.ends(*link)).collect();
            assert_eq!((ends[0].0, ends[ends.len() - 1].1), (Node::Rnic(from), Node::Rnic(to)));
            assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ends:?}");
        }
    }

    #[test]
    fn ports_use_all_ways_unless_the_hashes_are_polarised() {
        let shape = Shape { aggregations: 4, cores: 4, ..Shape::SMALL };
        let ways = |fabric: &Fabric, to| {
            let routes = (0xc000..0xc800).map(|port| fabric.route(Tuple { from: 0, to, port }));
            routes.map(|route| route.links().to_vec()).collect::<BTreeSet<_>>().len()
        };
        let fabric = Fabric::new(shape, 1);
        assert_eq!([1, 4, 31].map(|to| ways(&fabric, to)), [1, 4, 16]);
        assert_eq!([1, 4, 31].map(|to| ways(&fabric.clone().polarised(), to)), [1, 4, 4]);
    }

    #[test]
    fn a_fault_is_met_once_by_all_that_pass_its_place_and_by_no_other() {
        let loss = Trouble::Loss { rate: 0.5 };
        let shape = Shape::SMALL;
        let up = shape.link(Node::Tor(0), Node::Aggregation(1)).unwrap();
        for place in [
            Place::Link(up),
            Place::Node(Node::Tor(3)),
            Place::Node(Node::Core(2)),
            Place::Node(Node::Rnic(5)),
        ] {
            let fabric = Fabric::new(shape, 9).with_fault(Fault { place, trouble: loss });
            for tuple in
                (0..32).flat_map(|from| (0..32).map(move |to| (from, to))).filter(|(from, to)| from != to)
            {
                let tuple = Tuple { from: tuple.0, to: tuple.1, port: 50_000 };
                let route = fabric.route(tuple);
                let met: usize = route.links().iter().map(|link| fabric.troubles(*link).len()).sum();
                let on_way = route.links().iter().any(|link| match place {
                    Place::Link(faulty) => *link == faulty,
                    Place::Node(node) => shape.ends(*link).0 == node || shape.ends(*link).1 == node,
                });
                assert_eq!(met, usize::from(on_way), "{place:?}, {tuple:?}");
            }
        }
    }

    #[test]
    fn a_trace_tells_the_route_and_leaves_out_what_does_not_answer() {
        let fabric = Fabric::new(Shape::SMALL, 5);
        let mut dice = Dice::new(1);
        let tuple = Tuple { from: 0, to: 31, port: 50_000 };
        let trace = fabric.trace(tuple, 1.0, &mut dice);
        assert!(trace.is_complete());
        let routers =
            trace.path().routers.into_iter().map(|router| fabric.shape().node(router.unwrap()).unwrap());
        let expected: Vec<_> =
            fabric.route(tuple).links()[1..].iter().map(|link| fabric.shape().ends(*link).0).collect();
        assert_eq!(routers.collect::<Vec<_>>(), expected);
        let silent = fabric.trace(tuple, 0.0, &mut dice);
        assert!(silent.path().routers.iter().all(Option::is_none) && silent.path().reaches);
    }

    #[test]
    fn clocks_are_off_by_up_to_an_hour() {
        let fabric = Fabric::new(Shape::LARGE, 5).with_clocks(100);
        let clocks: Vec<Clock> = (0..2560).map(|host| fabric.clock_of(host)).collect();
        assert!(clocks.iter().all(|clock| clock.ppm.abs() <= 100));
        assert!(clocks.iter().any(|clock| clock.ppm > 90) && clocks.iter().any(|clock| clock.ppm < -90));
        let spread = clocks.iter().map(|clock| clock.beginning);
        assert!(spread.clone().max().unwrap() - spread.min().unwrap() > HOUR);
    }
}

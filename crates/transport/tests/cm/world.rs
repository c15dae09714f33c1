//! Three hosts, bad links between them, and programs that connect and disconnect at random.

use std::collections::BTreeMap;
use std::time::Duration;

use ferroce_sim::Dice;
use ferroce_transport::Time;
use ferroce_transport::cm::{Ends, Event, Limits, Manager, Outgoing, Patience};
use ferroce_wire::mad::{CmMad, CommId, RejectReason};

use crate::common::{SERVICE, acceptance, address, ends, manager, turned, wish};
use crate::life::{Life, Stage};

/// Hosts.
const NODES: usize = 3;

const LIMITS: Limits =
    Limits { connections: 400, half_open: 60, half_open_of_one: 40, time_wait: 500, backlog: 20, queries: 4 };

/// How bad the links are, per million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: u32,
    pub(crate) duplicates: u32,
    pub(crate) longest_delay: Duration,
}

/// What a program has decided to do at some time.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Connect {
        from: usize,
        to: usize,
    },
    Answer {
        node: usize,
        id: CommId,
    },
    Ready {
        node: usize,
        id: CommId,
    },
    Part {
        node: usize,
        id: CommId,
    },
    Data {
        node: usize,
        id: CommId,
    },
    /// The answer to a question of a queue pair arrives.
    Vouch {
        node: usize,
        id: CommId,
    },
}

pub(crate) struct World {
    seed: u64,
    dice: Dice,
    weather: Weather,
    now: Time,
    nodes: Vec<Manager>,
    wire: BTreeMap<(Time, u64), (usize, Ends, CmMad)>,
    plans: BTreeMap<(Time, u64), Plan>,
    order: u64,
    qpns: u32,
    pub(crate) lives: BTreeMap<(usize, CommId, u64), Life>,
    /// The life that a name stands for now.
    current: BTreeMap<(usize, CommId), (usize, CommId, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        let nodes = (0..NODES)
            .map(|node| {
                let mut manager = manager(u8::try_from(node + 1).expect("few"), LIMITS);
                manager.listen(SERVICE, 12).expect("no other listener is there");
                manager
            })
            .collect();
        Self {
            seed,
            dice: Dice::new(seed),
            weather,
            now: Time::from_nanos(1),
            nodes,
            wire: BTreeMap::new(),
            plans: BTreeMap::new(),
            order: 0,
            qpns: 0x100,
            lives: BTreeMap::new(),
            current: BTreeMap::new(),
        }
    }

    /// Plans so many connections within the next seconds.
    pub(crate) fn plan_connections(&mut self, count: usize) {
        for _ in 0..count {
            let from = self.dice.index(NODES);
            let to = (from + 1 + self.dice.index(NODES - 1)) % NODES;
            let after = self.dice.below(5_000);
            self.plan(after, Plan::Connect { from, to });
        }
    }

    /// Plans the end of everything that stands, from one side, the other, or both.
    pub(crate) fn plan_ends(&mut self) {
        let standing: Vec<_> =
            self.lives.values().filter(|life| life.stage == Stage::Stands).cloned().collect();
        for life in standing {
            if life.asked_by.is_none() || self.dice.one_in(3) {
                let after = self.dice.below(50);
                self.plan(after, Plan::Part { node: life.node, id: life.id });
            }
        }
    }

    /// Goes on until nothing is planned, under way or awaited.
    pub(crate) fn run(&mut self) {
        let mut steps = 0_u64;
        loop {
            self.settle();
            let times = [
                self.wire.first_key_value().map(|(key, _)| key.0),
                self.plans.first_key_value().map(|(key, _)| key.0),
                self.nodes.iter().filter_map(Manager::poll_timeout).min(),
            ];
            let Some(next) = times.into_iter().flatten().min() else { return };
            self.now = next.max(self.now);
            steps += 1;
            assert!(steps < 1_000_000, "it never ends");
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, ends, mad) = entry.remove();
                self.nodes[to].handle_message(self.now, ends, &mad);
                self.settle();
            }
            while let Some(entry) = self.plans.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let plan = entry.remove();
                self.act(plan);
                self.settle();
            }
            for node in 0..NODES {
                self.nodes[node].handle_timeout(self.now);
            }
        }
    }

    /// What both programs think of each connection must fit together.
    pub(crate) fn check_agreement(&self) {
        for life in self.lives.values() {
            assert!(
                life.is_over() || life.stage == Stage::Stands,
                "seed {}, no outcome: {life:?}",
                self.seed
            );
        }
        for asked in self.lives.values().filter(|life| life.asked_by.is_none()) {
            let stands = asked.stage == Stage::Stands;
            let stood =
                |life: &&Life| life.asked_by == Some((asked.node, asked.id)) && life.stage == Stage::Stands;
            let others = self.lives.values().filter(stood).count();
            assert_eq!(usize::from(stands), others, "seed {}, one side only: {asked:?}", self.seed);
        }
        let sides = |asked: bool| {
            self.lives.values().filter(|l| l.stage == Stage::Stands && l.asked_by.is_some() == asked).count()
        };
        assert_eq!(sides(true), sides(false), "seed {}, one side stands alone", self.seed);
    }

    /// Nothing is kept of what is over.
    pub(crate) fn check_emptiness(&self) {
        for node in &self.nodes {
            assert_eq!((node.open(), node.half_open(), node.remembered()), (0, 0, 0));
            assert_eq!(node.poll_timeout(), None);
        }
    }

    /// How many of all lives are in a stage like this.
    pub(crate) fn count(&self, like: impl Fn(&Stage) -> bool) -> usize {
        self.lives.values().filter(|life| like(&life.stage)).count()
    }

    fn plan(&mut self, after_millis: u64, plan: Plan) {
        self.order += 1;
        self.plans.insert((self.now + Duration::from_millis(after_millis), self.order), plan);
    }

    fn patience(&mut self) -> Patience {
        let response = Duration::from_millis(self.dice.between(100, 400));
        let retries = u8::try_from(self.dice.between(1, 8)).expect("few");
        let deadline = self.now + Duration::from_millis(self.dice.between(300, 6_000));
        let time_wait = Duration::from_millis(self.dice.between(200, 3_000));
        Patience { response, retries, deadline, time_wait, tell_end: false, watched: false }
    }

    fn act(&mut self, plan: Plan) {
        match plan {
            Plan::Connect { from, to } => {
                // Now and then a queue pair is used again.
                let back = if self.dice.one_in(5) { self.dice.between_u32(1, 20) } else { 0 };
                self.qpns += u32::from(back == 0);
                let number = |node: usize| u8::try_from(node + 1).expect("few");
                let mut wish = wish(self.now, ends(number(from), number(to)), self.qpns - back);
                wish.patience = self.patience();
                if let Ok(id) = self.nodes[from].connect(self.now, &wish) {
                    self.begin(from, id, None, wish.patience.deadline);
                    if self.dice.one_in(15) {
                        let after = self.dice.below(500);
                        self.plan(after, Plan::Part { node: from, id });
                    }
                }
            }
            Plan::Answer { node, id } if self.dice.one_in(8) => {
                let words = b"no";
                if self.nodes[node].reject(self.now, id, RejectReason::CONSUMER, words).is_ok() {
                    self.drop_life(node, id);
                }
            }
            Plan::Answer { node, id } => {
                self.qpns += 1;
                let mut accept = acceptance(self.now, self.qpns);
                accept.patience = self.patience();
                if self.nodes[node].accept(self.now, id, &accept).is_ok() {
                    if let Some(life) = self.life(node, id) {
                        life.bound = accept.patience.deadline;
                    }
                    if self.dice.one_in(15) {
                        let after = self.dice.below(500);
                        self.plan(after, Plan::Part { node, id });
                    }
                }
            }
            Plan::Ready { node, id } => {
                if self.dice.one_in(15) {
                    self.nodes[node].abandon(self.now, id);
                    self.drop_life(node, id);
                } else if self.nodes[node].ready(id).is_ok() && self.dice.one_in(3) {
                    let other = self.lives.values().rev().find(|l| l.asked_by == Some((node, id)));
                    if let Some((node, id)) = other.map(|life| (life.node, life.id)) {
                        let after = self.dice.below(300);
                        self.plan(after, Plan::Data { node, id });
                    }
                }
            }
            Plan::Data { node, id } => {
                // Packets arrive as long as the sender has its queue pair.
                let asked_by = self.life(node, id).and_then(|life| life.asked_by);
                let sender = asked_by.and_then(|(node, id)| self.life(node, id));
                if sender.is_some_and(|life| life.stage == Stage::Stands) {
                    self.nodes[node].data_arrived(id);
                }
            }
            Plan::Vouch { node, id } => self.nodes[node].vouched(id),
            Plan::Part { node, id } => {
                let Some(life) = self.life(node, id) else { return };
                if life.is_over() {
                    return;
                }
                let stands = life.stage == Stage::Stands;
                // Sixteen times the longest wait.
                let bound = self.now + Duration::from_millis(16 * 400);
                if let Some(life) = self.life(node, id) {
                    life.parting_bound = Some(bound);
                }
                self.nodes[node].abandon(self.now, id);
                if !stands {
                    self.drop_life(node, id);
                }
            }
        }
    }

    fn begin(&mut self, node: usize, id: CommId, asked_by: Option<(usize, CommId)>, bound: Time) {
        self.order += 1;
        let key = (node, id, self.order);
        let life = Life { node, id, asked_by, bound, stage: Stage::Begun, parting_bound: None };
        self.lives.insert(key, life);
        self.current.insert((node, id), key);
    }

    fn life(&mut self, node: usize, id: CommId) -> Option<&mut Life> {
        self.lives.get_mut(self.current.get(&(node, id))?)
    }

    fn drop_life(&mut self, node: usize, id: CommId) {
        if let Some(life) = self.life(node, id)
            && !life.is_over()
        {
            life.stage = Stage::Dropped;
        }
    }

    /// Sends what is to be sent, and tells the programs what happened.
    fn settle(&mut self) {
        for node in 0..NODES {
            while let Some(outgoing) = self.nodes[node].poll_transmit() {
                self.transmit(&outgoing);
            }
            while let Some((id, event)) = self.nodes[node].poll_event() {
                self.hear(node, id, &event);
            }
            let manager = &self.nodes[node];
            assert!(manager.open() <= LIMITS.connections && manager.half_open() <= LIMITS.half_open);
            assert!(manager.remembered() <= LIMITS.time_wait);
        }
    }

    fn transmit(&mut self, outgoing: &Outgoing) {
        let Outgoing { ends, mad, .. } = *outgoing;
        let place = (0..NODES).find(|node| address(u8::try_from(node + 1).expect("few")) == ends.remote);
        let copies = 1 + usize::from(self.dice.chance(self.weather.duplicates));
        for _ in 0..copies {
            if self.dice.chance(self.weather.loss) {
                continue;
            }
            let longest = u64::try_from(self.weather.longest_delay.as_nanos()).expect("short");
            let delay = Duration::from_nanos(self.dice.below(longest));
            self.order += 1;
            let to = place.expect("a node of this world");
            self.wire.insert((self.now + delay, self.order), (to, turned(ends), mad));
        }
    }

    /// The queue pair of a connection in doubt asks its peer, which answers if it knows of the connection.
    fn ask(&mut self, node: usize, id: CommId) {
        let asked_by = self.life(node, id).and_then(|life| life.asked_by);
        let peer = |life: &&Life| match asked_by {
            Some(asker) => (life.node, life.id) == asker,
            None => life.asked_by == Some((node, id)),
        };
        let knows = self.lives.values().rev().find(peer).is_some_and(|life| life.stage == Stage::Stands);
        let lost = (0..2).any(|_| self.dice.chance(self.weather.loss));
        if knows && !lost {
            let delay = u64::try_from(2 * self.weather.longest_delay.as_millis()).expect("short");
            let after = self.dice.below(delay.max(1));
            self.plan(after, Plan::Vouch { node, id });
        }
    }

    fn hear(&mut self, node: usize, id: CommId, event: &Event) {
        let millis = self.dice.log_between(1, 2_000);
        match event {
            Event::Requested(request) => {
                let asker = (0..NODES)
                    .find(|node| address(u8::try_from(node + 1).expect("few")) == request.ends.remote)
                    .expect("a node of this world");
                // Until it is answered it may wait for as long as its peer does.
                let bound = self.now + Duration::from_secs(200);
                self.begin(node, id, Some((asker, request.req.local_comm_id)), bound);
                self.plan(millis, Plan::Answer { node, id });
                return;
            }
            Event::Doubted => return self.ask(node, id),
            Event::Replied(_) => self.plan(millis / 20, Plan::Ready { node, id }),
            Event::Established if self.dice.one_in(2) => self.plan(millis, Plan::Part { node, id }),
            _ => {}
        }
        let (now, seed) = (self.now, self.seed);
        let Some(life) = self.life(node, id) else { panic!("{event:?} of no connection in seed {seed}") };
        life.hears(now, event, &|bound| bound);
    }
}

//! Two devices with live connections of every kind between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce::broker::Secret;
use ferroce::cm::Listener;
use ferroce::time::{now, park};
use ferroce::{Context, PathPolicy, Service, State};
use ferroce_device::switchboard::{QpStats, stats};
use ferroce_testkit::neighbour::Target;
use ferroce_wire::mad::CommId;
use ferroce_wire::{Psn, QKey, Qpn, Rkey};

use crate::LIMIT;
use crate::pairs::{AIM, Harm, Pair, harmed};
use crate::services::{Brokers, Endpoints};
use crate::tap::Taps;
use crate::verbs::Verbs;

/// The ports of the first set of connections; each further set takes the next ones.
const ENDPOINT: u16 = 7000;
const BROKER: u16 = 7200;
const SECRET_BROKER: u16 = 7400;

/// Ends of connections that are made by connection management, and ends whose memory is written to.
const NAMED: usize = 8;
const WRITTEN: usize = 12;

/// How a kind of connection is made.
type Make = fn(&Scene) -> Harm<Box<dyn Pair>>;

/// Every kind of live connection.
const KINDS: [Make; 7] = [
    |scene| boxed(Verbs::by_hand(&scene.contexts, "RC by hand", Service::Rc)),
    |scene| boxed(Verbs::by_hand(&scene.contexts, "UC by hand", Service::Uc)),
    |scene| boxed(Verbs::by_hand(&scene.contexts, "UD", Service::Ud)),
    |scene| scene.managed(),
    |scene| {
        let at = SocketAddr::new(scene.addresses[1], ENDPOINT + scene.made);
        boxed(Endpoints::new(&scene.contexts, at))
    },
    |scene| boxed(Brokers::new(&scene.contexts, &scene.addresses, BROKER + scene.made, None)),
    |scene| {
        let port = SECRET_BROKER + scene.made;
        let secret = Secret::generate().map_err(|error| error.to_string())?;
        boxed(Brokers::new(&scene.contexts, &scene.addresses, port, Some(&secret)))
    },
];

fn boxed<P: Pair + 'static>(pair: Harm<P>) -> Harm<Box<dyn Pair>> {
    pair.map(|pair| Box::new(pair) as Box<dyn Pair>)
}

/// Nothing if all of them are well, else what befell each of the others.
fn all_well(each: impl Iterator<Item = (&'static str, Harm<()>)>) -> Harm<()> {
    let harms = each.filter_map(|(name, found)| Some(format!("{name}: {}", found.err()?)));
    let harms: Vec<_> = harms.collect();
    if harms.is_empty() { Ok(()) } else { Err(harms.join("; ")) }
}

/// Two devices, what passes between them, and the connections.
pub(crate) struct Scene {
    pub(crate) contexts: [Context; 2],
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) listeners: [Listener; 2],
    pub(crate) pairs: Vec<Box<dyn Pair>>,
    taps: Taps,
    /// Sets of connections that were made.
    made: u16,
}

impl Scene {
    /// At 127.0.`net`.1 and 2, with connections of all kinds.
    pub(crate) fn new(net: u8) -> Self {
        let addresses = [1, 2].map(|host| IpAddr::from([127, 0, net, host]));
        let taps = Taps::default();
        let contexts = addresses.map(|address| {
            let (file, _open) = taps.file();
            let builder = Context::builder("lo").address(address).path(PathPolicy::Forbid).capture(file);
            builder.open().expect("a device on lo")
        });
        let listeners = contexts.each_ref().map(|context| Listener::bind(context, 0, 1024).expect("a port"));
        let mut scene = Self { contexts, addresses, listeners, pairs: Vec::new(), taps, made: 0 };
        scene.renew();
        scene
    }

    /// Makes all connections anew, and works on each of them once.
    pub(crate) fn renew(&mut self) {
        self.pairs.clear();
        self.made += 1;
        self.turn_away();
        let counted = || self.contexts.each_ref().map(Context::connection_counters);
        let made =
            KINDS.iter().map(|make| make(self).unwrap_or_else(|harm| panic!("{harm}: {:?}", counted())));
        self.pairs = made.collect();
        self.work().expect("honest work without a neighbour");
    }

    fn managed(&self) -> Harm<Box<dyn Pair>> {
        let listener = &self.listeners[1];
        let at = SocketAddr::new(self.addresses[1], listener.port());
        boxed(Verbs::managed(&self.contexts, at, listener))
    }

    /// A round of honest work on every connection.
    pub(crate) fn work(&mut self) -> Harm<()> {
        let rounds = self.pairs.iter_mut().map(|pair| (pair.name(), pair.round()));
        all_well(rounds)
    }

    /// Whether every connection stands as it was left.
    fn check(&self) -> Harm<()> {
        all_well(self.pairs.iter().map(|pair| (pair.name(), pair.check())))
    }

    /// Whether everything stands as it was left, and works.
    pub(crate) fn judge(&mut self) -> Harm<()> {
        self.judge_connections()?;
        let asked = |(listener, address): (&Listener, &IpAddr)| {
            listener.try_accept().map(|request| (*address, request.peer()))
        };
        match self.listeners.iter().zip(&self.addresses).find_map(asked) {
            Some((here, peer)) => Err(format!("a program at {here} was asked for a connection by {peer}")),
            None => Ok(()),
        }
    }

    /// The same, but requests for new connections may have come.
    pub(crate) fn judge_connections(&mut self) -> Harm<()> {
        self.check()?;
        self.work()?;
        self.check()
    }

    /// Takes requests off the listeners that no honest peer has made.
    pub(crate) fn turn_away(&self) {
        for listener in &self.listeners {
            while let Some(request) = listener.try_accept() {
                request.reject(b"").unwrap_or_default();
            }
        }
    }

    /// Whether a new connection can be made, and works.
    pub(crate) fn judge_newcomer(&self) -> Harm<()> {
        let mut pair = self.managed().map_err(|harm| format!("a new connection: {harm}"))?;
        pair.round().map_err(|harm| format!("a new connection: {harm}"))
    }

    /// All that can be known of every live queue pair, as it is now: all memory, and the names of all
    /// connections that have names. What the taps hear comes a moment late.
    pub(crate) fn targets(&self) -> Harm<Vec<Target>> {
        let end = now() + LIMIT;
        loop {
            let rows = self.queue_pairs()?;
            let all: Vec<_> = rows.iter().filter_map(|(address, row)| self.target(*address, row)).collect();
            let named = all.iter().filter(|target| target.name != CommId(0)).count();
            let memory = all.iter().filter(|target| target.rkey != Rkey(0)).count();
            if named >= NAMED && memory >= WRITTEN {
                return Ok(all);
            }
            if now() > end {
                return Err(format!(
                    "only {named} names and {memory} keys are known after {LIMIT:?}: {all:?}"
                ));
            }
            park(Some(Duration::from_millis(1)));
        }
    }

    /// The second end of the first connection, which is RC and made by hand.
    pub(crate) fn by_hand(&self) -> Harm<Target> {
        let (number, targets) = (self.pairs[0].number(), self.targets()?);
        let found = targets.into_iter().find(|target| Some(target.qpn) == number);
        found.ok_or_else(|| format!("queue pair {number:?} is not live"))
    }

    /// Where these queue pairs have come to since.
    pub(crate) fn refresh(&self, targets: &mut [Target]) {
        self.taps.look(|seen| {
            for target in targets {
                let psn = |place| seen.expects.get(&place).copied();
                target.expects = psn((target.address, target.qpn.get())).unwrap_or(target.expects);
                target.asks = psn((target.peer, target.peer_qpn.get())).unwrap_or(target.asks);
            }
        });
    }

    fn target(&self, address: IpAddr, row: &QpStats) -> Option<Target> {
        let here = self.addresses.iter().position(|known| *known == address)?;
        let place = (address, row.qpn.get());
        self.taps.look(|seen| {
            let (qkey, sender) = seen.datagrams.get(&place).copied().unwrap_or((QKey(0), Qpn::SMI));
            let (peer_qpn, peer) = row.peer.unwrap_or((sender, self.addresses[1 - here]));
            let psn = |place: &_| seen.expects.get(place).copied().unwrap_or(Psn::new(0));
            let (memory, rkey) = seen.memory.get(&place).copied().unwrap_or((0, Rkey(0)));
            let unnamed = (CommId(0), CommId(0));
            let (name, peer_name) = seen.names.get(&place).copied().unwrap_or(unnamed);
            Some(Target {
                address,
                qpn: row.qpn,
                peer,
                peer_qpn,
                expects: psn(&place),
                asks: psn(&(peer, peer_qpn.get())),
                place: memory + AIM,
                rkey,
                qkey,
                name,
                peer_name,
                listens: self.listeners[here].port(),
            })
        })
    }

    /// The queue pairs of this scene that can be used, as the process itself tells of them.
    fn queue_pairs(&self) -> Harm<Vec<(IpAddr, QpStats)>> {
        let end = now() + LIMIT;
        loop {
            let told = stats(&[std::process::id()]).map_err(harmed("ask for queue pairs"))?;
            let mut ours: Vec<_> = told.into_iter().flatten().collect();
            ours.retain(|one| one.group.address.is_some_and(|address| self.addresses.contains(&address)));
            // An engine that is at work just now does not answer.
            if ours.len() == 2 && ours.iter().all(|one| one.busy == 0) {
                let rows = ours.into_iter().flat_map(|one| {
                    let address = one.group.address;
                    one.report.rows.into_iter().filter_map(move |row| Some((address?, row)))
                });
                return Ok(rows.filter(|(_, row)| row.state == State::Rts).collect());
            }
            if now() > end {
                return Err(format!("the devices do not tell of their queue pairs in {LIMIT:?}: {ours:?}"));
            }
            park(Some(Duration::from_millis(1)));
        }
    }

    /// What both devices have counted, by name.
    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for context in &self.contexts {
            for (name, value) in context.counters().iter() {
                *all.entry(name).or_default() += value;
            }
        }
        all
    }
}

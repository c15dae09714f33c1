//! The pure machine behind the services: agents with lives and leases, and what each is told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_mesh::controller::{
    LeaseLost, Pinglist, PinglistConfig, RegisterRefusal, Registration, Registry, Rnic, Roster,
};
use ferroce_probe::Stamp;
use thiserror::Error;

use super::ControllerConfig;
use crate::counters::ControllerCounters;
use crate::database::{AgentEntry, AgentNews, AnalyzerPlace};

/// Agents and what is known of them, besides their RNICs.
#[derive(Debug)]
pub(super) struct Desk {
    registry: Registry,
    pinglist: PinglistConfig,
    rebuild_lease: Duration,
    lives: HashMap<String, Life>,
    settle: Duration,
    /// The roster that lists are made from, with its version and when it was drawn up.
    drawn: Option<(u64, Stamp, Arc<Roster>)>,
    analyzer: AnalyzerPlace,
    /// Changes of where the analyzer is.
    moves: u64,
    /// What is new since it was kept last; nothing without a database.
    unkept: Option<Unkept>,
    pub(super) counters: ControllerCounters,
}

/// What is not kept yet.
#[derive(Debug, Default)]
struct Unkept {
    agents: BTreeSet<String>,
    analyzer: bool,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    epoch: u64,
    /// The newest stream of pinglists; older ones end.
    watch: u64,
    /// An agent of the rebuild stays until then, without leases.
    stays: Option<Stamp>,
}

/// Why an agent is not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Registry(#[from] RegisterRefusal),
    #[error("epoch {epoch} of agent {agent:?} is over; epoch {known} is known")]
    OldEpoch { agent: String, epoch: u64, known: u64 },
}

/// What each RNIC of an agent probes.
pub(super) type Lists = BTreeMap<IpAddr, Pinglist>;

impl Desk {
    pub(super) fn new(config: &ControllerConfig, version: u64) -> Self {
        Self {
            registry: Registry::new(config.registry, version),
            pinglist: config.pinglist,
            rebuild_lease: config.rebuild_lease,
            lives: HashMap::new(),
            settle: config.settle,
            drawn: None,
            analyzer: AnalyzerPlace::default(),
            moves: 0,
            unkept: None,
            counters: ControllerCounters::default(),
        }
    }

    /// Goes on from what another controller, or an earlier life of this one, has kept. Leases begin now.
    pub(super) fn restore(&mut self, kept: Vec<AgentEntry>, analyzer: AnalyzerPlace, now: Stamp) {
        for AgentEntry { registration, epoch, is_rebuild } in kept {
            let agent = registration.agent.clone();
            if self.registry.restore([registration], now).agents == 1 {
                let stays = is_rebuild.then(|| now.plus(self.rebuild_lease));
                self.lives.insert(agent, Life { epoch, watch: 0, stays });
                self.counters.restored += 1;
            }
        }
        self.analyzer = analyzer;
        self.unkept = Some(Unkept::default());
    }

    /// What is new since this was asked last.
    pub(super) fn unkept(&mut self) -> AgentNews {
        let Some(Unkept { agents, analyzer }) = self.unkept.as_mut().map(std::mem::take) else {
            return AgentNews::default();
        };
        let mut news =
            AgentNews { analyzer: analyzer.then(|| self.analyzer.clone()), ..AgentNews::default() };
        for agent in agents {
            match (self.registry.rnics_of(&agent), self.lives.get(&agent)) {
                (Some(rnics), Some(life)) => news.present.push(AgentEntry {
                    registration: Registration { agent, rnics: rnics.to_vec() },
                    epoch: life.epoch,
                    is_rebuild: life.stays.is_some(),
                }),
                _ => news.gone.push(agent),
            }
        }
        news
    }

    /// All that is known is kept once more: a database may have lost what it said to have.
    pub(super) fn keep_all_again(&mut self) {
        if let Some(unkept) = &mut self.unkept {
            unkept.agents.extend(self.lives.keys().cloned());
            unkept.analyzer = true;
        }
    }

    /// This could not be kept; it is new still.
    pub(super) fn not_kept(&mut self, news: AgentNews) {
        self.counters.not_kept += 1;
        if let Some(unkept) = &mut self.unkept {
            unkept.agents.extend(news.present.into_iter().map(|entry| entry.registration.agent));
            unkept.agents.extend(news.gone);
            unkept.analyzer |= news.analyzer.is_some();
        }
    }

    fn note(&mut self, agent: &str) {
        if let Some(unkept) = &mut self.unkept {
            unkept.agents.insert(agent.to_owned());
        }
    }

    /// Changes with the RNICs, and with the place of the analyzer.
    pub(super) const fn version(&self) -> u64 {
        self.registry.version().wrapping_add(self.moves)
    }

    pub(super) fn size(&self) -> (usize, usize) {
        self.registry.agents().fold((0, 0), |(agents, rnics), one| (agents + 1, rnics + one.rnics.len()))
    }

    /// Where windows go; empty if that is not known.
    pub(super) fn analyzer(&self) -> &str {
        &self.analyzer.url
    }

    /// An analyzer says where it is. One that leads no more is not believed.
    pub(super) fn set_analyzer(&mut self, place: AnalyzerPlace) {
        let is_old = place.term != 0 && place.term < self.analyzer.term;
        if self.analyzer != place && !is_old {
            self.analyzer = place;
            self.moves += 1;
            if let Some(unkept) = &mut self.unkept {
                unkept.analyzer = true;
            }
        }
    }

    /// An agent with leases says which RNICs it has.
    pub(super) fn register(
        &mut self,
        registration: Registration,
        epoch: u64,
        now: Stamp,
    ) -> Result<(), Refusal> {
        self.advance(now);
        let agent = registration.agent.clone();
        let known = self.lives.get(&agent).copied();
        if let Some(known) = known.filter(|known| known.epoch > epoch) {
            self.counters.old_epochs += 1;
            return Err(Refusal::OldEpoch { agent, epoch, known: known.epoch });
        }
        self.enter(registration, now)?;
        let watch = known.map_or(0, |known| known.watch);
        self.note(&agent);
        self.lives.insert(agent, Life { epoch, watch, stays: None });
        self.counters.registered += 1;
        Ok(())
    }

    /// An agent of the rebuild says which RNICs it has.
    pub(super) fn register_rebuild(&mut self, registration: Registration, now: Stamp) -> Result<(), Refusal> {
        self.advance(now);
        let agent = registration.agent.clone();
        // Neither can take the name of an agent that has leases.
        if let Some(known) = self.lives.get(&agent).filter(|known| known.stays.is_none()) {
            self.counters.old_epochs += 1;
            return Err(Refusal::OldEpoch { agent, epoch: 0, known: known.epoch });
        }
        self.enter(registration, now)?;
        self.note(&agent);
        self.lives.insert(agent, Life { epoch: 0, watch: 0, stays: Some(now.plus(self.rebuild_lease)) });
        self.counters.rebuild_registered += 1;
        Ok(())
    }

    /// An agent of the rebuild was heard of.
    pub(super) fn hear_rebuild(&mut self, agent: &str, now: Stamp) -> Result<(), LeaseLost> {
        self.advance(now);
        let stays = now.plus(self.rebuild_lease);
        match self.lives.get_mut(agent).and_then(|life| life.stays.as_mut()) {
            Some(known) => *known = stays,
            None => return Err(self.lost(agent)),
        }
        self.registry.renew(agent, now)
    }

    /// An agent is still there.
    pub(super) fn renew(&mut self, agent: &str, epoch: u64, now: Stamp) -> Result<(), LeaseLost> {
        self.check(agent, epoch, now)?;
        self.registry.renew(agent, now)?;
        self.counters.renewed += 1;
        Ok(())
    }

    /// A stream of pinglists begins, and is the agent's only one; its number.
    pub(super) fn begin_watch(&mut self, agent: &str, epoch: u64, now: Stamp) -> Result<u64, LeaseLost> {
        self.check(agent, epoch, now)?;
        match self.lives.get_mut(agent) {
            Some(life) => {
                life.watch += 1;
                Ok(life.watch)
            }
            None => Err(self.lost(agent)),
        }
    }

    /// What the RNICs of an agent probe, and the version that is of; none if the stream is over: no lease, another
    /// life, or a newer stream.
    pub(super) fn lists(
        &mut self,
        agent: &str,
        epoch: u64,
        watch: u64,
        now: Stamp,
        hour: u64,
    ) -> Option<(Lists, u64)> {
        self.check(agent, epoch, now).ok()?;
        if self.lives.get(agent).is_none_or(|life| life.watch != watch) {
            return None;
        }
        let (version, roster) = self.roster(now);
        let rnics = self.registry.rnics_of(agent)?;
        let list = |rnic: &Rnic| Some((rnic.address, roster.pinglist(rnic.address, &self.pinglist, hour)?));
        Some((rnics.iter().filter_map(list).collect(), version))
    }

    /// What one RNIC probes.
    pub(super) fn list(&mut self, address: IpAddr, now: Stamp, hour: u64) -> Option<Pinglist> {
        let (_, mut roster) = self.roster(now);
        if roster.find(address).is_none() {
            // It has just come, and does not ask again soon.
            roster = self.draw(now);
        }
        roster.pinglist(address, &self.pinglist, hour)
    }

    /// All RNICs, of this version or one of a moment ago: while thousands of agents come back, not each of them has
    /// the roster drawn up anew.
    fn roster(&mut self, now: Stamp) -> (u64, Arc<Roster>) {
        match &self.drawn {
            Some((version, at, roster))
                if *version == self.registry.version() || now < at.plus(self.settle) =>
            {
                (*version, Arc::clone(roster))
            }
            _ => {
                let roster = self.draw(now);
                (self.registry.version(), roster)
            }
        }
    }

    fn draw(&mut self, now: Stamp) -> Arc<Roster> {
        let roster = self.registry.roster();
        self.counters.rosters_drawn += 1;
        self.drawn = Some((self.registry.version(), now, Arc::clone(&roster)));
        roster
    }

    /// The version of the RNICs alone.
    pub(super) const fn rnic_version(&self) -> u64 {
        self.registry.version()
    }

    /// The agent that an RNIC belongs to.
    pub(super) fn owner(&self, address: IpAddr) -> Option<&str> {
        self.registry.owner(address)
    }

    /// The responder of an RNIC, for an agent that has a lease itself.
    pub(super) fn locate(
        &mut self,
        agent: &str,
        addresses: &[IpAddr],
        now: Stamp,
    ) -> Result<Vec<(IpAddr, u32)>, LeaseLost> {
        self.advance(now);
        if self.registry.rnics_of(agent).is_none() {
            return Err(self.lost(agent));
        }
        self.counters.located += 1;
        let find = |address: &IpAddr| {
            let rnics = self.registry.rnics_of(self.registry.owner(*address)?)?;
            Some((*address, rnics.iter().find(|rnic| rnic.address == *address)?.qpn))
        };
        Ok(addresses.iter().filter_map(find).collect())
    }

    /// All agents, and the version of their RNICs.
    pub(super) fn agents(&self) -> (u64, Vec<Registration>) {
        (self.registry.version(), self.registry.agents().collect())
    }

    /// Lets time pass: leases lapse, and agents without leases stay for their time. To be called more often than
    /// leases lapse.
    pub(super) fn tick(&mut self, now: Stamp) {
        let Self { registry, lives, .. } = self;
        for (agent, _) in lives.iter().filter(|(_, life)| life.stays.is_some_and(|until| now < until)) {
            // It has a lease of the registry, as it is renewed here before that lapses.
            let _ = registry.renew(agent, now);
        }
        self.advance(now);
    }

    fn advance(&mut self, now: Stamp) {
        let Self { registry, lives, unkept, .. } = self;
        registry.advance(now);
        // Each agent of the registry has a life, so there are more only if some of them are over.
        if lives.len() > registry.agent_count() {
            lives.retain(|agent, _| {
                let lives = registry.rnics_of(agent).is_some();
                if let Some(unkept) = unkept.as_mut().filter(|_| !lives) {
                    unkept.agents.insert(agent.clone());
                }
                lives
            });
        }
    }

    fn check(&mut self, agent: &str, epoch: u64, now: Stamp) -> Result<(), LeaseLost> {
        self.advance(now);
        match self.lives.get(agent) {
            Some(life) if life.epoch == epoch && life.stays.is_none() => Ok(()),
            _ => Err(self.lost(agent)),
        }
    }

    fn lost(&mut self, agent: &str) -> LeaseLost {
        self.counters.leases_lost += 1;
        // What comes back is no longer than a name.
        LeaseLost { agent: agent.chars().take(128).collect() }
    }

    fn enter(&mut self, registration: Registration, now: Stamp) -> Result<(), RegisterRefusal> {
        let entered = self.registry.register(registration, now);
        if let Err(refusal) = &entered {
            let counters = &mut self.counters;
            *match refusal {
                RegisterRefusal::Name { .. } => &mut counters.refused_names,
                RegisterRefusal::NoRnic
                | RegisterRefusal::TooManyRnics { .. }
                | RegisterRefusal::Twice { .. } => &mut counters.refused_lists,
                RegisterRefusal::Taken { .. } => &mut counters.refused_taken,
                RegisterRefusal::Full { .. } => &mut counters.refused_full,
                // Addresses, queue pairs, and what a later registry refuses.
                _ => &mut counters.refused_rnics,
            } += 1;
        }
        entered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Stamp {
        Stamp::from_nanos(seconds * 1_000_000_000)
    }

    fn agent(name: &str, last: u8) -> Registration {
        let rnic = Rnic {
            address: IpAddr::from([10, 0, 0, last]),
            qpn: 17,
            host: name.into(),
            tor: "t".into(),
            device: "d".into(),
        };
        Registration { agent: name.into(), rnics: vec![rnic] }
    }

    fn desk() -> Desk {
        Desk::new(&ControllerConfig::default(), 0)
    }

    #[test]
    fn an_older_life_is_refused_and_a_newer_one_ends_the_lease_of_the_old() {
        let mut desk = desk();
        desk.register(agent("a", 1), 5, at(0)).unwrap();
        desk.register(agent("a", 1), 5, at(1)).unwrap();
        let refused = desk.register(agent("a", 1), 4, at(1)).unwrap_err();
        assert_eq!(refused, Refusal::OldEpoch { agent: "a".into(), epoch: 4, known: 5 });
        desk.register(agent("a", 2), 6, at(2)).unwrap();
        assert!(desk.renew("a", 5, at(3)).is_err());
        desk.renew("a", 6, at(3)).unwrap();
        assert_eq!((desk.counters.old_epochs, desk.counters.leases_lost, desk.counters.renewed), (1, 1, 1));
        // When its lease is over, any life may come.
        desk.register(agent("a", 1), 1, at(40)).unwrap();
    }

    #[test]
    fn the_newest_stream_of_pinglists_is_the_only_one() {
        let mut desk = desk();
        assert!(desk.begin_watch("a", 5, at(0)).is_err(), "it is not registered");
        desk.register(agent("a", 1), 5, at(0)).unwrap();
        desk.register(agent("b", 2), 5, at(0)).unwrap();
        let first = desk.begin_watch("a", 5, at(0)).unwrap();
        let (lists, _) = desk.lists("a", 5, first, at(1), 0).unwrap();
        assert_eq!(lists[&IpAddr::from([10, 0, 0, 1])].below.len(), 1);
        let second = desk.begin_watch("a", 5, at(1)).unwrap();
        assert!(desk.lists("a", 5, first, at(1), 0).is_none());
        assert!(desk.lists("a", 5, second, at(1), 0).is_some());
        assert!(desk.lists("a", 5, second, at(31), 0).is_none(), "its lease is over");
    }

    #[test]
    fn agents_of_the_rebuild_stay_longer_and_take_no_name_of_ours() {
        let mut desk = desk();
        desk.register(agent("ours", 1), 5, at(0)).unwrap();
        assert!(desk.register_rebuild(agent("ours", 1), at(0)).is_err());
        desk.register_rebuild(agent("theirs", 2), at(0)).unwrap();
        for second in (0..590).step_by(7) {
            desk.tick(at(second));
        }
        assert_eq!(desk.size(), (1, 1), "ours has lapsed, theirs stays");
        desk.hear_rebuild("theirs", at(590)).unwrap();
        assert!(desk.hear_rebuild("ours", at(590)).is_err());
        for second in (590..1300).step_by(7) {
            desk.tick(at(second));
        }
        assert_eq!(desk.size(), (0, 0));
        assert!(desk.lives.is_empty());
    }

    #[test]
    fn ten_thousand_agents_that_come_back_at_once_have_few_rosters_drawn_up() {
        let mut desk = desk();
        let mut watches = Vec::new();
        // All of them within two seconds.
        let when = |number: u64| Stamp::from_nanos(number * 200_000);
        for number in 0..10_000_u64 {
            let [.., high, low] = number.to_be_bytes();
            let mut one = agent(&format!("a{number}"), 1);
            one.rnics[0].address = IpAddr::from([10, 1, high, low]);
            one.rnics[0].tor = format!("t{}", number / 32);
            let name = one.agent.clone();
            desk.register(one, 5, when(number)).unwrap();
            let watch = desk.begin_watch(&name, 5, when(number)).unwrap();
            desk.lists(&name, 5, watch, when(number), 0).unwrap();
            watches.push((name, watch));
        }
        let later = when(20_000);
        for (name, watch) in &watches {
            let (lists, version) = desk.lists(name, 5, *watch, later, 0).unwrap();
            assert_eq!(version, desk.rnic_version(), "in the end each has the whole");
            assert!(lists.values().next().is_some_and(|list| list.targets().count() >= 15), "{name}");
        }
        assert!(desk.counters.rosters_drawn <= 4, "{}", desk.counters.rosters_drawn);
    }

    #[test]
    fn what_is_new_is_kept_once_and_another_desk_goes_on_from_it() {
        let mut desk = desk();
        desk.register(agent("before", 9), 1, at(0)).unwrap();
        assert!(desk.unkept().is_empty(), "without a database nothing is kept");
        let mut desk = self::desk();
        desk.restore(Vec::new(), AnalyzerPlace::default(), at(0));
        assert!(desk.unkept().is_empty());
        desk.register(agent("a", 1), 5, at(0)).unwrap();
        desk.register_rebuild(agent("b", 2), at(0)).unwrap();
        let place = AnalyzerPlace { url: "http://127.0.0.1:1".to_owned(), term: 3 };
        desk.set_analyzer(place.clone());
        desk.set_analyzer(AnalyzerPlace { url: "http://127.0.0.1:2".to_owned(), term: 2 });
        let news = desk.unkept();
        let entry = |name: &str, last, epoch, is_rebuild| AgentEntry {
            registration: agent(name, last),
            epoch,
            is_rebuild,
        };
        let both = vec![entry("a", 1, 5, false), entry("b", 2, 0, true)];
        assert_eq!(
            (&news.present, &news.analyzer),
            (&both, &Some(place.clone())),
            "one that led before is not believed"
        );
        assert!(desk.unkept().is_empty());
        desk.not_kept(news.clone());
        assert_eq!(desk.unkept(), news);
        desk.keep_all_again();
        assert_eq!(desk.unkept(), news);
        desk.renew("a", 5, at(1)).unwrap();
        assert!(desk.unkept().is_empty(), "a lease is kept by its agent");

        let mut other = self::desk();
        other.restore(both, place.clone(), at(100));
        assert!(other.unkept().is_empty());
        assert_eq!(
            (other.size(), other.analyzer(), other.counters.restored),
            ((2, 2), place.url.as_str(), 2)
        );
        other.renew("a", 5, at(101)).unwrap();
        other.hear_rebuild("b", at(101)).unwrap();
        // What lapses is kept no more.
        for second in (101..140).step_by(7) {
            other.tick(at(second));
        }
        assert_eq!(other.unkept(), AgentNews { gone: vec!["a".to_owned()], ..AgentNews::default() });
        // An older life of it may not come back while it was known, and an entry that cannot be is left out.
        let mut wrong = entry("c", 3, 1, false);
        wrong.registration.rnics[0].qpn = 0;
        let mut third = self::desk();
        third.restore(vec![entry("a", 1, 5, false), wrong], place, at(0));
        assert_eq!(third.size(), (1, 1));
        assert!(third.register(agent("a", 1), 4, at(1)).is_err());
    }

    #[test]
    fn each_refusal_is_counted_where_it_belongs() {
        let mut desk = desk();
        desk.register(agent("a", 1), 1, at(0)).unwrap();
        assert!(desk.register(agent("b", 1), 1, at(0)).is_err());
        assert!(desk.register(agent("", 2), 1, at(0)).is_err());
        let none = Registration { agent: "c".into(), rnics: Vec::new() };
        assert!(desk.register(none, 1, at(0)).is_err());
        let mut wrong = agent("d", 3);
        wrong.rnics[0].qpn = 0;
        assert!(desk.register(wrong, 1, at(0)).is_err());
        let ControllerCounters { refused_taken, refused_names, refused_lists, refused_rnics, .. } =
            desk.counters;
        assert_eq!([refused_taken, refused_names, refused_lists, refused_rnics], [1, 1, 1, 1]);
        assert_eq!(desk.size(), (1, 1));
    }
}

//! Agents and their RNICs, for as long as their leases last.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_probe::Stamp;
use thiserror::Error;

use super::roster::Roster;

/// What a registry allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryConfig {
    /// How long an agent that says nothing stays.
    pub lease: Duration,
    /// How many agents there may be.
    pub agents: usize,
    /// How many RNICs one agent may have.
    pub rnics: usize,
    /// Changes that are kept for agents that ask what is new; those that ask later get everything.
    pub changes: usize,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), agents: 65_536, rnics: 64, changes: 65_536 }
    }
}

/// Bytes of a name at most.
const NAME: usize = 128;

/// An RNIC, as its agent tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rnic {
    /// Its address: that of a GID.
    pub address: IpAddr,
    /// The queue pair of its responder.
    pub qpn: u32,
    /// The host that it is in.
    pub host: String,
    /// The switch that it hangs on.
    pub tor: String,
    /// Its name there.
    pub device: String,
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its name, which no other agent has.
    pub agent: String,
    /// Its RNICs.
    pub rnics: Vec<Rnic>,
}

/// Why an agent is not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterRefusal {
    /// A name that cannot be one.
    #[error("{what} is no name: it has to have 1 to {NAME} bytes, and none that does not print")]
    Name {
        /// What the name is of.
        what: &'static str,
    },
    /// The agent has nothing to probe with.
    #[error("the agent has no RNIC")]
    NoRnic,
    /// More RNICs than one agent may have.
    #[error("the agent has {has} RNICs, and may have {most}")]
    TooManyRnics {
        /// How many it has.
        has: usize,
        /// How many it may have.
        most: usize,
    },
    /// An address that belongs to no single RNIC.
    #[error("{address} is not the address of one RNIC")]
    Address {
        /// The address.
        address: IpAddr,
    },
    /// A queue pair that no responder can have.
    #[error("queue pair {qpn} of {address} cannot be a responder's")]
    QueuePair {
        /// Of which RNIC.
        address: IpAddr,
        /// The number.
        qpn: u32,
    },
    /// One RNIC is named twice.
    #[error("{address} is named twice")]
    Twice {
        /// Its address.
        address: IpAddr,
    },
    /// Another agent has that RNIC, and its lease lasts.
    #[error("{address} belongs to agent {agent}, whose lease lasts")]
    Taken {
        /// The address of the RNIC.
        address: IpAddr,
        /// The other agent.
        agent: String,
    },
    /// There are as many agents as there may be.
    #[error("there are {most} agents, and may not be more")]
    Full {
        /// How many.
        most: usize,
    },
}

/// The agent is not known, or its lease has lapsed: it has to register again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("agent {agent:?} has no lease; it has to register")]
pub struct LeaseLost {
    /// Its name.
    pub agent: String,
}

/// What happened to an RNIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there.
    Joined {
        /// Its address.
        address: IpAddr,
    },
    /// The lease of its agent has lapsed.
    Lapsed {
        /// Its address.
        address: IpAddr,
    },
    /// Its agent says that it has it no more.
    Withdrawn {
        /// Its address.
        address: IpAddr,
    },
    /// Its responder has another queue pair: it was started again, and probes to the old one were not lost by the
    /// network.
    NewQueuePair {
        /// Its address.
        address: IpAddr,
        /// The number before.
        before: u32,
        /// The number now.
        now: u32,
    },
    /// It hangs on another switch, is in another host, or has another name.
    Moved {
        /// Its address.
        address: IpAddr,
    },
}

impl Change {
    /// The RNIC that it happened to.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        match self {
            Self::Joined { address }
            | Self::Lapsed { address }
            | Self::Withdrawn { address }
            | Self::NewQueuePair { address, .. }
            | Self::Moved { address } => *address,
        }
    }
}

#[derive(Debug)]
struct Agent {
    rnics: Vec<Rnic>,
    lapses: Stamp,
}

/// All agents with leases.
#[derive(Debug)]
pub struct Registry {
    config: RegistryConfig,
    agents: BTreeMap<String, Agent>,
    /// No lease lapses before this.
    calm_until: Stamp,
    owners: HashMap<IpAddr, String>,
    /// The version of the latest change, and the changes with theirs, the oldest first.
    version: u64,
    changes: VecDeque<(u64, Change)>,
    roster: Arc<Roster>,
    /// The version that the roster is of.
    drawn_up: u64,
}

/// What was taken over from before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Agents that were taken over.
    pub agents: usize,
    /// Agents that were left out, since they would be refused today.
    pub refused: usize,
}

impl Registry {
    /// A registry without agents. Versions go on from `version`, so that agents which know a later one of another
    /// controller are told everything.
    #[must_use]
    pub fn new(config: RegistryConfig, version: u64) -> Self {
        Self {
            config,
            agents: BTreeMap::new(),
            calm_until: Stamp::default(),
            owners: HashMap::new(),
            version,
            changes: VecDeque::new(),
            roster: Arc::new(Roster::default()),
            drawn_up: version,
        }
    }

    /// Takes over the agents that a store has kept. Their leases begin now: after a restart no agent is taken for
    /// gone before it had time to come back.
    pub fn restore(&mut self, kept: impl IntoIterator<Item = Registration>, now: Stamp) -> Restored {
        let mut restored = Restored { agents: 0, refused: 0 };
        for registration in kept {
            match self.register(registration, now) {
                Ok(()) => restored.agents += 1,
                Err(_) => restored.refused += 1,
            }
        }
        restored
    }

    /// Lets an agent in, or renews its lease with what it says now.
    ///
    /// # Errors
    /// What it says cannot be, or contradicts another agent whose lease lasts. Nothing is changed then.
    pub fn register(&mut self, registration: Registration, now: Stamp) -> Result<(), RegisterRefusal> {
        self.advance(now);
        self.judge(&registration)?;
        let Registration { agent, rnics } = registration;
        let before = self.agents.remove(&agent).map(|known| known.rnics).unwrap_or_default();
        for old in &before {
            if !rnics.iter().any(|rnic| rnic.address == old.address) {
                self.owners.remove(&old.address);
                self.note(Change::Withdrawn { address: old.address });
            }
        }
        for rnic in &rnics {
            let address = rnic.address;
            match before.iter().find(|old| old.address == address) {
                None => self.note(Change::Joined { address }),
                Some(old) if old == rnic => {}
                Some(Rnic { qpn: before, .. }) if *before != rnic.qpn => {
                    self.note(Change::NewQueuePair { address, before: *before, now: rnic.qpn });
                }
                Some(_) => self.note(Change::Moved { address }),
            }
            self.owners.insert(address, agent.clone());
        }
        self.agents.insert(agent, Agent { rnics, lapses: now.plus(self.config.lease) });
        Ok(())
    }

    /// Renews a lease: the agent was heard of.
    ///
    /// # Errors
    /// It has none.
    pub fn renew(&mut self, agent: &str, now: Stamp) -> Result<(), LeaseLost> {
        self.advance(now);
        let known = self.agents.get_mut(agent).ok_or_else(|| LeaseLost { agent: agent.to_owned() })?;
        known.lapses = now.plus(self.config.lease);
        Ok(())
    }

    /// Lets time pass: leases lapse.
    pub fn advance(&mut self, now: Stamp) {
        if now < self.calm_until {
            return;
        }
        let lapsed = self.agents.iter().filter(|(_, agent)| agent.lapses <= now);
        let lapsed: Vec<String> = lapsed.map(|(name, _)| name.clone()).collect();
        for name in lapsed {
            for rnic in self.agents.remove(&name).map(|agent| agent.rnics).unwrap_or_default() {
                self.owners.remove(&rnic.address);
                self.note(Change::Lapsed { address: rnic.address });
            }
        }
        // Leases that begin later lapse later, too.
        self.calm_until = self.wake_at().unwrap_or_else(|| now.plus(self.config.lease));
    }

    /// When the next lease lapses.
    #[must_use]
    pub fn wake_at(&self) -> Option<Stamp> {
        self.agents.values().map(|agent| agent.lapses).min()
    }

    /// The version of the latest change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// What has changed since a version; none if that is too long ago, or yet to come: then everything is new.
    #[must_use]
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let oldest = self.changes.front().map_or(self.version, |(oldest, _)| oldest - 1);
        let is_known = (oldest..=self.version).contains(&version);
        let first = self.changes.partition_point(|(of, _)| *of <= version);
        is_known.then(|| self.changes.range(first..).map(|(_, change)| change))
    }

    /// The agent that an RNIC belongs to.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        self.owners.get(&address).map(String::as_str)
    }

    /// The RNICs of an agent; none if it has no lease.
    #[must_use]
    pub fn rnics_of(&self, agent: &str) -> Option<&[Rnic]> {
        self.agents.get(agent).map(|agent| agent.rnics.as_slice())
    }

    /// How many agents there are.
    #[must_use]
    pub fn agent_count(&self) -> usize {
        self.agents.len()
    }

    /// The agents, each as it registered.
    pub fn agents(&self) -> impl Iterator<Item = Registration> {
        let registration = |(name, agent): (&String, &Agent)| Registration {
            agent: name.clone(),
            rnics: agent.rnics.clone(),
        };
        self.agents.iter().map(registration)
    }

    /// All RNICs of this moment, by ToR.
    pub fn roster(&mut self) -> Arc<Roster> {
        if self.drawn_up != self.version {
            self.drawn_up = self.version;
            self.roster = Arc::new(Roster::new(self.agents.values().flat_map(|agent| agent.rnics.clone())));
        }
        Arc::clone(&self.roster)
    }

    fn note(&mut self, change: Change) {
        self.version += 1;
        if self.changes.len() >= self.config.changes {
            self.changes.pop_front();
        }
        self.changes.push_back((self.version, change));
    }

    fn judge(&self, registration: &Registration) -> Result<(), RegisterRefusal> {
        let Registration { agent, rnics } = registration;
        is_name(agent, "the agent's")?;
        if rnics.is_empty() {
            return Err(RegisterRefusal::NoRnic);
        }
        if rnics.len() > self.config.rnics {
            return Err(RegisterRefusal::TooManyRnics { has: rnics.len(), most: self.config.rnics });
        }
        for (index, rnic) in rnics.iter().enumerate() {
            let Rnic { address, qpn, host, tor, device } = rnic;
            is_name(host, "the host's")?;
            is_name(tor, "the ToR's")?;
            is_name(device, "the device's")?;
            if address.is_unspecified() || address.is_multicast() || *address != address.to_canonical() {
                return Err(RegisterRefusal::Address { address: *address });
            }
            // Queue pairs 0 and 1 are the management's, and there are 24 bits.
            if !(2..0x0100_0000).contains(qpn) {
                return Err(RegisterRefusal::QueuePair { address: *address, qpn: *qpn });
            }
            if rnics[..index].iter().any(|other| other.address == *address) {
                return Err(RegisterRefusal::Twice { address: *address });
            }
            if let Some(owner) = self.owner(*address).filter(|owner| owner != agent) {
                return Err(RegisterRefusal::Taken { address: *address, agent: owner.to_owned() });
            }
        }
        if !self.agents.contains_key(agent) && self.agents.len() >= self.config.agents {
            return Err(RegisterRefusal::Full { most: self.config.agents });
        }
        Ok(())
    }
}

fn is_name(name: &str, what: &'static str) -> Result<(), RegisterRefusal> {
    let prints = !name.is_empty() && name.len() <= NAME && !name.chars().any(char::is_control);
    if prints { Ok(()) } else { Err(RegisterRefusal::Name { what }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rnic(last: u8, qpn: u32, tor: &str) -> Rnic {
        Rnic {
            address: IpAddr::from([10, 0, 0, last]),
            qpn,
            host: format!("host{last}"),
            tor: tor.into(),
            device: "mlx5_0".into(),
        }
    }

    fn agent(name: &str, rnics: &[Rnic]) -> Registration {
        Registration { agent: name.into(), rnics: rnics.to_vec() }
    }

    const fn at(seconds: u64) -> Stamp {
        Stamp::from_nanos(seconds * 1_000_000_000)
    }

    fn registry() -> Registry {
        Registry::new(RegistryConfig { agents: 3, rnics: 2, changes: 4, ..RegistryConfig::default() }, 0)
    }

    fn since(registry: &Registry, version: u64) -> Option<Vec<Change>> {
        registry.changes_since(version).map(|changes| changes.cloned().collect())
    }

    #[test]
    fn an_agent_stays_while_it_is_heard_of() {
        let mut registry = registry();
        registry.register(agent("a", &[rnic(1, 5, "t1")]), at(0)).unwrap();
        registry.renew("a", at(29)).unwrap();
        assert_eq!(registry.wake_at(), Some(at(59)));
        registry.advance(at(58));
        assert_eq!(registry.owner(IpAddr::from([10, 0, 0, 1])), Some("a"));
        assert_eq!(registry.rnics_of("a"), Some(&[rnic(1, 5, "t1")][..]));
        assert_eq!(registry.agent_count(), 1);
        registry.advance(at(59));
        assert_eq!(registry.rnics_of("a"), None);
        assert_eq!(registry.owner(IpAddr::from([10, 0, 0, 1])), None);
        assert_eq!(registry.renew("a", at(59)), Err(LeaseLost { agent: "a".into() }));
        let address = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(since(&registry, 0), Some(vec![Change::Joined { address }, Change::Lapsed { address }]));
        assert!(registry.roster().rnics().is_empty());
    }

    #[test]
    fn another_queue_pair_is_noticed_and_the_same_again_is_no_change() {
        let mut registry = registry();
        registry.register(agent("a", &[rnic(1, 5, "t1"), rnic(2, 6, "t1")]), at(0)).unwrap();
        let version = registry.version();
        registry.register(agent("a", &[rnic(1, 5, "t1"), rnic(2, 6, "t1")]), at(1)).unwrap();
        assert_eq!(registry.version(), version);
        registry.register(agent("a", &[rnic(1, 7, "t1"), rnic(2, 6, "t2")]), at(2)).unwrap();
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let expected =
            vec![Change::NewQueuePair { address: one, before: 5, now: 7 }, Change::Moved { address: two }];
        assert_eq!(since(&registry, version), Some(expected));
        registry.register(agent("a", &[rnic(1, 7, "t1")]), at(3)).unwrap();
        assert_eq!(since(&registry, version + 2), Some(vec![Change::Withdrawn { address: two }]));
    }

    #[test]
    fn versions_that_are_too_old_or_yet_to_come_get_everything() {
        let mut registry = registry();
        for qpn in 2..10 {
            registry.register(agent("a", &[rnic(1, qpn, "t1")]), at(0)).unwrap();
        }
        assert_eq!(registry.version(), 8);
        assert_eq!(since(&registry, 3), None);
        assert_eq!(since(&registry, 4).unwrap().len(), 4);
        assert_eq!(since(&registry, 8), Some(Vec::new()));
        assert_eq!(since(&registry, 9), None, "another controller said that");
        assert_eq!(since(&Registry::new(RegistryConfig::default(), 7), 7), Some(Vec::new()));
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut registry = registry();
        registry.register(agent("a", &[rnic(1, 5, "t1")]), at(0)).unwrap();
        let version = registry.version();
        let long = "x".repeat(129);
        let with = |change: fn(&mut Rnic)| {
            let mut other = rnic(2, 5, "t1");
            change(&mut other);
            agent("b", &[other])
        };
        let refused = [
            (agent("", &[rnic(2, 5, "t1")]), "the agent's is no name"),
            (agent(&long, &[rnic(2, 5, "t1")]), "the agent's is no name"),
            (with(|rnic| rnic.host.clear()), "the host's is no name"),
            (with(|rnic| rnic.tor = "t\n1".into()), "the ToR's is no name"),
            (with(|rnic| rnic.device = "\0".into()), "the device's is no name"),
            (agent("b", &[]), "the agent has no RNIC"),
            (agent("b", &[rnic(2, 5, "t"), rnic(3, 5, "t"), rnic(4, 5, "t")]), "has 3 RNICs, and may have 2"),
            (agent("b", &[rnic(2, 5, "t"), rnic(2, 6, "t")]), "named twice"),
            (agent("b", &[rnic(1, 5, "t1")]), "belongs to agent a"),
            (agent("b", &[rnic(2, 1, "t1")]), "cannot be a responder's"),
            (agent("b", &[rnic(2, 1 << 24, "t1")]), "cannot be a responder's"),
            (with(|rnic| rnic.address = "0.0.0.0".parse().unwrap()), "not the address of one RNIC"),
            (with(|rnic| rnic.address = "ff02::1".parse().unwrap()), "not the address of one RNIC"),
            (with(|rnic| rnic.address = "::ffff:10.0.0.9".parse().unwrap()), "not the address of one RNIC"),
        ];
        for (registration, why) in refused {
            let error = registry.register(registration, at(1)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}, not {why}");
        }
        assert_eq!(registry.version(), version);
        registry.register(agent("b", &[rnic(2, 5, "t1")]), at(1)).unwrap();
        registry.register(agent("c", &[rnic(3, 5, "t1")]), at(1)).unwrap();
        assert_eq!(
            registry.register(agent("d", &[rnic(4, 5, "t1")]), at(1)),
            Err(RegisterRefusal::Full { most: 3 })
        );
        registry.register(agent("c", &[rnic(4, 5, "t1")]), at(1)).unwrap();
        // A lease that has lapsed stands in the way of no agent.
        registry.register(agent("d", &[rnic(1, 5, "t1")]), at(30)).unwrap();
        assert_eq!(registry.owner(IpAddr::from([10, 0, 0, 1])), Some("d"));
    }

    #[test]
    fn after_a_restart_leases_begin_anew() {
        let mut registry = registry();
        registry.register(agent("a", &[rnic(1, 5, "t1")]), at(0)).unwrap();
        registry.register(agent("b", &[rnic(2, 5, "t1")]), at(0)).unwrap();
        let kept: Vec<_> = registry.agents().collect();
        let mut next = Registry::new(RegistryConfig { agents: 1, ..RegistryConfig::default() }, 100);
        assert_eq!(next.restore(kept, at(500)), Restored { agents: 1, refused: 1 });
        assert_eq!(next.wake_at(), Some(at(530)));
        assert_eq!(next.version(), 101);
        assert_eq!(next.roster().rnics().len(), 1);
    }
}

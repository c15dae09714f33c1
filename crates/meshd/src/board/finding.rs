//! Findings with names instead of numbers, so that they outlive the wiring in which they were found.

use std::net::IpAddr;

use ferroce_mesh::{Finding, Severity, Suspect, Topology, Trouble};

use super::service::BoardImpact;

/// The name of all that is above ToRs, where no topology file tells more.
pub(crate) const FABRIC: &str = "(all above ToRs)";

/// Something that is bad, by names.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardFinding {
    /// Its number.
    pub id: u64,
    /// Loss or delay.
    pub trouble: Trouble,
    /// How bad it is.
    pub severity: Severity,
    /// What is bad; more than one if no flow tells them apart.
    pub suspects: Vec<BoardSuspect>,
    /// When the window began in which it was seen first, in nanoseconds of the Unix clock.
    pub since: u64,
    /// When the window ended in which it was over; 0 if it is not.
    pub over: u64,
    /// Packets that crossed it.
    pub crossings: f64,
    /// Packets that crossed it and met trouble.
    pub losses: f64,
    /// How many of them would have met trouble without it.
    pub expected: f64,
    /// By how much the logarithm of the likelihood would fall without it.
    pub gain: f64,
    /// What each packet meets with this chance, from 0 to 1.
    pub rate: f64,
    /// The share of tuples that never pass, from 0 to 1.
    pub share: f64,
    /// The best neighbour in its place, and by how much less it explains.
    pub runner_up: Option<(BoardSuspect, f64)>,
    /// The flows with the most trouble.
    pub top: Vec<TopFlow>,
    /// What it means for services; none if that is not known.
    pub impact: Option<BoardImpact>,
}

/// What may be bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardSuspect {
    /// What it is.
    pub kind: Kind,
    /// Its name, as people say it.
    pub name: String,
    /// The names of its parts in the wiring: one, or the two ends of a link.
    pub parts: Vec<String>,
}

/// What something is that is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A card.
    Rnic,
    /// A switch.
    Switch,
    /// One direction of a link.
    Link,
    /// A host.
    Host,
    /// All that is above ToRs, or things of different kinds that no flow tells apart.
    Fabric,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Rnic, Self::Switch, Self::Link, Self::Host, Self::Fabric];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rnic => "rnic",
            Self::Switch => "switch",
            Self::Link => "link",
            Self::Host => "host",
            Self::Fabric => "fabric",
        }
    }
}

/// A flow with trouble.
#[derive(Clone, Debug, PartialEq)]
pub struct TopFlow {
    /// Where its probes come from.
    pub from: IpAddr,
    /// Where they go.
    pub to: IpAddr,
    /// The ToR that they come from.
    pub from_tor: String,
    /// The ToR that they go to.
    pub to_tor: String,
    /// The port of probes.
    pub port: u16,
    /// The port of answers.
    pub reply_port: u16,
    /// Packets with trouble.
    pub packets: f64,
}

impl BoardFinding {
    /// A finding in the names of this wiring.
    #[must_use]
    pub fn of(finding: &Finding, topology: &Topology, since: u64, over: u64) -> Self {
        let evidence = &finding.evidence;
        let cards = topology.rnics().len();
        let is_known = |rnic: ferroce_mesh::RnicId| (rnic.0 as usize) < cards;
        let top = evidence.top.iter().filter(|(key, _)| is_known(key.from) && is_known(key.to));
        let top = top.map(|(key, packets)| {
            let (from, to) = (topology.rnic(key.from), topology.rnic(key.to));
            TopFlow {
                from: from.address,
                to: to.address,
                from_tor: topology.switch(from.tor).name.clone(),
                to_tor: topology.switch(to.tor).name.clone(),
                port: key.port,
                reply_port: key.reply_port,
                packets: *packets,
            }
        });
        let suspect = |suspect: &Suspect| BoardSuspect::of(*suspect, topology);
        Self {
            id: finding.id.0,
            trouble: finding.trouble,
            severity: finding.severity,
            suspects: finding.suspects.iter().map(suspect).collect(),
            since,
            over,
            crossings: evidence.crossings,
            losses: evidence.losses,
            expected: evidence.expected,
            gain: evidence.gain,
            rate: evidence.guilt.rate,
            share: evidence.guilt.share,
            runner_up: evidence.runner_up.map(|(other, less)| (suspect(&other), less)),
            top: top.collect(),
            impact: None,
        }
    }

    /// What it is that is bad.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.suspects.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other.kind == first.kind) => first.kind,
            _ => Kind::Fabric,
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let suspect = |one: &BoardSuspect| {
            let parts: usize = one.parts.iter().map(|part| size_of::<String>() + part.len()).sum();
            size_of::<BoardSuspect>() + one.name.len() + parts
        };
        let suspects = self.suspects.iter().chain(self.runner_up.iter().map(|(one, _)| one));
        let top = |flow: &TopFlow| size_of::<TopFlow>() + flow.from_tor.len() + flow.to_tor.len();
        size_of::<Self>()
            + suspects.map(suspect).sum::<usize>()
            + self.top.iter().map(top).sum::<usize>()
            + self.impact.as_ref().map_or(0, BoardImpact::bytes)
    }
}

impl BoardSuspect {
    fn of(suspect: Suspect, topology: &Topology) -> Self {
        let (kind, parts) = match suspect {
            Suspect::Rnic(id) => (Kind::Rnic, vec![topology.rnic(id).name.clone()]),
            Suspect::Switch(id) => {
                let name = topology.switch(id).name.clone();
                (if name == FABRIC { Kind::Fabric } else { Kind::Switch }, vec![name])
            }
            Suspect::Link(id) => {
                let (from, to) = topology.ends(id);
                (Kind::Link, vec![topology.name(from).to_owned(), topology.name(to).to_owned()])
            }
            Suspect::Host(id) => (Kind::Host, vec![topology.hosts()[id.0 as usize].name.clone()]),
        };
        Self { kind, name: suspect.name(topology), parts }
    }
}

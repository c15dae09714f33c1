//! Services by names and addresses: what they do, and what findings mean for them.

use std::net::IpAddr;

use ferroce_mesh::Priority;

/// What a finding means for services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardImpact {
    /// The worst of all.
    pub priority: Priority,
    /// The services that cross what is bad, the worst first; no more than are told.
    pub services: Vec<BoardAffected>,
    /// Services beyond those.
    pub left_out: u32,
}

/// A service that crosses what is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardAffected {
    /// What it is called.
    pub service: String,
    /// How bad it is for this one.
    pub priority: Priority,
    /// Its queue pairs that cross what is bad.
    pub flows: u32,
    /// Some of them, those in trouble first: from where to where, and from which port.
    pub examples: Vec<(IpAddr, IpAddr, u16)>,
}

/// A service, as all agents know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoardService {
    /// What it is called.
    pub service: String,
    /// Hosts that it was seen on.
    pub hosts: u32,
    /// Some of them.
    pub some_hosts: Vec<String>,
    /// Its queue pairs that are connected between RNICs of the mesh.
    pub flows: u32,
    /// Of these, those that cross what is bad: of the finding that most of them cross.
    pub crossing: u32,
    /// Packets that they sent in the newest windows.
    pub sent: u64,
    /// Packets that they sent again, and times that they waited for an answer in vain.
    pub again: u64,
    /// The worst that a finding is for it; none if it crosses nothing that is bad.
    pub priority: Option<Priority>,
    /// The numbers of the findings that it crosses.
    pub findings: Vec<u64>,
}

/// The name of a priority, as people say it.
#[must_use]
pub const fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::P0 => "P0",
        Priority::P1 => "P1",
        Priority::P2 => "P2",
    }
}

impl BoardImpact {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let affected = |one: &BoardAffected| {
            size_of::<BoardAffected>()
                + one.service.len()
                + one.examples.len() * size_of::<(IpAddr, IpAddr, u16)>()
        };
        self.services.iter().map(affected).sum()
    }
}

impl BoardService {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let hosts: usize = self.some_hosts.iter().map(|host| size_of::<String>() + host.len()).sum();
        size_of::<Self>() + self.service.len() + hosts + self.findings.len() * size_of::<u64>()
    }
}

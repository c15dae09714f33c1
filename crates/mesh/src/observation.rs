//! What agents say of a window: how the probes of each flow ended, and how the hosts themselves were.

use crate::topology::{HostId, RnicId};

/// The probes of one flow in one window, by how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Which flow.
    pub flow: FlowKey,
    /// How many of its probes ended how.
    pub outcomes: Outcomes,
}

/// Probes with the same ports, and so with the same paths there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Where probes come from.
    pub from: RnicId,
    /// Where they go.
    pub to: RnicId,
    /// The source port of probes.
    pub port: u16,
    /// The source port of answers.
    pub reply_port: u16,
}

impl FlowKey {
    /// What switches see of its probes.
    #[must_use]
    pub const fn there(&self) -> Tuple {
        Tuple { from: self.from, to: self.to, port: self.port }
    }

    /// What switches see of its answers.
    #[must_use]
    pub const fn back(&self) -> Tuple {
        Tuple { from: self.to, to: self.from, port: self.reply_port }
    }
}

/// What switches see of a packet: it decides the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// The card that sends.
    pub from: RnicId,
    /// The card that receives.
    pub to: RnicId,
    /// The UDP source port.
    pub port: u16,
}

/// How many probes ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Both ACKs came in time.
    pub ok: u32,
    /// Of those: the round trip was longer than the path's own usual ones.
    pub slow: u32,
    /// The second ACK did not come.
    pub ack2_lost: u32,
    /// The first ACK did not come.
    pub ack1_lost: u32,
    /// Nothing came.
    pub time_out: u32,
    /// Both ACKs came, too late.
    pub late: u32,
    /// Both ACKs came, with times that cannot be true.
    pub invalid: u32,
    /// The prober's own host was at fault.
    pub host: u32,
}

impl Outcomes {
    /// Probes that say something of the network.
    #[must_use]
    pub const fn told(&self) -> u32 {
        self.arrived().saturating_add(self.time_out)
    }

    /// Probes that reached the other end for sure.
    #[must_use]
    pub const fn arrived(&self) -> u32 {
        self.whole().saturating_add(self.ack1_lost).saturating_add(self.ack2_lost)
    }

    /// Probes of which both answers came.
    #[must_use]
    pub const fn whole(&self) -> u32 {
        self.ok.saturating_add(self.late).saturating_add(self.invalid)
    }

    /// Probes of which something was lost on the way.
    #[must_use]
    pub const fn lossy(&self) -> u32 {
        self.time_out.saturating_add(self.ack1_lost).saturating_add(self.ack2_lost)
    }

    /// Adds those of another window.
    pub const fn add(&mut self, other: &Self) {
        self.ok = self.ok.saturating_add(other.ok);
        self.slow = self.slow.saturating_add(other.slow);
        self.ack2_lost = self.ack2_lost.saturating_add(other.ack2_lost);
        self.ack1_lost = self.ack1_lost.saturating_add(other.ack1_lost);
        self.time_out = self.time_out.saturating_add(other.time_out);
        self.late = self.late.saturating_add(other.late);
        self.invalid = self.invalid.saturating_add(other.invalid);
        self.host = self.host.saturating_add(other.host);
    }
}

/// What is known of a host itself in a window. Hosts with nothing to say are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Which host.
    pub host: HostId,
    /// How often it stood still.
    pub stalls: u32,
    /// How long at most, in nanoseconds.
    pub longest: u64,
    /// Packets that it dropped because its buffers were full.
    pub receive_drops: u64,
    /// Its agent did not renew its lease.
    pub lapsed: bool,
    /// The number of its queue pair changed, so probes went to the old one.
    pub changed_qpn: bool,
}

impl HostReport {
    /// A host of which nothing is said.
    #[must_use]
    pub const fn of(host: HostId) -> Self {
        Self { host, stalls: 0, longest: 0, receive_drops: 0, lapsed: false, changed_qpn: false }
    }
}

/// What all agents say of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// One for each flow that was probed.
    pub observations: Vec<Observation>,
    /// One for each host with something to say.
    pub hosts: Vec<HostReport>,
}

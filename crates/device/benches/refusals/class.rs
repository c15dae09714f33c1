//! The classes of refused packets, how each is counted, and what each may cost.

use ferroce_device::DeviceCounters;
use ferroce_transport::Counters;
use ferroce_transport::cm::CmCounters;

use crate::Outcome;

/// One way of being refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) lie: Lie,
    /// The counter, as programs see it.
    pub(crate) counted_as: &'static str,
    pub(crate) counter: Counter,
    /// The most instructions of the victim for one packet, with its part of what is done once for several.
    pub(crate) budget: u32,
}

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Cut off inside of its headers.
    Cut,
    /// An opcode that does not exist.
    Opcode,
    /// One bit, in a packet with this many bytes of payload.
    Icrc(usize),
    /// A queue pair that is not there.
    Qpn,
    /// A queue pair of no process.
    Slot,
    /// The address that it comes from is not that of the peer.
    Peer,
    /// A request of the far future.
    Future,
    /// A request of the past.
    Past,
    /// The port that it comes from.
    Port,
    /// A request to end a connection that is not there.
    UnknownId,
    /// A request to end a connection, not from its peer.
    StrangerId,
    /// A request for a connection that cannot be.
    Invalid,
    /// A request of a queue pair that is connected already.
    Claim,
    /// A request for a service that no process listens for.
    Service,
    /// A request more than the listener lets wait.
    Backlog,
}

/// Where a packet is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    /// By the engine, which the victim turns by polling.
    Engine(fn(&DeviceCounters) -> u64),
    /// By a queue pair; the same holds.
    Qp(fn(&Counters) -> u64),
    /// By the switchboard, whose thread reads it.
    Switchboard(fn(&DeviceCounters) -> u64),
    /// By the connection manager, whose thread gets it from that of the switchboard.
    Connections(fn(&CmCounters) -> u64),
}

/// All of them, with their budgets: about a third above what was measured when they were set.
pub(crate) const CLASSES: &[Class] = &[
    Class {
        name: "malformed",
        lie: Lie::Cut,
        counted_as: "malformed",
        counter: Counter::Engine(|counters| counters.malformed),
        budget: 800,
    },
    Class {
        name: "unknown-opcode",
        lie: Lie::Opcode,
        counted_as: "unknown_opcode",
        counter: Counter::Engine(|counters| counters.unknown_opcode),
        budget: 800,
    },
    Class {
        name: "wrong-icrc",
        lie: Lie::Icrc(64),
        counted_as: "icrc_errors",
        counter: Counter::Engine(|counters| counters.icrc_errors),
        budget: 3900,
    },
    Class {
        name: "wrong-icrc-4096",
        lie: Lie::Icrc(4096),
        counted_as: "icrc_errors",
        counter: Counter::Engine(|counters| counters.icrc_errors),
        budget: 8600,
    },
    Class {
        name: "unknown-qp",
        lie: Lie::Qpn,
        counted_as: "unknown_qp",
        counter: Counter::Engine(|counters| counters.unknown_qp),
        budget: 1900,
    },
    Class {
        name: "wrong-peer",
        lie: Lie::Peer,
        counted_as: "wrong_peer",
        counter: Counter::Engine(|counters| counters.wrong_peer),
        budget: 1800,
    },
    Class {
        name: "implausible-psn",
        lie: Lie::Future,
        counted_as: "implausible",
        counter: Counter::Qp(|counters| counters.implausible),
        budget: 2700,
    },
    Class {
        name: "duplicate-request",
        lie: Lie::Past,
        counted_as: "duplicate_requests",
        counter: Counter::Qp(|counters| counters.duplicate_requests),
        budget: 3000,
    },
    // The kernel turns it away, so this is what asking for the counter costs.
    Class {
        name: "foreign-source",
        lie: Lie::Port,
        counted_as: "foreign_source",
        counter: Counter::Switchboard(|counters| counters.foreign_source),
        budget: 150,
    },
    Class {
        name: "stray",
        lie: Lie::Slot,
        counted_as: "strays",
        counter: Counter::Switchboard(|counters| counters.strays),
        budget: 1500,
    },
    // From here on most are answered, and the answer is part of the cost.
    Class {
        name: "unserved-service",
        lie: Lie::Service,
        counted_as: "mads_unclaimed",
        counter: Counter::Switchboard(|counters| counters.mads_unclaimed),
        budget: 9800,
    },
    Class {
        name: "unknown-id",
        lie: Lie::UnknownId,
        counted_as: "cm_unknown",
        counter: Counter::Connections(|counters| counters.unknown),
        budget: 9800,
    },
    Class {
        name: "stranger-id",
        lie: Lie::StrangerId,
        counted_as: "cm_strangers",
        counter: Counter::Connections(|counters| counters.strangers),
        budget: 4000,
    },
    Class {
        name: "invalid-request",
        lie: Lie::Invalid,
        counted_as: "cm_invalid",
        counter: Counter::Connections(|counters| counters.invalid),
        budget: 10_000,
    },
    Class {
        name: "stale-claim",
        lie: Lie::Claim,
        counted_as: "cm_stale",
        counter: Counter::Connections(|counters| counters.stale),
        budget: 11_000,
    },
    Class {
        name: "backlog-full",
        lie: Lie::Backlog,
        counted_as: "cm_backlog_full",
        counter: Counter::Connections(|counters| counters.backlog_full),
        budget: 11_000,
    },
];

/// The class of this name.
pub(crate) fn named(name: &str) -> Outcome<&'static Class> {
    let class = CLASSES.iter().find(|class| class.name == name);
    class.ok_or_else(|| format!("no class is called {name:?}; --classes lists them").into())
}

//! What a device can do, and what it cannot.

use std::fmt;

use thiserror::Error;

/// Something that not every device can do. The soft device can do all of it.
///
/// ```
/// # use ferroce_verbs::{Capability, Context};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::builder("ferroce_lo").address([127, 0, 41, 14]).open()?;
/// assert!(context.can(Capability::MaskedAtomics));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// The program chooses which path packets take, and sees which one was chosen.
    Paths,
    /// The program chooses how many engines there are, and which one a queue pair lives in.
    Engines,
    /// Faults are injected into what is sent.
    FaultPlans,
    /// Packets are written to a file.
    Capture,
    /// What happens is written down as a time-line.
    Recording,
    /// The socket of the device is set up by the program: its receive buffer, and how runs of packets are cut and joined.
    SocketSettings,
    /// The program chooses the addresses of the device, such as one of 127.0.0.0/8 for itself.
    ChosenAddresses,
    /// The program adds partitions to the port.
    Partitions,
    /// Masked atomics.
    MaskedAtomics,
    /// ATOMIC WRITE: eight bytes into the peer's memory, all at once.
    AtomicWrites,
    /// Memory is registered under an address of the program's choice; physical windows need it.
    PhysicalWindows,
    /// The program chooses the UDP source port.
    SourcePorts,
    /// A list of requests is taken whole or not at all.
    WholeLists,
    /// Completions tell when work ended; on a card those of queues that are made for it
    /// ([`Context::timed_completion_queue`](crate::Context::timed_completion_queue)).
    Timestamps,
    /// Datagrams tell when the kernel saw them leave and come, and what routers sent back of them.
    Stamps,
    /// A speed limit for a queue pair.
    RateLimits,
    /// The device counts packets, and its queue pairs what they did.
    Counters,
    /// Events are put off until several completions have come.
    Moderation,
    /// A completion tells whether the sender asked for an event.
    SolicitedMarks,
    /// Memory windows: a part of a region under a key of its own.
    Windows,
    /// A memory window of type 1 is bound without a queue pair.
    BindingAtOnce,
    /// The key of a window of type 1 is known before its binding is posted.
    KeysAhead,
    /// A window of type 2 is bound again without being closed first. The IBA does not ask for it.
    Rebinding,
    /// Queue pairs tell of what their peers do: an event says that the first packet came, that a peer was refused, or that the
    /// last receive was taken from a shared queue.
    PeerEvents,
    /// The program chooses over how many hops packets go.
    HopLimits,
    /// A completion queue tells how full it is and was.
    Levels,
    /// Queue pairs are connected by address and port.
    Connections,
    /// Connections to services that are no ports, with names of 64 bits.
    NamedServices,
    /// Datagram services are offered and found by address and port.
    DatagramPorts,
    /// The program makes messages of connection management itself.
    ManagementDatagrams,
}

impl Capability {
    /// All that there are.
    pub const ALL: &[Self] = &[
        Self::Paths,
        Self::Engines,
        Self::FaultPlans,
        Self::Capture,
        Self::Recording,
        Self::SocketSettings,
        Self::ChosenAddresses,
        Self::Partitions,
        Self::MaskedAtomics,
        Self::AtomicWrites,
        Self::PhysicalWindows,
        Self::SourcePorts,
        Self::WholeLists,
        Self::Timestamps,
        Self::Stamps,
        Self::RateLimits,
        Self::Counters,
        Self::Moderation,
        Self::SolicitedMarks,
        Self::Windows,
        Self::BindingAtOnce,
        Self::KeysAhead,
        Self::Rebinding,
        Self::PeerEvents,
        Self::HopLimits,
        Self::Levels,
        Self::Connections,
        Self::NamedServices,
        Self::DatagramPorts,
        Self::ManagementDatagrams,
    ];

    /// Its name, such as `masked atomics`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paths => "choice of paths",
            Self::Engines => "choice of engines",
            Self::FaultPlans => "fault plans",
            Self::Capture => "capture of packets",
            Self::Recording => "recording",
            Self::SocketSettings => "socket settings",
            Self::ChosenAddresses => "choice of addresses",
            Self::Partitions => "choice of partitions",
            Self::MaskedAtomics => "masked atomics",
            Self::AtomicWrites => "ATOMIC WRITE",
            Self::PhysicalWindows => "regions at chosen addresses",
            Self::SourcePorts => "choice of source ports",
            Self::WholeLists => "all-or-nothing lists",
            Self::Timestamps => "times of completions",
            Self::Stamps => "stamps of datagrams",
            Self::RateLimits => "rate limits",
            Self::Counters => "counters",
            Self::Moderation => "moderation of events",
            Self::SolicitedMarks => "marks of solicited completions",
            Self::Windows => "memory windows",
            Self::BindingAtOnce => "bindings without a queue pair",
            Self::KeysAhead => "keys of type 1 windows ahead of their binding",
            Self::Rebinding => "bindings of windows that are open",
            Self::PeerEvents => "events of what peers do",
            Self::HopLimits => "choice of hop limits",
            Self::Levels => "levels of queues",
            Self::Connections => "connections by address and port",
            Self::NamedServices => "connections to named services",
            Self::DatagramPorts => "datagram services",
            Self::ManagementDatagrams => "management datagrams",
        }
    }

    /// What a program may do where the device has none of it.
    #[must_use]
    pub const fn instead(self) -> &'static str {
        match self {
            Self::Paths | Self::Engines | Self::SocketSettings => "the card decides; leave it out",
            Self::FaultPlans | Self::Capture | Self::Recording | Self::Stamps => {
                "use the soft device (FERROCE_PROVIDER=soft) to look at a program"
            }
            Self::ChosenAddresses => "give its interface the address, or use the soft device",
            Self::Partitions => "the fabric decides; leave it out",
            Self::MaskedAtomics => "use compare_swap or fetch_add",
            Self::AtomicWrites => "use compare_swap, or a WRITE of eight aligned bytes where that is enough",
            Self::PhysicalWindows => "register the memory under its own address",
            Self::SourcePorts => "choose a flow label instead, or leave it out",
            Self::WholeLists => "see how many were taken",
            Self::Timestamps => "take the time when polling",
            Self::RateLimits => "pace the work in the program",
            Self::Counters => "ask the card's driver (`rdma statistic show`)",
            Self::Moderation => "poll more than one completion at a time",
            Self::SolicitedMarks => "send what is urgent as immediate data",
            Self::Windows => "register the part as a region of its own",
            Self::BindingAtOnce => "bind it by work of a queue pair",
            Self::KeysAhead => "ask the window for its key once its binding is posted",
            Self::Rebinding => "close the window first",
            Self::PeerEvents => "look at completions, and have peers say what they do",
            Self::HopLimits => "leave it out: the kernel takes that of the route (`ip route`)",
            Self::Levels => "count what is posted and polled",
            Self::Connections => "install librdmacm, or exchange the addresses of queue pairs",
            Self::NamedServices => "listen on a port",
            Self::DatagramPorts => "exchange the number and the key of the queue pair",
            Self::ManagementDatagrams => "use the soft device",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a program asked for that its device cannot do. [`Context::can`](crate::Context::can) tells beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this device has no {capability}: {}", capability.instead())]
pub struct Unsupported {
    /// What it lacks.
    pub capability: Capability,
}

impl From<Capability> for Unsupported {
    fn from(capability: Capability) -> Self {
        Self { capability }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_capability_has_a_name_of_its_own() {
        let names: HashSet<&str> = Capability::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), Capability::ALL.len());
        let error = Unsupported::from(Capability::MaskedAtomics);
        let says = "this device has no masked atomics: use compare_swap or fetch_add";
        assert_eq!(error.to_string(), says);
    }
}

//! What the runs have met: opcodes, faults, NAK codes, statuses, events, states, path MTUs.

use std::collections::BTreeMap;
use std::fmt;

use ferroce_transport::{Event, State, Status};
use ferroce_wire::{Aeth, Body, NakCode, Opcode, Packet, PathMtu, Response, Role, Service, Syndrome};

use crate::link::Fault;

/// Counts by kind and name.
#[derive(Clone, Debug)]
pub struct Coverage {
    opcodes: [u64; 256],
    counts: BTreeMap<(Kind, &'static str), u64>,
    /// Sums of all counters of all queue pairs, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Runs.
    pub runs: u64,
    /// Packets sent.
    pub packets: u64,
    /// Virtual nanoseconds.
    pub nanos: u64,
}

/// What a count is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Faults that were injected.
    Fault,
    /// Negative acknowledgements.
    Nak,
    /// Statuses of completions.
    Status,
    /// Events.
    Event,
    /// States that queue pairs were in.
    State,
    /// Path MTUs.
    Mtu,
    /// Which way packets of connections take.
    Way,
}

/// Packets of connections go over the network.
pub(crate) const NETWORK: &str = "network";

/// They go through memory.
pub(crate) const RINGS: &str = "rings";

impl Default for Coverage {
    fn default() -> Self {
        let (counts, counters) = (BTreeMap::new(), BTreeMap::new());
        Self { opcodes: [0; 256], counts, counters, runs: 0, packets: 0, nanos: 0 }
    }
}

impl Coverage {
    /// Counts something.
    pub fn count(&mut self, kind: Kind, name: &'static str) {
        *self.counts.entry((kind, name)).or_default() += 1;
    }

    /// Whether something was counted.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &'static str) -> bool {
        self.counts.contains_key(&(kind, name))
    }

    /// Counts a packet.
    pub fn packet(&mut self, packet: &Packet<&[u8]>) {
        self.packets += 1;
        self.opcodes[usize::from(packet.opcode().byte())] += 1;
        if let Body::RcResponse(Response::Acknowledge(Aeth { syndrome, .. })) = packet.body
            && matches!(syndrome, Syndrome::Nak(_) | Syndrome::RnrNak(_))
        {
            self.count(Kind::Nak, syndrome.name());
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.opcodes.iter_mut().zip(&other.opcodes) {
            *mine += theirs;
        }
        for (key, count) in &other.counts {
            *self.counts.entry(*key).or_default() += count;
        }
        for (name, count) in &other.counters {
            *self.counters.entry(name).or_default() += count;
        }
        self.runs += other.runs;
        self.packets += other.packets;
        // A run in which a planted bug waits for ever ends at the end of time.
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// What many runs should have met and these have not.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let opcodes = wanted_opcodes().filter(|opcode| self.opcodes[usize::from(opcode.byte())] == 0);
        let mut missing: Vec<String> = opcodes.map(|opcode| format!("opcode {opcode}")).collect();
        let names = wanted_names();
        let lacking = names.iter().filter(|key| !self.counts.contains_key(*key));
        missing.extend(lacking.map(|(kind, name)| format!("{kind:?} {name}").to_lowercase()));
        missing
    }
}

/// Everything that a requester or a responder of ours can send.
fn wanted_opcodes() -> impl Iterator<Item = Opcode> {
    Opcode::all().filter(|opcode| {
        let info = opcode.info();
        let ours = matches!(info.service, Service::Rc | Service::RcOwn | Service::Uc | Service::Ud);
        // FLUSH is known on the wire, but no work request asks for it.
        ours && info.operation != ferroce_wire::Operation::Flush
            && (info.role == Role::Request || info.service == Service::Rc)
    })
}

fn wanted_names() -> Vec<(Kind, &'static str)> {
    let naks =
        [NakCode::SequenceError, NakCode::InvalidRequest, NakCode::RemoteAccess, NakCode::RemoteOperation];
    let mut names = vec![(Kind::Nak, "RNR NAK")];
    names.extend(naks.map(|code| (Kind::Nak, Syndrome::Nak(code).name())));
    names.extend(Fault::ALL.map(|fault| (Kind::Fault, fault.name())));
    names.extend(STATUSES.map(|status| (Kind::Status, status_name(status))));
    names.extend(State::ALL.map(|state| (Kind::State, state.name())));
    names.extend(PathMtu::ALL.map(|mtu| (Kind::Mtu, mtu_name(mtu))));
    names.extend([NETWORK, RINGS].map(|way| (Kind::Way, way)));
    names
}

const STATUSES: [Status; 13] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalQpOperation,
    Status::LocalProtection,
    Status::Flushed,
    Status::WindowBind,
    Status::BadResponse,
    Status::LocalAccess,
    Status::RemoteInvalidRequest,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::RetryExceeded,
    Status::RnrRetryExceeded,
];

/// The name of a status.
#[must_use]
pub(crate) const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "SUCCESS",
        Status::LocalLength => "LOC_LEN_ERR",
        Status::LocalQpOperation => "LOC_QP_OP_ERR",
        Status::LocalProtection => "LOC_PROT_ERR",
        Status::Flushed => "WR_FLUSH_ERR",
        Status::WindowBind => "MW_BIND_ERR",
        Status::BadResponse => "BAD_RESP_ERR",
        Status::LocalAccess => "LOC_ACCESS_ERR",
        Status::RemoteInvalidRequest => "REM_INV_REQ_ERR",
        Status::RemoteAccess => "REM_ACCESS_ERR",
        Status::RemoteOperation => "REM_OP_ERR",
        Status::RetryExceeded => "RETRY_EXC_ERR",
        Status::RnrRetryExceeded => "RNR_RETRY_EXC_ERR",
    }
}

/// The name of an event.
#[must_use]
pub(crate) const fn event_name(event: Event) -> &'static str {
    match event {
        Event::Established => "established",
        Event::SendQueueDrained => "send queue drained",
        Event::LastWorkRequestReached => "last work request reached",
        Event::RequestError => "request error",
        Event::AccessError => "access error",
    }
}

/// The name of a path MTU.
#[must_use]
pub(crate) const fn mtu_name(mtu: PathMtu) -> &'static str {
    match mtu {
        PathMtu::B256 => "256",
        PathMtu::B512 => "512",
        PathMtu::B1024 => "1024",
        PathMtu::B2048 => "2048",
        PathMtu::B4096 => "4096",
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.nanos / 1_000_000_000;
        writeln!(f, "{} runs, {} packets, {seconds} s of virtual time", self.runs, self.packets)?;
        writeln!(f, "opcodes")?;
        for opcode in Opcode::all().filter(|opcode| self.opcodes[usize::from(opcode.byte())] > 0) {
            writeln!(f, "    {:>10} {opcode}", self.opcodes[usize::from(opcode.byte())])?;
        }
        let mut last = None;
        for (&(kind, name), count) in &self.counts {
            if last.replace(kind) != Some(kind) {
                writeln!(f, "{}", format!("{kind:?}").to_lowercase())?;
            }
            writeln!(f, "    {count:>10} {name}")?;
        }
        writeln!(f, "counters")?;
        for (name, count) in &self.counters {
            writeln!(f, "    {count:>10} {name}")?;
        }
        Ok(())
    }
}

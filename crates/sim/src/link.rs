//! The network between the hosts: rate, latency, and everything that can go wrong on the way.

use ferroce_transport::Time;
use ferroce_wire::header::Bth;

use crate::dice::Dice;

/// What the network does, with probabilities in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPlan {
    /// Nanoseconds per KiB on the wire.
    pub ns_per_kib: u64,
    /// One way, in nanoseconds.
    pub latency: u64,
    /// Additional delay of each packet: up to this many nanoseconds, order kept.
    pub jitter: u64,
    /// Packets lost.
    pub loss: u32,
    /// Packets that arrive twice.
    pub duplicate: u32,
    /// Packets that others overtake.
    pub reorder: u32,
    /// By at most this many packets.
    pub reorder_window: u64,
    /// Packets with flipped bits that the ICRC covers.
    pub corrupt: u32,
    /// Packets with flipped bits that switches may change and the ICRC does not cover.
    pub mark: u32,
}

/// Something that went wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Lost on the way.
    Loss,
    /// Arrived twice.
    Duplicate,
    /// Overtaken.
    Reorder,
    /// Bits flipped.
    Corrupt,
    /// Bits flipped that may change.
    Mark,
    /// No room in the receiver's socket buffer.
    TailDrop,
    /// To or from a host that is cut off.
    Down,
    /// The host was away and did nothing.
    Away,
    /// A queue pair was reset under the feet of its peer.
    Restart,
    /// Memory was deregistered while a peer may be using it.
    Deregister,
    /// A receive was posted late.
    LateReceive,
    /// The send queue was drained.
    Drain,
    /// A request that its target must refuse.
    BadRequest,
    /// A request that its own host must refuse.
    BadLocal,
    /// A receive that cannot take its message.
    BadReceive,
    /// A packet that its sender never sent.
    Lie,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Loss,
        Self::Duplicate,
        Self::Reorder,
        Self::Corrupt,
        Self::Mark,
        Self::TailDrop,
        Self::Down,
        Self::Away,
        Self::Restart,
        Self::Deregister,
        Self::LateReceive,
        Self::Drain,
        Self::BadRequest,
        Self::BadLocal,
        Self::BadReceive,
        Self::Lie,
    ];

    /// Its name in traces and summaries.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Corrupt => "corrupt",
            Self::Mark => "mark",
            Self::TailDrop => "tail-drop",
            Self::Down => "down",
            Self::Away => "away",
            Self::Restart => "restart",
            Self::Deregister => "deregister",
            Self::LateReceive => "late-receive",
            Self::Drain => "drain",
            Self::BadRequest => "bad-request",
            Self::BadLocal => "bad-local",
            Self::BadReceive => "bad-receive",
            Self::Lie => "lie",
        }
    }
}

/// The way of one packet through the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// When it arrives: never, once or twice.
    pub arrivals: [Option<Time>; 2],
    /// What went wrong.
    pub faults: [Option<Fault>; 3],
}

/// The network: when each host's port is free again, and the dice.
#[derive(Debug)]
pub(crate) struct Link {
    plan: LinkPlan,
    dice: Dice,
    free: Vec<Time>,
    last_arrival: Vec<Vec<Time>>,
}

/// Bytes around a RoCEv2 packet on the wire: Ethernet with its gaps, IPv4 and UDP.
const FRAMING: u64 = 38 + 20 + 8;

impl Link {
    /// A network between this many hosts.
    #[must_use]
    pub(crate) fn new(plan: LinkPlan, hosts: usize, dice: Dice) -> Self {
        let last_arrival = vec![vec![Time::ZERO; hosts]; hosts];
        Self { plan, dice, free: vec![Time::ZERO; hosts], last_arrival }
    }

    /// When a host's port has sent everything that it was given.
    #[must_use]
    pub(crate) fn free_at(&self, host: usize) -> Time {
        self.free[host]
    }

    /// Takes a packet of host `from` and decides its way; may flip bits in it.
    pub(crate) fn take(&mut self, now: Time, from: usize, to: usize, bytes: &mut [u8]) -> Way {
        let plan = self.plan;
        let wire = nanos((bytes.len() as u64 + FRAMING) * plan.ns_per_kib / 1024);
        let leaves = self.free[from].max(now) + wire;
        self.free[from] = leaves;
        let mut way = Way::default();
        if self.dice.chance(plan.loss) {
            way.faults[0] = Some(Fault::Loss);
            return way;
        }
        let jitter = nanos(if plan.jitter > 0 { self.dice.below(plan.jitter) } else { 0 });
        let usual = (leaves + nanos(plan.latency) + jitter).max(self.last_arrival[from][to]);
        way.arrivals[0] = Some(usual);
        if self.dice.chance(plan.reorder) {
            let slots = self.dice.between(1, plan.reorder_window.max(1));
            way.arrivals[0] = Some(usual + wire.max(nanos(200)) * u32::try_from(slots).unwrap_or(1));
            way.faults[0] = Some(Fault::Reorder);
        } else {
            self.last_arrival[from][to] = usual;
        }
        if self.dice.chance(plan.duplicate) {
            let later = nanos(self.dice.log_between(1, 1_000_000));
            way.arrivals[1] = way.arrivals[0].map(|at| at + later);
            way.faults[2] = Some(Fault::Duplicate);
        }
        if self.dice.chance(plan.corrupt) {
            way.faults[1] = Some(Fault::Corrupt);
            self.flip(bytes);
        } else if self.dice.chance(plan.mark) {
            way.faults[1] = Some(Fault::Mark);
            bytes[Bth::VARIANT_BYTE] ^= self.dice.pick(&[0x80, 0x40, 0xc0, 0x01, 0x20]);
        }
        way
    }

    /// Flips one to three bits that the ICRC covers; so few are always found.
    fn flip(&mut self, bytes: &mut [u8]) {
        let flips = self.dice.between(1, 3);
        let mut flipped = Vec::new();
        while flipped.len() as u64 != flips {
            let bit = self.dice.index(bytes.len() * 8);
            if bit / 8 != Bth::VARIANT_BYTE && !flipped.contains(&bit) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                flipped.push(bit);
            }
        }
    }
}

const fn nanos(nanos: u64) -> std::time::Duration {
    std::time::Duration::from_nanos(nanos)
}

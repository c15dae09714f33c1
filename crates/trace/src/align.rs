//! How far apart the clocks of machines are, by the packets that went between them.
//!
//! A packet that left one machine at `a` and came to another at `b` says that `b - a` is at least the difference of the
//! clocks; one that went the other way says that it is at most that. The fastest packet of each way is nearest to the
//! truth, which lies between the two: half of what they are apart is all that the result may be wrong by.
//!
//! A packet is known again by its addresses and headers. Sequence numbers go round within seconds, answers are given
//! twice, and packets are lost, so one pair proves little: the difference that most pairs agree on is believed, and then
//! only packets that left once and came once near it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use ferroce_record::{Ends, Event, Packet, PacketFlags, Way};
use ferroce_wire::Qpn;

/// Packets that are remembered. Which ones depends on what they are, so that both ends remember the same.
const KEPT: usize = 1 << 14;

/// Sightings of one packet at one machine that are remembered: the first ones. Sequence numbers go round, so what looks
/// like one packet may be several.
const SIGHTINGS: usize = 8;

/// How far pairs may be apart that agree, in nanoseconds: far more than a trip takes, and far less than sequence numbers need
/// to go round.
const AGREE: i64 = 200_000_000;

/// The byte of the base transport header that a network may change.
const CHANGING: usize = 4;

/// What packets say about the clocks of two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// How far the clock of the second is ahead of that of the first, in nanoseconds.
    pub(crate) ahead: i64,
    /// How much that may be wrong by; none if packets went one way only.
    pub(crate) within: Option<u64>,
    /// Packets that were seen at both.
    pub(crate) packets: u64,
}

/// Remembers packets of several machines.
#[derive(Debug)]
pub(crate) struct Aligner {
    ways: HashMap<(usize, Qpn), (IpAddr, IpAddr)>,
    /// Packets by their names.
    seen: HashMap<u64, Vec<Sighting>>,
    /// Names beyond this one are not remembered.
    limit: u64,
    /// A packet whose addresses may follow.
    pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    machine: usize,
    is_out: bool,
    time: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    source: usize,
    packet: Packet,
    sighting: Sighting,
}

/// One packet, seen at both machines: how much later the second says that it was.
#[derive(Clone, Copy, Debug)]
struct Pair {
    name: u64,
    /// When it was seen at the two, by their clocks.
    times: [u64; 2],
    ahead: i64,
    /// Whether it went from the first machine to the second.
    is_there: bool,
}

impl Aligner {
    pub(crate) fn new() -> Self {
        Self { ways: HashMap::new(), seen: HashMap::new(), limit: u64::MAX, pending: None }
    }

    /// Takes an event of a record of a machine; the time is that of the machine. All of a record come one after the other.
    pub(crate) fn take(&mut self, source: usize, machine: usize, time: u64, event: &Event) {
        match event {
            Event::Ends(Ends { qpn, local, remote, .. }) => {
                if let Some(pending) = self.pending.take()
                    && pending.packet.qpn == *qpn
                {
                    self.see(pending, *local, *remote);
                }
            }
            Event::MoreHeaders(_) => {}
            Event::Packet(packet) => {
                self.settle();
                // What was sent again may have left long before it came; what stayed here or was refused tells nothing.
                let odd = PacketFlags::FATE | PacketFlags::LOCAL | PacketFlags::REPEAT | PacketFlags::REFUSED;
                if !packet.flags.intersects(odd) {
                    let is_out = packet.flags.contains(PacketFlags::OUT);
                    let sighting = Sighting { machine, is_out, time };
                    self.pending = Some(Pending { source, packet: *packet, sighting });
                }
            }
            Event::Way(Way { qpn, local, remote, .. }) => {
                self.settle();
                self.ways.insert((source, *qpn), (*local, *remote));
            }
            _ => self.settle(),
        }
    }

    /// The packet before is not a datagram: its addresses are those of its queue pair.
    fn settle(&mut self) {
        if let Some(pending) = self.pending.take()
            && let Some((local, remote)) = self.ways.get(&(pending.source, pending.packet.qpn)).copied()
        {
            self.see(pending, local, remote);
        }
    }

    fn see(&mut self, pending: Pending, local: IpAddr, remote: IpAddr) {
        let mut headers = pending.packet.headers;
        headers[CHANGING] = 0;
        let (from, to) = if pending.sighting.is_out { (local, remote) } else { (remote, local) };
        let mut hasher = DefaultHasher::new();
        (from, to, headers, pending.packet.payload).hash(&mut hasher);
        let name = hasher.finish();
        if name > self.limit {
            return;
        }
        let sightings = self.seen.entry(name).or_default();
        let Sighting { machine, is_out, .. } = pending.sighting;
        let is_same = |known: &&Sighting| known.machine == machine && known.is_out == is_out;
        if sightings.iter().filter(is_same).count() < SIGHTINGS {
            sightings.push(pending.sighting);
        }
        if self.seen.len() > KEPT {
            self.limit /= 2;
            let limit = self.limit;
            self.seen.retain(|name, _| *name <= limit);
        }
    }

    /// How far the clocks of two machines are apart; none if no packet was seen at both. If packets could mean several answers,
    /// the one that is nearest to what the clocks of the wall say is taken.
    pub(crate) fn apart(&mut self, first: usize, second: usize, by_wall: i64) -> Option<Apart> {
        self.settle();
        let mut pairs = self.pairs(first, second);
        pairs.sort_unstable_by_key(|pair| pair.ahead);
        let from = most_agree(&pairs, by_wall)?;
        let near: Vec<Pair> =
            pairs.into_iter().filter(|pair| pair.ahead.abs_diff(from) <= 2 * AGREE.unsigned_abs()).collect();
        // What left twice or came twice may be either.
        let mut uses: HashMap<(u64, usize, u64), u32> = HashMap::new();
        let ends = |pair: &Pair| [0, 1].map(|end| (pair.name, end, pair.times[end]));
        near.iter().flat_map(ends).for_each(|end| *uses.entry(end).or_default() += 1);
        let alone = near.iter().filter(|pair| ends(pair).iter().all(|end| uses.get(end) == Some(&1)));
        let (mut there, mut back, mut packets) = (None, None, 0);
        for pair in alone.filter(|pair| (from..=from.saturating_add(AGREE)).contains(&pair.ahead)) {
            packets += 1;
            let fastest = if pair.is_there { &mut there } else { &mut back };
            let faster: fn(i64, i64) -> i64 = if pair.is_there { i64::min } else { i64::max };
            *fastest = Some(fastest.map_or(pair.ahead, |before| faster(before, pair.ahead)));
        }
        let (ahead, within) = match (there, back) {
            (Some(there), Some(back)) => (back + (there - back) / 2, Some((there - back).unsigned_abs() / 2)),
            (one, other) => (one.or(other)?, None),
        };
        Some(Apart { ahead, within, packets })
    }

    /// All packets that were seen at both machines, with all that each could mean.
    fn pairs(&self, first: usize, second: usize) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (name, sightings) in &self.seen {
            let at = |machine| sightings.iter().filter(move |sighting| sighting.machine == machine);
            for a in at(first) {
                for b in at(second).filter(|b| b.is_out != a.is_out) {
                    let ahead = b.time.wrapping_sub(a.time).cast_signed();
                    let times = [a.time, b.time];
                    pairs.push(Pair { name: *name, times, ahead, is_there: a.is_out });
                }
            }
        }
        pairs
    }
}

/// Where the stretch begins that most of these pairs lie in, in their order.
fn most_agree(pairs: &[Pair], near: i64) -> Option<i64> {
    let (mut end, mut stretches) = (0, Vec::with_capacity(pairs.len()));
    for (begin, pair) in pairs.iter().enumerate() {
        while pairs.get(end).is_some_and(|other| other.ahead.saturating_sub(pair.ahead) <= AGREE) {
            end += 1;
        }
        stretches.push((end - begin, pair.ahead));
    }
    let most = stretches.iter().map(|(count, _)| *count).max()?;
    // As many, but for a few: where packets repeat in a steady rhythm, a whole round off is nearly as likely.
    let likely = stretches.iter().filter(|(count, _)| *count * 10 >= most * 9);
    let (_, chosen) = *likely.min_by_key(|(_, begin)| begin.saturating_sub(near).saturating_abs())?;
    let beside = stretches.iter().filter(|(_, begin)| begin.abs_diff(chosen) <= AGREE.unsigned_abs());
    beside.max_by_key(|(count, _)| *count).map(|(_, begin)| *begin)
}

#[cfg(test)]
mod tests;

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

/// The nanoseconds that a drift is counted over: it is one part in 10^12.
pub(crate) const DRIFT: i64 = 1_000_000_000_000;

/// The most that clocks of machines drift apart: one in two thousand is far more than any does.
const MOST_DRIFT: f64 = DRIFT as f64 / 2_000.0;

/// Stretches of a run that are looked at for drift, and how many of them must have packets of both ways.
const STRETCHES: u64 = 16;
const LEAST: usize = 4;

/// The byte of the base transport header that a network may change.
const CHANGING: usize = 4;

/// What packets say about the clocks of two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// How far the clock of the second is ahead of that of the first, in nanoseconds.
    pub(crate) ahead: i64,
    /// When that is, on the clock of the first.
    pub(crate) at: u64,
    /// By how much more it is ahead after [`DRIFT`] nanoseconds: clocks do not run at one speed.
    pub(crate) drift: i64,
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
        let stretch = from..=from.saturating_add(AGREE);
        let used: Vec<Pair> = alone.filter(|pair| stretch.contains(&pair.ahead)).copied().collect();
        let packets = used.len() as u64;
        let at = used.iter().map(|pair| pair.times[0]).min()?;
        let fastest = Fastest::of(&used);
        let (ahead, within) = match fastest.both() {
            Some((ahead, half)) => (ahead, Some(half.unsigned_abs())),
            None => (fastest.there.or(fastest.back)?.ahead, None),
        };
        let steady = Apart { ahead, at, drift: 0, within, packets };
        Some(drifting(&used, steady).unwrap_or(steady))
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

/// The fastest packets of each way.
#[derive(Clone, Copy, Debug, Default)]
struct Fastest {
    there: Option<Pair>,
    back: Option<Pair>,
}

impl Fastest {
    fn of(pairs: &[Pair]) -> Self {
        let (there, back): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.is_there);
        Self {
            there: there.into_iter().min_by_key(|pair| pair.ahead).copied(),
            back: back.into_iter().max_by_key(|pair| pair.ahead).copied(),
        }
    }

    /// What lies in the middle, and half of what lies between; that is less than nothing if clocks drift.
    fn both(&self) -> Option<(i64, i64)> {
        let (there, back) = (self.there?.ahead, self.back?.ahead);
        Some((back + (there - back) / 2, (there - back) / 2))
    }
}

/// How far the clocks are apart if they drift; none if that cannot be told from trips that differ.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "far below 2^52 nanoseconds"
)]
fn drifting(pairs: &[Pair], steady: Apart) -> Option<Apart> {
    let last = pairs.iter().map(|pair| pair.times[0]).max()?;
    let length = (last - steady.at) / STRETCHES + 1;
    let mut stretches: Vec<Vec<Pair>> = vec![Vec::new(); usize::try_from(STRETCHES).ok()?];
    for pair in pairs {
        stretches[usize::try_from((pair.times[0] - steady.at) / length).ok()?].push(*pair);
    }
    // Where each stretch says that the clocks were.
    let point = |pairs: &Vec<Pair>| {
        let fastest = Fastest::of(pairs);
        let (ahead, half) = fastest.both()?;
        let time = |pair: Pair| (pair.times[0] - steady.at) as f64;
        let (there, back) = (time(fastest.there?), time(fastest.back?));
        let (ahead, wrong) = ((ahead - steady.ahead) as f64, half.abs() as f64);
        Some(Point { time: f64::midpoint(there, back), ahead, wrong, between: (there - back).abs() })
    };
    let mut points: Vec<Point> = stretches.iter().filter_map(point).collect();
    // Where packets were lost, even the fastest were slow: that stretch tells nothing.
    points.sort_by(|a, b| a.wrong.total_cmp(&b.wrong));
    let usual = points.get(points.len() / 2)?.wrong;
    points.retain(|point| point.wrong <= 4.0 * usual);
    points.sort_by(|a, b| a.time.total_cmp(&b.time));
    if points.len() < LEAST {
        return None;
    }
    // The line that is nearest to all of them.
    let count = points.len() as f64;
    let mean = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (time, ahead) = (mean(|point| point.time), mean(|point| point.ahead));
    let spread: f64 = points.iter().map(|point| (point.time - time).powi(2)).sum();
    let slope = points.iter().map(|point| (point.time - time) * (point.ahead - ahead)).sum::<f64>() / spread;
    let worst = points.iter().map(|point| point.wrong).fold(0.0, f64::max);
    let (run, drift) = ((last - steady.at) as f64, slope * DRIFT as f64);
    // Trips that differ may look like a slope of three times what each point may be wrong by, and no more.
    let is_clear = (slope * run).abs() > 3.0 * worst;
    if !is_clear || !drift.is_finite() || drift.abs() > MOST_DRIFT {
        return None;
    }
    let off = |point: &Point| {
        let line = ahead + slope * (point.time - time);
        (line - point.ahead).abs() + point.wrong + slope.abs() * point.between / 2.0
    };
    // Before the first point and behind the last it may be wrong by more.
    let known = points.last()?.time - points.first()?.time;
    let within = points.iter().map(off).fold(0.0, f64::max) * run / known;
    let start = steady.ahead + (ahead - slope * time).round() as i64;
    #[expect(clippy::cast_sign_loss, reason = "it is a sum of absolute values")]
    Some(Apart { ahead: start, drift: drift.round() as i64, within: Some(within.ceil() as u64), ..steady })
}

/// What a stretch of a run says.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// When it says so, in nanoseconds since the beginning.
    time: f64,
    /// How far the clocks were apart, beside the steady answer.
    ahead: f64,
    /// How much that may be wrong by.
    wrong: f64,
    /// The time between the packets that say so: clocks drift in it, too.
    between: f64,
}

#[cfg(test)]
mod tests;

//! Middleware: seeded faults.
//!
//! A network loses, doubles, delays and damages packets, but seldom when one looks. [`Faults`] does it
//! on purpose, to everything that is sent, and the same seed does the same to the same packets.

mod plan;

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::RawFd;

use ferroce_wire::MAX_PACKET_LEN;
use plan::Fate;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::{Fabric, Harm, Inbox, Outbox, PortRefusal, Route, Run, Sent, Tiding, Toward};
pub use plan::{FaultPlan, FaultPlanError};

/// A fabric that does harm to what is sent through it.
///
/// A held packet leaves after 1 to 8 steps. A step is a later packet, a call of `send` without
/// packets, or a call of `receive`, so nothing is held for longer than 8 calls. With an empty plan
/// everything goes straight through.
#[derive(Debug)]
pub struct Faults<F> {
    way: Way<F>,
    plan: FaultPlan,
    dice: ChaCha8Rng,
    held: [Held; MAX_STEPS],
    /// Of the packets that are being sent.
    fates: Vec<Fate>,
    counts: FaultCounts,
    /// What is to be told, if it is to be.
    harm: Option<Vec<Harmed>>,
}

/// What was done to a packet, and its first bytes.
#[derive(Clone, Copy, Debug)]
struct Harmed {
    harm: Harm,
    bytes: [u8; HEADERS],
    kept: usize,
    len: usize,
}

/// Bytes of a packet that are kept to tell of it: no transport headers are longer.
const HEADERS: usize = 96;

/// Packets that are kept to be told of; of more it is not told.
const MOST_HARMED: usize = 4096;

impl Harmed {
    fn new(fate: &Fate, packet: &[u8]) -> Self {
        let harm = Harm {
            lost: fate.lost,
            twice: fate.twice && !fate.lost,
            held: fate.held.is_some() && !fate.lost,
            damaged: fate.flipped.is_some() && !fate.lost,
        };
        let (mut bytes, kept) = ([0; HEADERS], packet.len().min(HEADERS));
        bytes[..kept].copy_from_slice(&packet[..kept]);
        Self { harm, bytes, kept, len: packet.len() }
    }
}

/// What was done to packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Thrown away.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back while others went on.
    pub reordered: u64,
    /// Sent with one bit flipped.
    pub corrupted: u64,
}

/// Steps that a packet is held at most. At most one packet is held with each step, so this is also how
/// many are held at once.
const MAX_STEPS: usize = 8;

impl<F: Fabric> Faults<F> {
    /// Does what `plan` says to packets on their way to `inner`.
    #[must_use]
    pub fn new(plan: FaultPlan, inner: F) -> Self {
        Self {
            way: Way { inner, outbox: Outbox::new(Way::<F>::BYTES, Way::<F>::RUNS), sent: Sent::default() },
            plan,
            dice: ChaCha8Rng::seed_from_u64(plan.seed),
            held: std::array::from_fn(|_| Held::new()),
            fates: Vec::new(),
            counts: FaultCounts::default(),
            harm: None,
        }
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// The fabric behind it.
    #[must_use]
    pub const fn inner(&self) -> &F {
        &self.way.inner
    }

    /// Sends at once what is still held, for a caller that is about to stop calling.
    pub fn flush(&mut self) -> Sent {
        for held in &mut self.held {
            held.release(&mut self.way);
        }
        self.way.send();
        mem::take(&mut self.way.sent)
    }

    /// Does to one packet what was decided.
    fn pass(&mut self, fate: Fate, run: &Run, place: usize, packet: &[u8]) {
        if fate.lost {
            self.counts.lost += 1;
            // As on a real network, where the sender does not see it either.
            self.way.sent.packets += 1;
            return self.step();
        }
        let held = fate.held.filter(|_| packet.len() <= MAX_PACKET_LEN);
        let copies = 1 + u32::from(fate.twice);
        self.counts.corrupted += u64::from(fate.flipped.is_some());
        self.counts.duplicated += u64::from(fate.twice);
        self.counts.reordered += u64::from(held.is_some());
        for _ in u32::from(held.is_some())..copies {
            self.way.put((&run.route, run.slot), place, packet, fate.flipped);
        }
        self.step();
        if let Some(steps) = held {
            match self.held.iter_mut().find(|held| held.steps == 0) {
                Some(free) => free.hold(run, place, packet, fate.flipped, steps),
                None => self.way.put((&run.route, run.slot), place, packet, fate.flipped),
            }
        }
    }

    /// Sends packets of which some are lost, and nothing else happens to any: they need not be copied.
    fn send_thinned(&mut self, outbox: &mut Outbox) -> Sent {
        let mut fates = self.fates.iter();
        let mut lost = 0;
        let is_lost = || {
            let is_lost = fates.next().is_some_and(|fate| fate.lost);
            lost += u64::from(is_lost);
            is_lost
        };
        outbox.lose(is_lost, reseal);
        self.counts.lost += lost;
        let mut sent = mem::take(&mut self.way.sent);
        // As on a real network, where the sender does not see it either.
        sent.packets += lost;
        if !outbox.is_empty() {
            sent.add(self.way.inner.send(outbox));
        }
        outbox.clear();
        sent
    }

    /// Brings everything that is held one step nearer to its leaving.
    fn step(&mut self) {
        for held in &mut self.held {
            match held.steps {
                0 => {}
                1 => held.release(&mut self.way),
                _ => held.steps -= 1,
            }
        }
    }
}

impl<F: Fabric> Fabric for Faults<F> {
    /// Each packet of a run has a fate of its own; those that go on unharmed still go together.
    fn coalesces(&self) -> bool {
        self.way.inner.coalesces()
    }

    fn run_limits(&self) -> (usize, usize) {
        self.way.inner.run_limits()
    }

    fn source_port(&mut self, wanted: u16, local: IpAddr) -> u16 {
        self.way.inner.source_port(wanted, local)
    }

    fn require_port(&mut self, wanted: u16, local: IpAddr) -> Result<(), PortRefusal> {
        self.way.inner.require_port(wanted, local)
    }

    /// What is held counts as sent when it leaves, a lost packet at once, a double twice.
    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        if self.plan.is_empty() {
            return self.way.inner.send(outbox);
        }
        if outbox.is_empty() {
            self.step();
        }
        let Self { fates, dice, plan, harm, .. } = self;
        fates.clear();
        for run in outbox.runs() {
            for packet in outbox.packets(run) {
                let fate = Fate::draw(dice, plan, packet.len());
                if let Some(harm) = harm.as_mut().filter(|harm| !fate.is_none() && harm.len() < MOST_HARMED) {
                    harm.push(Harmed::new(&fate, packet));
                }
                fates.push(fate);
            }
        }
        let nothing_waits = self.way.outbox.is_empty() && self.held.iter().all(|held| held.steps == 0);
        if nothing_waits && self.fates.iter().all(|fate| fate.lost || fate.is_none()) {
            return self.send_thinned(outbox);
        }
        let fates = mem::take(&mut self.fates);
        let mut next = fates.iter();
        for run in outbox.runs() {
            for ((place, packet), fate) in outbox.packets(run).enumerate().zip(&mut next) {
                self.pass(*fate, run, place, packet);
            }
        }
        self.fates = fates;
        outbox.clear();
        self.way.send();
        mem::take(&mut self.way.sent)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.step();
        if !self.way.outbox.is_empty() {
            // What became of it is told with the next `send`.
            self.way.send();
        }
        self.way.inner.receive(inbox)
    }

    fn show_marks(&mut self) {
        self.way.inner.show_marks();
    }

    fn follow(&mut self) -> io::Result<()> {
        self.way.inner.follow()
    }

    fn watch_harm(&mut self, on: bool) {
        self.harm = on.then(|| Vec::with_capacity(MOST_HARMED));
    }

    fn harm(&mut self, tell: &mut dyn FnMut(Harm, &[u8], usize)) {
        for Harmed { harm, bytes, kept, len } in self.harm.iter_mut().flat_map(|harm| harm.drain(..)) {
            tell(harm, &bytes[..kept], len);
        }
    }

    fn tidings(&mut self, tell: &mut dyn FnMut(Tiding<'_>)) {
        self.way.inner.tidings(tell);
    }

    fn dropped(&self) -> u64 {
        self.way.inner.dropped()
    }

    fn overflowed(&self) -> u64 {
        self.way.inner.overflowed()
    }

    fn holds_packets(&self) -> bool {
        self.held.iter().any(|held| held.steps > 0) || self.way.inner.holds_packets()
    }

    fn descriptors(&self) -> &[RawFd] {
        self.way.inner.descriptors()
    }
}

/// The way on to the fabric behind.
#[derive(Debug)]
struct Way<F> {
    inner: F,
    outbox: Outbox,
    /// What was not told to the caller yet.
    sent: Sent,
}

impl<F: Fabric> Way<F> {
    /// Enough for what one call usually brings; more is sent in several parts.
    const BYTES: usize = 512 * 1024;
    const RUNS: usize = 256;

    /// `place` is the one that the packet was sealed for.
    fn put(&mut self, (route, slot): (&Route, u8), place: usize, packet: &[u8], flipped: Option<usize>) {
        if self.outbox.room(packet.len()).is_none() {
            self.send();
        }
        // The answer that the engine got is good for one `send` of the fabric behind, and this
        // may be a later one. Most often it is the same again.
        if self.inner.source_port(route.source_port, route.local) != route.source_port {
            self.sent.no_room += 1;
            return;
        }
        let limits = if self.inner.coalesces() { self.inner.run_limits() } else { (1, usize::MAX) };
        // Where a run began, others may follow that are no longer than this one.
        let to = Toward { route, slot, is_known: false };
        let now_at = self.outbox.place(to, packet.len(), place == 0, limits);
        let Some(room) = self.outbox.room(packet.len()) else {
            self.sent.too_long += 1;
            return;
        };
        room.copy_from_slice(packet);
        // Those behind a packet that is missing move up in their run, and the ICRC covers where they stand in
        // it.
        if now_at != place {
            reseal(route, now_at, room);
        }
        flip(room, flipped);
        self.outbox.commit(to, packet.len(), now_at);
    }

    fn send(&mut self) {
        self.sent.add(self.inner.send(&mut self.outbox));
    }
}

/// Room for a packet that is held back.
#[derive(Debug)]
struct Held {
    /// Steps until it leaves; 0 if the place is free.
    steps: u8,
    route: Route,
    slot: u8,
    /// Where it stood in its run.
    place: usize,
    len: usize,
    /// Which bit is flipped when it leaves.
    flipped: Option<usize>,
    bytes: Box<[u8]>,
}

impl Held {
    fn new() -> Self {
        let nowhere = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let route = Route {
            local: nowhere,
            remote: nowhere,
            source_port: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        Self {
            steps: 0,
            route,
            slot: 0,
            place: 0,
            len: 0,
            flipped: None,
            bytes: vec![0; MAX_PACKET_LEN].into(),
        }
    }

    /// Takes a packet of at most [`MAX_PACKET_LEN`] bytes.
    fn hold(&mut self, run: &Run, place: usize, packet: &[u8], flipped: Option<usize>, steps: u8) {
        (self.steps, self.route, self.slot) = (steps, run.route, run.slot);
        (self.place, self.len, self.flipped) = (place, packet.len(), flipped);
        self.bytes[..packet.len()].copy_from_slice(packet);
    }

    fn release<F: Fabric>(&mut self, way: &mut Way<F>) {
        if self.steps > 0 {
            self.steps = 0;
            way.put((&self.route, self.slot), self.place, &self.bytes[..self.len], self.flipped);
        }
    }
}

/// Seals a packet for another place in its run.
fn reseal(route: &Route, place: usize, packet: &mut [u8]) {
    if let Some(flow) = route.flow() {
        // Cannot fail: it was sealed before.
        let _ = flow.seal(packet, u16::try_from(place).unwrap_or(0));
    }
}

/// Flips this bit, if any.
fn flip(packet: &mut [u8], bit: Option<usize>) {
    if let Some(bit) = bit
        && let Some(byte) = packet.get_mut(bit / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
}

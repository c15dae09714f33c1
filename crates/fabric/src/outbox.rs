//! Packets on their way out.

use super::Route;

/// Sealed packets, in runs that may leave with one system call each.
///
/// A run is a stretch of packets to one route, all of the same length but the last, which may be
/// shorter. In a run, packet `i` is sealed for the IPv4 identification `i`, which is what the
/// network stack gives it when it cuts the run apart.
#[derive(Debug)]
pub struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
}

/// Packets that make a run which is worth a system call of its own.
const LONG: usize = 4;

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub struct Toward<'a> {
    /// The way.
    pub route: &'a Route,
    /// The slot of the queue pair that it is for.
    pub slot: u8,
    /// The last packet in the outbox, if there is any, goes there too: nothing has to be compared.
    pub is_known: bool,
}

/// A run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it goes.
    pub route: Route,
    /// First byte in the outbox.
    pub start: usize,
    /// Bytes of all packets together.
    pub len: usize,
    /// Bytes of each packet but the last.
    pub segment: usize,
    /// Packets.
    pub packets: usize,
    /// The slot of the queue pairs that they are for. The kernel steers a run by its first packet.
    pub slot: u8,
    /// What the engine calls this run, which is one packet then, if it wants to know when it left.
    pub stamp: Option<u32>,
}

impl Outbox {
    /// An outbox for this many bytes and runs.
    #[must_use]
    pub fn new(bytes: usize, runs: usize) -> Self {
        Self { bytes: vec![0; bytes].into(), used: 0, runs: Vec::with_capacity(runs) }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, in the order in which they were begun.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of a run.
    #[must_use]
    pub fn bytes(&self, run: &Run) -> &[u8] {
        &self.bytes[run.start..run.start + run.len]
    }

    /// The packets of a run, each with its place in it.
    pub fn packets<'a>(&'a self, run: &Run) -> impl Iterator<Item = &'a [u8]> {
        self.bytes(run).chunks(run.segment.max(1))
    }

    /// Whether there is [`room`](Self::room) for so many bytes.
    #[must_use]
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        self.runs.len() < self.runs.capacity() && self.used + len <= self.bytes.len()
    }

    /// Room for one more packet of up to `len` bytes; `None` if the outbox must be sent first.
    #[inline]
    pub fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.runs.len() == self.runs.capacity() {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + len)
    }

    /// Whether a run of packets of `len` bytes would have to stop for want of room.
    #[must_use]
    #[inline]
    pub fn would_cut_short(&self, len: usize, limits: (usize, usize)) -> bool {
        let packets = limits.0.min(limits.1 / len.max(1));
        self.used + packets * len > self.bytes.len()
    }

    /// The place in its run that a packet of `len` bytes to this slot behind `route` will have: 0 begins a
    /// new run. `more` says that others of this length follow: if it is shorter than those before it, none of
    /// them could join the run, and so it had better begin one, unless the run is long as it is.
    #[must_use]
    #[inline]
    pub fn place(&self, to: Toward<'_>, len: usize, more: bool, limits: (usize, usize)) -> usize {
        match self.runs.last() {
            Some(run)
                if run.stamp.is_none()
                    && (to.is_known || (run.route == *to.route && run.slot == to.slot))
                    && len <= run.segment
                    && run.len == run.segment * run.packets
                    && !(more && len < run.segment && run.packets < LONG)
                    && run.packets < limits.0
                    && run.len + len <= limits.1 =>
            {
                run.packets
            }
            _ => 0,
        }
    }

    /// Takes the packet that was written into [`room`](Self::room), at its [`place`](Self::place).
    #[inline]
    pub fn commit(&mut self, to: Toward<'_>, len: usize, place: usize) {
        match self.runs.last_mut() {
            Some(run) if place > 0 => {
                run.len += len;
                run.packets += 1;
            }
            _ => {
                let (route, slot) = (*to.route, to.slot);
                self.runs.push(Run {
                    route,
                    start: self.used,
                    len,
                    segment: len,
                    packets: 1,
                    slot,
                    stamp: None,
                });
            }
        }
        self.used += len;
    }

    /// Room for a run of so many bytes, if nothing waits.
    #[inline]
    pub fn room_alone(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.runs.is_empty() { self.bytes.get_mut(..len) } else { None }
    }

    /// Takes the run that was written into [`room_alone`](Self::room_alone): so many packets of `len` bytes together, the first
    /// of which has `segment`.
    #[inline]
    pub fn commit_alone(&mut self, to: Toward<'_>, (segment, len): (usize, usize), packets: usize) {
        let (route, slot) = (*to.route, to.slot);
        self.runs.push(Run { route, start: 0, len, segment, packets, slot, stamp: None });
        self.used = len;
    }

    /// Takes the packet that was written into [`room`](Self::room) as a run of its own; when it left will be told
    /// under this name.
    pub fn commit_stamped(&mut self, to: Toward<'_>, len: usize, ticket: u32) {
        let (route, slot) = (*to.route, to.slot);
        let stamp = Some(ticket);
        self.runs.push(Run { route, start: self.used, len, segment: len, packets: 1, slot, stamp });
        self.used += len;
    }

    /// Takes packets out. `is_lost` is asked about each of them, in order. Those behind one that is taken out
    /// move up in their run, and `moved` is given each of them with its new place: it has to be sealed for
    /// that.
    pub(super) fn lose(
        &mut self,
        mut is_lost: impl FnMut() -> bool,
        mut moved: impl FnMut(&Route, usize, &mut [u8]),
    ) {
        let Self { bytes, runs, .. } = self;
        runs.retain_mut(|run| {
            let bytes = &mut bytes[run.start..run.start + run.len];
            let (segment, count) = (run.segment, run.packets);
            (run.len, run.packets) = (0, 0);
            for place in 0..count {
                let from = place * segment..((place + 1) * segment).min(bytes.len());
                if is_lost() {
                    continue;
                }
                let len = from.len();
                if run.packets < place {
                    bytes.copy_within(from, run.len);
                    moved(&run.route, run.packets, &mut bytes[run.len..run.len + len]);
                }
                run.len += len;
                run.packets += 1;
            }
            // The only one that is left may be the short one at the end.
            run.segment = segment.min(run.len);
            run.packets > 0
        });
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

//! What an engine hands to other processes of this machine through memory, and where they call it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce_lane::{Caller, Consumer, Line, Producer};
use ferroce_sys::descriptor::signal;
use ferroce_sys::fork::Tracked;
use ferroce_transport::{Time, sooner};

/// Bytes of packets after which the other process is shown what there is, although more is about to follow: it works on them
/// meanwhile, and they are still in the cache.
const SHOWN: usize = 16 << 10;

/// Bytes that must be free in a ring for a packet of a connection that no window holds back: the others need room, too.
pub(super) const SPARE: usize = 32 << 10;

/// The same for all others: the longest packet, and as much that is left out before it at the end of the ring.
pub(super) const ONE: usize = 2 * (ferroce_wire::MAX_PACKET_LEN + LINE + 16);

/// How long connections wait for room until they look again.
const LOOK: Duration = Duration::from_micros(50);

/// How long they wait for a process that takes nothing out, until what they send is lost.
const STUCK: Duration = Duration::from_millis(100);

/// A longer pause between two looks for room is not the other process's: this one had no processor.
const AWAY: Duration = Duration::from_millis(5);

/// How long a lane is idle until its memory is given back to the system.
const IDLE: Duration = Duration::from_secs(10);

/// The kind of a record that is a packet, whose ICRC is not computed. With so much more, so many bytes are left out between its
/// headers and its payload, less than [`LINE`].
pub(super) const PACKET: u8 = 64;

/// Bytes of a cache line: where a long payload begins, so that it is copied as fast as it can be.
pub(super) const LINE: usize = 64;

/// From so many bytes on a payload is long.
const LONG: usize = 1024;

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slots([u64; 4]);

impl Slots {
    fn add(&mut self, slot: u8) {
        self.0[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    #[inline]
    fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn pop(&mut self) -> Option<u8> {
        let (index, word) = (0_u8..).zip(&mut self.0).find(|(_, word)| **word != 0)?;
        let bit = u8::try_from(word.trailing_zeros()).unwrap_or(0);
        *word &= *word - 1;
        Some(index * 64 + bit)
    }
}

/// What wakes the owner of a line.
#[derive(Debug)]
pub(crate) enum Bell {
    /// It came from another process.
    Theirs(Tracked),
    /// The owner is an engine of this process.
    Ours(OwnedFd),
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Theirs(bell) => bell.as_fd(),
            Self::Ours(bell) => bell.as_fd(),
        }
    }
}

/// An engine of another process, or of this one, that has memory in common with this engine.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// Its slot.
    pub(crate) slot: u8,
    /// What tells it from other owners of the slot; in this process nothing needs to.
    pub(crate) incarnation: u64,
    /// What goes there.
    producer: Producer,
    /// What comes from there. It is taken out while its records are taken in.
    consumer: Option<Box<Consumer>>,
    caller: Caller,
    bell: Bell,
    /// Bytes of packets that it has not been shown.
    hidden: usize,
    /// It stands in the list of those that are to be shown something.
    is_listed: bool,
    /// Since when connections have found no room, and when they looked last.
    stuck: Option<(Time, Time)>,
    /// When something was shown last, if the ring may have memory.
    warm_since: Option<Time>,
    /// For the threads outside: the lanes were given up, as one of them was broken.
    given_up: Arc<AtomicBool>,
}

impl Neighbour {
    pub(crate) fn new(
        (slot, incarnation): (u8, u64),
        (producer, consumer): (Producer, Consumer),
        (caller, bell): (Caller, Bell),
    ) -> Self {
        let consumer = Some(Box::new(consumer));
        let (hidden, is_listed) = (0, false);
        let (stuck, warm_since) = (None, None);
        let given_up = Arc::default();
        Self {
            slot,
            incarnation,
            producer,
            consumer,
            caller,
            bell,
            hidden,
            is_listed,
            stuck,
            warm_since,
            given_up,
        }
    }

    /// What says to threads outside that the lanes were given up.
    pub(crate) fn broken_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.given_up)
    }

    /// A lane was found broken: both are given up.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Room for a packet of so many bytes. [`Lanes::added`] has to follow, or nothing is left there.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        self.producer.room(len)
    }

    /// The same for a packet with so many bytes of headers and so many of payload; with it comes how many bytes are to be left out
    /// between them.
    #[inline]
    pub(super) fn room_for(&mut self, len: usize, headers: usize, payload: usize) -> Option<(u8, &mut [u8])> {
        if payload < LONG {
            return Some((0, self.producer.room(len)?));
        }
        let room = self.producer.room(len + LINE - 1)?;
        let gap = (room.as_ptr().addr() + headers).wrapping_neg() % LINE;
        #[expect(clippy::cast_possible_truncation, reason = "less than a line")]
        let told = gap as u8;
        Some((told, &mut room[..len + gap]))
    }

    /// Whether the other process has broken the rules in what it says of the packets that go there.
    pub(super) const fn is_broken(&self) -> bool {
        self.producer.is_broken()
    }

    /// Shows what there is, and calls.
    fn show(&mut self, own: u8, now: Time) {
        self.hidden = 0;
        self.warm_since = Some(now);
        if self.producer.publish() && self.caller.call(own) {
            signal(self.bell.as_fd());
        }
    }
}

/// The lanes of an engine, and the line on which it is called.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The slot of the engine.
    own: u8,
    line: Option<Line>,
    /// The line says that the engine sleeps.
    asleep: bool,
    /// Calls were taken since the line said so: the callers need to be told once more.
    heard: bool,
    /// By slot. Empty, as long as there never was one.
    neighbours: Vec<Option<Box<Neighbour>>>,
    count: usize,
    /// Lanes to be looked at although their owners may not have called.
    pending: Slots,
    /// The lane that had something last.
    last: Option<u8>,
    /// The lane whose calls are left alone: while threads poll it is looked into each time.
    kept: Option<u8>,
    /// Those that are to be shown something.
    listed: Vec<u8>,
    /// Queue pairs without a window that wait for room, and when to look again.
    waiting: Vec<u16>,
    look_at: Option<Time>,
    /// The time of the turn.
    now: Time,
    /// When to see whether lanes are idle.
    cools_at: Option<Time>,
    /// A packet that is looked at from all sides: a copy, so that it does not change meanwhile.
    pub(super) copy: Box<[u8]>,
}

impl Lanes {
    pub(crate) fn new(own: u8) -> Self {
        Self {
            own,
            line: None,
            asleep: false,
            heard: false,
            neighbours: Vec::new(),
            count: 0,
            pending: Slots([0; 4]),
            last: None,
            kept: None,
            listed: Vec::new(),
            waiting: Vec::new(),
            look_at: None,
            now: Time::ZERO,
            cools_at: None,
            copy: Box::new([]),
        }
    }

    /// Others call here from now on.
    pub(super) fn set_line(&mut self, line: Line) {
        self.line = Some(line);
        (self.asleep, self.heard) = (false, false);
    }

    /// There is a neighbour from now on, in place of an earlier owner of its slot.
    pub(super) fn add(&mut self, neighbour: Box<Neighbour>) {
        if self.neighbours.is_empty() {
            self.neighbours.resize_with(256, || None);
            self.copy = vec![0; ferroce_wire::MAX_PACKET_LEN + LINE].into();
        }
        let slot = neighbour.slot;
        // It may have called before this line was looked at.
        self.pending.add(slot);
        let before = self.neighbours[usize::from(slot)].replace(neighbour);
        self.count += usize::from(before.is_none());
    }

    /// There is none any more, if it is this one.
    pub(super) fn remove(&mut self, slot: u8, incarnation: u64) -> bool {
        let Some(place) = self.neighbours.get_mut(usize::from(slot)) else { return false };
        let removed = place.take_if(|neighbour| neighbour.incarnation == incarnation).is_some();
        self.count -= usize::from(removed);
        if removed && self.kept == Some(slot) {
            self.keep_none();
        }
        if removed && self.last == Some(slot) {
            self.last = None;
        }
        if self.count == 0 {
            // Nothing is left to be looked after.
            self.cools_at = None;
        }
        removed
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) const fn has_any(&self) -> bool {
        self.count > 0
    }

    #[inline]
    pub(super) fn get(&mut self, slot: u8) -> Option<&mut Neighbour> {
        self.neighbours.get_mut(usize::from(slot))?.as_deref_mut()
    }

    /// A packet of so many bytes was put where there was room for it, with so many more left out in it.
    #[inline]
    pub(super) fn added(&mut self, slot: u8, len: usize, gap: u8) {
        let Some(neighbour) = self.neighbours.get_mut(usize::from(slot)).and_then(Option::as_deref_mut)
        else {
            return;
        };
        neighbour.producer.commit(PACKET + gap, usize::from(gap) + len);
        neighbour.hidden += len;
        neighbour.stuck = None;
        if neighbour.hidden >= SHOWN {
            neighbour.show(self.own, self.now);
        } else if !neighbour.is_listed {
            neighbour.is_listed = true;
            self.listed.push(slot);
        }
    }

    /// Shows everybody what was added, and calls.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if !self.listed.is_empty() {
            self.flush_listed();
        }
    }

    #[inline]
    fn flush_listed(&mut self) {
        while let Some(slot) = self.listed.pop() {
            let (own, now) = (self.own, self.now);
            if let Some(neighbour) = self.get(slot) {
                neighbour.is_listed = false;
                neighbour.show(own, now);
            }
            self.cools_at.get_or_insert(now + IDLE);
        }
    }

    /// A turn begins: gives the memory of lanes back that were idle for long.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Time) {
        self.now = now;
        if self.cools_at.is_some_and(|time| time <= now) {
            self.cool();
        }
    }

    #[cold]
    fn cool(&mut self) {
        let now = self.now;
        self.cools_at = None;
        for neighbour in self.neighbours.iter_mut().flatten() {
            let Some(since) = neighbour.warm_since else { continue };
            let has_rested = now.since(since) >= IDLE;
            // The system may keep the memory; then it is asked no more until the lane was used again.
            let is_cold = has_rested && neighbour.producer.give_pages_back().unwrap_or(true);
            let next = if is_cold {
                neighbour.warm_since = None;
                continue;
            } else if has_rested {
                now + IDLE
            } else {
                since + IDLE
            };
            self.cools_at = Some(self.cools_at.map_or(next, |first| first.min(next)));
        }
    }

    /// Whether a lane is to be looked at.
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        // All that those pay that have none.
        self.has_any() && self.has_been_called()
    }

    #[inline]
    fn has_been_called(&self) -> bool {
        self.line.as_ref().is_some_and(Line::is_called)
            || self.kept_has_more()
            || !self.pending.is_empty()
            || !self.waiting.is_empty()
    }

    /// Whether there is something in the lane whose calls are left alone.
    #[inline]
    fn kept_has_more(&self) -> bool {
        let neighbour = self.kept.and_then(|slot| self.neighbours[usize::from(slot)].as_deref());
        neighbour.and_then(|neighbour| neighbour.consumer.as_deref()).is_some_and(Consumer::has_more)
    }

    fn keep_none(&mut self) {
        self.kept = None;
        if let Some(line) = &mut self.line {
            line.keep_none();
        }
    }

    /// Takes the calls.
    #[inline]
    pub(super) fn hear(&mut self) {
        if let Some(kept) = self.kept {
            self.pending.add(kept);
        }
        let Some(line) = self.line.as_mut().filter(|line| line.is_called()) else { return };
        for slot in line.take() {
            self.pending.add(slot);
            self.heard = true;
        }
    }

    /// There was something in a lane: as long as threads poll, it is looked into each time, without being called.
    #[inline]
    pub(super) const fn has_had(&mut self, slot: u8) {
        self.last = Some(slot);
    }

    /// The next lane to look at.
    #[inline]
    pub(super) fn next_called(&mut self) -> Option<u8> {
        self.pending.pop()
    }

    /// Has a lane looked at, although its owner has not called.
    pub(super) fn look_into(&mut self, slot: u8) {
        self.pending.add(slot);
    }

    /// Takes a consumer out, to take in its records.
    pub(super) fn take_out(&mut self, slot: u8) -> Option<Box<Consumer>> {
        self.get(slot)?.consumer.take()
    }

    /// Puts it back; there may be another neighbour by now. Whether there is more in it.
    pub(super) fn put_back(&mut self, slot: u8, consumer: Box<Consumer>, more: bool) {
        if let Some(neighbour) = self.get(slot).filter(|neighbour| neighbour.consumer.is_none()) {
            neighbour.consumer = Some(consumer);
            if more {
                self.pending.add(slot);
            }
        }
    }

    /// What tells this neighbour from other owners of its slot.
    pub(super) fn incarnation(&mut self, slot: u8) -> Option<u64> {
        self.get(slot).map(|neighbour| neighbour.incarnation)
    }

    /// At the end of a turn: says whether the engine sleeps now, so that others know whether they have to wake it. Whether one of
    /// them has called by then: it has to be turned again.
    #[inline]
    pub(super) fn settle(&mut self, sleeps: bool) -> bool {
        let Some(line) = &mut self.line else { return false };
        if !sleeps {
            if std::mem::take(&mut self.asleep) {
                line.awake();
            }
            if self.last != self.kept
                && let Some(slot) = self.last
            {
                line.keep(slot);
                self.kept = Some(slot);
            }
            return false;
        }
        if self.kept.take().is_some() {
            line.keep_none();
        }
        if self.asleep && !self.heard {
            return !self.pending.is_empty();
        }
        (self.asleep, self.heard) = (true, false);
        line.going_to_sleep() || !self.pending.is_empty()
    }

    /// Whether a connection may send a packet this way now, for which so many bytes have to be free. If not, it waits.
    #[inline]
    pub(super) fn lets_through(&mut self, slot: u8, index: u16, needed: usize, now: Time) -> bool {
        let Some(neighbour) = self.get(slot) else { return true };
        if neighbour.producer.has_free(needed) {
            neighbour.stuck = None;
            return true;
        }
        self.waits_for_room(slot, index, now)
    }

    #[cold]
    fn waits_for_room(&mut self, slot: u8, index: u16, now: Time) -> bool {
        let Some(neighbour) = self.get(slot).filter(|neighbour| !neighbour.is_broken()) else { return true };
        // A pause between two looks is our own.
        let before = neighbour.stuck.filter(|(_, looked)| now.since(*looked) < AWAY);
        let since = before.map_or(now, |(since, _)| since);
        neighbour.stuck = Some((since, now));
        if now.since(since) >= STUCK {
            return true;
        }
        // What it waits for has to be seen to be taken out.
        let own = self.own;
        if let Some(neighbour) = self.get(slot) {
            neighbour.show(own, now);
        }
        if !self.waiting.contains(&index) {
            self.waiting.push(index);
        }
        self.look_at = Some(now + LOOK);
        false
    }

    /// The queue pairs that wait for room, if there may be some by now.
    pub(super) fn take_waiting(&mut self) -> Vec<u16> {
        self.look_at = None;
        let mut waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            // Another one goes first each time.
            waiting.rotate_left(1);
        }
        waiting
    }

    /// Whether queue pairs wait for room.
    #[inline]
    pub(super) const fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When to look for room again, or whether lanes are idle.
    #[inline(always)]
    pub(super) fn look_at(&self) -> Option<Time> {
        if self.has_any() { sooner(self.look_at, self.cools_at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use ferroce_lane::{LaneFile, LineFile};
    use ferroce_sys::descriptor::EventFd;

    use super::*;

    #[test]
    fn an_idle_lane_has_no_memory_and_is_used_again() {
        let (lane, line) = (LaneFile::create().unwrap(), LineFile::create().unwrap());
        let file = File::from(lane.as_fd().try_clone_to_owned().unwrap());
        let blocks = || file.metadata().unwrap().blocks();
        let bell = EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap();
        let mut lanes = Lanes::new(7);
        let neighbour = Neighbour::new((7, 0), lane.split(), (line.caller(), Bell::Ours(bell)));
        lanes.set_line(line.into_line());
        lanes.add(Box::new(neighbour));
        let mut now = Time::from_nanos(1_000_000_000);
        // What there is before anything was sent: the words of both sides.
        let words = blocks();
        for _ in 0..3 {
            lanes.begin_turn(now);
            for _ in 0..5 {
                assert!(lanes.get(7).unwrap().room(4000).is_some());
                lanes.added(7, 4000, 0);
            }
            lanes.flush();
            assert!(blocks() > words + 30, "{} blocks", blocks());
            assert_eq!(lanes.look_at(), Some(now + IDLE));
            lanes.begin_turn(now + IDLE);
            assert!(blocks() > words + 30, "it is not empty");
            let mut consumer = lanes.take_out(7).unwrap();
            assert!(consumer.look());
            while consumer.next().is_some() {}
            consumer.release();
            lanes.put_back(7, consumer, false);
            now = now + IDLE + IDLE;
            lanes.begin_turn(now);
            assert!(blocks() <= words + 8, "{} blocks are left of {words}", blocks());
            assert_eq!(lanes.look_at(), None);
        }
    }

    /// A line, and a lane from the slot to itself.
    fn alone() -> Lanes {
        let (lane, line) = (LaneFile::create().unwrap(), LineFile::create().unwrap());
        let bell = EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap();
        let mut lanes = Lanes::new(7);
        lanes.add(Box::new(Neighbour::new((7, 0), lane.split(), (line.caller(), Bell::Ours(bell)))));
        lanes.set_line(line.into_line());
        lanes
    }

    /// It was: the driver looked again and again, ten seconds after traffic with a process that was gone by then.
    #[test]
    fn when_the_last_neighbour_is_gone_there_is_nothing_to_look_after() {
        let mut lanes = alone();
        let now = Time::from_nanos(1_000_000_000);
        lanes.begin_turn(now);
        lanes.get(7).unwrap().room(64).unwrap();
        lanes.added(7, 64, 0);
        lanes.flush();
        assert_eq!(lanes.look_at(), Some(now + IDLE));
        assert!(lanes.remove(7, 0) && !lanes.has_any());
        assert_eq!(lanes.look_at(), None);
    }

    /// It was: after one short wait for room, the next one lost packets at once, however much later.
    #[test]
    fn only_a_neighbour_that_takes_nothing_out_for_long_loses_packets() {
        let mut lanes = alone();
        let fill = |lanes: &mut Lanes| {
            while lanes.get(7).unwrap().room(4000).is_some() {
                lanes.added(7, 4000, 0);
            }
        };
        let at = |millis: u64| Time::from_nanos(1_000_000_000 + millis * 1_000_000);
        fill(&mut lanes);
        assert!(!lanes.lets_through(7, 1, ONE, at(0)));
        lanes.flush();
        let mut consumer = lanes.take_out(7).unwrap();
        assert!(consumer.look());
        while consumer.next().is_some() {}
        consumer.release();
        lanes.put_back(7, consumer, false);
        fill(&mut lanes);
        assert!(!lanes.lets_through(7, 1, ONE, at(1000)), "another wait");
        assert!(!lanes.lets_through(7, 1, ONE, at(1200)), "this process was away");
        for millis in (1202..1300).step_by(2) {
            assert!(!lanes.lets_through(7, 1, ONE, at(millis)), "{millis}");
        }
        assert!(lanes.lets_through(7, 1, ONE, at(1300)), "for 100 ms nothing was taken out");
        assert_eq!(lanes.take_waiting(), [1]);
    }

    #[test]
    fn slots_are_a_set() {
        let mut slots = Slots::default();
        for slot in [255, 0, 64, 63, 0, 128] {
            slots.add(slot);
        }
        let all: Vec<u8> = std::iter::from_fn(|| slots.pop()).collect();
        assert_eq!(all, [0, 63, 64, 128, 255]);
        assert!(slots.is_empty());
    }
}

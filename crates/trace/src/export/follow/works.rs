//! Work requests in short: what they are, and when what happened to them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ferroce_record::{
    Begun, Completed, CompletedFlags, Doorbell, Matched, Packet, Polled, Posted, PostedFlags, Queue, WorkOp,
};
use ferroce_wire::Qpn;

use super::behind;
use crate::export::hash::Quick;

/// Work of a send queue that is remembered for packets that come late, and for those of the peer.
const RECENT: usize = 1024;

/// How far a program may take completions out of order, as the record has them.
const OUT_OF_ORDER: usize = 64;

/// A work request, as comments name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) struct Note {
    /// The record that it is in.
    pub(in crate::export) source: usize,
    pub(in crate::export) queue: Queue,
    pub(in crate::export) work: u32,
    pub(in crate::export) id: u64,
    /// What it does; none if it was posted before the record begins.
    pub(in crate::export) op: Option<WorkOp>,
    pub(in crate::export) length: u32,
    /// The number of its first packet, and how many it or its answer has; none if it is not known.
    pub(in crate::export) psn: u32,
    pub(in crate::export) packets: u32,
}

impl Note {
    const fn unknown(source: usize, queue: Queue, work: u32) -> Self {
        Self { source, queue, work, id: 0, op: None, length: 0, psn: 0, packets: 0 }
    }

    /// Whether this is the same work.
    pub(in crate::export) fn is(&self, other: &Self) -> bool {
        (self.source, self.queue, self.work) == (other.source, other.queue, other.work)
    }

    /// Which of its packets has this number; the first is 0.
    pub(in crate::export) fn place(&self, psn: u32) -> Option<u32> {
        u32::try_from(behind(psn, self.psn)).ok().filter(|place| *place < self.packets)
    }
}

/// A work request, with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::export) struct WorkRow {
    pub(in crate::export) note: Note,
    pub(in crate::export) flags: PostedFlags,
    /// A number that no other work of the queue has while this is not over.
    pub(in crate::export) lane: u32,
    pub(in crate::export) posted_at: u64,
    pub(in crate::export) doorbell_at: Option<u64>,
    pub(in crate::export) begun_at: Option<u64>,
    /// Whether it made no packet.
    pub(in crate::export) is_local: bool,
    /// The work of the peer that took it, if it is a receive.
    pub(in crate::export) sender: Option<Note>,
    pub(in crate::export) completed: Option<(u64, Completed)>,
    pub(in crate::export) polled_at: Option<u64>,
}

impl WorkRow {
    /// When something was told of it last.
    pub(in crate::export) fn last_at(&self) -> u64 {
        let completed = self.completed.map(|(time, _)| time);
        let times = [self.doorbell_at, self.begun_at, completed, self.polled_at];
        times.into_iter().flatten().fold(self.posted_at, u64::max)
    }

    /// Its queue pair; work of a shared queue has one when it is over.
    pub(in crate::export) fn qpn(&self) -> Option<Qpn> {
        self.note.queue.qpn().or_else(|| self.completed.map(|(_, completed)| completed.qpn))
    }

    /// Whether a completion was written for it.
    pub(in crate::export) fn has_completion(&self) -> bool {
        let without = CompletedFlags::QUIET | CompletedFlags::FORGOTTEN | CompletedFlags::OVERRUN;
        self.completed.is_some_and(|(_, completed)| !completed.flags.intersects(without))
    }
}

/// A queue that work is posted to.
#[derive(Debug, Default)]
struct Posts {
    /// Work that has not ended.
    depth: u32,
    lanes: u32,
    /// Lanes that are free, and since when.
    free: BinaryHeap<Reverse<(u32, u64)>>,
    /// Work that the device began with, in the order of its packets.
    recent: VecDeque<Note>,
}

impl Posts {
    /// A lane that is free at this time. Work may be told of late: then a lane was still taken at its time.
    fn lane(&mut self, time: u64) -> u32 {
        let mut taken = Vec::new();
        let found = loop {
            match self.free.pop() {
                Some(Reverse((lane, since))) if since <= time => break lane,
                Some(later) => taken.push(later),
                None => {
                    self.lanes += 1;
                    break self.lanes - 1;
                }
            }
        };
        self.free.extend(taken);
        found
    }
}

type WorkKey = (usize, Queue, u32);

/// All work that is not over.
#[derive(Debug, Default)]
pub(super) struct Works {
    queues: Quick<(usize, Queue), Posts>,
    open: Quick<WorkKey, WorkRow>,
    /// Work that ended and whose completion was not taken, by queue pair and side, oldest first.
    ended: Quick<(usize, Qpn, bool), VecDeque<WorkRow>>,
}

impl Works {
    /// Work was posted; what was there under its number is handed back, unfinished.
    pub(super) fn posted(&mut self, source: usize, time: u64, posted: &Posted) -> Option<WorkRow> {
        let posts = self.queues.entry((source, posted.queue)).or_default();
        let lane = posts.lane(time);
        posts.depth += 1;
        let Posted { queue, work, id, op, length, flags, .. } = *posted;
        let row = WorkRow {
            note: Note { source, queue, work, id, op: Some(op), length, psn: 0, packets: 0 },
            flags,
            lane,
            posted_at: time,
            doorbell_at: None,
            begun_at: None,
            is_local: false,
            sender: None,
            completed: None,
            polled_at: None,
        };
        let before = self.open.insert((source, queue, work), row)?;
        self.release(&before, true);
        Some(before)
    }

    pub(super) fn depth(&self, source: usize, queue: Queue) -> u32 {
        self.queues.get(&(source, queue)).map_or(0, |posts| posts.depth)
    }

    pub(super) fn doorbell(&mut self, source: usize, time: u64, Doorbell { queue, first, count }: Doorbell) {
        // A file may say anything; no queue holds more.
        for number in 0..count.min(1 << 16) {
            if let Some(row) = self.open.get_mut(&(source, queue, first.wrapping_add(number))) {
                row.doorbell_at.get_or_insert(time);
            }
        }
    }

    pub(super) fn begun(&mut self, source: usize, time: u64, Begun { qpn, work, psn, packets }: Begun) {
        let queue = Queue::Send(qpn);
        let Some(row) = self.open.get_mut(&(source, queue, work)) else { return };
        row.begun_at.get_or_insert(time);
        row.is_local = packets == 0;
        (row.note.psn, row.note.packets) = (psn, packets);
        let note = row.note;
        self.remember(&note);
    }

    fn remember(&mut self, note: &Note) {
        let Some(posts) = self.queues.get_mut(&(note.source, note.queue)) else { return };
        if note.packets == 0 {
            return;
        }
        if posts.recent.len() >= RECENT {
            posts.recent.pop_front();
        }
        posts.recent.push_back(*note);
    }

    /// The work that a packet says it belongs to. With the first that leaves, work of one packet begins.
    pub(super) fn of_packet(
        &mut self,
        source: usize,
        packet: &Packet,
        psn: u32,
        time: u64,
        is_request: bool,
    ) -> Note {
        let (queue, work) = (Queue::Send(packet.qpn), packet.work);
        if let Some(row) = self.open.get_mut(&(source, queue, work)) {
            if is_request && row.begun_at.is_none() {
                row.begun_at = Some(time);
                (row.note.psn, row.note.packets) = (psn, 1);
                let note = row.note;
                self.remember(&note);
                return note;
            }
            return row.note;
        }
        let recent = self.queues.get(&(source, queue)).map(|posts| &posts.recent);
        let known = recent.and_then(|recent| recent.iter().rev().find(|note| note.work == work));
        known.copied().unwrap_or(Note::unknown(source, queue, work))
    }

    /// The work of a send queue that a packet of this number belongs to.
    pub(super) fn by_psn(&self, source: usize, qpn: Qpn, psn: u32) -> Option<Note> {
        let recent = &self.queues.get(&(source, Queue::Send(qpn)))?.recent;
        let first = recent.front()?.psn;
        let distance = behind(psn, first);
        let after = recent.partition_point(|note| behind(note.psn, first) <= distance);
        let note = recent.get(after.checked_sub(1)?)?;
        note.place(psn).map(|_| *note)
    }

    pub(super) fn matched(&mut self, source: usize, time: u64, matched: Matched, sender: Option<Note>) {
        if let Some(row) = self.open.get_mut(&(source, matched.queue, matched.work)) {
            row.begun_at.get_or_insert(time);
            row.sender = sender;
        }
    }

    /// Work ended; it is handed back if it is over with that.
    pub(super) fn completed(&mut self, source: usize, time: u64, completed: &Completed) -> Option<WorkRow> {
        let mut row = self.open.remove(&(source, completed.queue, completed.work))?;
        row.completed = Some((time, *completed));
        if let Some(posts) = self.queues.get_mut(&(source, row.note.queue)) {
            posts.depth = posts.depth.saturating_sub(1);
        }
        if row.has_completion() {
            let is_receive = !matches!(completed.queue, Queue::Send(_));
            self.ended.entry((source, completed.qpn, is_receive)).or_default().push_back(row);
            return None;
        }
        self.release(&row, false);
        Some(row)
    }

    pub(super) fn polled(&mut self, source: usize, time: u64, polled: Polled) -> Option<WorkRow> {
        let ended = self.ended.get_mut(&(source, polled.qpn, polled.is_receive))?;
        let place = ended.iter().take(OUT_OF_ORDER).position(|row| row.note.id == polled.id)?;
        let mut row = ended.remove(place)?;
        row.polled_at = (!polled.is_forgotten).then_some(time);
        self.release(&row, false);
        Some(row)
    }

    /// The lane of work that is over is free again.
    fn release(&mut self, row: &WorkRow, is_open: bool) {
        if let Some(posts) = self.queues.get_mut(&(row.note.source, row.note.queue)) {
            posts.free.push(Reverse((row.lane, row.last_at())));
            posts.depth = posts.depth.saturating_sub(u32::from(is_open));
        }
    }

    /// At the end: all that is not over, oldest first.
    pub(super) fn finish(&mut self) -> Vec<WorkRow> {
        let open = self.open.drain().map(|(_, row)| row);
        let mut rest: Vec<WorkRow> = open.chain(self.ended.drain().flat_map(|(_, rows)| rows)).collect();
        rest.sort_by_key(|row| (row.posted_at, row.note.source, row.note.queue, row.note.work));
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_belongs_to_the_work_that_has_its_number_and_to_no_other() {
        let (source, qpn) = (0, Qpn::new(7));
        let queue = Queue::Send(qpn);
        let mut works = Works::default();
        works.queues.insert((source, queue), Posts::default());
        // The second goes over the end of all numbers; one number between it and the third is of no work.
        for (work, psn, packets) in [(0, 0xff_fff0, 3), (1, 0xff_fffe, 4), (2, 3, 1)] {
            works.remember(&Note { psn, packets, ..Note::unknown(source, queue, work) });
        }
        let of = |psn| works.by_psn(source, qpn, psn).map(|note| note.work);
        let found = [0xff_ffef, 0xff_fff0, 0xff_fff2, 0xff_fff3, 0xff_fffe, 0xff_ffff, 0, 1, 2, 3, 4].map(of);
        let (a, b, c) = (Some(0), Some(1), Some(2));
        assert_eq!(found, [None, a, a, None, b, b, b, b, None, c, None]);
        assert_eq!(works.by_psn(source, Qpn::new(8), 3), None);
    }

    #[test]
    fn a_lane_is_not_taken_before_it_is_free() {
        let mut posts = Posts::default();
        assert_eq!([posts.lane(0), posts.lane(0)], [0, 1]);
        posts.free.extend([Reverse((0, 150)), Reverse((1, 90))]);
        assert_eq!(posts.lane(100), 1, "the first is free only later");
        assert_eq!(posts.lane(140), 2);
        assert_eq!(posts.lane(150), 0);
    }
}

//! What becomes of packets that have left: when they did, and which were sent back.

use std::collections::VecDeque;
use std::io;

use ferroce_fabric::Tiding;
use ferroce_sys::clock;
use ferroce_transport::Time;

use super::Engine;
use super::host::view;
use super::path_report::PathReport;
use super::stamps::Wall;

/// What an engine follows, once a queue pair of it asked for stamps.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    on: bool,
    pub(super) wall: Wall,
    /// Queue pairs whose completions wait for stamps.
    waiting: Vec<u16>,
    /// What was told last, until it is sorted.
    left: Vec<(u32, u64)>,
    sent_back: Vec<PathReport>,
}

/// Reports that a queue pair keeps for its program; the oldest goes first.
const REPORTS: usize = 1024;

/// What a packet is called: its queue pair and its number there.
pub(super) const fn ticket(index: u16, number: u16) -> u32 {
    (index as u32) << 16 | number as u32
}

impl Follow {
    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    /// A packet of this queue pair waits for its stamp.
    pub(super) fn note(&mut self, index: u16) {
        if !self.waiting.contains(&index) {
            self.waiting.push(index);
        }
    }

    /// Whether completions wait for stamps.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Engine {
    /// Has the network tell what becomes of packets.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn follow_packets(&mut self) -> io::Result<()> {
        if !self.follow.on {
            self.port.fabric.follow()?;
            self.follow.on = true;
        }
        Ok(())
    }

    /// Takes in what the network tells of packets that have left, and completes the sends whose time is known.
    pub(super) fn hear_of_packets(&mut self) {
        self.follow.wall.begin_turn();
        let Self { port, follow, qps, .. } = self;
        // Whatever was handed to the network left before this.
        let handed = clock::now();
        let Follow { left, sent_back, waiting, .. } = follow;
        for index in waiting.iter() {
            if let Some(held) = qps.by_index(*index).and_then(|entry| entry.tally.held.as_mut()) {
                held.handed_over(handed);
            }
        }
        port.fabric.tidings(&mut |tiding| match tiding {
            Tiding::Left { ticket, at } => left.push((ticket, at)),
            Tiding::SentBack(error, packet) => sent_back.push(PathReport::new(error, packet)),
        });
        self.sort_stamps();
        self.sort_reports();
        self.complete_stamped(handed);
    }

    #[expect(clippy::cast_possible_truncation, reason = "a ticket is taken apart as it was put together")]
    fn sort_stamps(&mut self) {
        let Self { follow: Follow { left, wall, .. }, qps, .. } = self;
        for (ticket, at) in left.drain(..) {
            let (index, number) = ((ticket >> 16) as u16, ticket as u16);
            if let Some(held) = qps.by_index(index).and_then(|entry| entry.tally.held.as_mut()) {
                let (time, source) = wall.convert(at);
                held.left_at(number, time, source);
            }
        }
    }

    /// Reports whose sender is not known go to all that may have sent the packet.
    fn sort_reports(&mut self) {
        let Self { follow, qps, counters, .. } = self;
        for report in follow.sent_back.drain(..) {
            counters.sent_back += 1;
            for entry in qps.iter_mut() {
                let is_its_own = report.from.is_none_or(|from| from == entry.machine.qpn());
                if let Some(held) = entry.tally.held.as_mut().filter(|_| is_its_own) {
                    keep(&mut held.reports, report);
                }
            }
        }
    }

    fn complete_stamped(&mut self, now: Time) {
        let mut waiting = std::mem::take(&mut self.follow.waiting);
        waiting.retain(|index| {
            let Self { qps, tables, .. } = self;
            let Some(entry) = qps.by_index(*index) else { return false };
            let Some(mut held) = entry.tally.held.take() else { return false };
            let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
            while let Some((number, completion)) = held.pop(now) {
                host.finish_send(number, &completion);
            }
            let waits = !held.is_empty();
            entry.tally.held = Some(held);
            self.note(*index);
            waits
        });
        self.follow.waiting = waiting;
    }

    /// The queue pair is reset: what was sent is over, and what was not is forgotten.
    pub(crate) fn release_stamped(&mut self, index: u16) {
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.by_index(index) else { return };
        let Some(mut held) = entry.tally.held.take() else { return };
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        while let Some((number, completion)) = held.pop_at_once() {
            host.finish_send(number, &completion);
        }
        entry.tally.held = Some(held);
    }
}

fn keep(reports: &mut VecDeque<PathReport>, report: PathReport) {
    if reports.len() == REPORTS {
        reports.pop_front();
    }
    reports.push_back(report);
}

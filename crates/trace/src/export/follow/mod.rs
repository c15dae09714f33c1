//! Follows a time-line: each packet with its work and its other end, each work request with its times.
//!
//! Packets are held back for a moment, until what is told of them later has come: the rest of their headers, their
//! addresses, what fault injection did to them, and their arrival.

mod flights;
mod packets;
mod works;

pub(super) use self::packets::{Belongs, OtherEnd, PacketRow, Route};
pub(super) use self::works::{Note, WorkRow};

use ferroce_record::{Event, Packet, PacketFlags, Queue, Timer, Wait, Way};
use ferroce_wire::{Opcode, Psn, Qpn, Role};

use self::flights::{Flights, FlowKey};
use self::packets::Held;
use self::works::Works;
use super::hash::Quick;
use super::{ExportError, Selection, Summary, TELL};
use crate::timeline::{Seen, Timeline};

/// Takes what an export is made of.
pub(super) trait Sink {
    /// A packet.
    fn packet(&mut self, row: &PacketRow) -> Result<(), ExportError>;

    /// A work request that is over, or at the end of the time-line one that is not.
    fn work(&mut self, _row: &WorkRow) -> Result<(), ExportError> {
        Ok(())
    }

    /// A queue has so many work requests now.
    fn depth(&mut self, _at: u64, _source: usize, _queue: Queue, _depth: u32) -> Result<(), ExportError> {
        Ok(())
    }

    /// A timer of a queue pair fired.
    fn timer(&mut self, _at: u64, _source: usize, _timer: Timer) -> Result<(), ExportError> {
        Ok(())
    }

    /// The next send of a queue pair waits for something.
    fn wait(&mut self, _at: u64, _source: usize, _wait: Wait) -> Result<(), ExportError> {
        Ok(())
    }

    /// Whether there is no room for a packet, so that it is counted as left out.
    fn is_full(&self, _row: &PacketRow) -> bool {
        false
    }
}

/// Reads a time-line through, and hands what is selected to a sink.
pub(super) fn follow(
    timeline: &Timeline,
    selection: &Selection,
    sink: &mut impl Sink,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let mut follower = Follower { selection: *selection, ..Follower::default() };
    let mut events = timeline.events();
    for seen in events.by_ref() {
        follower.take(&seen, sink)?;
        follower.summary.events += 1;
        if follower.summary.events.is_multiple_of(TELL) {
            progress(follower.summary.events);
        }
    }
    if let Some(error) = events.trouble() {
        return Err(ExportError::Read(error));
    }
    follower.finish(sink)?;
    progress(follower.summary.events);
    Ok(follower.summary)
}

/// A queue pair, as far as packets need it.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    way: Option<Way>,
    /// The flow of packets that leave it, and of those that come.
    flows: Option<[u32; 2]>,
}

#[derive(Debug, Default)]
struct Follower {
    selection: Selection,
    works: Works,
    pairs: Quick<(usize, Qpn), Pair>,
    flights: Flights,
    held: Held,
    summary: Summary,
}

impl Follower {
    fn take(&mut self, seen: &Seen, sink: &mut impl Sink) -> Result<(), ExportError> {
        let (source, time) = (seen.source, seen.stamped.time);
        match seen.stamped.event {
            Event::Posted(posted) => {
                if let Some(row) = self.works.posted(source, time, &posted) {
                    self.work(&row, sink)?;
                }
                self.depth(time, source, posted.queue, sink)?;
            }
            Event::Doorbell(bell) => self.works.doorbell(source, time, bell),
            Event::Begun(begun) => self.works.begun(source, time, begun),
            Event::Packet(packet) => self.packet(source, time, packet, sink)?,
            Event::MoreHeaders(more) => self.held.more(source, more),
            Event::Ends(ends) => self.ends(source, ends),
            Event::Matched(matched) => {
                let sender = self.sender_of(source, matched.qpn, matched.psn);
                self.works.matched(source, time, matched, sender);
            }
            Event::Completed(completed) => {
                if let Some(row) = self.works.completed(source, time, &completed) {
                    self.work(&row, sink)?;
                }
                self.depth(time, source, completed.queue, sink)?;
            }
            Event::Polled(polled) => {
                if let Some(row) = self.works.polled(source, time, polled) {
                    self.work(&row, sink)?;
                }
            }
            Event::Way(way) => self.way(source, way),
            Event::Timer(timer) if self.has(time, timer.qpn) => sink.timer(time, source, timer)?,
            Event::Wait(wait) if self.has(time, wait.qpn) => sink.wait(time, source, wait)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether what happened to a queue pair at this time is selected.
    fn has(&self, time: u64, qpn: Qpn) -> bool {
        self.selection.has_time(time, time) && self.selection.has(Some(qpn))
    }

    /// At the end: what is held, and what is not over.
    fn finish(&mut self, sink: &mut impl Sink) -> Result<(), ExportError> {
        while let Some(row) = self.held.pop() {
            self.out(&row, sink)?;
        }
        for row in self.works.finish() {
            self.work(&row, sink)?;
        }
        Ok(())
    }

    fn way(&mut self, source: usize, way: Way) {
        let out = FlowKey { from: way.local, to: way.remote, dest: way.peer, sender: None };
        let back = FlowKey { from: way.remote, to: way.local, dest: way.qpn, sender: None };
        let flows = self.flights.flow(out).zip(self.flights.flow(back)).map(|(out, back)| [out, back]);
        if let Some([out, _]) = flows {
            self.flights.sends(out, source, way.qpn);
        }
        self.pairs.insert((source, way.qpn), Pair { way: Some(way), flows });
    }

    /// The work of the peer that has the packet with this number, which came to a queue pair.
    fn sender_of(&self, source: usize, qpn: Qpn, psn: u32) -> Option<Note> {
        let [_, back] = self.pairs.get(&(source, qpn))?.flows?;
        let (peer, qpn) = self.flights.sender(back)?;
        self.works.by_psn(peer, qpn, psn)
    }

    fn packet(
        &mut self,
        source: usize,
        time: u64,
        packet: Packet,
        sink: &mut impl Sink,
    ) -> Result<(), ExportError> {
        let flags = packet.flags;
        if flags.intersects(PacketFlags::FATE) {
            if let Some(row) = self.held.remark(source, &packet) {
                let fate = row.packet.flags;
                self.flights.fate(row.number, row.flow, row.psn(), fate);
            }
            return Ok(());
        }
        let is_out = flags.contains(PacketFlags::OUT);
        let mut row = PacketRow::new(self.held.next_number(), source, time, packet);
        let pair = self.pairs.get(&(source, packet.qpn)).copied().unwrap_or_default();
        row.route = pair.way.map(|way| Route::of_way(&way, is_out));
        row.peer = pair.way.map(|way| way.peer);
        if flags.contains(PacketFlags::WORK) && !flags.contains(PacketFlags::REFUSED) {
            let out = is_out && !row.is_response();
            row.belongs = Belongs::Own(self.works.of_packet(source, &packet, row.psn(), time, out));
        } else if is_out == row.is_response()
            && let Some(note) = self.sender_of(source, packet.qpn, row.psn())
        {
            row.belongs = Belongs::Peer(note);
        }
        if let Some([out, back]) = pair.flows.filter(|_| !row.is_datagram()) {
            row.flow = Some(if is_out { out } else { back });
        }
        self.held.push(row);
        if row.flow.is_some() {
            self.join(row.number);
        }
        match self.held.pop_if_full() {
            Some(row) => self.out(&row, sink),
            None => Ok(()),
        }
    }

    /// The addresses of a datagram: only now its flow is known.
    fn ends(&mut self, source: usize, ends: ferroce_record::Ends) {
        let Some(row) = self.held.last(source, ends.qpn) else { return };
        let is_out = row.is_out();
        row.route = Some(Route::of_ends(&ends, is_out));
        let number = row.number;
        if row.is_datagram() && row.flow.is_none() {
            let route = Route::of_ends(&ends, is_out);
            let (from, to) = (route.from, route.to);
            let key = FlowKey { from, to, dest: row.dest_qp(), sender: Some(row.datagram_sender()) };
            row.flow = self.flights.flow(key);
            if row.flow.is_some() {
                self.join(number);
            }
        }
    }

    /// Finds the other end of a packet that was just put aside.
    fn join(&mut self, number: u64) {
        let Some(row) = self.held.get(number).copied() else { return };
        let Some(flow) = row.flow else { return };
        let end = OtherEnd { number, source: row.source, qpn: row.packet.qpn, time: row.time };
        let (psn, opcode) = (row.psn(), row.packet.headers[0]);
        if row.is_out() {
            let note = row.belongs.own();
            if let Some(other) = self.flights.left(flow, psn, opcode, end, note) {
                // It came before it left: clocks are never quite the same.
                self.join_ends(&end, note, &other);
            }
        } else if let Some((other, note)) = self.flights.came(flow, psn, opcode, end) {
            self.join_ends(&other, note, &end);
        }
    }

    fn join_ends(&mut self, sent: &OtherEnd, note: Option<Note>, received: &OtherEnd) {
        let mut answered = None;
        if let Some(row) = self.held.get_mut(received.number) {
            row.other = Some(*sent);
            if row.belongs == Belongs::Nothing
                && let Some(note) = note
            {
                row.belongs = Belongs::Peer(note);
            }
            answered = row.belongs.own();
        }
        if let Some(row) = self.held.get_mut(sent.number) {
            row.other = Some(*received);
            // An answer, whose request is of the other end.
            if row.belongs == Belongs::Nothing
                && let Some(note) = answered
            {
                row.belongs = Belongs::Peer(note);
            }
        }
    }

    fn out(&mut self, row: &PacketRow, sink: &mut impl Sink) -> Result<(), ExportError> {
        self.flights.forget(row);
        let other = row.other.map(|other| other.qpn).or(Some(row.dest_qp()));
        let is_wanted = self.selection.has_time(row.time, row.time)
            && (self.selection.has(Some(row.packet.qpn)) || self.selection.has(other));
        if !is_wanted || sink.is_full(row) {
            self.summary.left_out += 1;
            return Ok(());
        }
        self.summary.packets += 1;
        self.summary.joined += u64::from(!row.is_out() && row.other.is_some());
        sink.packet(row)
    }

    fn work(&mut self, row: &WorkRow, sink: &mut impl Sink) -> Result<(), ExportError> {
        let is_wanted = self.selection.has_time(row.posted_at, row.last_at())
            && (self.selection.has(row.qpn()) || self.selection.has(self.peer_of(row)));
        if !is_wanted {
            return Ok(());
        }
        self.summary.works += 1;
        self.summary.local += u64::from(row.is_local);
        sink.work(row)
    }

    fn peer_of(&self, row: &WorkRow) -> Option<Qpn> {
        Some(self.pairs.get(&(row.note.source, row.qpn()?))?.way?.peer)
    }

    fn depth(
        &mut self,
        time: u64,
        source: usize,
        queue: Queue,
        sink: &mut impl Sink,
    ) -> Result<(), ExportError> {
        if !self.selection.has_time(time, time) || !self.selection.has(queue.qpn()) {
            return Ok(());
        }
        sink.depth(time, source, queue, self.works.depth(source, queue))
    }
}

/// Whether a packet with this opcode answers a request; one of no known opcode does not.
fn is_response(opcode: u8) -> bool {
    Opcode::from_byte(opcode).is_some_and(|opcode| opcode.info().role == Role::Response)
}

/// How far a packet sequence number is behind another.
fn behind(psn: u32, first: u32) -> i32 {
    Psn::new(psn).distance_from(Psn::new(first))
}

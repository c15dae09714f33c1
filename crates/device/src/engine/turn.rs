//! A turn of the engine, and what is done after every call of a machine.

use ferroce_fabric::{Inbox, NotShared, Path};
use ferroce_progress::table::{ACK_RIDE, HELD, LATE, PACKET_BYTES, STREAM, STREAM_BYTES, TURN_LOOKS};
use ferroce_progress::{Departure, Posting};
use ferroce_transport::{
    Acks, PostError, PostListError, ReceiveRequest, SendRequest, SharedQueueId, State, Time, sooner,
};
use ferroce_wire::{Packet, Qpn};

use super::freight::Load;
use super::host::{Tables, view};
use super::qps::{self, Entry, Tally};
use super::recorded;
use super::srq_side;
use super::stamps;
use super::state::{Engine, INBOX, Reason, Turned};
use super::windows::{WindowId, Windows};
use crate::engines::{Engines, Station};
use crate::event::AsyncEvent;
use crate::mail::{Mail, Parcel};

/// Messages of a list that waits for no others where packets take no system call: to call the peer costs as much as a few of
/// them.
const LIST_LEAVES: u32 = 8;

impl Engine {
    /// Goes round once. `around` are all engines of the device.
    pub(crate) fn turn(&mut self, now: Time, reason: Reason, around: &Engines) -> Turned {
        // Another engine may have been here with a clock that was read later.
        self.tables.now = now.max(self.tables.now);
        if std::mem::replace(&mut self.turning, true) && !self.broken {
            self.give_up();
        }
        if self.follow.is_on() {
            self.follow.wall.begin_turn();
        }
        if let Some(record) = &mut self.tables.record {
            record.tick_at(self.tables.now);
        }
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.panics), "a turn that panics on purpose");
        let station = around.station(self.index);
        self.take_in(station, around);
        let mut turned = Turned::default();
        let mut waits = false;
        if self.port.lanes.has_any() {
            self.port.lanes.begin_turn(self.tables.now);
            self.queue_those_without_room();
        }
        match reason {
            Reason::Posted => self.transmit(Acks::Hold, around),
            Reason::Leaving => {
                self.queue_owing();
                self.transmit(Acks::Send, around);
            }
            Reason::Polled | Reason::Watched | Reason::InboxFilled | Reason::SocketSkipped => {
                turned = match reason {
                    Reason::SocketSkipped => Turned::default(),
                    Reason::InboxFilled => self.take_inbox(around),
                    _ => self.receive(around, reason),
                };
                self.take_lanes(&mut turned, around);
                // In a stream too: a timer that was due long ago has the driver woken again and again.
                if !turned.more {
                    self.run_timers();
                }
                waits = self.gather.is_waiting() && !self.called && self.goes_on_waiting();
                // What is there may leave with more.
                if !waits {
                    self.answer(&turned, around);
                } else if self.owing.is_empty() {
                    self.held = 0;
                }
            }
            Reason::Driver => {
                self.kept_until = None;
                for _ in 0..TURN_LOOKS {
                    let mut look = self.receive(around, reason);
                    self.take_lanes(&mut look, around);
                    turned.received += look.received;
                    turned.more = look.more;
                    self.patient = look.received <= STREAM;
                    self.queue_owing();
                    self.transmit(Acks::Send, around);
                    if !look.more {
                        break;
                    }
                }
                self.queue_owing();
                if !turned.more {
                    self.run_timers();
                }
                self.transmit(Acks::Send, around);
                self.patient = false;
            }
        }
        self.port.flush(&mut self.counters);
        if self.port.lanes.has_any() {
            let woken = || station.driver.take_woken();
            turned.more |= self.port.lanes.settle(station.driver.is_slept_on(), woken);
        }
        if !waits {
            self.gather.left();
        }
        if self.tables.is_recorded() {
            self.record_faults();
        }
        if self.follow.is_on() {
            self.hear_of_packets();
        }
        self.release_regions();
        self.tables.settle();
        turned.unsent = (!waits && !self.ready.is_empty()) || self.follow.waits();
        self.note_plain();
        self.turning = false;
        turned
    }

    /// Takes in what has come to an engine that was [at rest](Self::is_at_rest) and is [plain](Self::is_plain): as
    /// [`turn`](Self::turn) for [`Reason::InboxFilled`], where nothing else is to be looked for.
    pub(crate) fn take_what_came(&mut self, now: Time, around: &Engines) -> Turned {
        self.tables.now = now.max(self.tables.now);
        self.turning = true;
        let mut turned = self.take_inbox(around);
        if !turned.more {
            self.run_timers();
        }
        self.answer(&turned, around);
        self.port.flush(&mut self.counters);
        self.gather.left();
        if !self.tables.is_settled() {
            self.tables.settle();
        }
        turned.unsent = !self.ready.is_empty();
        self.turning = false;
        turned
    }

    /// Sends what is to be sent after packets were taken in for a program that polls.
    #[inline(always)]
    fn answer(&mut self, turned: &Turned, around: &Engines) {
        if turned.received == 0 || (turned.received > STREAM && !turned.more) {
            self.queue_owing();
            self.transmit(Acks::Send, around);
        } else {
            self.transmit(Acks::Hold, around);
        }
        if self.owing.is_empty() {
            self.held = 0;
        }
    }

    /// When a thread has to turn it, even if nothing happens: a timer is due then, or an
    /// acknowledgement has waited for a ride long enough.
    pub(crate) fn wants_to_run_at(&self) -> Option<Time> {
        let longest = || self.kept_until.unwrap_or(self.tables.now + ACK_RIDE);
        let ride = (!self.owing.is_empty()).then(longest);
        let soon = sooner(sooner(self.timers.next(), ride), self.tables.next_put_off());
        if self.is_plain() {
            return soon;
        }
        let held = self.port.fabric.holds_packets().then(|| self.tables.now + HELD);
        let stamps = self.follow.waits().then(|| self.tables.now + stamps::LOOK);
        sooner(sooner(sooner(soon, held), stamps), self.port.lanes.look_at())
    }

    /// As [`wants_to_run_at`](Self::wants_to_run_at) in nanoseconds, of which the last is never; for an engine that has [nothing to
    /// tell](Self::has_nothing_to_tell), so that no event waits for company.
    #[inline]
    pub(crate) fn wants_to_run_at_nanos(&self) -> u64 {
        if !self.is_plain() {
            return self.wants_to_run_at().map_or(u64::MAX, Time::nanos);
        }
        let timer = self.timers.next().map_or(u64::MAX, Time::nanos);
        if self.owing.is_empty() {
            return timer;
        }
        timer.min(self.kept_until.unwrap_or(self.tables.now + ACK_RIDE).nanos())
    }

    /// Those that found no room in a lane look again.
    #[inline]
    pub(super) fn queue_those_without_room(&mut self) {
        if !self.port.lanes.has_waiting() {
            return;
        }
        for index in self.port.lanes.take_waiting() {
            self.queue(index);
        }
    }

    /// Takes in what was left for this engine while it was busy: work, and packets of other engines.
    #[inline]
    pub(super) fn take_in(&mut self, station: &Station, around: &Engines) {
        if station.freight.is_empty() {
            self.take_mail(&station.mail);
        } else {
            self.take_freight(station, around);
        }
    }

    #[inline(never)]
    pub(super) fn take_freight(&mut self, station: &Station, around: &Engines) {
        let mut load = std::mem::replace(&mut self.load, Load::EMPTY);
        station.freight.take(&mut load);
        // A receive that was posted before its message was sent must be there for it.
        self.take_mail(&station.mail);
        for (sender, bytes) in load.iter() {
            // Cannot fail: it was parsed, or put together, on the other side.
            if let Ok(packet) = Packet::parse(bytes) {
                self.deliver(sender, &packet, bytes, around);
            }
        }
        self.load = load;
    }

    /// Takes in what was posted while the engine was busy, in the order in which it was posted.
    #[inline]
    pub(crate) fn take_mail(&mut self, mail: &Mail) {
        if !mail.is_empty() {
            self.open_mail(mail);
        }
    }

    #[inline(never)]
    fn open_mail(&mut self, mail: &Mail) {
        self.not_plain();
        let mut parcels = std::mem::take(&mut self.mail);
        mail.take(&mut parcels);
        for parcel in parcels.drain(..) {
            self.note_posting(None);
            match parcel {
                Parcel::Send(qpn, work) => {
                    self.note_posting(work.posted_at());
                    // It was checked; but the queue pair may have been reset since.
                    if self.post_send(qpn, &work.request()).is_err()
                        && let Some(entry) = self.qps.get(qpn)
                    {
                        entry.shared.sends_retired(1);
                    }
                }
                Parcel::Receive(qpn, work) => {
                    self.note_posting(work.posted_at());
                    if self.post_receive(qpn, &work.request()).is_err()
                        && let Some(entry) = self.qps.get(qpn)
                    {
                        entry.shared.receives_retired(1);
                    }
                }
                Parcel::Shared(queue, work) => {
                    self.note_posting(work.posted_at());
                    self.post_shared(queue, &work.request());
                }
                Parcel::Question(question) => question.answer(self.report(question.most)),
                Parcel::Line(line) => self.port.lanes.set_line(line),
                Parcel::Neighbour(neighbour) => self.gain_neighbour(neighbour),
                Parcel::Lost(slot, incarnation) => {
                    self.lose_neighbour(slot, incarnation, NotShared::Gone);
                }
            }
        }
        self.note_posting(None);
        self.mail = parcels;
    }

    /// Posts a send request. `transmit` has to follow.
    pub(crate) fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let posted = self.queue_sends(qpn, std::slice::from_ref(request));
        self.after_posting(qps::index_of(qpn));
        posted.map_err(|refused| refused.error)
    }

    /// Puts send requests into their queue. [`after`](Self::after) has to follow. The error says how many
    /// were taken, and why the next was not.
    #[inline]
    pub(crate) fn queue_sends(
        &mut self,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostListError> {
        if self.tables.is_recorded() {
            return self.queue_sends_recorded(qpn, requests);
        }
        let done = self.post_directly(qpn, requests);
        let requests = &requests[done..];
        if requests.is_empty() {
            return Ok(());
        }
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.get(qpn) else { return Ok(()) };
        let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let posted = entry.machine.post_sends(requests, &mut view);
        let taken = posted.map_or_else(|refused| refused.taken, |()| requests.len());
        entry.counted = entry.counted.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
        entry.sends_posted += taken as u64;
        posted.map_err(|refused| refused.after(done))
    }

    /// Posts a receive request.
    pub(crate) fn post_receive(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let posted = self.queue_receives(qpn, std::slice::from_ref(request));
        self.note(qps::index_of(qpn));
        posted.map_err(|refused| refused.error)
    }

    /// Puts receive requests into their queue. [`note`](Self::note) has to follow. The error says how many
    /// were taken, and why the next was not.
    #[inline]
    pub(crate) fn queue_receives(
        &mut self,
        qpn: Qpn,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<(), PostListError> {
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.get(qpn) else { return Ok(()) };
        for (index, request) in requests.iter().enumerate() {
            if tables.is_recorded() {
                recorded::post_receive(tables, entry, request);
            }
            let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
            entry
                .machine
                .post_receive(request, &mut view)
                .map_err(|error| PostListError::new(index, error))?;
            entry.counted_receives += 1;
            entry.receives_posted += 1;
        }
        Ok(())
    }

    /// Does what is due after the last of a list of receives. Nothing, as long as they wait for messages.
    #[inline]
    pub(crate) fn after_receives(&mut self, index: u16) {
        let has_ended = |entry: &mut Entry| entry.tally.receives > 0 || entry.tally.overrun;
        if self.tables.is_recorded() || self.qps.by_index(index).is_some_and(has_ended) {
            self.note(index);
        }
    }

    /// Posts a receive request to a shared queue; false if it is full or has too many pieces.
    pub(crate) fn post_shared(&mut self, queue: SharedQueueId, request: &ReceiveRequest<'_>) -> bool {
        let Tables { srqs, record, .. } = &mut self.tables;
        let Some(side) = srqs.get_mut(srq_side::place_of(queue)) else { return true };
        let (number, _) = side.queue.totals();
        let is_taken = side.queue.push(request.id, request.sges);
        if let Some(record) = record.as_mut().filter(|_| is_taken) {
            record.post_shared(queue, number, request);
        }
        is_taken
    }

    /// Does what has to be done after every call of a machine: it may have something to send,
    /// want to be called later, or have failed.
    pub(crate) fn after(&mut self, index: u16) {
        // Those that waited for what this one has no longer under way come before it.
        let Some(has_to_send) = self.note_and_look(index) else { return };
        // Most packets that come leave nothing to send but an acknowledgement, which waits with those that are owed. A record
        // also hears what a queue pair waits for.
        if has_to_send || self.tables.is_recorded() {
            self.queue(index);
        }
    }

    /// Has a queue pair send what it has with the next `transmit`.
    #[inline]
    pub(super) fn queue(&mut self, index: u16) {
        if let Some(entry) = self.qps.by_index(index)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push(index);
        }
    }

    /// As [`after`](Self::after), when all that may have happened is that sends were posted: what was done at
    /// once leaves nothing to send.
    #[inline]
    pub(crate) fn after_posting(&mut self, index: u16) {
        if self.tables.is_recorded() {
            self.ring_doorbell(index);
        }
        if self.qps.by_index(index).is_some_and(|entry| entry.machine.sends_waiting() == 0) {
            self.note(index);
        } else {
            // It is taken note of when it was sent.
            self.queue(index);
        }
    }

    /// Whether what waits for company goes on to do so, although a thread has polled and found nothing.
    #[inline(never)]
    fn goes_on_waiting(&mut self) -> bool {
        // Only if nothing else is to be sent.
        let [index] = self.ready[..] else { return false };
        if !self.owing.is_empty() {
            return false;
        }
        let under_way = self.qps.by_index(index).map_or(0, |entry| entry.machine.packets_under_way());
        self.gather.goes_on(self.tables.now, under_way)
    }

    /// Whether sends that were just posted wait for company: nothing but them may be left to do here.
    #[inline]
    pub(crate) fn departure(&mut self, qpn: Qpn, messages: u32, bytes: u64, is_urgent: bool) -> Departure {
        let is_calm = self.gathers && self.has_nothing_to_tell();
        let Some(entry) = self.qps.get(qpn).filter(|entry| is_calm && entry.queued) else {
            return Departure::Now;
        };
        let is_shared = entry.path.is_some_and(|choice| choice.path == Path::Shared);
        if is_shared && messages >= LIST_LEAVES {
            return Departure::Now;
        }
        let under_way = entry.machine.packets_under_way();
        self.gather.posted(self.tables.now, Posting { messages, bytes, under_way, is_urgent })
    }

    /// As [`after`](Self::after), when there is nothing to send.
    pub(crate) fn note(&mut self, index: u16) {
        self.note_and_look(index);
    }

    /// As [`note`](Self::note); and whether there is something to send all the same. `None` if the queue pair is gone.
    #[inline(always)]
    fn note_and_look(&mut self, index: u16) -> Option<bool> {
        let Self { qps, tables, windows, timers, owing, .. } = self;
        let entry = qps.by_index(index)?;
        if std::mem::take(&mut entry.tally.overrun) {
            end_for_overrun(entry, tables, windows);
        }
        let window = entry.window;
        // Work that told the program of its end keeps its place until the program has heard it, so that
        // a completion queue as large as its queues never overflows. The rest is free at once.
        let sends_told = std::mem::take(&mut entry.tally.sends);
        let receives_told = std::mem::take(&mut entry.tally.receives);
        let receives_handed = std::mem::take(&mut entry.tally.receives_handed);
        let standing = entry.machine.standing();
        let done = entry.counted - standing.sends.min(entry.counted);
        entry.counted -= done;
        entry.sends_done += u64::from(done);
        entry.shared.sends_retired(done.saturating_sub(sends_told));
        // A receive that was taken ends with a completion, sooner or later, unless it was reset.
        let done = entry.counted_receives - standing.receives.min(entry.counted_receives);
        entry.counted_receives -= done;
        if receives_handed > 0 {
            entry.shared.heard(0, receives_handed);
        }
        if entry.machine.state() == State::Reset {
            entry.shared.receives_retired(done.saturating_sub(receives_told));
        }
        if tables.is_recorded() {
            recorded::note(tables, entry);
        }
        timers.schedule(index, standing.timeout, &mut entry.scheduled);
        if standing.owes_ack && !entry.owing {
            entry.owing = true;
            owing.push(index);
        }
        let has_to_send = entry.has_to_send();
        self.call_waiting(window);
        Some(has_to_send)
    }

    /// Queues those that found no room in a window, if there is room again.
    #[inline]
    pub(crate) fn call_waiting(&mut self, window: WindowId) {
        if !self.windows.is_waited_for(window) {
            return;
        }
        for index in self.windows.called(window) {
            if let Some(entry) = self.qps.by_index(index)
                && !entry.queued
            {
                entry.queued = true;
                self.ready.push(index);
            }
        }
    }

    /// Lets those that owe an acknowledgement send it with the next `transmit`.
    pub(super) fn queue_owing(&mut self) {
        let mut owing = std::mem::take(&mut self.owing);
        for index in owing.drain(..) {
            if let Some(entry) = self.qps.by_index(index) {
                entry.owing = false;
                if !entry.queued {
                    entry.queued = true;
                    self.ready.push(index);
                }
            }
        }
        self.owing = owing;
    }

    /// Calls the queue pairs whose time has come.
    pub(super) fn run_timers(&mut self) {
        let now = self.tables.now;
        while let Some((time, index)) = self.timers.pop_due(now) {
            let Self { qps, tables, windows, .. } = self;
            let Some(entry) = qps.by_index(index) else { continue };
            if entry.scheduled != Some(time) {
                continue;
            }
            entry.scheduled = None;
            let Some(wanted) = entry.machine.poll_timeout() else { continue };
            if wanted <= now {
                let window = windows.get(entry.window);
                let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
                if now.since(wanted) > LATE {
                    self.counters.late_timers += 1;
                    entry.machine.restart_timers(now, window, &mut view);
                }
                if let (Some(record), Some(watch)) = (&mut view.tables.record, &view.tally.watch)
                    && let Some(due) = entry.machine.due(now)
                {
                    record.timer(watch, &due);
                }
                // What is due now is so by our own clock: a wait for a receiver, or a timer in time.
                entry.machine.handle_timeout(now, window, &mut view);
            }
            self.after(index);
        }
    }

    /// Looks at the socket once, and takes in what has come.
    pub(super) fn receive(&mut self, around: &Engines, reason: Reason) -> Turned {
        self.look(reason);
        self.take_inbox(around)
    }

    /// Fills the inbox with what has come.
    pub(super) fn look(&mut self, reason: Reason) {
        if self.broken {
            return self.inbox.clear();
        }
        let Self { port, inbox, .. } = self;
        let looked = match reason {
            Reason::Watched | Reason::InboxFilled => port.fabric.receive_next(inbox),
            Reason::Posted | Reason::Leaving | Reason::Polled | Reason::SocketSkipped | Reason::Driver => {
                port.fabric.receive(inbox)
            }
        };
        if looked.is_err() {
            self.break_off();
        }
    }

    /// The socket has failed.
    #[cold]
    pub(super) fn break_off(&mut self) {
        self.broken = true;
        self.not_plain();
        self.inbox.clear();
        self.tables.events.push(AsyncEvent::DeviceFatal);
    }

    /// Takes in what is in the inbox.
    pub(super) fn take_inbox(&mut self, around: &Engines) -> Turned {
        // A receive that was posted before its message was sent must be there for it.
        self.take_mail(&around.station(self.index).mail);
        if self.inbox.is_empty() {
            return Turned::default();
        }
        if let Some(record) = &mut self.tables.record {
            record.tick();
        }
        let mut begun = None;
        // So it is with most: there is nothing to be moved about.
        if let Some((only, len)) = self.take_only(around) {
            if let Some(packets) = self.has_taken(only, len) {
                self.note_taken(len, packets, around);
                return Turned { received: packets, more: self.inbox.is_full(), unsent: false };
            }
            begun = Some(only);
        }
        let inbox = std::mem::replace(&mut self.inbox, Inbox::new(0));
        let mut received = 0;
        for (datagram, bytes) in inbox.iter() {
            let packets = self.take_datagram(datagram, bytes, begun.take(), around);
            received += packets;
            self.note_taken(bytes.len(), packets, around);
        }
        let more = inbox.is_full();
        self.inbox = inbox;
        Turned { received, more, unsent: false }
    }

    /// Notes that so much was taken in: a peer that sends a stream is told now and then how far that has come.
    #[inline(always)]
    fn note_taken(&mut self, bytes: usize, packets: usize, around: &Engines) {
        self.held += bytes.max(packets * PACKET_BYTES);
        if self.held >= STREAM_BYTES && !self.owing.is_empty() {
            self.held = 0;
            self.queue_owing();
            self.transmit(Acks::Send, around);
            self.port.flush(&mut self.counters);
        }
    }

    /// A turn panicked and did not come to its end: nothing here can be trusted. All work fails.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.not_plain();
        self.tables.take_back_hand();
        self.port.fail();
        self.inbox = Inbox::new(INBOX);
        self.scratch = vec![0; ferroce_wire::MAX_PACKET_LEN].into();
        self.tables.events.push(AsyncEvent::DeviceFatal);
        let indices: Vec<u16> = self.qps.iter().map(|entry| qps::index_of(entry.machine.qpn())).collect();
        for index in indices {
            if let Some(entry) = self.qps.by_index(index) {
                entry.tally.overrun = true;
            }
            self.note(index);
        }
    }
}

/// A completion queue of this queue pair had no room: all its work fails.
#[cold]
fn end_for_overrun(entry: &mut Entry, tables: &mut Tables, windows: &mut Windows) {
    // What waits for stamps ended before.
    if let Some(mut held) = entry.tally.held.take() {
        let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        while let Some((number, completion)) = held.pop_at_once() {
            view.finish_send(number, &completion);
        }
        entry.tally.held = Some(held);
        entry.tally.overrun = false;
    }
    let watch = entry.tally.watch.take();
    let mut ignored = Tally { overrun: true, watch, ..Tally::default() };
    let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut ignored);
    let error = ferroce_transport::Attributes::to(State::Err);
    // Cannot fail: every state leads to ERR.
    let _ = entry.machine.modify(&error, windows.get(entry.window), &mut view);
    entry.tally.watch = ignored.watch.take();
    entry.tally.ended.add(&ignored.ended);
}

//! Runs into system calls.

use std::io;
use std::net::IpAddr;

use super::super::{Outbox, Route, Run, Sent};
use super::messages::{BATCH, Messages};
use super::name::Name;
use super::outgoing::Outgoing;
use super::segments::Segments;
use super::socket::Family;

/// What sending needs and keeps from one call to the next.
pub(super) struct Sending {
    messages: Messages,
    /// The message of a run that leaves by itself, and what its name and control messages were written for: a program that waits
    /// for its answers sends to the same peer again and again.
    alone: Messages,
    known: Option<Known>,
    /// What each message of the batch carries.
    units: Vec<Unit>,
    segments: Segments,
    peer_port: u16,
    /// The address that the sockets are bound to, if it is one.
    bound: Option<IpAddr>,
}

impl Sending {
    /// Will send to this port, in runs as these segments allow, from sockets that are bound to this address.
    pub(super) fn new(segments: Segments, peer_port: u16, bound: Option<IpAddr>) -> Self {
        let (messages, alone) = (Messages::new(), Messages::with_room(1));
        let units = Vec::with_capacity(BATCH);
        Self { messages, alone, known: None, units, segments, peer_port, bound }
    }

    /// How runs may leave. It becomes [`Segments::SINGLE`] when an interface refuses to cut.
    pub(super) const fn segments(&self) -> Segments {
        self.segments
    }

    /// Sends these runs of the outbox from this socket, and counts what became of them. `is_refused` says that the only one was
    /// [tried alone](Self::send_alone).
    pub(super) fn send(
        &mut self,
        outgoing: &mut Outgoing,
        outbox: &Outbox,
        (runs, is_refused): (&[Run], bool),
        sent: &mut Sent,
    ) {
        if let [run] = runs
            && !is_refused
            && self.send_alone(outgoing, outbox, run, sent)
        {
            return;
        }
        self.units.clear();
        let mut batch = Batch { sending: self, outgoing, outbox, sent };
        for run in runs {
            batch.add(run);
        }
        batch.flush();
    }

    /// Sends a run that is one message, which a program that waits for its answer sends. False if it is none, or was refused:
    /// then nothing of it was sent, and a [`Batch`] of it finds out why.
    #[inline]
    pub(super) fn send_alone(
        &mut self,
        outgoing: &Outgoing,
        outbox: &Outbox,
        run: &Run,
        sent: &mut Sent,
    ) -> bool {
        if run.stamp.is_some() {
            return false;
        }
        let what = (&run.route, outbox.bytes(run));
        let Some(is_sent) = self.send_bytes(outgoing, what, run.segment, run.packets) else { return false };
        sent.calls += 1;
        sent.packets += if is_sent { run.packets as u64 } else { 0 };
        is_sent
    }

    /// Sends a run that is one message in one call, whose first packet has `segment` bytes. Whether the system took it; `None` if it
    /// was not asked.
    #[inline(always)]
    pub(super) fn send_bytes(
        &mut self,
        outgoing: &Outgoing,
        (route, bytes): (&Route, &[u8]),
        segment: usize,
        packets: usize,
    ) -> Option<bool> {
        let cut = self.segments.cut(segment, bytes.len(), packets);
        if cut.is_none() && packets > 1 {
            return None;
        }
        let (socket, family) = (outgoing.socket(), outgoing.socket().family());
        let is_known = |known: &Known| known.cut == cut && known.family == family && known.route == *route;
        if !self.known.as_ref().is_some_and(is_known)
            && !self.get_to_know(Known { route: *route, cut, family })
        {
            return None;
        }
        self.alone.turn_to(0, bytes);
        // SAFETY: the entry was set by `get_to_know`, and just now with bytes that are borrowed until the call is over.
        Some(unsafe { self.alone.send_one(socket.raw(), 0) }.is_ok())
    }

    /// Writes the name and the control messages of a run that leaves by itself. False if such a socket cannot reach the peer.
    #[inline(never)]
    fn get_to_know(&mut self, known: Known) -> bool {
        let Known { route, cut, family } = known;
        self.known = None;
        let Some(name) = Name::new(family, route.remote, self.peer_port) else { return false };
        if route.local.is_ipv4() != route.remote.is_ipv4() {
            return false;
        }
        self.alone.control(0).describe(&route, cut, self.bound);
        self.alone.outgoing(0, &[], name);
        self.known = Some(known);
        true
    }
}

/// What the kernel has to be told of a run beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    route: Route,
    cut: Option<u16>,
    family: Family,
}

/// One message: a run, or one packet of it.
#[derive(Clone, Copy, Debug)]
struct Unit {
    run: Run,
    packets: usize,
}

/// Messages on their way from one socket. The outbox stays borrowed for as long as messages point
/// into it.
struct Batch<'a> {
    sending: &'a mut Sending,
    outgoing: &'a mut Outgoing,
    outbox: &'a Outbox,
    sent: &'a mut Sent,
}

impl Batch<'_> {
    fn add(&mut self, run: &Run) {
        let Some(name) = self.name(run) else {
            self.sent.unreachable += run.packets as u64;
            return;
        };
        let cut = self.sending.segments.cut_run(run);
        if cut.is_some() {
            self.push(run, self.outbox.bytes(run), name, cut, run.packets);
            return;
        }
        for packet in self.outbox.packets(run) {
            self.push(run, packet, name, None, 1);
        }
    }

    /// The peer's name; `None` if this socket cannot say it, or the route is from one family to the other.
    fn name(&self, run: &Run) -> Option<Name> {
        let route = &run.route;
        let same = route.local.is_ipv4() == route.remote.is_ipv4();
        let name = Name::new(self.outgoing.socket().family(), route.remote, self.sending.peer_port);
        name.filter(|_| same)
    }

    fn push(&mut self, run: &Run, bytes: &[u8], name: Name, cut: Option<u16>, packets: usize) {
        if self.sending.units.len() == BATCH {
            self.flush();
        }
        let at = self.sending.units.len();
        let bound = self.sending.bound;
        let control = self.sending.messages.control(at);
        control.describe(&run.route, cut, bound);
        let stamp = run.stamp.filter(|_| self.outgoing.can_stamp());
        if stamp.is_some() {
            control.ask_for_stamp();
        }
        self.sending.messages.outgoing(at, bytes, name);
        self.sending.units.push(Unit { run: Run { stamp, ..*run }, packets });
    }

    /// Sends all messages of the batch; those that the system refuses are lost.
    fn flush(&mut self) {
        let end = self.sending.units.len();
        let mut at = 0;
        let mut may_be_old = self.outgoing.hears();
        while at < end {
            match self.call(at, end) {
                Ok(taken) => {
                    let units = &self.sending.units[at..at + taken];
                    self.sent.packets += units.iter().map(|unit| unit.packets as u64).sum::<u64>();
                    for ticket in units.iter().filter_map(|unit| unit.run.stamp) {
                        self.outgoing.stamped(ticket);
                    }
                    at += taken;
                }
                // The kernel tells what became of an earlier packet by refusing a later one, once.
                Err(_) if may_be_old => may_be_old = false,
                Err(error) => {
                    may_be_old = self.outgoing.hears();
                    let unit = self.sending.units[at];
                    if unit.run.stamp.is_some() {
                        self.outgoing.refused();
                    }
                    match error.raw_os_error() {
                        Some(libc::EINVAL) if unit.run.route.flow_label != 0 => {
                            // The same message again, without its label.
                            self.sending.units[at].run.route.flow_label = 0;
                            self.describe(at);
                            continue;
                        }
                        Some(libc::EINVAL | libc::EIO) if unit.packets > 1 => self.send_singly(at, &unit.run),
                        _ => self.lose(unit.packets, &error),
                    }
                    at += 1;
                }
            }
        }
        self.sending.units.clear();
    }

    /// Writes the control messages of a unit of the batch anew. The kernel refuses all labels while a program on
    /// this machine has one of them for itself alone, unless they are leased; a packet without one still arrives.
    fn describe(&mut self, at: usize) {
        let Unit { run, packets } = self.sending.units[at];
        let cut = if packets > 1 { self.sending.segments.cut_run(&run) } else { None };
        let bound = self.sending.bound;
        self.sending.messages.control(at).describe(&run.route, cut, bound);
        self.sending.messages.measure(at);
    }

    /// A run was refused. That may be for its segments, or for something that single packets will be
    /// refused for too, such as a source address that is gone: only if a packet passes alone, the
    /// interface cannot cut, and will not be asked again.
    fn send_singly(&mut self, at: usize, run: &Run) {
        let Some(name) = self.name(run) else { return };
        for packet in self.outbox.packets(run) {
            let bound = self.sending.bound;
            self.sending.messages.control(at).describe(&run.route, None, bound);
            self.sending.messages.outgoing(at, packet, name);
            match self.call(at, at + 1) {
                Ok(_) => {
                    self.sent.packets += 1;
                    self.sending.segments = Segments::SINGLE;
                }
                Err(error) => self.lose(1, &error),
            }
        }
    }

    /// Hands messages to the system: how many were taken, at least one, or why the first was not.
    fn call(&mut self, from: usize, to: usize) -> io::Result<usize> {
        loop {
            self.sent.calls += 1;
            let (messages, socket) = (&mut self.sending.messages, self.outgoing.socket().raw());
            let result = if to - from == 1 {
                // SAFETY: entries `from..to` were set by `push` or `send_singly` since the batch was begun,
                // with bytes of the outbox, which this batch borrows.
                unsafe { messages.send_one(socket, from) }.map(|()| 1)
            } else {
                // SAFETY: as above.
                unsafe { messages.send(socket, from..to) }
            };
            match result {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // No system is known to say so; it must not become a loop without end.
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::EAGAIN)),
                result => return result,
            }
        }
    }

    fn lose(&mut self, packets: usize, error: &io::Error) {
        let count = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &mut self.sent.no_room,
            Some(libc::EMSGSIZE) => &mut self.sent.too_long,
            _ => &mut self.sent.unreachable,
        };
        *count += packets as u64;
    }
}

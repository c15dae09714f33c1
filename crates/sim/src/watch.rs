//! The observer of a run: feeds the checkers, counts coverage, writes the trace.

use ferroce_transport::{Event, State, Status, Time};
use ferroce_wire::{Packet, Service};

use crate::check::Violation;
use crate::check::model::{Cause, Model};
use crate::coverage::{Coverage, Kind, event_name, status_name};
use crate::host::Action;
use crate::link::Fault;
use crate::node::{Datagram, Received};
use crate::trace::Trace;
use crate::world::{At, HostState, Observer};

/// Everything that looks on.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    /// What was posted and what became of it.
    pub model: Model,
    /// What was met.
    pub coverage: Coverage,
    /// Readable lines.
    pub trace: &'a mut Trace,
    /// What the program should hear about.
    pub news: Vec<News>,
    /// Requests that a send queue holds.
    pub max_send: u32,
}

/// Something that a program would react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// This end is in error.
    Broken(usize),
    /// The send queue of this end is drained.
    Drained(usize),
    /// A send of this end completed.
    Sent {
        /// The end.
        end: usize,
        /// The request.
        id: u64,
        /// Whether it succeeded.
        good: bool,
    },
    /// A key of this end was taken out of use by its peer.
    Invalidated(usize, u32),
    /// A window of this end now has this key.
    Bound(usize, u32),
}

impl Watch<'_> {
    /// Counts a fault and writes it down.
    pub(crate) fn inject(&mut self, now: Time, fault: Fault, what: impl FnOnce() -> String) {
        self.coverage.count(Kind::Fault, fault.name());
        self.trace.line(now, || format!("FAULT {}: {}", fault.name(), what()));
    }

    fn act(&mut self, hosts: &[HostState], at: At, end: usize, action: &Action) -> Result<(), Violation> {
        let memory = &hosts[at.host].node.device.memory;
        match *action {
            Action::WroteLocal { address, len } => self.model.wrote_local(memory, end, address, len),
            Action::WroteRemote { by, address, len } => {
                self.model.wrote_remote(memory, at.host, by, (address, len))
            }
            Action::Atomic { by, address, op, original } => {
                self.model.atomic(memory, at.host, by, (address, op, original))
            }
            Action::SendDone(completion) => {
                self.coverage.count(Kind::Status, status_name(completion.status));
                let good = completion.status == Status::Success;
                self.news.push(News::Sent { end, id: completion.id, good });
                self.model.send_done(hosts, end, &completion)
            }
            Action::ReceiveDone(completion) => {
                self.coverage.count(Kind::Status, status_name(completion.status));
                if let Some(key) = completion.invalidated {
                    self.news.push(News::Invalidated(end, key.0));
                }
                self.model.receive_done(memory, end, &completion)
            }
            Action::Event(_, event) => {
                self.coverage.count(Kind::Event, event_name(event));
                if event == Event::SendQueueDrained {
                    self.news.push(News::Drained(end));
                }
                self.model.event(end, event)
            }
            Action::TookShared(_, id) => self.model.took_shared(end, at.host, id),
            Action::Bound(bind) => {
                self.news.push(News::Bound(end, bind.new_key.0));
                self.model.done_here(end, |op| matches!(op, ferroce_transport::SendOp::BindWindow(_)))
            }
            Action::Invalidated(key) => self.model.invalidated(end, key),
        }
    }
}

impl Observer for Watch<'_> {
    type Error = Violation;

    fn acted(&mut self, now: Time, hosts: &[HostState], at: At, action: &Action) -> Result<(), Violation> {
        let end = self.model.end_at(at);
        self.trace.line(now, || format!("host {} end {end} {action:x?}", at.host));
        self.act(hosts, at, end, action)
    }

    fn returned(&mut self, now: Time, hosts: &[HostState], at: At) -> Result<(), Violation> {
        let end = self.model.end_at(at);
        let state = hosts[at.host].node.queue_pair(at.slot).state();
        if state != self.model.ends[end].state {
            self.coverage.count(Kind::State, state.name());
            self.trace.line(now, || format!("host {} end {end} is in {state}", at.host));
        }
        self.model.witness_return(hosts, end, state)?;
        self.model.state(end, state)?;
        if self.model.ends[end].cause.is_some() {
            self.news.push(News::Broken(end));
        }
        self.model.check_bounds(hosts, at, self.max_send)
    }

    fn sent(&mut self, now: Time, hosts: &[HostState], at: At, datagram: &Datagram) -> Result<(), Violation> {
        let packet = Packet::parse(&datagram.bytes);
        if let Ok(packet) = &packet {
            self.coverage.packet(packet);
        }
        let end = self.model.end_at(at);
        self.trace.line(now, || match packet {
            Ok(packet) => format!("host {} end {end} -> host {}: {packet}", at.host, datagram.to),
            Err(error) => format!("host {} end {end} sends what is no packet: {error}", at.host),
        });
        match packet {
            Ok(packet) => self.model.witness_departure(hosts, end, &packet),
            Err(_) => Ok(()),
        }
    }

    fn fault(&mut self, now: Time, fault: Fault, datagram: &Datagram) {
        self.coverage.count(Kind::Fault, fault.name());
        let end = self.model.end_at(At { host: datagram.from, slot: datagram.slot });
        // A copy that arrives late is a packet out of sequence: it may meet a responder that was
        // sent back meanwhile, and cost a retry like a gap (seed 56591).
        if fault != Fault::Mark {
            for end in [Some(end), self.model.ends[end].peer].into_iter().flatten() {
                self.model.ends[end].disturbances += 1;
            }
        }
        if fault == Fault::Duplicate && self.model.ends[end].service == Service::Ud {
            self.model.ends[end].doubled += 1;
        }
        self.trace.line(now, || {
            if let (Fault::Lie, Ok(packet)) = (fault, Packet::parse(&datagram.bytes)) {
                return format!("LIE of end {end} -> host {}: {packet}", datagram.to);
            }
            let psn = u32::from_be_bytes([0, datagram.bytes[9], datagram.bytes[10], datagram.bytes[11]]);
            format!("FAULT {}: end {end} -> host {} psn=0x{psn:06x}", fault.name(), datagram.to)
        });
    }

    fn received(&mut self, now: Time, datagram: &Datagram, outcome: Received) -> Result<(), Violation> {
        self.trace.line(now, || match (Packet::parse(&datagram.bytes), outcome) {
            (Ok(packet), Received::By(_)) => format!("host {} takes {packet}", datagram.to),
            (_, outcome) => format!("host {} refuses a packet: {outcome:?}", datagram.to),
        });
        if let (Received::By(slot), Ok(packet)) = (outcome, Packet::parse(&datagram.bytes)) {
            let end = self.model.end_at(At { host: datagram.to, slot });
            self.model.witness_arrival(end, &packet);
        }
        self.model.check_received(datagram, outcome)
    }

    fn timer(&mut self, now: Time, at: At) {
        let end = self.model.end_at(at);
        self.trace.line(now, || format!("host {} end {end} timer", at.host));
    }
}

impl Watch<'_> {
    /// The program itself moves an end into error.
    pub(crate) fn program_breaks(&mut self, end: usize) {
        self.model.ends[end].cause.get_or_insert(Cause::Program);
    }

    /// Whether an end can be used by its program.
    #[must_use]
    pub(crate) fn is_usable(&self, end: usize) -> bool {
        let end = &self.model.ends[end];
        end.is_usable() && matches!(end.state, State::Rts | State::Sqd)
    }
}

//! The prober over a queue pair.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce_verbs::cm::{CmOptions, resolve};
use ferroce_verbs::{AddressHandle, AddressVector, Context, PathErrorKind, PathReport, SourcePort, Status};

use super::QKEY;
use super::clock::{CardClock, ProbeClock};
use super::end_error::ProbeEndError;
use super::link::{Link, News};
use super::tracing::Tracing;
use crate::counters::{OutcomeCounters, ProberCounters};
use crate::directions::Directions;
use crate::packet::{Packet, Ports, Sequence};
use crate::paths::{Trace, TracerConfig};
use crate::prober::{Arrival, ProbeEvent, Prober, ProberConfig};
use crate::report::Peer;
use crate::stamp::Stamp;
use crate::watchdog::{Pace, PaceChange, Watchdog, WatchdogConfig};

/// Ways to targets that are kept; when there are more, all are made anew.
const HANDLES: usize = 4096;

/// Kinds of complaints that are told apart.
const COMPLAINTS: usize = 64;

/// While a path is traced, routers are looked for this often: what they send back wakes no thread.
const LOOK: Duration = Duration::from_millis(1);

/// How many hops a probe may take.
const HOPS: u8 = 64;

/// A prober with a queue pair of its own.
///
/// [`probe`](Self::probe) sends a probe, [`turn`](Self::turn) takes in what came, [`poll`](Self::poll) tells
/// how probes ended, and [`sleep_until`](Self::sleep_until) waits in between.
#[derive(Debug)]
pub struct ProberEnd<C = CardClock> {
    link: Link<C>,
    context: Context,
    address: IpAddr,
    prober: Prober,
    watchdog: Watchdog,
    pace_change: Option<PaceChange>,
    handles: HashMap<(IpAddr, u16, u8), AddressHandle>,
    tracing: Option<Tracing>,
    complaints: Vec<Complaint>,
    tracings: Tracings,
}

/// What a router or a host said of probes that it did not pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The router or host.
    pub offender: IpAddr,
    /// Why.
    pub kind: PathErrorKind,
    /// How many probes it was said of.
    pub count: u64,
}

/// Asks hosts for their responders.
#[derive(Clone, Debug)]
pub struct Finder {
    context: Context,
    address: IpAddr,
}

impl Finder {
    /// Asks the card of a host for its responder, under a port that stands for it.
    ///
    /// # Errors
    /// The host does not answer within the limit, or has no responder.
    pub fn find(&self, host: IpAddr, service: u16, limit: Duration) -> Result<Peer, ProbeEndError> {
        let options = CmOptions::default().timeout(limit);
        let found = resolve(&self.context, self.address, SocketAddr::new(host, service), &options)?;
        if found.qkey != QKEY {
            return Err(ProbeEndError::OtherKey { host, found: found.qkey });
        }
        Ok(Peer { address: found.gid.ip(), qpn: found.qpn.get() })
    }
}

/// What became of the packets that traces sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracings {
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, packets that a router named itself for.
    pub routers: u64,
    /// What routers sent back that fits no packet of ours, or too little of it to tell.
    pub foreign: u64,
}

impl ProberEnd {
    /// A prober on this address of a card.
    ///
    /// # Errors
    /// The card does not give what it needs.
    pub fn open(context: &Context, address: IpAddr, config: ProberConfig) -> Result<Self, ProbeEndError> {
        Self::open_by(context, address, config, CardClock)
    }
}

impl<C: ProbeClock> ProberEnd<C> {
    /// The same, by another clock.
    ///
    /// # Errors
    /// As above.
    #[doc(hidden)]
    pub fn open_by(
        context: &Context,
        address: IpAddr,
        config: ProberConfig,
        clock: C,
    ) -> Result<Self, ProbeEndError> {
        let link = Link::open(context, address, clock)?;
        let epoch = u32::from_ne_bytes(context.random_bytes());
        Ok(Self {
            link,
            context: context.clone(),
            address,
            prober: Prober::new(config, Sequence::new(epoch, 0)),
            watchdog: Watchdog::new(WatchdogConfig::default()),
            pace_change: None,
            handles: HashMap::new(),
            tracing: None,
            complaints: Vec::new(),
            tracings: Tracings::default(),
        })
    }

    /// Asks the card of a host for its responder, under a port that stands for it.
    ///
    /// # Errors
    /// The host does not answer within the limit, or has no responder.
    pub fn find(&self, host: IpAddr, service: u16, limit: Duration) -> Result<Peer, ProbeEndError> {
        self.finder().find(host, service, limit)
    }

    /// What asks for responders in another thread, while this one probes.
    #[must_use]
    pub fn finder(&self) -> Finder {
        Finder { context: self.context.clone(), address: self.address }
    }

    /// The card that it probes with.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// What its clock shows now.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.link.clock.now()
    }

    /// The number of its queue pair.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.link.qp.qpn().get()
    }

    /// The UDP source port that probes of this port leave from; without one, that of the card's choice.
    ///
    /// # Errors
    /// They cannot leave from it: with the reason.
    pub fn port_to(&mut self, target: IpAddr, port: Option<u16>) -> Result<u16, ProbeEndError> {
        let handle = self.handle(target, port, HOPS)?;
        Ok(port.unwrap_or_else(|| handle.source_port()))
    }

    /// Sends a probe, from this UDP source port and no other, or from that of the card's choice.
    ///
    /// # Errors
    /// It was not sent: with the reason.
    pub fn probe(&mut self, target: Peer, port: Option<u16>) -> Result<Sequence, ProbeEndError> {
        let handle = self.handle(target.address, port, HOPS)?;
        if self.link.under_way >= super::link::SENDS {
            self.turn()?;
            let under_way = self.link.under_way;
            if under_way >= super::link::SENDS {
                return Err(ProbeEndError::Busy { under_way });
            }
        }
        let sent = port.unwrap_or_else(|| handle.source_port());
        let packet = self.prober.start(target, Ports { sent, reply: sent }, self.now())?;
        let posted = self.link.send(&handle, target.qpn, packet.sequence.0, &packet);
        if posted.is_err() {
            self.prober.send_failed(packet.sequence);
        }
        posted.map(|()| packet.sequence)
    }

    /// Takes in everything that came, and lets time pass for the machine.
    ///
    /// # Errors
    /// The queue pair does not work any more.
    pub fn turn(&mut self) -> Result<(), ProbeEndError> {
        let Self { link, prober, tracing, watchdog, pace_change, .. } = self;
        link.turn(|link, news, now| {
            match news {
                News::Sent(done) => {
                    let sequence = Sequence(done.id);
                    let tracing = tracing.as_mut().filter(|tracing| tracing.has(sequence));
                    match (done.status, link.clock.stamp_of(&done), tracing) {
                        (Status::Success, Some((at, source)), None) => prober.sent(sequence, at, source),
                        (Status::Success, None, None) => prober.clock_stepped(),
                        (_, _, None) => prober.send_failed(sequence),
                        (Status::Success, Some((at, source)), Some(tracing)) => {
                            tracing.sent(sequence, at, source);
                        }
                        (_, _, Some(tracing)) => tracing.send_failed(sequence),
                    }
                }
                News::Came(done, datagram) => {
                    let Some((at, source)) = link.clock.stamp_of(&done) else {
                        prober.clock_stepped();
                        return Ok(());
                    };
                    let arrival = Arrival { bytes: datagram.bytes(), from: datagram.from, at, source };
                    if let Some(change) = watchdog.handled(at, now) {
                        *pace_change = Some(change);
                    }
                    let sequence = Packet::parse(arrival.bytes).map(|packet| packet.sequence);
                    let tracing = tracing.as_mut();
                    match tracing.filter(|tracing| sequence.is_ok_and(|sequence| tracing.has(sequence))) {
                        Some(tracing) => tracing.take(&arrival, now),
                        None => prober.take(&arrival, now),
                    }
                }
            }
            Ok(())
        })?;
        for report in self.link.qp.path_reports() {
            self.sent_back(&report);
        }
        let now = self.now();
        self.prober.advance(now);
        if let Some(tracing) = &mut self.tracing {
            tracing.advance(now);
        }
        Ok(())
    }

    /// Sleeps until something came, a probe is overdue, or this time; then [`turn`](Self::turn).
    pub fn sleep_until(&mut self, due: Stamp) {
        let due = self.prober.wake_at().map_or(due, |wake| wake.min(due));
        self.link.sleep(self.link.clock.until(due));
        let now = self.now();
        if now >= due
            && let Some(change) = self.watchdog.woke(due, now)
        {
            self.pace_change = Some(change);
        }
    }

    /// What happened to probes, in order; none if nothing more did.
    pub fn poll(&mut self) -> Option<ProbeEvent> {
        self.prober.poll()
    }

    /// Probes that are not over.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.prober.pending()
    }

    /// How fast to probe, as our own host is busy or not.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.watchdog.pace()
    }

    /// The last change of the pace, once.
    pub const fn pace_change(&mut self) -> Option<PaceChange> {
        self.pace_change.take()
    }

    /// What was sent and what came, by kind.
    #[must_use]
    pub const fn counters(&self) -> &ProberCounters {
        self.prober.counters()
    }

    /// How the probes ended.
    #[must_use]
    pub const fn outcomes(&self) -> &OutcomeCounters {
        self.prober.outcomes()
    }

    /// Which way probes to this target from this port were lost, as far as the responder has told; none if none
    /// were sent lately.
    #[must_use]
    pub fn directions(&self, target: Peer, port: u16) -> Option<Directions> {
        self.prober.directions(target, port)
    }

    /// What routers and hosts said of probes that they did not pass on, other than those of traces.
    #[must_use]
    pub fn complaints(&self) -> &[Complaint] {
        &self.complaints
    }

    /// What became of the packets of traces.
    #[must_use]
    pub const fn tracings(&self) -> Tracings {
        self.tracings
    }

    /// Begins to trace paths to this target; ports are added by [`trace_port`](Self::trace_port). Traces that
    /// were under way are given up.
    pub fn trace_to(&mut self, target: Peer, config: TracerConfig) {
        let epoch = u32::from_ne_bytes(self.context.random_bytes());
        self.tracing = Some(Tracing::new(target, config, epoch));
    }

    /// Traces the path of a UDP source port, by probes from exactly this port.
    ///
    /// # Errors
    /// Packets cannot leave from it: with the reason.
    pub fn trace_port(&mut self, port: u16) -> Result<(), ProbeEndError> {
        let Some(target) = self.tracing.as_ref().map(|tracing| tracing.target.address) else { return Ok(()) };
        self.handle(target, Some(port), 1)?;
        if let Some(tracing) = &mut self.tracing {
            tracing.tracer.add(port);
        }
        Ok(())
    }

    /// Waits for the next trace to be finished; none if no port is being traced, or this time has come.
    ///
    /// # Errors
    /// The queue pair does not work any more.
    pub fn next_trace(&mut self, limit: Stamp) -> Result<Option<Trace>, ProbeEndError> {
        loop {
            self.turn()?;
            let now = self.now();
            let Some(tracing) = &mut self.tracing else { return Ok(None) };
            if let Some(trace) = tracing.tracer.poll() {
                return Ok(Some(trace));
            }
            let Some(due) = tracing.tracer.wake_at() else { return Ok(None) };
            if now >= limit {
                return Ok(None);
            }
            if due <= now {
                self.ask(now)?;
                continue;
            }
            self.link.sleep(self.link.clock.until(due.min(limit)).min(LOOK));
        }
    }

    /// Sends what traces want to know next.
    fn ask(&mut self, now: Stamp) -> Result<(), ProbeEndError> {
        let Some(tracing) = &mut self.tracing else { return Ok(()) };
        let target = tracing.target;
        let Some(asked) = tracing.ask(now) else { return Ok(()) };
        let (ask, packet) = asked?;
        let handle = self.handle(target.address, Some(ask.port), ask.hop_limit)?;
        let posted = self.link.send(&handle, target.qpn, packet.sequence.0, &packet);
        match (posted, &mut self.tracing) {
            (Ok(()), _) => self.tracings.sent += 1,
            // It is asked for again later.
            (Err(ProbeEndError::Busy { .. }), Some(tracing)) => tracing.send_failed(packet.sequence),
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    fn sent_back(&mut self, report: &PathReport) {
        let error = report.error;
        if error.kind == PathErrorKind::HopLimit
            && let Some(tracing) = &mut self.tracing
        {
            let (offender, remote, port) = (error.offender, error.remote, error.source_port);
            let is_ours = tracing.sent_back(report.quoted(), offender, remote, port);
            let counter = if is_ours { &mut self.tracings.routers } else { &mut self.tracings.foreign };
            *counter += 1;
            return;
        }
        let offender = error.offender.to_canonical();
        let is_full = self.complaints.len() >= COMPLAINTS;
        let same = |known: &&mut Complaint| (known.offender, known.kind) == (offender, error.kind);
        match self.complaints.iter_mut().find(same) {
            Some(known) => known.count += 1,
            None if is_full => {}
            None => self.complaints.push(Complaint { offender, kind: error.kind, count: 1 }),
        }
    }

    fn handle(
        &mut self,
        target: IpAddr,
        port: Option<u16>,
        hop_limit: u8,
    ) -> Result<AddressHandle, ProbeEndError> {
        let key = (target, port.unwrap_or(0), hop_limit);
        if let Some(known) = self.handles.get(&key) {
            return Ok(known.clone());
        }
        let vector = AddressVector {
            hop_limit,
            source_port: port.map_or(SourcePort::Any, SourcePort::Require),
            ..AddressVector::new(target.into(), self.link.gid_index)
        };
        let handle = self.link.pd.address_handle(&vector);
        let handle = handle.map_err(|error| ProbeEndError::Port { port: key.1, target, error })?;
        if self.handles.len() >= HANDLES {
            self.handles.clear();
        }
        self.handles.insert(key, handle.clone());
        Ok(handle)
    }
}

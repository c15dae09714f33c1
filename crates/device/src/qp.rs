//! Queue pairs as programs hold them.

mod path;

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use ferroce_fabric::{Path, PathChoice, PathPolicy, PathReason};
use ferroce_progress::AckDelay;
use ferroce_record::Step;
use ferroce_switchboard::slot_of;
use ferroce_sys::sync::lock;
use ferroce_transport::{
    AttributeMask, Attributes, Caps, Counters, DomainId, PostError, PostListError, QpConfig, QueuePair,
    ReceiveRequest, SendRequest, State,
};
use ferroce_wire::{Gid, PathMtu, Qpn, Service};

use crate::address::{AddressVector, To, connection_label};
use crate::counters::QpReport;
use crate::cq::CompletionQueue;
use crate::engine::Engine;
use crate::engine::host::View;
use crate::engine::path_report::PathReport;
use crate::engine::qp_shared::QpShared;
use crate::engine::qps::{Entry, Tally, index_of};
use crate::engine::recording::receives_of;
use crate::engine::windows::WindowId;
use crate::error::{NicCreateError, NicQpError};
use crate::limits::Limits;
use crate::nic::Nic;
use crate::posting::Addressee;
use crate::record;
use crate::srq::SharedQueue;

/// What a queue pair is made of.
#[derive(Debug)]
pub struct QpSpec<'a> {
    /// RC, UC or UD.
    pub service: Service,
    /// The protection domain of its memory.
    pub domain: DomainId,
    /// The completion queue of the sends.
    pub send_cq: &'a Arc<CompletionQueue>,
    /// The completion queue of the receives.
    pub receive_cq: &'a Arc<CompletionQueue>,
    /// The shared queue that receives come from, if they do not come from a queue of its own.
    pub shared_queue: Option<&'a Arc<SharedQueue>>,
    /// How large its queues are.
    pub caps: Caps,
    /// Whether every send gives a completion.
    pub signal_all: bool,
    /// Whether it may meet its peer in this process; the device's policy if nothing is said.
    pub path: Option<PathPolicy>,
    /// The engine that it is to live in; if nothing is said, the one with the least on it. A queue pair with
    /// a shared receive queue lives where that does.
    pub engine: Option<usize>,
    /// Whether completions of datagrams tell when the kernel saw their packets leave and come, instead of when the
    /// engine was turned, and what routers send back is kept. Every send completes then.
    pub stamps: bool,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    nic: Nic,
    qpn: Qpn,
    /// The engine that it lives in.
    engine: usize,
    service: Service,
    policy: PathPolicy,
    shared: Arc<QpShared>,
    address: Mutex<Option<AddressVector>>,
    // A queue pair keeps alive what it completes into and receives from.
    send_cq: Arc<CompletionQueue>,
    receive_cq: Arc<CompletionQueue>,
    shared_queue: Option<Arc<SharedQueue>>,
}

/// What a queue pair is like now.
#[derive(Clone, Copy, Debug)]
pub struct QpState {
    /// State and attributes.
    pub attributes: Attributes,
    /// Where its peer is.
    pub address: Option<AddressVector>,
    /// How large its queues are.
    pub caps: Caps,
    /// Which way its packets take; decided with RTR.
    pub path: Option<PathChoice>,
    /// What has happened to it.
    pub counters: Counters,
}

impl Qp {
    /// A queue pair in RESET.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn new(nic: &Nic, spec: &QpSpec<'_>) -> Result<Arc<Self>, NicCreateError> {
        check(nic, spec)?;
        let caps = spec.caps;
        let caps = match spec.shared_queue {
            Some(queue) => Caps { max_receive: 0, max_receive_sge: queue.max_sge(), ..caps },
            None => caps,
        };
        let (send_cq, receive_cq) = (spec.send_cq.id(), spec.receive_cq.id());
        nic.use_domain(spec.domain)?;
        // Its queues may be large: they are made before other threads have to wait.
        let mut machine = QueuePair::new(QpConfig {
            qpn: Qpn::SMI,
            service: spec.service,
            domain: spec.domain,
            caps,
            signal_all: spec.signal_all || spec.stamps,
            shared_queue: spec.shared_queue.map(|queue| queue.id()),
        });
        machine.limit_datagrams(nic.active_mtu());
        machine.set_pkeys(nic.config().pkeys);
        let shared = Arc::new(QpShared {
            domain: spec.domain,
            caps,
            shared_queue: spec.shared_queue.map(|queue| queue.id()),
            rules: Mutex::new(machine.rules()),
            sends: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            most_sends: AtomicU32::new(0),
            most_receives: AtomicU32::new(0),
        });
        let mut entry = Box::new(Entry {
            machine,
            send_cq,
            receive_cq,
            window: WindowId::NONE,
            way: None,
            path: None,
            peer: Qpn::SMI,
            neighbour: None,
            incarnation: None,
            queued: false,
            waiting: false,
            owing: false,
            ack_delay: AckDelay::default(),
            scheduled: None,
            counted: 0,
            counted_receives: 0,
            tally: Tally { held: spec.stamps.then(Box::default), ..Tally::default() },
            sends_posted: 0,
            sends_done: 0,
            receives_posted: 0,
            shared: Arc::clone(&shared),
        });
        let engines = nic.engines();
        let engine = match spec.shared_queue {
            Some(queue) => queue.home(),
            None => spec.engine.unwrap_or_else(|| engines.emptiest()),
        };
        spec.send_cq.attach(engine);
        spec.receive_cq.attach(engine);
        let qpn = engines.control(engine, |inside| {
            if spec.stamps {
                let follows = inside.follow_packets();
                follows.map_err(|error| NicCreateError::NoStamps { why: error.to_string() })?;
            }
            let Engine { qps, random, .. } = inside;
            let qpn = if qps.count() < Limits::QUEUE_PAIRS { qps.deal(random) } else { None };
            if let Some(qpn) = qpn {
                entry.machine.set_number(qpn);
                qps.insert(qpn, entry);
                inside.qps_made += 1;
                inside.record_made(qpn);
                if spec.service == Service::Ud {
                    // What comes with a datagram is shown to its receiver.
                    inside.port.fabric.show_marks();
                }
            }
            Ok(qpn)
        });
        let qpn = qpn.inspect_err(|_: &NicCreateError| {
            nic.leave_domain(spec.domain);
        })?;
        if let Some(qpn) = qpn {
            engines.station(engine).settle_in();
            if spec.service == Service::Ud {
                engines.station(engine).expect_packets();
            }
            spec.send_cq.enroll(qpn, &shared);
            spec.receive_cq.enroll(qpn, &shared);
        }
        let Some(qpn) = qpn else {
            nic.leave_domain(spec.domain);
            return Err(NicCreateError::TooMany { what: "queue pairs", allowed: Limits::QUEUE_PAIRS });
        };
        Ok(Arc::new(Self {
            nic: nic.clone(),
            qpn,
            engine,
            service: spec.service,
            policy: spec.path.unwrap_or(nic.config().path),
            shared,
            address: Mutex::new(None),
            send_cq: Arc::clone(spec.send_cq),
            receive_cq: Arc::clone(spec.receive_cq),
            shared_queue: spec.shared_queue.cloned(),
        }))
    }

    /// What routers and hosts have sent back of its datagrams since it was asked last, oldest first.
    #[must_use]
    pub fn path_reports(&self) -> Vec<PathReport> {
        self.nic.engines().control(self.engine, |engine| {
            let held = engine.qps.get(self.qpn).and_then(|entry| entry.tally.held.as_mut());
            held.map(|held| held.reports.drain(..).collect()).unwrap_or_default()
        })
    }

    /// The number of the queue pair.
    #[must_use]
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The engine that it lives in.
    #[must_use]
    pub const fn engine(&self) -> usize {
        self.engine
    }

    /// The service of the queue pair.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// The protection domain of the queue pair.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.shared.domain
    }

    /// The device.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The completion queue of the sends.
    #[must_use]
    pub const fn send_cq(&self) -> &Arc<CompletionQueue> {
        &self.send_cq
    }

    /// The completion queue of the receives.
    #[must_use]
    pub const fn receive_cq(&self) -> &Arc<CompletionQueue> {
        &self.receive_cq
    }

    /// The shared queue that receives come from, if they do not come from a queue of its own.
    #[must_use]
    pub const fn shared_queue(&self) -> Option<&Arc<SharedQueue>> {
        self.shared_queue.as_ref()
    }

    /// Changes attributes, and with them the state. `address` goes with [`AttributeMask::AV`].
    ///
    /// # Errors
    /// What was given and what is allowed; nothing has changed.
    pub fn modify(&self, attributes: &Attributes, address: Option<&AddressVector>) -> Result<(), NicQpError> {
        self.check_ours()?;
        let given = attributes.mask.contains(AttributeMask::AV);
        let address = match (given, address) {
            (true, None) => return Err(NicQpError::NoAddress),
            (true, address) => address,
            (false, _) => None,
        };
        let label = connection_label(self.qpn, attributes.dest_qpn);
        let resolved = address.map(|address| address.resolve(&self.nic, label, To::Host)).transpose()?;
        let has_state = attributes.mask.contains(AttributeMask::STATE);
        let to_rtr = has_state && attributes.state == State::Rtr;
        let to_reset = has_state && attributes.state == State::Reset;
        let connected = matches!(self.service, Service::Rc | Service::Uc);
        if has_state {
            // What was posted before may not be sent in the new state.
            self.nic.engines().send_waiting(self.engine);
        }
        let near = match resolved {
            Some((_, true)) if connected && to_rtr => self.meet(attributes.dest_qpn),
            _ => None,
        };
        let begins = connected && to_rtr;
        let incarnation = begins.then(|| self.incarnation_of(attributes.dest_qpn)).flatten();
        self.nic.engines().control(self.engine, |engine| {
            let mut peer = attributes.dest_qpn;
            let path = match resolved {
                Some((_, ours)) if connected => {
                    let known = engine.qps.get(self.qpn).map_or(Qpn::SMI, |entry| entry.peer);
                    peer = if to_rtr { attributes.dest_qpn } else { known };
                    let now = engine.qps.get(self.qpn).and_then(|entry| entry.path);
                    let choice = match now.filter(|_| !to_rtr) {
                        // Another address of the same peer: the way through memory stays.
                        Some(now) if now.path == Path::Shared => now,
                        _ => self.choose_path(ours, peer, near),
                    };
                    let is_refused = match self.policy {
                        PathPolicy::Require => choice.path == Path::Wire,
                        PathPolicy::Shared => choice.path != Path::Shared,
                        PathPolicy::Prefer | PathPolicy::Forbid => false,
                    };
                    if is_refused {
                        return Err(NicQpError::PathNotAllowed(choice));
                    }
                    let known = engine.qps.get(self.qpn).map(|entry| entry.machine.rules().path_mtu);
                    self.check_mtu(attributes, known, choice)?;
                    Some(choice)
                }
                _ => None,
            };
            let mut left = None;
            if to_reset {
                engine.release_stamped(index_of(self.qpn));
            }
            let Engine { qps, tables, windows, port, .. } = engine;
            let entry = qps.get(self.qpn).ok_or(NicQpError::Gone)?;
            let forgets = to_reset && tables.record.is_some();
            let receives = if forgets { receives_of(&entry.machine) } else { Vec::new() };
            if let Some(record) = &mut tables.record {
                record.tick();
            }
            let (send_cq, receive_cq) = (entry.send_cq, entry.receive_cq);
            let mut host = View { tables, send_cq, receive_cq, tally: &mut entry.tally };
            entry.machine.modify(attributes, windows.get(entry.window), &mut host)?;
            if let (Some(record), Some(watch)) = (&mut host.tables.record, &mut host.tally.watch) {
                if to_reset {
                    record.forgotten(watch, receives);
                }
                record.state(watch, entry.machine.state(), has_state);
            }
            if to_reset {
                if let Some(held) = &mut host.tally.held {
                    held.reports.clear();
                }
                self.nic.engines().set_uses_wire(self.qpn, false);
                let before = std::mem::replace(&mut entry.window, WindowId::NONE);
                if entry.waiting {
                    windows.leave_queue(before, index_of(self.qpn));
                }
                left = Some(before);
                entry.way = None;
                entry.path = None;
                entry.neighbour = None;
                entry.waiting = false;
                entry.counted = 0;
                entry.counted_receives = 0;
                entry.shared.forget();
                host.tables.memory.unbind_all_of(self.qpn);
            }
            if let Some((way, _)) = resolved {
                entry.way = Some(way);
                if let Some(address) = address.filter(|_| connected) {
                    entry.machine.limit_way(address.static_rate);
                }
                if way.route.traffic_class != 0 {
                    // Programs that use classes are told what became of them: a network may have marked them.
                    port.fabric.show_marks();
                }
            }
            if let (Some(choice), Some(mut way)) = (path, entry.way) {
                entry.path = Some(choice);
                let is_near = self.is_near(resolved.is_some_and(|(_, ours)| ours));
                entry.neighbour = is_near.then_some(slot_of(peer));
                if begins {
                    entry.incarnation = incarnation;
                }
                way.lane = entry.neighbour.filter(|_| choice.path == Path::Shared);
                entry.way = Some(way);
                if choice.path == Path::Wire {
                    self.nic.engines().station(self.engine).expect_packets();
                }
                entry.peer = peer;
                self.nic.engines().set_uses_wire(self.qpn, choice.reason == PathReason::Forbidden);
                let next = windows.join(way.route.remote, peer, way.lane.is_some());
                let before = std::mem::replace(&mut entry.window, next);
                if std::mem::take(&mut entry.waiting) {
                    windows.leave_queue(before, index_of(self.qpn));
                }
                if let Some([before, next]) = windows.two(before, next) {
                    entry.machine.move_to_window(before, next);
                }
                left = Some(before);
                if let (Some(record), Some(way)) = (&mut tables.record, record::way(entry)) {
                    record.push(way);
                }
            }
            // Still inside, so that the last change is the last to be written down.
            *lock(&self.shared.rules) = entry.machine.rules();
            engine.after(index_of(self.qpn));
            if let Some(window) = left {
                engine.call_waiting(window);
                engine.windows.leave(window);
            }
            Ok(())
        })?;
        let mut kept = lock(&self.address);
        if to_reset {
            *kept = None;
        } else if let Some(address) = address {
            *kept = Some(*address);
        }
        Ok(())
    }

    /// Has the queue pair get datagrams that are sent to a multicast group, beside its own: on a loopback
    /// device those of the processes that share the device, elsewhere those of the network.
    ///
    /// # Errors
    /// It is not a datagram queue pair, the address is no group, or there are too many.
    pub fn attach_to_group(&self, group: Gid) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        if self.service != Service::Ud {
            return Err(NicCreateError::NotADatagramQueue { given: self.service.name() });
        }
        let group = crate::address::group_of(group)?;
        self.nic.join_group(group, self.qpn)
    }

    /// Ends that.
    ///
    /// # Errors
    /// It is not attached.
    pub fn detach_from_group(&self, group: Gid) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        let group = group.ip();
        if self.nic.leave_group(group, self.qpn) {
            Ok(())
        } else {
            Err(NicCreateError::NotAttached { group })
        }
    }

    /// Packets of the path MTU must fit the interface, if they use it: also those of a queue pair that
    /// met its peer in this process before.
    fn check_mtu(
        &self,
        attributes: &Attributes,
        known: Option<PathMtu>,
        choice: PathChoice,
    ) -> Result<(), NicQpError> {
        let most = self.nic.active_mtu().bytes();
        let asked = attributes.mask.contains(AttributeMask::PATH_MTU);
        let given = if asked { Some(attributes.path_mtu) } else { known };
        if let Some(given) = given.map(PathMtu::bytes).filter(|given| *given > most)
            && choice.path == Path::Wire
        {
            return Err(NicQpError::MtuTooLarge { given, interface: self.nic.info().mtu, most });
        }
        Ok(())
    }

    /// Takes in what has arrived for it, and sends the acknowledgement that it owes, or the last one once more: for a program
    /// that is about to end its connection. From then on nothing is acknowledged.
    pub fn settle(&self) {
        if self.nic.is_ours() {
            self.nic.engines().take_in(self.engine);
            self.nic.engines().send_owed(self.engine, self.qpn);
        }
    }

    /// Takes in what has arrived for it. Whether there are completions of it that the program has not taken off.
    #[must_use]
    pub fn has_untaken(&self) -> bool {
        if !self.nic.is_ours() {
            return false;
        }
        self.nic.engines().take_in(self.engine);
        [&self.send_cq, &self.receive_cq].iter().any(|cq| cq.shared.holds(self.qpn))
    }

    /// Asks the peer of a reliable connection whether it is there. It notices nothing of it, and no work is
    /// needed; if it answers, there are more [`signs of life`](ferroce_transport::Counters::signs_of_life)
    /// than are returned here. `None` if this queue pair cannot ask: it is of another service, or not ready
    /// to send.
    ///
    /// # Errors
    /// It is gone.
    pub fn ask(&self) -> Result<Option<u64>, NicQpError> {
        self.check_ours()?;
        self.nic.engines().control(self.engine, |engine| {
            let entry = engine.qps.get(self.qpn).ok_or(NicQpError::Gone)?;
            let so_far = entry.machine.signs_of_life();
            let asks = entry.machine.ask();
            if asks {
                engine.after(index_of(self.qpn));
            }
            Ok(asks.then_some(so_far))
        })
    }

    /// What the queue pair is like now.
    ///
    /// # Errors
    /// It is gone.
    pub fn query(&self) -> Result<QpState, NicQpError> {
        self.check_ours()?;
        let address = *lock(&self.address);
        self.nic.engines().control(self.engine, |engine| {
            let entry = engine.qps.get(self.qpn).ok_or(NicQpError::Gone)?;
            Ok(QpState {
                attributes: entry.machine.attributes(),
                address,
                caps: *entry.machine.caps(),
                path: entry.path,
                counters: *entry.machine.counters(),
            })
        })
    }

    /// What the queue pair has done so far, and how full its queues are.
    ///
    /// # Errors
    /// It is gone.
    pub fn report(&self) -> Result<QpReport, NicQpError> {
        self.check_ours()?;
        self.nic.engines().control(self.engine, |engine| {
            let entry = engine.qps.get(self.qpn).ok_or(NicQpError::Gone)?;
            let (send_queue, receive_queue) = entry.levels();
            Ok(QpReport { totals: entry.totals(), send_queue, receive_queue })
        })
    }

    /// Posts sends, in order, and has them begun.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostListError> {
        self.addressee()?.post(requests)
    }

    /// Posts all of these sends, in order, and has them begun; or none of them.
    ///
    /// # Errors
    /// Which was refused, and why; for a queue that has no room for all of them it is the first that has
    /// none. Nothing was posted.
    pub fn post_all_sends<'a>(
        &self,
        requests: impl Iterator<Item = SendRequest<'a>> + Clone,
    ) -> Result<(), PostListError> {
        self.addressee()?.post_all(requests)
    }

    /// Posts receives, in order.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), PostListError> {
        self.addressee()?.post(requests)
    }

    #[inline(always)]
    fn addressee(&self) -> Result<Addressee<'_>, PostListError> {
        if !self.nic.is_ours() {
            return Err(PostListError::new(0, PostError::OtherProcess));
        }
        let engines = self.nic.engines();
        Ok(Addressee { engines, index: self.engine, qpn: self.qpn, shared: &self.shared })
    }

    fn check_ours(&self) -> Result<(), NicQpError> {
        if self.nic.is_ours() { Ok(()) } else { Err(NicQpError::Forked) }
    }
}

/// Whether a queue pair like this can be.
fn check(nic: &Nic, spec: &QpSpec<'_>) -> Result<(), NicCreateError> {
    nic.check_ours()?;
    if !matches!(spec.service, Service::Rc | Service::Uc | Service::Ud) {
        return Err(NicCreateError::NoSuchService { given: spec.service.name() });
    }
    if spec.stamps && spec.service != Service::Ud {
        return Err(NicCreateError::OnlyDatagramsStamped { given: spec.service.name() });
    }
    for cq in [spec.send_cq, spec.receive_cq] {
        if !cq.nic().is_same(nic) {
            return Err(NicCreateError::OtherDevice { what: "completion queue" });
        }
    }
    if let Some(engine) = spec.engine {
        let last = nic.engine_count() - 1;
        NicCreateError::check("as the number of an engine", engine as u64, 0_u64, last as u64)?;
    }
    let caps = &spec.caps;
    NicCreateError::check("send requests", caps.max_send, 0_u32, Limits::QUEUE_DEPTH)?;
    NicCreateError::check("pieces of a send", caps.max_send_sge, 0_u32, Limits::SGE)?;
    NicCreateError::check("inline bytes", caps.max_inline, 0_u32, Limits::INLINE)?;
    match spec.shared_queue {
        None => {
            NicCreateError::check("receive requests", caps.max_receive, 0_u32, Limits::QUEUE_DEPTH)?;
            NicCreateError::check("pieces of a receive", caps.max_receive_sge, 0_u32, Limits::SGE)?;
        }
        Some(queue) if !queue.nic().is_same(nic) => {
            return Err(NicCreateError::OtherDevice { what: "shared receive queue" });
        }
        Some(queue) if queue.domain() != spec.domain => {
            return Err(NicCreateError::OtherDomain { what: "shared receive queue" });
        }
        Some(_) => {}
    }
    Ok(())
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.nic.is_ours() {
            return;
        }
        let engines = self.nic.engines();
        // The peer of a program that ends after its last receive would wait for it in vain.
        engines.send_owed(self.engine, self.qpn);
        // Before its number is free: the next to have it must find nothing of this one, and lose nothing.
        engines.set_uses_wire(self.qpn, false);
        self.nic.leave_all_groups(self.qpn);
        self.send_cq.strike(self.qpn);
        self.receive_cq.strike(self.qpn);
        let entry = engines.control(self.engine, |engine| engine.remove_qp(self.qpn));
        engines.station(self.engine).move_out();
        // Its queues are given back outside of the engine: they may be large.
        drop(entry);
        self.nic.leave_domain(self.shared.domain);
    }
}

impl Engine {
    /// Takes a queue pair away, with everything that it holds.
    fn remove_qp(&mut self, qpn: Qpn) -> Option<Box<Entry>> {
        self.remember(qpn);
        let Self { qps, tables, windows, .. } = self;
        let entry = qps.get(qpn)?;
        let receives = if tables.record.is_some() { receives_of(&entry.machine) } else { Vec::new() };
        let (send_cq, receive_cq) = (entry.send_cq, entry.receive_cq);
        let mut host = View { tables, send_cq, receive_cq, tally: &mut entry.tally };
        // Cannot fail: every state leads to RESET. It gives back what it had under way.
        let _ = entry.machine.modify(&Attributes::to(State::Reset), windows.get(entry.window), &mut host);
        if let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) {
            record.forgotten(watch, receives);
            record.push(record::pair(Step::Gone, entry));
        }
        let window = entry.window;
        if entry.waiting {
            windows.leave_queue(window, index_of(qpn));
        }
        tables.memory.unbind_all_of(qpn);
        let entry = qps.remove(qpn);
        if let Some(entry) = &entry {
            self.gone.add(&entry.totals());
        }
        self.call_waiting(window);
        self.windows.leave(window);
        self.release_regions();
        entry
    }
}

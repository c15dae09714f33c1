//! The thread of a connection manager, and what programs ask of it.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use ferroce_fabric::capture::Capture;
use ferroce_record::Recorder;
use ferroce_switchboard::{Mad, Membership, Refusals, Refuses};
use ferroce_sys::Random;
use ferroce_sys::SignalsBlocked;
use ferroce_sys::clock;
use ferroce_sys::descriptor::{EventFd, wait_either};
use ferroce_sys::fork;
use ferroce_sys::sync::lock;
use ferroce_transport::cm::{
    Accept, Chance, CmCounters, Config, Connect, End, Ends, Event, Limits, Manager, Query, Refused,
};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{CmMad, CmMessage, CommId, RejectReason, SidrRep};

use super::asked::Asked;
use super::books::{Books, News, Watcher};
use super::mailer::Mailer;
use super::parting::Parting;
use super::recording::Recording;
use crate::nic::Nic;

/// Messages that are taken in before timers are looked at.
const LOOK: usize = 256;

/// The connection manager of a device.
pub struct ConnectionManager {
    pub(super) books: Mutex<Books>,
    pub(super) member: Arc<Membership>,
    bell: EventFd,
    stop: AtomicBool,
}

/// A connection manager and its thread.
pub(crate) struct Managing {
    pub(crate) manager: Arc<ConnectionManager>,
    thread: JoinHandle<()>,
}

impl Managing {
    pub(crate) fn start(nic: &Nic, capture: Option<Capture<()>>) -> io::Result<Self> {
        let slot = nic.communication_id(0).to_be_bytes()[0];
        let mut random = Random::from_system()?;
        let chance = Chance::new(move || random.next_u32());
        let config =
            Config { limits: Limits::default(), slot, path_mtu: nic.active_mtu(), pkeys: nic.config().pkeys };
        let mailer = Mailer::new(Arc::clone(nic.member()), capture, nic.config().faults);
        let manager = Arc::new(ConnectionManager {
            books: Mutex::new(Books::new(Manager::new(config, chance), mailer)),
            member: Arc::clone(nic.member()),
            bell: EventFd::new()?,
            stop: AtomicBool::new(false),
        });
        nic.member().count_refusals_of(Arc::downgrade(&manager) as Weak<dyn Refuses>);
        let of_thread = Arc::clone(&manager);
        let _blocked = SignalsBlocked::new();
        let thread = std::thread::Builder::new().name("ferroce-cm".to_owned()).spawn(move || {
            // A panic has said why; connections that stand go on without a manager.
            drop(catch_unwind(AssertUnwindSafe(|| of_thread.run())));
        })?;
        Ok(Self { manager, thread })
    }

    /// Ends the thread. What is to be sent has been sent.
    pub(crate) fn stop(self, generation: u32) {
        if generation != fork::generation() {
            // The thread is the parent's.
            std::mem::forget(self);
            return;
        }
        self.manager.stop.store(true, Ordering::SeqCst);
        self.manager.bell.signal();
        // What happened last may have dropped the last handle of the device: then we are that thread.
        if self.thread.thread().id() != std::thread::current().id() {
            drop(self.thread.join());
        }
    }
}

impl ConnectionManager {
    /// Answers a question for a datagram service; its name and its service are filled in.
    ///
    /// # Errors
    /// The system does not send to the peer, or the device is not ours.
    pub fn answer(&self, asked: &Asked, answer: &SidrRep) -> io::Result<()> {
        if !self.member.is_ours() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.with(|books| books.hearing.answer(&mut books.mailer, asked, answer))
    }

    /// Asks for a connection; the watcher hears what becomes of it.
    ///
    /// # Errors
    /// There are too many.
    pub fn connect(&self, connect: &Connect, watcher: Arc<dyn Watcher>) -> Result<CommId, Refused> {
        self.if_ours(|books| {
            let id = books.manager.connect(clock::now(), connect)?;
            if let Some(record) = &mut books.record {
                record.asked(id, connect);
            }
            books.watchers.insert(id, watcher);
            Ok(id)
        })
    }

    /// Asks for a datagram service.
    ///
    /// # Errors
    /// There are too many questions.
    pub fn resolve(&self, query: &Query, watcher: Arc<dyn Watcher>) -> Result<CommId, Refused> {
        self.if_ours(|books| {
            let id = books.manager.resolve(clock::now(), query)?;
            books.watchers.insert(id, watcher);
            Ok(id)
        })
    }

    /// The queue pair of a connection that was accepted is in RTS.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn ready(&self, id: CommId) -> Result<(), Refused> {
        self.if_ours(|books| books.manager.ready(id))
    }

    /// Accepts a request, with a queue pair in RTS.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn accept(&self, id: CommId, accept: &Accept) -> Result<(), Refused> {
        self.if_ours(|books| {
            books.manager.accept(clock::now(), id, accept)?;
            if let Some(record) = &mut books.record {
                record.accepted(id, accept);
            }
            books.accepted.insert(id);
            Ok(())
        })
    }

    /// Rejects a request, or the peer's acceptance of one of ours.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn reject(&self, id: CommId, reason: RejectReason, private_data: &[u8]) -> Result<(), Refused> {
        self.if_ours(|books| {
            books.watchers.remove(&id);
            books.manager.reject(clock::now(), id, reason, private_data)?;
            if let Some(record) = &mut books.record {
                record.refused(id, reason);
            }
            Ok(())
        })
    }

    /// Forgets a request without a word: there was no room for it, and the peer asks again.
    pub fn forget(&self, id: CommId) {
        if self.member.is_ours() {
            self.with(|books| {
                books.watchers.remove(&id);
                books.manager.forget(id);
            });
        }
    }

    /// Data of the peer have come before its confirmation: the connection stands. False if it stood already.
    ///
    /// # Errors
    /// It was not accepted, or is over.
    pub fn data_arrived(&self, id: CommId) -> Result<bool, Refused> {
        self.if_ours(|books| {
            if books.manager.awaits_ready(id) {
                books.manager.data_arrived(id);
                return Ok(true);
            }
            if books.manager.is_established(id) { Ok(false) } else { Err(Refused::NotPending) }
        })
    }

    /// Whether a request still waits for an answer.
    #[must_use]
    pub fn is_pending(&self, id: CommId) -> bool {
        self.member.is_ours() && lock(&self.books).manager.is_pending(id)
    }

    /// Ends a connection that stands.
    ///
    /// # Errors
    /// It does not stand.
    pub fn disconnect(&self, id: CommId) -> Result<(), Refused> {
        self.if_ours(|books| {
            books.manager.disconnect(clock::now(), id, &[])?;
            if let Some(record) = &books.record {
                record.left(id);
            }
            Ok(())
        })
    }

    /// The program has no use for a connection any more, in whatever state it is. No watcher hears of it from
    /// now on.
    pub fn abandon(&self, id: CommId) {
        if !self.member.is_ours() {
            return;
        }
        self.with(|books| {
            books.watchers.remove(&id);
            books.accepted.remove(&id);
            books.manager.abandon(clock::now(), id);
            if let Some(record) = &mut books.record {
                record.abandoned(id);
            }
        });
    }

    /// The process ends, and its connections with it: their peers are told, once.
    pub(crate) fn say_farewell(&self) {
        // A thread that was ended in the middle of something has the lock for ever.
        let Ok(mut books) = self.books.try_lock() else { return };
        let standing: Vec<CommId> = books.manager.standing().map(|standing| standing.id).collect();
        for id in standing {
            books.manager.abandon(clock::now(), id);
        }
        books.settle();
    }

    /// Has it written down what happens to connections, or no longer.
    pub(crate) fn record(&self, recorder: Option<&Recorder>) {
        lock(&self.books).record = recorder.map(|recorder| Recording::new(recorder.program_ring()));
    }

    /// What happened to connections so far.
    #[must_use]
    pub fn counters(&self) -> CmCounters {
        let books = lock(&self.books);
        books.hearing.add_to(*books.manager.counters())
    }

    /// Connections that are neither over nor forgotten; how many of them are half open; how many are over and
    /// remembered.
    #[must_use]
    pub fn census(&self) -> (usize, usize, usize) {
        let books = lock(&self.books);
        (books.manager.open(), books.manager.half_open(), books.manager.remembered())
    }

    /// In a child of this process nothing is touched: another thread may have had the lock when it was
    /// forked.
    fn if_ours<R>(&self, change: impl FnOnce(&mut Books) -> Result<R, Refused>) -> Result<R, Refused> {
        if self.member.is_ours() { self.with(change) } else { Err(Refused::NotPending) }
    }

    /// Does something with the books. The thread is called if it has to know.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Books) -> R) -> R {
        let mut books = lock(&self.books);
        let before = books.wake();
        let result = change(&mut books);
        books.settle();
        let earlier = match (before, books.wake()) {
            (Some(before), Some(now)) => now < before,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if earlier || !books.news.is_empty() {
            self.bell.signal();
        }
        result
    }

    fn run(&self) {
        loop {
            // Before looking: a thread that calls sets what is to be seen, and rings then.
            self.bell.clear();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.turn();
            while !self.stop.load(Ordering::SeqCst) {
                // Not in the condition: there, the lock would be held while it is told.
                let next = lock(&self.books).news.pop_front();
                let Some(news) = next else { break };
                self.tell(news);
            }
            self.tell_of_partings();
            let wake = lock(&self.books).wake();
            let mads = self.member.mads_readable();
            if wait_either([mads.as_fd(), self.bell.as_fd()], wake.map(clock::until)).is_err() {
                return;
            }
        }
    }

    /// Takes in messages, then looks at the timers: an answer that waits is seen before its absence is
    /// judged.
    fn turn(&self) {
        for _ in 0..LOOK {
            let Some(mad) = self.member.waiting_mad() else { break };
            self.take_in(&mad);
        }
        let now = clock::now();
        let mut books = lock(&self.books);
        let over = books.lingering.iter().take_while(|(until, ..)| *until <= now).count();
        let over: Vec<_> = books.lingering.drain(..over).collect();
        if books.heartbeat.is_due(now) {
            books.beat(now, &self.member);
        }
        if books.manager.poll_timeout().is_some_and(|due| due <= now) {
            books.look_for_data();
            books.manager.handle_timeout(now);
            books.settle();
        }
        drop(books);
        // Outside of the lock: other processes are told.
        drop(over);
    }

    fn take_in(&self, mad: &Mad) {
        // Others have no business with connection management, and could not be answered.
        if mad.source_qp != Qpn::GSI {
            return;
        }
        let Ok(message) = CmMad::parse(&mad.bytes) else { return };
        let ends = Ends { local: mad.local, remote: mad.remote };
        let mut books = lock(&self.books);
        if !books.manager.is_of_partition(mad.pkey) {
            return;
        }
        books.mailer.arrived(mad);
        if books.is_of_lingering(&message.message) {
            return;
        }
        let now = clock::now();
        // The manager itself rejects questions of other partitions.
        let is_refused = matches!(&message.message,
            CmMessage::SidrReq(req) if !books.manager.pkeys().admits(req.pkey));
        if !is_refused && let Some(question) = books.hearing.question(now, ends, &message) {
            books.news.push_back(News::Asked(question));
            return;
        }
        books.manager.handle_message(now, ends, &message);
        books.settle();
    }

    /// Tells the watcher, acceptor or hearer that news concern, outside of the lock.
    fn tell(&self, news: News) {
        match news {
            News::Unreachable(id, error) => {
                let watcher = lock(&self.books).watchers.remove(&id);
                if let Some(watcher) = watcher {
                    watcher.unreachable(error);
                }
            }
            News::Asked(question) => {
                let hearer = lock(&self.books).hearing.hearers.get(&question.req.service_id).cloned();
                // Nothing hears of it any more: the peer asks again, and is told so.
                let Some(hearer) = hearer else { return };
                if !hearer.asked(question) {
                    lock(&self.books).hearing.no_room();
                }
            }
            News::Happened(id, Event::Requested(request)) => {
                let acceptor = lock(&self.books).acceptors.get(&request.service_id()).cloned();
                match acceptor {
                    Some(acceptor) => {
                        let watcher = acceptor.requested(self, request);
                        let mut books = lock(&self.books);
                        // The program may have been faster, and rejected it.
                        if !books.manager.is_over(id) {
                            books.watchers.insert(id, watcher);
                        }
                    }
                    // The program no longer listens.
                    None => {
                        let _ = self.reject(id, RejectReason::INVALID_SERVICE_ID, &[]);
                    }
                }
            }
            News::Happened(id, event) => {
                let Some(event) = self.in_time(id, event) else { return };
                self.happened(id, event);
            }
        }
    }

    /// An event that can be told now. Else it is told later, and so is everything that happens to the connection meanwhile.
    fn in_time(&self, id: CommId, event: Event) -> Option<Event> {
        let (waits, is_full) = {
            let partings = &lock(&self.books).partings;
            (partings.has(id), partings.is_full())
        };
        // A program that ends a connection itself knows what it gives up.
        let is_goodbye = matches!(event, Event::Ended(End::Peer));
        if waits || is_goodbye && !is_full && self.is_behind(id) {
            lock(&self.books).partings.push(Parting::new(id, event));
            return None;
        }
        Some(event)
    }

    /// Tells what has waited long enough.
    fn tell_of_partings(&self) {
        let waiting = lock(&self.books).partings.take();
        for parting in waiting {
            let waits = lock(&self.books).partings.has(parting.id);
            if waits || parting.until > clock::now() && self.is_behind(parting.id) {
                lock(&self.books).partings.push(parting);
            } else {
                self.happened(parting.id, parting.event);
            }
        }
    }

    /// Whether the program has not seen yet all that a connection did. Asked outside of the lock: the watcher meets the device.
    fn is_behind(&self, id: CommId) -> bool {
        let watcher = lock(&self.books).watchers.get(&id).cloned();
        watcher.is_some_and(|watcher| watcher.is_behind())
    }

    /// Tells the watcher of a connection what happened to it.
    fn happened(&self, id: CommId, event: Event) {
        let last;
        let watcher = {
            let mut books = lock(&self.books);
            last = match event {
                Event::Failed(_) | Event::Resolved(_) | Event::Forgotten => true,
                Event::Ended(_) => !books.manager.tells_end(id),
                _ => false,
            };
            if last { books.watchers.remove(&id) } else { books.watchers.get(&id).cloned() }
        };
        match watcher {
            Some(watcher) => watcher.happened(self, id, event),
            // The watcher is gone.
            None if !last => self.abandon(id),
            None => {}
        }
    }
}

impl Refuses for ConnectionManager {
    fn add_refusals(&self, to: &mut Refusals) {
        // The thread that asks serves others too: it does not wait for a lock.
        if let Ok(books) = self.books.try_lock() {
            to.add_connections(books.manager.counters());
        }
    }
}

impl fmt::Debug for ConnectionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionManager").field("member", &self.member).finish_non_exhaustive()
    }
}

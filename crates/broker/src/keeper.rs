//! The thread that looks after connections: it asks, answers, and notices which peers are gone.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_verbs::cm::{ConnectRequest, Disconnected, Listener};
use ferroce_verbs::time::{Notice, Time, now, park, this_thread, until};

use crate::conn::Conn;
use crate::error::{MemberRefusal, StartError, Why};
use crate::handshake::Party;
use crate::lock;
use crate::members::Member;
use crate::pause::Pause;
use crate::peer::Peer;
use crate::refusals::Refusals;
use crate::sending::Look;

/// What the keeper and the broker share.
pub(crate) struct Common {
    pub(crate) party: Arc<Party>,
    pub(crate) peers: Vec<Arc<Peer>>,
    /// Wakers of threads that sleep until something happens.
    sleepers: Mutex<Vec<Waker>>,
    /// Counts up when a peer comes, goes or is refused.
    pub(crate) news: Notice<u64>,
    /// What did not come about.
    pub(crate) refusals: Mutex<Refusals>,
    stop: AtomicBool,
}

/// The thread; it ends when this is dropped.
pub(crate) struct Keeper {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

/// Handshakes that others have begun, at a time: in all, and of one member. What fills the places of one
/// member keeps no other out.
const MOST_ANSWERS: usize = 64;
const MOST_OF_ONE: usize = 8;

/// How long a handshake may take in all.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Threads that sleep, at most.
const MOST_SLEEPERS: usize = 1024;

impl Common {
    pub(crate) fn new(party: Arc<Party>, peers: Vec<Arc<Peer>>) -> Arc<Self> {
        Arc::new(Self {
            party,
            peers,
            sleepers: Mutex::default(),
            news: Notice::new(0),
            refusals: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    /// Has this waker called when a peer comes or goes.
    pub(crate) fn wake_on_news(&self, waker: &Waker) {
        let mut sleepers = lock(&self.sleepers);
        if sleepers.len() < MOST_SLEEPERS && !sleepers.iter().any(|known| known.will_wake(waker)) {
            sleepers.push(waker.clone());
        }
    }

    /// A number that no peer can foresee.
    fn chance(&self) -> u32 {
        u32::from_ne_bytes(self.party.context.random_bytes())
    }

    /// How much news there has been.
    pub(crate) fn news_so_far(&self) -> u64 {
        self.news.look(|count| *count)
    }

    pub(crate) fn tell_news(&self) {
        self.news.change(|count| *count += 1);
        let sleepers = std::mem::take(&mut *lock(&self.sleepers));
        sleepers.into_iter().for_each(Waker::wake);
    }
}

impl Keeper {
    pub(crate) fn start(common: &Arc<Common>, listener: Listener) -> Result<Self, StartError> {
        let shared = Arc::clone(common);
        let main = move || Round::new(shared, listener).run();
        let thread = thread::Builder::new().name("ferroce-broker".to_owned()).spawn(main);
        let thread = thread.map_err(|error| StartError::Thread(error.kind()))?;
        Ok(Self { common: Arc::clone(common), thread: Some(thread) })
    }

    pub(crate) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.common.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        // A panic was reported by the thread itself.
        let _ = thread.join();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A handshake under way.
struct Handshake {
    /// The peer that it is with, by its place among the peers.
    place: usize,
    deadline: Time,
    asking: bool,
    future: Pin<Box<dyn Future<Output = Result<Conn, MemberRefusal>> + Send>>,
}

/// What the keeper knows of one peer.
struct Watched {
    peer: Arc<Peer>,
    /// The last connection that came about, as long as it is worth something.
    conn: Option<Weak<Conn>>,
    /// Since when.
    since: Time,
    /// Whether it is our part to ask.
    asks: bool,
    is_asking: bool,
    ask_at: Time,
    pause: Pause,
}

struct Round {
    common: Arc<Common>,
    listener: Listener,
    handshakes: Vec<Handshake>,
    watched: Vec<Watched>,
    next_look: Time,
}

impl Round {
    fn new(common: Arc<Common>, listener: Listener) -> Self {
        let me = common.party.settings.me.id;
        let watch = |peer: &Arc<Peer>| Watched {
            peer: Arc::clone(peer),
            conn: None,
            since: now(),
            asks: peer.member.id < me,
            is_asking: false,
            ask_at: now(),
            pause: Pause::new(),
        };
        let watched = common.peers.iter().map(watch).collect();
        Self { common, listener, handshakes: Vec::new(), watched, next_look: now() }
    }

    fn run(mut self) {
        let waker = this_thread();
        let heartbeat = self.common.party.settings.heartbeat();
        // Failures show in completions, which maybe no other thread looks at.
        let look = heartbeat / 2;
        while !self.common.stop.load(Ordering::Acquire) {
            let mut cx = TaskContext::from_waker(&waker);
            while let Poll::Ready(request) = self.listener.poll_accept(&mut cx) {
                self.answer(request);
            }
            self.ask();
            self.go_on(&mut cx);
            let is_due = until(self.next_look).is_zero();
            if is_due {
                self.next_look = now() + look;
            }
            self.look_after(is_due, &mut cx);
            let asks = self.watched.iter().filter(|watched| watched.may_ask()).map(|watched| watched.ask_at);
            let deadlines = self.handshakes.iter().map(|handshake| handshake.deadline);
            let next = asks.chain(deadlines).fold(self.next_look, Ord::min);
            park(Some(until(next).max(Duration::from_millis(1))));
        }
    }

    /// Begins to answer a request.
    fn answer(&mut self, request: ConnectRequest) {
        let party = &self.common.party;
        let read = party.read_request(&request).and_then(|(member, greeting)| {
            let place = self.find_room(member).map_err(|refusal| (Some(member), refusal))?;
            Ok((place, member, greeting))
        });
        match read {
            Ok((place, member, greeting)) => {
                let future = Box::pin(Arc::clone(party).answer(request, member, greeting));
                let deadline = now() + HANDSHAKE_TIME;
                self.handshakes.push(Handshake { place, deadline, asking: false, future });
            }
            Err((member, refusal)) => {
                // Anything can ask in the name of a member. It is counted before the other side knows.
                let place = member.and_then(|member| self.place_of(member));
                self.refuse(place, refusal.clone(), false);
                self.common.party.reject(request, &refusal);
            }
        }
    }

    /// The place of a member that may be answered now.
    fn find_room(&self, member: Member) -> Result<usize, MemberRefusal> {
        let (here, there) = (self.common.party.settings.me.id, member.id);
        let place = self.place_of(member).filter(|place| !self.watched[*place].asks);
        let place = place.ok_or(MemberRefusal::OutOfTurn { here, there })?;
        let answers = self.handshakes.iter().filter(|handshake| !handshake.asking);
        if answers.clone().filter(|handshake| handshake.place == place).count() >= MOST_OF_ONE {
            return Err(MemberRefusal::TooMany { most: MOST_OF_ONE });
        }
        if answers.count() >= MOST_ANSWERS {
            return Err(MemberRefusal::TooMany { most: MOST_ANSWERS });
        }
        Ok(place)
    }

    fn place_of(&self, member: Member) -> Option<usize> {
        self.watched.iter().position(|watched| watched.peer.member.id == member.id)
    }

    /// Begins to ask peers that are not there.
    fn ask(&mut self) {
        for (place, watched) in self.watched.iter_mut().enumerate() {
            if !watched.may_ask() || !until(watched.ask_at).is_zero() {
                continue;
            }
            watched.is_asking = true;
            let future = Box::pin(Arc::clone(&self.common.party).ask(watched.peer.member));
            let deadline = now() + HANDSHAKE_TIME;
            self.handshakes.push(Handshake { place, deadline, asking: true, future });
        }
    }

    /// Goes on with all handshakes.
    fn go_on(&mut self, cx: &mut TaskContext<'_>) {
        let mut place = 0;
        while place < self.handshakes.len() {
            let handshake = &mut self.handshakes[place];
            let outcome = match handshake.future.as_mut().poll(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending if until(handshake.deadline).is_zero() => Err(MemberRefusal::Silent),
                Poll::Pending => {
                    place += 1;
                    continue;
                }
            };
            let Handshake { place: of, asking, .. } = self.handshakes.swap_remove(place);
            let watched = &mut self.watched[of];
            watched.is_asking &= !asking;
            match outcome {
                Ok(conn) => self.join(of, conn),
                Err(refusal) => {
                    if asking {
                        watched.ask_at = now() + watched.pause.after_refusal(&refusal, self.common.chance());
                    }
                    // Only what we asked ourselves, or what knows the secret, is believed.
                    let is_believed = asking || refusal.is_from_hello();
                    self.refuse(Some(of), refusal, is_believed);
                }
            }
        }
    }

    fn join(&mut self, place: usize, conn: Conn) {
        let watched = &mut self.watched[place];
        // It would not have asked if it had the old one.
        if let Some(old) = watched.conn.take().and_then(|old| old.upgrade()) {
            old.end(Why::CameBack);
        }
        let conn = Arc::new(conn);
        (watched.conn, watched.since) = (Some(Arc::downgrade(&conn)), now());
        watched.peer.offer(conn);
        self.common.tell_news();
    }

    fn refuse(&self, place: Option<usize>, refusal: MemberRefusal, is_believed: bool) {
        lock(&self.common.refusals).count(&refusal);
        if place.is_some_and(|place| self.watched[place].peer.refuse(refusal, is_believed)) {
            self.common.tell_news();
        }
    }

    /// Looks which peers are gone, and whether those that say nothing are still there.
    fn look_after(&mut self, is_due: bool, cx: &mut TaskContext<'_>) {
        let mut gone = false;
        for watched in &mut self.watched {
            let Some(conn) = &watched.conn else { continue };
            // The program may have found out first, and dropped it.
            let is_over = conn.upgrade().is_none_or(|conn| watched.is_over(&conn, is_due, cx));
            if is_over {
                watched.conn = None;
                let lasted = now().since(watched.since);
                watched.ask_at = now() + watched.pause.after_connection(lasted, self.common.chance());
                gone = true;
            }
        }
        if gone {
            self.common.tell_news();
        }
    }
}

impl Watched {
    /// Whether it is our part to ask now.
    fn may_ask(&self) -> bool {
        self.asks && !self.is_asking && self.conn.is_none()
    }

    /// Whether a connection has ended; if it is time, one that is idle shows a sign of life.
    fn is_over(&self, conn: &Arc<Conn>, is_due: bool, cx: &mut TaskContext<'_>) -> bool {
        if let Poll::Ready(how) = conn.established.poll_disconnected(cx) {
            conn.end(match how {
                Disconnected::Peer => Why::Left,
                Disconnected::Stale => Why::CameBack,
                Disconnected::Here | Disconnected::Unanswered => Why::LeftHere,
            });
        } else if is_due && let Ok(mut sending) = self.peer.sending.try_lock() {
            let is_current = sending.conn().is_some_and(|current| Arc::ptr_eq(current, conn));
            if is_current {
                sending.reap(Look::Poll);
                if sending.is_idle() {
                    sending.send_heartbeat();
                }
            }
        }
        conn.broken().is_some()
    }
}

//! The loop of a reactor's thread: which connections it looks at, and in which order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ferroce_verbs::time::{Time, now, park};

use super::class::{Class, Found};
use super::handler::{Acceptor, Handler};
use super::shares::Shares;
use super::{New, Ready, Shared};
use crate::connection::Connection;
use crate::core::Taken;
use crate::done::{Done, DoneKind};
use crate::error::{AcceptError, Cause, Error};
use crate::listener::Listener;
use crate::options::{Polling, Priority};

/// Events of one connection before it is the turn of others.
const TURN: usize = 16;
/// The same for the higher class of two, and for the lower one: the other class is looked at in between.
const UPPER_TURN: usize = 4;
const LOWER_TURN: usize = 1;
/// Connections that one listener hands over before it is the turn of others.
const ACCEPTS: usize = 16;
/// A turn that takes longer than this lets the others wait, which is counted.
const SLOW: Duration = Duration::from_millis(100);

/// What the thread looks after.
pub(super) struct Run<'a> {
    shared: &'a Arc<Shared>,
    /// How it passes its time, if not as each connection says.
    polling: Option<Polling>,
    next_id: u64,
    served: HashMap<u64, Served>,
    listened: HashMap<u64, Listened>,
    high: Class,
    normal: Class,
    shares: Shares,
    /// The time, as it was read last, and how long the last look took in which something happened.
    time: Time,
    lasted: Duration,
}

/// A connection that is being served.
struct Served {
    connection: Connection,
    handler: Handler,
    polling: Polling,
    class: Priority,
    /// In the list of hot ones.
    hot: bool,
    /// In the list of those whose wakers were called.
    queued: bool,
    /// When it last had something to do.
    worked: Time,
    ready: Arc<Ready>,
    waker: Waker,
}

/// A listener that is being served.
struct Listened {
    listener: Arc<Listener>,
    acceptor: Acceptor,
    ready: Arc<Ready>,
    waker: Waker,
}

enum Turn {
    Idle,
    Worked,
    More,
    Ended(Result<(), Error>),
    Panicked,
}

enum Event {
    Done(Done),
    Taken(Taken),
}

impl<'a> Run<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, polling: Option<Polling>) -> Self {
        Self {
            shared,
            polling,
            next_id: 0,
            served: HashMap::new(),
            listened: HashMap::new(),
            high: Class::default(),
            normal: Class::default(),
            shares: Shares::default(),
            time: now(),
            lasted: Duration::ZERO,
        }
    }

    /// Runs until the reactor is stopped, and then lets go of everything, one by one.
    pub(super) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.time = now();
            self.take_mail();
            if !self.round() {
                self.rest();
            }
        }
        let Self { shared, served, listened, .. } = self;
        for Served { connection, handler, .. } in served.into_values() {
            let_go(shared, connection, handler);
        }
        for Listened { listener, acceptor, .. } in listened.into_values() {
            let_go_of_listener(shared, listener, acceptor);
        }
    }

    /// Takes in what is new, and notes what has something to do.
    fn take_mail(&mut self) {
        if !self.shared.mail.swap(false, Ordering::AcqRel) {
            return;
        }
        let (new, ready) = {
            let mut inside = self.shared.inside();
            (std::mem::take(&mut inside.new), std::mem::take(&mut inside.ready))
        };
        for id in ready {
            match self.served.get(&id) {
                Some(_) => self.queue(id),
                None => self.accept(id),
            }
        }
        for new in new {
            self.enter(new);
        }
    }

    fn enter(&mut self, new: New) {
        let id = self.next_id;
        self.next_id += 1;
        let ready = Arc::new(Ready { id, noted: AtomicBool::new(false), shared: Arc::clone(self.shared) });
        let waker = Waker::from(Arc::clone(&ready));
        match new {
            New::Connection(connection, handler) => {
                let (polling, class) = (connection.shared().polling, connection.shared().priority);
                let (polling, worked) = (self.polling.unwrap_or(polling), self.time);
                let (hot, queued) = (false, false);
                let served =
                    Served { connection, handler, polling, class, hot, queued, worked, ready, waker };
                self.served.insert(id, served);
                self.class(class).count += 1;
                // So that it gets its waker, or becomes hot.
                self.queue(id);
            }
            New::Listener(listener, acceptor) => {
                self.listened.insert(id, Listened { listener, acceptor, ready, waker });
                self.accept(id);
            }
        }
    }

    const fn class(&mut self, class: Priority) -> &mut Class {
        match class {
            Priority::High => &mut self.high,
            Priority::Normal => &mut self.normal,
        }
    }

    /// Looks at all that may have something to do; whether anything happened.
    fn round(&mut self) -> bool {
        if self.high.count == 0 {
            return self.look_at_all(Priority::Normal);
        }
        let mut worked = false;
        let mut pass = self.high.pass();
        while let Some(found) = self.high.next(&mut pass) {
            if !self.look(found, UPPER_TURN) {
                continue;
            }
            worked = true;
            self.shares.spent(Priority::High, self.lasted);
            // A tenth of the time, however much the higher class has to do.
            while self.shares.is_owed() {
                match self.look_at_one(Priority::Normal) {
                    true => self.shares.spent(Priority::Normal, self.lasted),
                    false => self.shares.forgive(),
                }
            }
        }
        if worked {
            return true;
        }
        // The higher class has nothing to do, so what the lower one has is taken from nothing. One event, and then another look.
        self.shares = Shares::default();
        self.look_at_one(Priority::Normal)
    }

    /// Looks at connections of a class until something has happened.
    fn look_at_one(&mut self, class: Priority) -> bool {
        let mut pass = self.class(class).pass();
        while let Some(found) = self.class(class).next(&mut pass) {
            if self.look(found, LOWER_TURN) {
                return true;
            }
        }
        false
    }

    /// Looks once at each connection of a class that may have something to do.
    fn look_at_all(&mut self, class: Priority) -> bool {
        let mut worked = false;
        let mut pass = self.class(class).pass();
        while let Some(found) = self.class(class).next(&mut pass) {
            worked |= self.look(found, TURN);
        }
        worked
    }

    /// Looks at a connection; whether something happened.
    fn look(&mut self, found: Found, limit: usize) -> bool {
        let Some(served) = self.served.get_mut(&found.id) else { return false };
        if !found.hot {
            served.queued = false;
            if served.hot {
                // It is looked at in any case.
                return false;
            }
        }
        served.hot = false;
        let stays_hot = match served.polling {
            Polling::Busy => true,
            Polling::Event => false,
            Polling::Adaptive(time) => self.time < served.worked + time,
        };
        let turn = self.shared.guard(|| served.turn(!stays_hot, limit)).unwrap_or(Turn::Panicked);
        if let Turn::Idle = turn {
            if stays_hot {
                self.heat(found.id);
            }
            return false;
        }
        self.lasted = self.note_time();
        let Some(served) = self.served.get_mut(&found.id) else { return true };
        served.worked = self.time;
        match turn {
            Turn::Idle => {}
            Turn::Worked if served.polling == Polling::Event => {}
            Turn::More if served.polling == Polling::Event => self.queue(found.id),
            Turn::Worked | Turn::More => self.heat(found.id),
            Turn::Ended(how) => self.leave(found.id, how),
            Turn::Panicked => {
                break_off(self.shared, &served.connection);
                self.leave(found.id, Err(Error::Lost(Cause::HandlerPanicked)));
            }
        }
        true
    }

    /// This connection is to be looked at.
    fn queue(&mut self, id: u64) {
        if let Some(served) = self.served.get_mut(&id)
            && !std::mem::replace(&mut served.queued, true)
        {
            let class = served.class;
            self.class(class).ready.push_back(id);
        }
    }

    /// From now on this connection is looked at again and again.
    fn heat(&mut self, id: u64) {
        if let Some(served) = self.served.get_mut(&id) {
            served.hot = true;
            let class = served.class;
            self.class(class).hot.push_back(id);
        }
    }

    /// Tells a handler how its connection ended, and lets go of both.
    fn leave(&mut self, id: u64, how: Result<(), Error>) {
        let Some(served) = self.served.remove(&id) else { return };
        let class = self.class(served.class);
        class.count -= 1;
        if class.count == 0 {
            // An empty class is not looked at, so nothing may stay in its lists.
            class.ready.clear();
            class.hot.clear();
        }
        let Served { connection, handler: Handler { message, written, read, closed }, .. } = served;
        let shared = self.shared;
        if shared.guard(|| closed(&connection, how)).is_none() {
            // It may have ended by half: the peer has said its goodbye, and waits for ours.
            break_off(shared, &connection);
        }
        let_go(shared, connection, Handler { message, written, read, closed: Box::new(|_, _| ()) });
        self.note_time();
    }

    /// Reads the time after code of the program has run, so that no connection is charged with another's.
    fn note_time(&mut self) -> Duration {
        let begun = std::mem::replace(&mut self.time, now());
        let lasted = self.time.since(begun);
        if lasted > SLOW {
            self.shared.note_slow(lasted);
        }
        lasted
    }

    /// Lets in peers that ask a listener.
    fn accept(&mut self, id: u64) {
        self.accept_some(id);
        self.note_time();
    }

    fn accept_some(&mut self, id: u64) {
        for _ in 0..ACCEPTS {
            let Some(Listened { listener, acceptor, ready, waker }) = self.listened.get_mut(&id) else {
                return;
            };
            ready.noted.store(false, Ordering::Release);
            // Functions of the program judge peers in there.
            let polled = self.shared.guard(|| listener.poll_accept(&mut Context::from_waker(waker)));
            let Some(polled) = polled else { continue };
            match polled {
                Poll::Pending => return,
                Poll::Ready(Ok(connection)) => {
                    match self.shared.guard(|| (acceptor.connected)(&connection)) {
                        Some(handler) => self.enter(New::Connection(connection, handler)),
                        None => {
                            break_off(self.shared, &connection);
                            self.shared.guard(|| drop(connection));
                        }
                    }
                }
                Poll::Ready(Err(AcceptError::Closed)) => {
                    if let Some(Listened { listener, acceptor, .. }) = self.listened.remove(&id) {
                        let_go_of_listener(self.shared, listener, acceptor);
                    }
                    return;
                }
                Poll::Ready(Err(error)) => {
                    self.shared.guard(|| (acceptor.error)(error));
                }
            }
        }
        if let Some(Listened { waker, .. }) = self.listened.get(&id) {
            waker.wake_by_ref();
        }
    }

    /// Nothing happened: sleeps, unless some connections are to be looked at.
    fn rest(&self) {
        let classes = [&self.high, &self.normal];
        if classes.iter().any(|class| !class.hot.is_empty()) {
            std::hint::spin_loop();
            return;
        }
        // A thread that adds something leaves a token, so none is missed.
        let idle = classes.iter().all(|class| class.ready.is_empty());
        if idle && !self.shared.mail.load(Ordering::Acquire) && !self.shared.stop.load(Ordering::Acquire) {
            park(None);
        }
    }
}

impl Served {
    /// Hands so many events to the handler. If there are fewer, and it is `armed`, the waker is called when there are more.
    fn turn(&mut self, armed: bool, limit: usize) -> Turn {
        self.ready.noted.store(false, Ordering::Release);
        let Self { connection, handler, .. } = self;
        let (waker, collects) = (armed.then_some(&self.waker), handler.collects());
        for done in 0..limit {
            match poll_event(connection, waker, collects) {
                Poll::Pending if done == 0 => return Turn::Idle,
                Poll::Pending => return Turn::Worked,
                Poll::Ready(Ok(Event::Done(done))) => {
                    let tell = match done.kind {
                        DoneKind::Written => &mut handler.written,
                        DoneKind::Read => &mut handler.read,
                    };
                    if let Some(tell) = tell {
                        tell(connection, done);
                    }
                }
                Poll::Ready(Ok(Event::Taken(Taken::Message(message)))) => {
                    (handler.message)(connection, message);
                }
                Poll::Ready(Ok(Event::Taken(_)) | Err(Error::Closed)) => return Turn::Ended(Ok(())),
                Poll::Ready(Err(error)) => return Turn::Ended(Err(error)),
            }
        }
        Turn::More
    }
}

/// The next thing that happened on a connection: begun work that is done, and messages.
fn poll_event(connection: &Connection, waker: Option<&Waker>, collects: bool) -> Poll<Result<Event, Error>> {
    connection.shared().poll_with(waker, |core, waker| {
        let mut under_way = false;
        if collects {
            match core.try_collect() {
                Poll::Ready(Some(done)) => return Poll::Ready(Ok(Event::Done(done))),
                Poll::Ready(None) => {}
                Poll::Pending => under_way = true,
            }
        }
        let taken = match core.try_receive(None) {
            // The peer sends no more; what was begun is told of before the end.
            Poll::Ready(Ok(Taken::End)) if under_way => Poll::Pending,
            taken => taken,
        };
        if let (true, Some(waker)) = (taken.is_pending(), waker) {
            core.add_reader(waker);
            if collects {
                core.add_collector(waker);
            }
        }
        taken.map_ok(Event::Taken)
    })
}

/// Ends the connection of a handler that panicked. That calls wakers, which are the program's.
fn break_off(shared: &Shared, connection: &Connection) {
    shared.guard(|| connection.shared().enter(|core| core.abort(Cause::HandlerPanicked)));
}

/// Drops what belongs to the program, one by one: two panics at once would end the process.
pub(super) fn let_go(shared: &Shared, connection: Connection, handler: Handler) {
    let Handler { message, written, read, closed } = handler;
    shared.guard(|| drop(message));
    shared.guard(|| drop(written));
    shared.guard(|| drop(read));
    shared.guard(|| drop(closed));
    shared.guard(|| drop(connection));
}

/// The same for a listener, which is closed.
pub(super) fn let_go_of_listener(shared: &Shared, listener: Arc<Listener>, acceptor: Acceptor) {
    listener.close();
    shared.guard(|| drop(listener));
    let Acceptor { connected, error } = acceptor;
    shared.guard(|| drop(connected));
    shared.guard(|| drop(error));
}

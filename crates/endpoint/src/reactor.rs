//! Callbacks: a thread that serves any number of connections.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ferroce_verbs::time::{now, park, until};

use crate::buffer::Message;
use crate::connection::{Connection, poll_receive};
use crate::core::Taken;
use crate::error::{Cause, Error, SetupError};
use crate::options::Polling;

/// What a program does when something happens on a connection. Made with [`Handler::new`], and given to
/// [`Reactor::serve`].
///
/// The functions run in the reactor's thread, one at a time. They may use the connection as they like: send, close
/// it, or hold on to it with a clone. One that waits lets the others of the same reactor wait too. One that panics ends
/// its own connection with [`Cause::HandlerPanicked`], and the others go on.
#[must_use = "a handler does nothing until a reactor serves a connection with it"]
pub struct Handler {
    message: OnMessage,
    closed: OnClosed,
}

type OnMessage = Box<dyn FnMut(&Connection, Message) + Send>;
type OnClosed = Box<dyn FnOnce(&Connection, Result<(), Error>) + Send>;

/// A thread that calls the functions of [`Handler`]s. When it is dropped, its thread ends, and the
/// connections that it served are dropped unless the program holds clones of them.
pub struct Reactor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// How a reactor works.
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until a reactor is started with them"]
pub struct ReactorOptions {
    polling: Polling,
    cpu: Option<usize>,
}

/// What happened in a reactor so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReactorCounters {
    /// How often a function of a handler panicked, or what it held when that was dropped.
    pub panics: u64,
}

/// Why a reactor does not serve a connection: its thread has ended. Both come back with
/// [`into_parts`](Self::into_parts), for another reactor.
pub struct ServeError {
    connection: Connection,
    /// An error may be looked at by several threads, which a handler may not; it is never locked.
    handler: Mutex<Handler>,
}

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    stop: AtomicBool,
    panics: AtomicU64,
}

#[derive(Default)]
struct Inside {
    /// The thread has left its loop, and takes nothing any more.
    ended: bool,
    new: Vec<(Connection, Handler)>,
    /// Which connections have something to do.
    ready: VecDeque<u64>,
    thread: Option<Thread>,
}

/// Messages of one connection before it is the turn of others.
const TURN: usize = 16;

impl Handler {
    /// A function that is called with each message, in order.
    pub fn new(message: impl FnMut(&Connection, Message) + Send + 'static) -> Self {
        Self { message: Box::new(message), closed: Box::new(|_, _| ()) }
    }

    /// A function that is called once, after the last message: in peace, or with the reason. If the other function
    /// panicked, the reason is [`Cause::HandlerPanicked`].
    pub fn on_closed(mut self, closed: impl FnOnce(&Connection, Result<(), Error>) + Send + 'static) -> Self {
        self.closed = Box::new(closed);
        self
    }
}

impl ServeError {
    /// The connection, which stands as it did, and its handler.
    pub fn into_parts(self) -> (Connection, Handler) {
        (self.connection, self.handler.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeError").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.connection.peer_addr();
        write!(f, "the thread of this reactor has ended; start another one for the connection to {peer}")
    }
}

impl std::error::Error for ServeError {}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Default for ReactorOptions {
    fn default() -> Self {
        Self { polling: Polling::Adaptive(Duration::from_micros(50)), cpu: None }
    }
}

impl ReactorOptions {
    /// A reactor that looks for a moment before it sleeps, on any processor.
    pub fn new() -> Self {
        Self::default()
    }

    /// How it passes its time.
    pub const fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// The processor that it stays on.
    pub const fn cpu(mut self, index: usize) -> Self {
        self.cpu = Some(index);
        self
    }
}

impl Reactor {
    /// Starts one.
    ///
    /// # Errors
    /// The operating system refused a thread, or the processor.
    pub fn start(options: ReactorOptions) -> Result<Self, SetupError> {
        let shared = Arc::<Shared>::default();
        let (inside, (tell, told)) = (Arc::clone(&shared), std::sync::mpsc::channel());
        let main = move || {
            inside.inside().thread = Some(thread::current());
            // However this thread ends, nothing is left with it.
            let ending = Ending(&inside);
            let pinned = options.cpu.map_or(Ok(()), pin);
            let goes_on = pinned.is_ok();
            // `start` is waiting for this.
            let _ = tell.send(pinned);
            if goes_on {
                run(&inside, options.polling);
            }
            drop(ending);
        };
        let thread = thread::Builder::new().name("ferroce-reactor".to_owned()).spawn(main);
        let thread = thread.map_err(|error| SetupError::Thread(error.kind()))?;
        let reactor = Self { shared, thread: Some(thread) };
        told.recv().unwrap_or(Err(std::io::ErrorKind::Other)).map_err(SetupError::Thread)?;
        Ok(reactor)
    }

    /// Serves a connection until it ends. The connection is dropped then, unless the program holds a clone.
    ///
    /// # Errors
    /// The thread of the reactor has ended; connection and handler come back.
    pub fn serve(&self, connection: Connection, handler: Handler) -> Result<(), ServeError> {
        let mut inside = self.shared.inside();
        if inside.ended {
            return Err(ServeError { connection, handler: Mutex::new(handler) });
        }
        inside.new.push((connection, handler));
        if let Some(thread) = &inside.thread {
            thread.unpark();
        }
        Ok(())
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> ReactorCounters {
        ReactorCounters { panics: self.shared.panics.load(Ordering::Relaxed) }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A callback that drops its own reactor is not waited for: its thread ends after it.
        if thread.thread().id() != thread::current().id() {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reactor")
    }
}

impl Shared {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs code of the program; nothing if it panicked, which is counted. The panic hook has told why already.
    fn guard<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(done) => Some(done),
            Err(thrown) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                // What was thrown is the program's too, and may panic when it is dropped. What that throws is kept for
                // good: it could go on like this for ever.
                if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
                    std::mem::forget(again);
                }
                None
            }
        }
    }
}

/// Ends a reactor for those that want to be served, when its thread ends.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let left = {
            let mut inside = self.0.inside();
            inside.ended = true;
            std::mem::take(&mut inside.new)
        };
        for (connection, handler) in left {
            let_go(self.0, connection, handler);
        }
    }
}

/// Drops what belongs to the program, one by one: two panics at once would end the process.
fn let_go(shared: &Shared, connection: Connection, Handler { message, closed }: Handler) {
    shared.guard(|| drop(message));
    shared.guard(|| drop(closed));
    shared.guard(|| drop(connection));
}

/// A connection that is being served.
struct Served {
    connection: Connection,
    handler: Handler,
    ready: Arc<Ready>,
    waker: Waker,
}

fn run(shared: &Arc<Shared>, polling: Polling) {
    let mut all: HashMap<u64, Served> = HashMap::new();
    let mut next = 0;
    let mut last_work = now();
    // Whether every connection has a waker, or something to do.
    let mut armed = false;
    while !shared.stop.load(Ordering::Acquire) {
        let busy = match polling {
            Polling::Busy => true,
            Polling::Event => false,
            Polling::Adaptive(time) => !until(last_work + time).is_zero(),
        };
        let (new, ready) = {
            let mut inside = shared.inside();
            (std::mem::take(&mut inside.new), std::mem::take(&mut inside.ready))
        };
        for (connection, handler) in new {
            let ready =
                Arc::new(Ready { id: next, noted: AtomicBool::new(false), shared: Arc::clone(shared) });
            let waker = Waker::from(Arc::clone(&ready));
            all.insert(next, Served { connection, handler, ready, waker });
            next += 1;
            armed = false;
        }
        let todo: Vec<u64> = if busy || !armed { all.keys().copied().collect() } else { ready.into() };
        armed = !busy;
        let mut worked = false;
        for id in todo {
            let Some(served) = all.get_mut(&id) else { continue };
            let turn = shared.guard(|| served.turn(busy)).unwrap_or(Turn::Panicked);
            worked |= !matches!(turn, Turn::Idle);
            let how = match turn {
                Turn::Idle | Turn::Worked => continue,
                Turn::More => {
                    served.waker.wake_by_ref();
                    continue;
                }
                Turn::Ended(how) => how,
                Turn::Panicked => {
                    break_off(shared, &served.connection);
                    Err(Error::Lost(Cause::HandlerPanicked))
                }
            };
            if let Some(served) = all.remove(&id) {
                served.end(shared, how);
            }
        }
        if worked {
            last_work = now();
        } else if !busy {
            let idle = {
                let inside = shared.inside();
                inside.ready.is_empty() && inside.new.is_empty()
            };
            // A thread that adds something leaves a token, so none is missed.
            if idle && !shared.stop.load(Ordering::Acquire) {
                park(None);
            }
        }
    }
    for (_, Served { connection, handler, .. }) in all {
        let_go(shared, connection, handler);
    }
}

/// Ends the connection of a handler that panicked. That calls wakers, which are the program's.
fn break_off(shared: &Shared, connection: &Connection) {
    shared.guard(|| connection.shared().enter(|core| core.abort(Cause::HandlerPanicked)));
}

enum Turn {
    Idle,
    Worked,
    More,
    Ended(Result<(), Error>),
    Panicked,
}

impl Served {
    fn turn(&mut self, busy: bool) -> Turn {
        self.ready.noted.store(false, Ordering::Release);
        let waker = (!busy).then_some(&self.waker);
        for done in 0..TURN {
            match poll_receive(self.connection.shared(), waker, None) {
                Poll::Pending if done == 0 => return Turn::Idle,
                Poll::Pending => return Turn::Worked,
                Poll::Ready(Ok(Taken::Message(message))) => (self.handler.message)(&self.connection, message),
                Poll::Ready(Ok(_) | Err(Error::Closed)) => return Turn::Ended(Ok(())),
                Poll::Ready(Err(error)) => return Turn::Ended(Err(error)),
            }
        }
        Turn::More
    }

    /// Tells the handler how the connection ended, and lets go of both.
    fn end(self, shared: &Shared, how: Result<(), Error>) {
        let Self { connection, handler: Handler { message, closed }, .. } = self;
        if shared.guard(|| closed(&connection, how)).is_none() {
            // It may have ended by half: the peer has said its goodbye, and waits for ours.
            break_off(shared, &connection);
        }
        let_go(shared, connection, Handler { message, closed: Box::new(|_, _| ()) });
    }
}

/// Notes that a connection has something to do.
struct Ready {
    id: u64,
    /// It is noted already.
    noted: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        if self.noted.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut inside = self.shared.inside();
        inside.ready.push_back(self.id);
        if let Some(thread) = &inside.thread {
            thread.unpark();
        }
    }
}

/// Keeps this thread on one processor.
fn pin(cpu: usize) -> Result<(), std::io::ErrorKind> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput);
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(rustix::io::Errno::kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{SOON, pair};

    #[test]
    fn a_reactor_whose_thread_has_ended_gives_the_connection_back() {
        let reactor = Reactor::start(ReactorOptions::new()).unwrap();
        let (a, b) = pair(121);
        // As if a callback had dropped it.
        reactor.shared.stop.store(true, Ordering::Release);
        let thread = reactor.thread.as_ref().unwrap();
        thread.thread().unpark();
        while !thread.is_finished() {
            thread::yield_now();
        }
        let (tell, told) = std::sync::mpsc::channel();
        let handler = Handler::new(move |_, message| tell.send(message.into_vec()).unwrap());
        let refused = reactor.serve(b, handler).unwrap_err();
        assert!(refused.to_string().contains("start another one"), "{refused}");
        // It stands, and another reactor serves it.
        let (b, handler) = refused.into_parts();
        a.send(b"still there").wait_for(SOON).unwrap();
        let another = Reactor::start(ReactorOptions::new()).unwrap();
        another.serve(b, handler).unwrap();
        assert_eq!(told.recv().unwrap(), b"still there");
    }
}

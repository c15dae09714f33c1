//! Callbacks: a thread that serves any number of connections and listeners.

mod class;
mod handler;
mod run;
mod shares;

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use crate::connection::Connection;
use crate::error::SetupError;
use crate::listener::{Listener, ListenerCounters};
use crate::options::Polling;

pub use handler::{Acceptor, Handler};
use run::{Run, let_go, let_go_of_listener};

/// A thread that calls the functions of [`Handler`]s. When it is dropped, its thread ends, and the
/// connections that it served are dropped unless the program holds clones of them.
pub struct Reactor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// How a reactor works.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "options do nothing until a reactor is started with them"]
pub struct ReactorOptions {
    polling: Option<Polling>,
    cpu: Option<usize>,
}

/// What happened in a reactor so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReactorCounters {
    /// How often a function of a handler panicked, or what it held when that was dropped.
    pub panics: u64,
    /// How often the functions of one connection kept the thread for more than 100 ms, while all others waited.
    pub slow: u64,
    /// The longest of these times.
    pub longest: Duration,
}

/// Why a reactor does not serve a connection: its thread has ended. Both come back with
/// [`into_parts`](Self::into_parts), for another reactor.
pub struct ServeError {
    connection: Connection,
    /// An error may be looked at by several threads, which a handler may not; it is never locked.
    handler: Mutex<Handler>,
}

/// Why a reactor does not serve a listener: its thread has ended. Both come back with
/// [`into_parts`](Self::into_parts), for another reactor.
pub struct ListenServeError {
    listener: Box<Listener>,
    acceptor: Mutex<Acceptor>,
}

/// A listener that a reactor serves: made by [`Reactor::listen`]. When this is dropped the reactor goes on listening.
#[derive(Clone, Debug)]
pub struct Listening {
    listener: Arc<Listener>,
}

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    /// Whether something was put inside.
    mail: AtomicBool,
    stop: AtomicBool,
    panics: AtomicU64,
    slow: AtomicU64,
    longest: AtomicU64,
}

#[derive(Default)]
struct Inside {
    /// The thread has left its loop, and takes nothing any more.
    ended: bool,
    new: Vec<New>,
    /// Which connections and listeners have something to do.
    ready: Vec<u64>,
    thread: Option<Thread>,
}

/// What a reactor is to serve.
enum New {
    Connection(Connection, Handler),
    Listener(Arc<Listener>, Acceptor),
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

impl ListenServeError {
    /// The listener, which waits for connections as it did, and what was to be done with them.
    pub fn into_parts(self) -> (Listener, Acceptor) {
        (*self.listener, self.acceptor.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ListenServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenServeError").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl fmt::Display for ListenServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.listener.local_addr();
        write!(f, "the thread of this reactor has ended; start another one for the listener at {address}")
    }
}

impl std::error::Error for ListenServeError {}

impl ReactorOptions {
    /// A reactor that passes its time as the options of its connections say, on any processor.
    pub fn new() -> Self {
        Self::default()
    }

    /// How it passes its time, whatever the [`Options::polling`](crate::Options::polling) of its connections says.
    ///
    /// Only connections that had something to do a moment ago are looked at; all others sleep, and cost nothing.
    pub const fn polling(mut self, polling: Polling) -> Self {
        self.polling = Some(polling);
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
                Run::new(&inside, options.polling).run();
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
        inside.new.push(New::Connection(connection, handler));
        self.shared.call(&inside);
        Ok(())
    }

    /// Serves all connections that a listener accepts, so that a server is callbacks only: `connected` is called with each new
    /// connection, and gives its [`Handler`]. It goes on until [`Listening::stop`], or until the reactor ends.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ferroce_endpoint::{Connection, Handler, Listener, Reactor, ReactorOptions};
    ///
    /// let reactor = Reactor::start(ReactorOptions::new())?;
    /// let listening = reactor.listen(Listener::bind("127.0.43.3:7471")?, |_: &Connection| {
    ///     // If this fails, the peer is gone and needs no answer.
    ///     Handler::new(|connection, message| drop(connection.send(&message.into_vec()).wait()))
    /// })?;
    /// let connection = Connection::connect(listening.local_addr()).wait()?;
    /// connection.send(b"ping").wait()?;
    /// assert_eq!(connection.recv().wait()?.unwrap(), b"ping");
    /// listening.stop();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The thread of the reactor has ended; listener and acceptor come back.
    pub fn listen(
        &self,
        listener: Listener,
        connected: impl Into<Acceptor>,
    ) -> Result<Listening, ListenServeError> {
        let acceptor = connected.into();
        let mut inside = self.shared.inside();
        if inside.ended {
            return Err(ListenServeError { listener: Box::new(listener), acceptor: Mutex::new(acceptor) });
        }
        let listener = Arc::new(listener);
        inside.new.push(New::Listener(Arc::clone(&listener), acceptor));
        self.shared.call(&inside);
        Ok(Listening { listener })
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> ReactorCounters {
        let Shared { panics, slow, longest, .. } = &*self.shared;
        ReactorCounters {
            panics: panics.load(Ordering::Relaxed),
            slow: slow.load(Ordering::Relaxed),
            longest: Duration::from_nanos(longest.load(Ordering::Relaxed)),
        }
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

impl Listening {
    /// Ends it: no more peers are let in, and the port is free again. Connections that stand go on. Calling it again does
    /// nothing.
    pub fn stop(&self) {
        self.listener.close();
    }

    /// Its address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// What happened to the listener so far.
    #[must_use]
    pub fn counters(&self) -> ListenerCounters {
        self.listener.counters()
    }
}

impl Shared {
    /// Has the thread look at what is inside.
    fn call(&self, inside: &Inside) {
        self.mail.store(true, Ordering::Release);
        if let Some(thread) = &inside.thread {
            thread.unpark();
        }
    }

    /// The functions of a connection took so long.
    fn note_slow(&self, time: Duration) {
        self.slow.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

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
        for new in left {
            match new {
                New::Connection(connection, handler) => let_go(self.0, connection, handler),
                New::Listener(listener, acceptor) => let_go_of_listener(self.0, listener, acceptor),
            }
        }
    }
}

/// Notes that a connection or a listener has something to do.
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
        inside.ready.push(self.id);
        self.shared.call(&inside);
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

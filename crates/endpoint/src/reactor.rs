//! Callbacks: a thread that serves any number of connections.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ferroce_device::{now, park, until};

use crate::buffer::Message;
use crate::connection::{Connection, poll_receive};
use crate::core::Taken;
use crate::error::{Error, SetupError};
use crate::options::Polling;

/// What a program does when something happens on a connection. Made with [`Handler::new`], and given to
/// [`Reactor::serve`].
///
/// The functions run in the reactor's thread, one at a time. They may use the connection as they like: send, close
/// it, or hold on to it with a clone. One that waits lets the others of the same reactor wait too.
#[must_use = "a handler does nothing until a reactor serves a connection with it"]
pub struct Handler {
    message: OnMessage,
    closed: OnClosed,
}

type OnMessage = Box<dyn FnMut(&Connection, Message) + Send>;
type OnClosed = Box<dyn FnOnce(&Connection, Result<(), Error>) + Send>;

/// A thread that calls the functions of [`Handler`]s. When it is dropped, its thread ends, and the
/// connections that it served are dropped unless somebody else holds them.
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

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Inside {
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

    /// A function that is called once, after the last message: in peace, or with the reason.
    pub fn on_closed(mut self, closed: impl FnOnce(&Connection, Result<(), Error>) + Send + 'static) -> Self {
        self.closed = Box::new(closed);
        self
    }
}

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
            let pinned = options.cpu.map_or(Ok(()), pin);
            let goes_on = pinned.is_ok();
            // Who started it is waiting for this.
            let _ = tell.send(pinned);
            if goes_on {
                run(&inside, options.polling);
            }
        };
        let thread = thread::Builder::new().name("ferroce-reactor".to_owned()).spawn(main);
        let thread = thread.map_err(|error| SetupError::Thread(error.kind()))?;
        let reactor = Self { shared, thread: Some(thread) };
        told.recv().unwrap_or(Err(std::io::ErrorKind::Other)).map_err(SetupError::Thread)?;
        Ok(reactor)
    }

    /// Serves a connection until it ends. The connection is dropped then, unless somebody holds a clone.
    pub fn serve(&self, connection: Connection, handler: Handler) {
        let mut inside = self.shared.inside();
        inside.new.push((connection, handler));
        if let Some(thread) = &inside.thread {
            thread.unpark();
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

impl Shared {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            match served.turn(busy) {
                Turn::Idle => {}
                Turn::Worked => worked = true,
                Turn::More => {
                    worked = true;
                    served.waker.wake_by_ref();
                }
                Turn::Ended(how) => {
                    worked = true;
                    if let Some(Served { connection, handler, .. }) = all.remove(&id) {
                        (handler.closed)(&connection, how);
                    }
                }
            }
        }
        if worked {
            last_work = now();
        } else if !busy {
            let idle = {
                let inside = shared.inside();
                inside.ready.is_empty() && inside.new.is_empty()
            };
            // Whoever adds something leaves a token, so none is missed.
            if idle && !shared.stop.load(Ordering::Acquire) {
                park(None);
            }
        }
    }
}

enum Turn {
    Idle,
    Worked,
    More,
    Ended(Result<(), Error>),
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

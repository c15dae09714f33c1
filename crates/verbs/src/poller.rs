//! A thread that hands completions to a function.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ferroce_transport::{Classified, Completion};
use thiserror::Error;

use crate::completion_queue::{CompletionQueue, Haste};
use crate::time::this_thread;

/// A thread that sleeps until work completes and hands each completion to a function, sorted by
/// what it was. The function may post more work.
///
/// Completions of a queue with a poller belong to the poller: a thread that polls beside it takes some
/// away. Dropping the poller stops it.
///
/// ```
/// # use ferroce_verbs::{Access, Classified, Context, Poller, Service};
/// # use std::sync::mpsc;
/// # let context = Context::builder("ferroce_lo").address([127, 0, 41, 9]).open()?;
/// # let pd = context.protection_domain()?;
/// # let cq = context.completion_queue(16)?;
/// # let a = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// # let b = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// # a.connect(&b.local_address())?;
/// # b.connect(&a.local_address())?;
/// # let region = pd.allocate(64, Access::LOCAL_WRITE)?;
/// let (tell, told) = mpsc::channel();
/// let poller = Poller::start(&cq, move |done| match done {
///     Classified::Received(message) => tell.send(message.byte_len).unwrap_or_default(),
///     Classified::Failed(why) => eprintln!("{why}"),
///     _ => {}
/// })?;
/// b.receive(&region).post()?;
/// a.send_inline(b"hello").post()?;
/// assert_eq!(told.recv()?, 5);
/// poller.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Poller {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Vec<Completion>>>>,
}

/// Why a poller cannot be started, or did not end well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PollerError {
    /// The operating system refused a thread.
    #[error("the operating system refused a thread")]
    NoThread(#[source] std::io::Error),
    /// The function panicked. Later completions are still in the queue, but for those that the poller had
    /// taken off with the one that it panicked at.
    #[error(
        "the poller's function panicked; {} later completions were taken off the queue, the rest are still in it",
        untold.len()
    )]
    Panicked {
        /// Completions that were taken off the queue and not handed over, in order.
        untold: Vec<Completion>,
    },
}

/// Completions that are taken off at once.
const CHUNK: usize = 16;

impl Poller {
    /// Starts a thread that hands completions to `take`.
    ///
    /// # Errors
    /// The operating system refused a thread.
    pub fn start(
        queue: &CompletionQueue,
        take: impl FnMut(Classified) + Send + 'static,
    ) -> Result<Self, PollerError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (queue, stopped) = (queue.clone(), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("ferroce-poller".to_owned())
            .spawn(move || run(&queue, &stopped, take))
            .map_err(PollerError::NoThread)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops it at once and waits for its thread. Completions that it has not taken off stay in
    /// the queue.
    ///
    /// # Errors
    /// The function panicked.
    pub fn stop(mut self) -> Result<(), PollerError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PollerError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        if thread.thread().id() == thread::current().id() {
            // The function itself let go of the poller: its thread ends after it.
            return Ok(());
        }
        // The thread catches what its function throws; a panic of anything else has nothing to tell.
        let ended = thread.join().unwrap_or_else(|_| Err(Vec::new()));
        ended.map_err(|untold| PollerError::Panicked { untold })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // A panic was reported by the thread itself.
        let _ = self.end();
    }
}

/// Hands completions over until it is stopped. The error holds what was taken off when the function panicked.
fn run(
    queue: &CompletionQueue,
    stopped: &AtomicBool,
    mut take: impl FnMut(Classified),
) -> Result<(), Vec<Completion>> {
    let waker = this_thread();
    let mut found = [Completion::EMPTY; CHUNK];
    while !stopped.load(Ordering::Acquire) {
        let taken = queue.poll_or_wake(&mut found, &waker, Haste::AtOnce);
        for (place, done) in found[..taken].iter().enumerate() {
            // The panic has been reported by then, and the function is not called again.
            if catch_unwind(AssertUnwindSafe(|| take(done.classify()))).is_err() {
                return Err(found[place + 1..taken].to_vec());
            }
        }
        if taken == 0 && !stopped.load(Ordering::Acquire) {
            // The thread that adds a completion or stops us leaves a token, so none is missed.
            thread::park();
        }
    }
    Ok(())
}

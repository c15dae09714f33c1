//! A thread that sleeps for the completions of a card, and wakes what waits for them.
//!
//! Completion queues of a card that do not report to a channel of the program report to one of the lookout. A thread
//! or task that waits leaves a waker with its queue and arms it; the lookout calls the wakers when the queue reports. A queue
//! that reports to a channel of the program cannot report here: such queues are looked at every millisecond while
//! something waits.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_device::{Epoll, EventFd, Watch, now};
use ferroce_system::CompletionChannel;

use super::completion_queue::CardQueue;
use super::lock;
use crate::error::CreateError;

/// How long to wait between two looks at queues that report elsewhere.
const LOOK: Duration = Duration::from_millis(1);

/// The lookout of a card. Its thread begins with the first that waits.
#[derive(Default)]
pub(crate) struct Lookout {
    channel: OnceLock<CompletionChannel>,
    watch: OnceLock<Arc<Keeping>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and those that wait have in common.
struct Keeping {
    bell: EventFd,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    queues: HashMap<u32, Weak<CardQueue>>,
    /// Queues that report elsewhere, and for which something waits.
    looked_at: Vec<Weak<CardQueue>>,
    is_over: bool,
}

impl Lookout {
    /// The channel that queues without one of the program's report to.
    pub(crate) fn channel(&self, card: &ferroce_system::Context) -> Result<CompletionChannel, CreateError> {
        if let Some(channel) = self.channel.get() {
            return Ok(channel.clone());
        }
        let made = card.completion_channel()?;
        // Another thread may have been faster.
        Ok(self.channel.get_or_init(|| made).clone())
    }

    /// Keeps watch for a queue: it is to be armed after this, if it reports here.
    pub(crate) fn watch(&self, queue: &Arc<CardQueue>) -> io::Result<()> {
        let keeping = self.keeping(&queue.card.system)?;
        let mut inside = lock(&keeping.inside);
        if queue.reports_elsewhere() {
            let is_it = |known: &Weak<CardQueue>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(queue));
            if !inside.looked_at.iter().any(is_it) {
                inside.looked_at.push(Arc::downgrade(queue));
                keeping.bell.signal();
            }
        } else {
            inside.queues.entry(queue.number()).or_insert_with(|| Arc::downgrade(queue));
        }
        Ok(())
    }

    /// The queue of this number is gone.
    pub(crate) fn strike(&self, number: u32) {
        if let Some(keeping) = self.watch.get() {
            lock(&keeping.inside).queues.remove(&number);
        }
    }

    fn keeping(&self, card: &ferroce_system::Context) -> io::Result<&Arc<Keeping>> {
        if let Some(keeping) = self.watch.get() {
            return Ok(keeping);
        }
        let mut thread = lock(&self.thread);
        if let Some(keeping) = self.watch.get() {
            return Ok(keeping);
        }
        let keeping = Arc::new(Keeping { bell: EventFd::new()?, inside: Mutex::default() });
        let epoll = Epoll::new()?;
        epoll.add(keeping.bell.as_fd().as_raw_fd(), Watch::WhileReadable)?;
        let channel = self.channel(card).map_err(io::Error::other)?;
        epoll.add(channel.as_fd().as_raw_fd(), Watch::WhileReadable)?;
        let kept = Arc::clone(&keeping);
        let begun = thread::Builder::new()
            .name("ferroce-lookout".to_owned())
            .spawn(move || run(&kept, &channel, &epoll))?;
        *thread = Some(begun);
        Ok(self.watch.get_or_init(|| keeping))
    }
}

impl Lookout {
    /// Ends the thread. In a child of the process that began it there is none.
    pub(crate) fn end(&mut self, is_ours: bool) {
        let Some(keeping) = self.watch.take() else { return };
        let thread = lock(&self.thread).take();
        if !is_ours {
            std::mem::forget(thread);
            return;
        }
        lock(&keeping.inside).is_over = true;
        keeping.bell.signal();
        // A waker that it called may have let go of the card.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

fn run(keeping: &Keeping, channel: &CompletionChannel, epoll: &Epoll) {
    loop {
        let looks = {
            let mut inside = lock(&keeping.inside);
            if inside.is_over {
                return;
            }
            inside.looked_at.retain(|queue| queue.strong_count() > 0);
            !inside.looked_at.is_empty()
        };
        epoll.sleep(looks.then(|| now() + LOOK));
        keeping.bell.clear();
        // A queue that is armed anew by what was woken reports again.
        while let Ok(Some(told)) = channel.poll() {
            let queue = lock(&keeping.inside).queues.get(&told.number()).and_then(Weak::upgrade);
            // It is dropped outside of the lock, which that needs.
            drop(told);
            if let Some(queue) = queue {
                queue.wake_all();
            }
        }
        if looks {
            let all = std::mem::take(&mut lock(&keeping.inside).looked_at);
            let waited_for: Vec<_> = all
                .into_iter()
                .filter(|queue| queue.upgrade().is_some_and(|queue| !queue.wake_if_any()))
                .collect();
            lock(&keeping.inside).looked_at.extend(waited_for);
        }
    }
}

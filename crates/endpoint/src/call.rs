//! A call on a connection: waited for, or awaited.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ferroce_verbs::time::{now, park, this_thread, until};

use crate::core::Core;
use crate::error::Error;
use crate::options::Polling;
use crate::shared::Shared;

/// Something that a connection is to do, in whichever style the program likes:
///
/// - [`wait`](Self::wait) does it and blocks this thread until it is done,
/// - [`wait_for`](Self::wait_for) gives up after a time,
/// - `.await` does it in an async program, on any runtime.
///
/// Nothing happens before one of them. A call that is given up (a future that is dropped, a time that is
/// over) either has not happened, or is finished by the device without the program being told: no message is
/// lost or sent by half, and memory that the device uses stays until it is done.
#[must_use = "nothing happens until it is waited for: `.wait()?` or `.await?`"]
pub struct Call<'a, F> {
    shared: &'a Arc<Shared>,
    poll: F,
}

/// What a [`Call`] does, step by step. Programs neither name nor implement it.
pub trait Attempt: Unpin {
    /// What it gives.
    type Output;

    /// Tries; if it cannot be done yet, `waker` is called when it is worth trying again.
    #[doc(hidden)]
    fn attempt(&mut self, waker: Option<&Waker>) -> Poll<Result<Self::Output, Error>>;
}

impl<T, F> Attempt for F
where
    F: FnMut(Option<&Waker>) -> Poll<Result<T, Error>> + Unpin,
{
    type Output = T;

    fn attempt(&mut self, waker: Option<&Waker>) -> Poll<Result<T, Error>> {
        self(waker)
    }
}

impl<'a, F> Call<'a, F> {
    pub(crate) const fn new(shared: &'a Arc<Shared>, poll: F) -> Self {
        Self { shared, poll }
    }

    pub(crate) fn into_inner(self) -> F {
        self.poll
    }

    /// Does it, and blocks this thread until it is done.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(self) -> Result<F::Output, Error>
    where
        F: Attempt,
    {
        self.block(None)
    }

    /// The same, but not for longer than this. With no time at all it is tried once.
    ///
    /// # Errors
    /// Why it failed, or that the time is over: the connection stands then, and the call can be made again.
    pub fn wait_for(self, limit: Duration) -> Result<F::Output, Error>
    where
        F: Attempt,
    {
        self.block(Some(limit))
    }

    fn block(mut self, limit: Option<Duration>) -> Result<F::Output, Error>
    where
        F: Attempt,
    {
        block_on(self.shared.polling, limit, |waker| self.poll.attempt(waker))
            .unwrap_or_else(|| Err(Error::TimedOut(limit.unwrap_or_default())))
    }
}

impl<F: Attempt> Future for Call<'_, F> {
    type Output = Result<F::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        poll_in_task(this.shared, context, |waker| this.poll.attempt(waker))
    }
}

/// How a task passes its time: it looks again and again for a while after something was done, and lets others go first
/// between two looks; then it sleeps. See [`Polling`].
pub(crate) fn poll_in_task<T>(
    shared: &Shared,
    context: &mut Context<'_>,
    mut poll: impl FnMut(Option<&Waker>) -> Poll<T>,
) -> Poll<T> {
    if shared.polling == Polling::Event {
        return poll(Some(context.waker()));
    }
    let result = poll(None);
    let looks_again = match shared.polling {
        Polling::Adaptive(_) if result.is_ready() => {
            shared.enter(Core::stir);
            return result;
        }
        Polling::Adaptive(time) => shared.enter(|core| core.looks_again(LOOKS_OF_TASKS * time)),
        Polling::Busy | Polling::Event => true,
    };
    match (result, looks_again) {
        (Poll::Pending, true) => {
            let_others_go_first(context);
            Poll::Pending
        }
        (Poll::Pending, false) => poll(Some(context.waker())),
        (ready, _) => ready,
    }
}

/// A task looks so much longer than a thread: it keeps no processor from others, and only looks while that pays.
const LOOKS_OF_TASKS: u32 = 4;

/// Has the task polled again, when others that have something to do were.
fn let_others_go_first(context: &mut Context<'_>) {
    // The runtime would have another thread take the task over if it were just woken, and would not look at its sockets.
    #[cfg(feature = "tokio")]
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(context);
    #[cfg(not(feature = "tokio"))]
    context.waker().wake_by_ref();
}

impl<F> fmt::Debug for Call<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// How often a busy thread looks before it asks what time it is.
const LOOKS: u32 = 64;

/// Polls until it is ready, or the time is over. A thread that has no time to sleep leaves no waker: that would have the
/// driver woken by each packet.
pub(crate) fn block_on<T>(
    polling: Polling,
    limit: Option<Duration>,
    mut poll: impl FnMut(Option<&Waker>) -> Poll<T>,
) -> Option<T> {
    if let Poll::Ready(result) = poll(None) {
        return Some(result);
    }
    if limit.is_some_and(|limit| limit.is_zero()) {
        return None;
    }
    let start = now();
    let end = limit.map(|limit| start + limit);
    let is_over = || end.is_some_and(|end| until(end).is_zero());
    let busy = match polling {
        Polling::Busy => None,
        Polling::Event => Some(start),
        Polling::Adaptive(time) => Some(start + time),
    };
    while busy.is_none_or(|busy| !until(busy).is_zero()) {
        for _ in 0..LOOKS {
            if let Poll::Ready(result) = poll(None) {
                return Some(result);
            }
            std::hint::spin_loop();
        }
        if is_over() {
            return None;
        }
    }
    let waker = this_thread();
    loop {
        if let Poll::Ready(result) = poll(Some(&waker)) {
            return Some(result);
        }
        if is_over() {
            return None;
        }
        park(end.map(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it looks, and whether it left a waker.
    fn looks(polling: Polling, limit: Duration) -> (u32, bool) {
        let (mut looks, mut left_waker) = (0, false);
        let done = block_on(polling, Some(limit), |waker| {
            looks += 1;
            left_waker |= waker.is_some();
            Poll::<()>::Pending
        });
        assert_eq!(done, None);
        (looks, left_waker)
    }

    #[test]
    fn a_call_without_time_is_tried_once_and_leaves_no_waker() {
        for polling in [Polling::Busy, Polling::Event, Polling::Adaptive(Duration::from_secs(1))] {
            assert_eq!(looks(polling, Duration::ZERO), (1, false), "{polling:?}");
        }
    }

    #[test]
    fn a_busy_call_leaves_no_waker_when_its_time_is_over() {
        let (looks, left_waker) = looks(Polling::Busy, Duration::from_nanos(1));
        assert_eq!((looks, left_waker), (LOOKS + 1, false));
    }
}

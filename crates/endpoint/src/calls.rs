//! What calls keep while they wait, and how they give it back.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::core::{Act, Core, Held, OpKey, Remote};
use crate::error::Error;
use crate::shared::Shared;

/// A place in the queue of calls that wait to send. Given up when it is dropped.
pub(crate) struct Turn<'a> {
    shared: &'a Arc<Shared>,
    ticket: Option<u64>,
}

impl<'a> Turn<'a> {
    pub(crate) const fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared, ticket: None }
    }

    /// Tries something that has to wait for its turn.
    pub(crate) fn poll<T>(
        &mut self,
        waker: Option<&Waker>,
        mut attempt: impl FnMut(&mut Core, &mut Option<u64>) -> Poll<T>,
    ) -> Poll<T> {
        let ticket = &mut self.ticket;
        self.shared.poll_with(waker, |core, waker| {
            let result = attempt(core, ticket);
            match (result.is_pending(), waker, *ticket) {
                (true, Some(waker), Some(_)) => core.add_sender(*ticket, waker),
                // It waits for something else than its turn.
                (true, Some(waker), None) => core.add_beginner(waker),
                _ => {}
            }
            result
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.shared.enter(|core| core.leave_queue(&mut self.ticket));
        }
    }
}

/// One-sided work. Dropped, it is left to the device.
pub(crate) struct Operating<'a> {
    turn: Turn<'a>,
    act: Act<'a>,
    /// The memory that it is about, if it can be closed.
    on: Option<Arc<Remote>>,
    key: Option<OpKey>,
}

impl<'a> Operating<'a> {
    pub(crate) const fn new(shared: &'a Arc<Shared>, act: Act<'a>, on: Option<Arc<Remote>>) -> Self {
        Self { turn: Turn::new(shared), act, on, key: None }
    }

    /// The memory of the work, when it is done.
    pub(crate) fn poll(&mut self, waker: Option<&Waker>) -> Poll<Result<Held, Error>> {
        let (act, on) = (&mut self.act, self.on.as_deref());
        let key = match self.key {
            Some(key) => key,
            None => match self.turn.poll(waker, |core, ticket| core.try_begin(act, on, None, ticket)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(key)) => *self.key.insert(key),
            },
        };
        let ended = self.turn.shared.poll_with(waker, |core, waker| {
            let result = core.try_end(key);
            if let (true, Some(waker)) = (result.is_pending(), waker) {
                core.add_operator(key, waker);
            }
            result
        });
        if ended.is_ready() {
            self.key = None;
        }
        ended
    }
}

impl Drop for Operating<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.turn.shared.enter(|core| core.abandon_operation(key));
        }
    }
}

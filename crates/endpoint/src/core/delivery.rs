//! What became of a message: whether the peer's device has it, and whether its program has taken it.

use std::task::{Poll, Waker};

use super::Core;
use crate::error::{Error, Violation};
use crate::frame::Told;

/// A message that is on its way: how to know it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// It is delivered when this much work is.
    pub(super) work: u64,
    /// How many announced messages there were with it, if it was announced itself.
    pub(super) announced: Option<u64>,
    /// How many messages for the peer's program there were with it.
    pub(super) messages: u64,
}

/// How far a message is to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Follow {
    /// Not at all.
    No,
    /// Until the peer's device has it.
    Delivered,
    /// Until the peer's program has taken it.
    Taken,
}

impl Core {
    /// Whether a message has come so far.
    pub(crate) fn try_follow(&self, sent: Sent, follow: Follow) -> Poll<Result<(), Error>> {
        let sending = &self.sending;
        let delivered =
            || sending.delivered >= sent.work && sent.announced.is_none_or(|count| sending.pulled >= count);
        let there = match follow {
            Follow::No => true,
            Follow::Delivered => delivered(),
            Follow::Taken => sending.taken >= sent.messages,
        };
        match self.check_standing() {
            _ if there => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// What has to be delivered before all that was posted so far is. If nothing under way would tell of the last of it,
    /// something that does is posted behind it.
    pub(crate) fn try_mark(&mut self) -> Poll<Result<Sent, Error>> {
        if let Some(last) = self.sending.posted.back()
            && !last.signaled
        {
            if let Err(error) = self.check_standing() {
                return Poll::Ready(Err(error));
            }
            if !self.post_probe() {
                return Poll::Pending;
            }
        }
        let sending = &self.sending;
        let (announced, messages) = (Some(sending.announced), sending.messages);
        Poll::Ready(Ok(Sent { work: sending.next_seq, announced, messages }))
    }

    pub(crate) fn add_watcher(&mut self, waker: &Waker) {
        self.sending.watchers.add(waker);
    }

    /// So many messages has the peer's program taken.
    pub(super) fn peer_took(&mut self, told: Told) -> Result<(), Violation> {
        let sending = &mut self.sending;
        if !(sending.taken..=sending.messages).contains(&told.taken) {
            return Err(Violation::Credit);
        }
        if sending.taken < told.taken {
            sending.taken = told.taken;
            sending.watchers.wake(&mut self.wakes);
        }
        Ok(())
    }
}

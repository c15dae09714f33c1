//! How a connection ends in peace: a goodbye for each direction, a farewell for both.

use std::task::{Poll, Waker};

use super::Core;
use super::sending::{Goodbye, What};
use crate::error::Error;
use crate::frame::Kind;

impl Core {
    /// Says goodbye if it was not said; ready when all is delivered.
    pub(crate) fn try_finish(&mut self, ticket: &mut Option<u64>) -> Poll<Result<(), Error>> {
        if self.sending.goodbye == Goodbye::Delivered && self.sending.waiting.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match self.check_standing() {
            // It went before we said goodbye, but it has everything.
            Err(Error::ClosedByPeer) if !self.sending.undelivered && self.sending.waiting.is_empty() => {
                return Poll::Ready(Ok(()));
            }
            Err(error) => return Poll::Ready(Err(error)),
            Ok(()) => {}
        }
        if self.sending.goodbye == Goodbye::Unsaid {
            if !self.is_turn(*ticket) || !self.has_credit() || !self.has_room() {
                return self.wait_turn(ticket);
            }
            if let Err(error) = self.post_frame(Kind::Goodbye, &[]) {
                return Poll::Ready(Err(self.refused(error)));
            }
            self.sending.goodbye = Goodbye::Said;
            self.leave_queue(ticket);
            // Other calls that wait have come too late.
            self.sending.wake_all(&mut self.wakes);
        }
        Poll::Pending
    }

    /// The same, and then ends the connection.
    ///
    /// A peer that has said goodbye too may not know yet that its last words arrived: acknowledgements are lost when
    /// a queue pair ends. So it is told what this end has, and only when that has arrived does the connection go.
    pub(crate) fn try_close(&mut self, ticket: &mut Option<u64>) -> Poll<Result<(), Error>> {
        let finished = self.try_finish(ticket);
        if !matches!(finished, Poll::Ready(Ok(()))) || self.check_standing().is_err() {
            return finished;
        }
        if self.receiving.peer_said_goodbye() && self.sending.farewell != Goodbye::Delivered {
            if self.sending.farewell == Goodbye::Said || !self.has_own_room() {
                return Poll::Pending;
            }
            self.post_receives();
            if self.post_frame(Kind::Farewell, &[]).is_ok() {
                self.sending.farewell = Goodbye::Said;
                return Poll::Pending;
            }
        }
        self.closed = true;
        self.line.end();
        self.fail_operations(&Error::Closed);
        self.wake_all();
        Poll::Ready(Ok(()))
    }

    /// The peer goes, and needs no word of ours any more.
    pub(super) fn peer_goes(&mut self) {
        self.sending.farewell = Goodbye::Delivered;
        self.sending.closers.wake(&mut self.wakes);
    }

    pub(crate) fn add_closer(&mut self, waker: &Waker) {
        self.sending.closers.add(waker);
    }

    /// Whether nothing is left that a lost connection still has to say.
    pub(crate) fn is_settled(&self) -> bool {
        !self.sending.posted.iter().any(|posted| matches!(posted.what, What::Fault))
    }
}

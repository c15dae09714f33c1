//! Connections that stand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use super::connecting::Attempt;
use super::link::{Facts, Stage};
use crate::error::WaitError;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disconnected {
    /// We ended it, and the peer has confirmed.
    Here,
    /// The peer ended it.
    Peer,
    /// We ended it, and the peer did not answer.
    Unanswered,
    /// The peer knows nothing of it any more: its queue pair has asked for a new connection.
    Stale,
}

/// A connection that stands: the queue pair is in RTS. It does not hold the queue pair, which may be dropped
/// first.
///
/// When either side ends the connection, the queue pair goes to the error state, and what is posted completes
/// as flushed. A peer that dies without a word is not noticed here, but by work that fails.
///
/// Dropping this ends the connection without waiting for the peer.
#[must_use = "dropping it ends the connection"]
#[derive(Debug)]
pub struct Established {
    attempt: Attempt,
    facts: Facts,
}

impl Established {
    pub(crate) fn new(attempt: Attempt) -> Self {
        let facts = attempt.link.stage.look(|stage| match stage {
            Stage::Waiting(facts)
            | Stage::Stands(facts)
            | Stage::Ending(facts, _)
            | Stage::Ended(facts, _) => facts.clone(),
            Stage::Failed(_) => Facts::default(),
        });
        Self { attempt, facts }
    }

    /// The peer: its address, and the port that it listens on or asked from.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.attempt.link.peer
    }

    /// Our address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.attempt.link.local
    }

    /// What the program on the other side sent along, zeros at the end included: 196 bytes with its
    /// acceptance, 56 with its request for a port.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.facts.private_data
    }

    /// READs and atomics that we may have under way, as both sides agreed.
    #[must_use]
    pub const fn initiator_depth(&self) -> u8 {
        self.facts.depths.initiator
    }

    /// READs and atomics that the peer may have under way here.
    #[must_use]
    pub const fn responder_resources(&self) -> u8 {
        self.facts.depths.responder
    }

    /// How it ended; nothing while it stands.
    #[must_use]
    pub fn disconnected(&self) -> Option<Disconnected> {
        // In a child of the process that opened the device nothing is known of it.
        if !self.attempt.is_ours() {
            return None;
        }
        self.attempt.link.stage.look(|stage| match stage {
            Stage::Ending(_, how) | Stage::Ended(_, how) => Some(*how),
            Stage::Waiting(_) | Stage::Stands(_) | Stage::Failed(_) => None,
        })
    }

    /// Ends it: the queue pair goes to the error state, and the peer is asked to do the same. Does not wait;
    /// [`wait_disconnected`](Self::wait_disconnected) does.
    pub fn disconnect(&self) {
        if self.attempt.is_ours() && self.disconnected().is_none() {
            self.attempt.disconnect();
        }
    }

    /// Waits until it has ended, whichever side ended it.
    ///
    /// # Errors
    /// The time is over, and it stands.
    pub fn wait_disconnected(&self, timeout: impl Into<Option<Duration>>) -> Result<Disconnected, WaitError> {
        if !self.attempt.is_ours() {
            return Err(WaitError::Forked);
        }
        let timeout = timeout.into();
        let ended = self.attempt.link.stage.wait(timeout, how_it_ended);
        ended.ok_or(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)))
    }

    /// Looks whether it has ended; if not, the task is woken when it does.
    pub fn poll_disconnected(&self, cx: &mut TaskContext<'_>) -> Poll<Disconnected> {
        match self.attempt.link.stage.poll(cx.waker(), how_it_ended) {
            Some(ended) => Poll::Ready(ended),
            None => Poll::Pending,
        }
    }

    /// A future of its end, for a task of its own; it does not keep the connection.
    pub fn watch_disconnected(&self) -> impl Future<Output = Disconnected> + Send + use<> {
        let link = Arc::clone(&self.attempt.link);
        std::future::poll_fn(move |cx| match link.stage.poll(cx.waker(), how_it_ended) {
            Some(ended) => Poll::Ready(ended),
            None => Poll::Pending,
        })
    }
}

impl Drop for Established {
    fn drop(&mut self) {
        if self.attempt.is_ours() && self.disconnected().is_none() {
            self.attempt.link.flush();
            self.attempt.abandon();
            // The manager does not tell of its end any more.
            self.attempt.link.stage.change(|stage| {
                if let Stage::Stands(facts) = stage {
                    *stage = Stage::Ended(std::mem::take(facts), Disconnected::Here);
                }
            });
        }
    }
}

fn how_it_ended(stage: &mut Stage) -> Option<Disconnected> {
    match stage {
        Stage::Ended(_, how) => Some(*how),
        Stage::Waiting(_) | Stage::Stands(_) | Stage::Ending(..) | Stage::Failed(_) => None,
    }
}

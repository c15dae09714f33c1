//! Sends what waits, one letter after the other, until it is taken.

use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use super::PushConfig;
use super::post::{Answer, Envelope, Letter, post};
use super::queue::Queue;
use super::state::Cell;
use super::url::Target;
use crate::backoff::Backoff;
use crate::clock;

/// Before the end, waits are no longer than this.
const LAST: Duration = Duration::from_millis(100);

/// Sends letters to one place.
#[derive(Debug)]
pub(super) struct Pusher {
    pub(super) to: Target,
    pub(super) envelope: Envelope,
    pub(super) queue: Queue,
    pub(super) state: Cell,
    pub(super) config: PushConfig,
}

impl Pusher {
    /// Sends what waits; once it is told to stop, only until nothing waits. `settled` hears of each letter that
    /// needs to be sent no more, with what was said if it was taken, and may say what is wrong with that.
    pub(super) async fn run(
        &self,
        mut stop: watch::Receiver<bool>,
        mut settled: impl FnMut(&Letter, Option<&Bytes>) -> Option<String>,
    ) {
        // Few analyzers wait for one receiver, so that any seed spreads them.
        let mut backoff = Backoff::new(self.config.backoff, clock::unix_nanos());
        loop {
            let stops = *stop.borrow_and_update();
            let Some((number, letter)) = self.queue.first() else {
                if stops {
                    return;
                }
                tokio::select! {
                    () = self.queue.news() => {}
                    // It never changes again if all that could change it is gone.
                    changed = stop.changed() => if changed.is_err() { return },
                }
                continue;
            };
            let answer = post(&self.to, self.envelope, letter.clone(), self.config.answer).await;
            let trouble = match answer {
                Answer::Taken(said) => {
                    self.state.sent(1, clock::unix_nanos());
                    settled(&letter, Some(&said))
                }
                Answer::Refused(why) => {
                    settled(&letter, None);
                    Some(why)
                }
                Answer::Away { why, after } => {
                    self.state.failed(why);
                    let wait = if stops { LAST } else { after.unwrap_or_default().max(backoff.wait()) };
                    tokio::select! {
                        () = sleep(wait) => {}
                        changed = stop.changed() => if changed.is_err() { return },
                    }
                    continue;
                }
            };
            backoff.worked();
            self.queue.done(number);
            if let Some(why) = trouble {
                let mut state = self.state.lock();
                state.refused += 1;
                state.trouble = why;
            }
        }
    }

    /// What waits will never be taken.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.dropped += std::mem::take(&mut state.waiting);
    }
}

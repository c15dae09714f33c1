//! Races that a future may lose: then it is dropped, and it is counted how far it was.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use serde_json::{Value, json};

use crate::draw::Against;

/// How the races of one kind of call ended.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    finished: AtomicU64,
    before: AtomicU64,
    in_flight: AtomicU64,
}

/// How one race ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End<T> {
    /// The call was done.
    Finished(T),
    /// It was dropped before it was polled.
    Before,
    /// It was dropped after it had been polled and had not been ready.
    InFlight,
}

/// A future that remembers whether it was polled in vain.
struct Watched<F> {
    call: F,
    is_pending: bool,
}

impl<F: Future + Unpin> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let polled = Pin::new(&mut self.call).poll(context);
        self.is_pending = polled.is_pending();
        polled
    }
}

impl Tally {
    /// Lets a call run until it is done, or until what it is raced against is.
    pub(crate) async fn race<F: Future>(&self, against: Against, call: F) -> End<F::Output> {
        if against == Against::Drop {
            drop(call);
            self.before.fetch_add(1, Ordering::Relaxed);
            return End::Before;
        }
        let mut watched = Watched { call: pin!(call), is_pending: false };
        let finished = tokio::select! {
            // The call is polled first, so it has begun before it can lose.
            biased;
            result = &mut watched => Some(result),
            () = over(against) => None,
        };
        match finished {
            Some(result) => {
                self.finished.fetch_add(1, Ordering::Relaxed);
                End::Finished(result)
            }
            None if watched.is_pending => {
                self.in_flight.fetch_add(1, Ordering::Relaxed);
                End::InFlight
            }
            None => {
                self.before.fetch_add(1, Ordering::Relaxed);
                End::Before
            }
        }
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub(crate) fn before(&self) -> u64 {
        self.before.load(Ordering::Relaxed)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"finished": self.finished(), "before": self.before(), "in_flight": self.in_flight()})
    }
}

async fn over(against: Against) {
    match against {
        Against::Nothing | Against::Drop => std::future::pending().await,
        Against::Others(times) => {
            for _ in 0..times {
                tokio::task::yield_now().await;
            }
        }
        Against::Timer(time) => tokio::time::sleep(time).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_flight_only_when_it_was_polled_in_vain() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let tally = Tally::default();
            assert_eq!(tally.race(Against::Drop, std::future::ready(1)).await, End::Before);
            assert_eq!(tally.race(Against::Others(1), std::future::ready(1)).await, End::Finished(1));
            assert_eq!(tally.race(Against::Others(3), std::future::pending::<()>()).await, End::InFlight);
            let second = async {
                tokio::task::yield_now().await;
                2
            };
            assert_eq!(tally.race(Against::Nothing, second).await, End::Finished(2));
            assert_eq!((tally.finished(), tally.before(), tally.in_flight()), (2, 1, 1));
        });
    }
}

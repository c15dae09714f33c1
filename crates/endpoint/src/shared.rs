//! One end as several threads and tasks use it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::core::Core;
use crate::keeper;
use crate::options::{Polling, Priority};
use crate::pool::{Gauge, Pool};

/// What all handles of a connection share.
pub(crate) struct Shared {
    core: Mutex<Core>,
    pub(crate) polling: Polling,
    pub(crate) linger: Duration,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) name_timeout: Duration,
    pub(crate) priority: Priority,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) send_pool: Arc<Pool>,
    pub(crate) gauge: Arc<Gauge>,
}

/// What is known of an end beside its state.
pub(crate) struct Surroundings {
    pub(crate) polling: Polling,
    pub(crate) linger: Duration,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) name_timeout: Duration,
    pub(crate) priority: Priority,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) send_pool: Arc<Pool>,
    pub(crate) gauge: Arc<Gauge>,
}

impl Shared {
    pub(crate) fn new(core: impl FnOnce(Waker) -> Core, around: Surroundings) -> Arc<Self> {
        let Surroundings {
            polling,
            linger,
            keepalive,
            name_timeout,
            priority,
            local,
            peer,
            send_pool,
            gauge,
        } = around;
        Arc::new_cyclic(|weak| Self {
            core: Mutex::new(core(keeper::service(weak))),
            polling,
            linger,
            keepalive,
            name_timeout,
            priority,
            local,
            peer,
            send_pool,
            gauge,
        })
    }

    /// Does something with the state, and wakes afterwards the calls that it concerns.
    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let (result, wakes) = {
            let mut core = self.core();
            let result = act(&mut core);
            (result, core.take_wakes())
        };
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    /// Tries something; if it cannot be done yet, `attempt` leaves the waker where it will be called.
    pub(crate) fn poll_with<T>(
        &self,
        waker: Option<&Waker>,
        mut attempt: impl FnMut(&mut Core, Option<&Waker>) -> Poll<T>,
    ) -> Poll<T> {
        self.enter(|core| {
            // What can be done at once is done without a turn of the device.
            core.react();
            if let Poll::Ready(result) = attempt(core, None) {
                core.pump();
                core.leave();
                return Poll::Ready(result);
            }
            core.progress();
            loop {
                if let Poll::Ready(result) = attempt(core, waker) {
                    core.pump();
                    core.leave();
                    return Poll::Ready(result);
                }
                core.post_receives();
                let Some(waker) = waker else { return Poll::Pending };
                if !core.wake_on_completion(waker) && !core.leave() {
                    return Poll::Pending;
                }
            }
        })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

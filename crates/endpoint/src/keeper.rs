//! The thread that looks after connections that no other thread looks after: dropped ones that still have
//! something to deliver, ones that owe their peer a word while the program does something else, and quiet
//! ones whose peer may be gone. It also wakes attempts to connect that pause. It exists while there are such.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use ferroce_verbs::time::{Time, now, park, this_thread, until};

use crate::core::{Core, State};
use crate::error::Cause;
use crate::shared::Shared;

/// The connections of this process.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    watched: Vec::new(),
    leaving: Vec::new(),
    calling: Vec::new(),
    pausing: Vec::new(),
    alarms: 0,
    thread: None,
});

struct Kept {
    /// With the time at which the peer is asked for a sign of life.
    watched: Vec<(Weak<Shared>, Time)>,
    /// With the time at which patience ends.
    leaving: Vec<Leaving>,
    /// Something happened that the program did not wait for.
    calling: Vec<Weak<Shared>>,
    /// With the time at which each is woken, and the number of its [`Alarm`].
    pausing: Vec<(Time, u64, Waker)>,
    alarms: u64,
    thread: Option<Thread>,
}

/// A waker that is called at a time, unless this is dropped before.
#[derive(Debug)]
pub(crate) struct Alarm {
    number: u64,
    waker: Waker,
}

impl Alarm {
    /// Whether it wakes the same task as this waker.
    pub(crate) fn will_wake(&self, waker: &Waker) -> bool {
        self.waker.will_wake(waker)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // A waker may do anything when it is dropped, so that happens outside of the lock.
        let _gone: Vec<_> = kept().pausing.extract_if(.., |(_, number, _)| *number == self.number).collect();
    }
}

struct Leaving {
    shared: Arc<Shared>,
    ticket: Option<u64>,
    end: Time,
}

/// Looks after a new connection.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let Some(interval) = shared.keepalive else { return };
    let mut kept = kept();
    kept.watched.push((Arc::downgrade(shared), now() + interval));
    kept.call();
}

/// A waker that has a connection looked after.
pub(crate) fn service(shared: &Weak<Shared>) -> Waker {
    Waker::from(Arc::new(Service(shared.clone())))
}

struct Service(Weak<Shared>);

impl Wake for Service {
    fn wake(self: Arc<Self>) {
        let mut kept = kept();
        kept.calling.push(self.0.clone());
        kept.call();
    }
}

/// Has `waker` called at this time. Without a thread that could, it is called at once, and there is no alarm.
pub(crate) fn wake_at(time: Time, waker: &Waker) -> Option<Alarm> {
    let mut kept = kept();
    let number = kept.alarms;
    kept.alarms += 1;
    kept.pausing.push((time, number, waker.clone()));
    kept.call();
    if kept.thread.is_some() {
        return Some(Alarm { number, waker: waker.clone() });
    }
    let alarm = kept.pausing.pop();
    drop(kept);
    drop(alarm);
    waker.wake_by_ref();
    None
}

/// Takes over a connection that was dropped.
pub(crate) fn release(shared: &Arc<Shared>) {
    shared.enter(Core::drop_behind);
    let mut leaving = Leaving { shared: Arc::clone(shared), ticket: None, end: now() + shared.linger };
    if leaving.step(None) {
        return;
    }
    let mut kept = kept();
    kept.leaving.push(leaving);
    kept.call();
}

impl Kept {
    /// Starts the thread, or wakes it.
    fn call(&mut self) {
        if let Some(thread) = &self.thread {
            thread.unpark();
            return;
        }
        let started = thread::Builder::new().name("ferroce-keeper".to_owned()).spawn(run);
        // Without it, what was dropped waits for the next call, and silent peers are noticed by sends only.
        self.thread = started.ok().map(|handle| handle.thread().clone());
    }
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something that calls wakers of the program. One that panics has said so by then, and the other connections
/// are looked after all the same.
fn guarded<R>(act: impl FnOnce() -> R) -> Option<R> {
    panic::catch_unwind(AssertUnwindSafe(act)).ok()
}

fn run() {
    let waker = this_thread();
    loop {
        let (mut leaving, calling) = {
            let mut kept = kept();
            (std::mem::take(&mut kept.leaving), std::mem::take(&mut kept.calling))
        };
        for shared in calling.iter().filter_map(Weak::upgrade) {
            guarded(|| {
                shared.enter(|core| {
                    core.progress();
                    core.leave();
                });
            });
        }
        // Outside of the lock, for it may release memory and call wakers.
        leaving.retain_mut(|leaving| !guarded(|| leaving.step(Some(&waker))).unwrap_or(false));
        let time = now();
        let due: Vec<Arc<Shared>> = {
            let mut kept = kept();
            kept.watched.retain(|(shared, _)| shared.strong_count() > 0);
            let due = kept.watched.iter_mut().filter(|(_, at)| *at <= time);
            due.filter_map(|(shared, at)| {
                let shared = shared.upgrade()?;
                *at = time + shared.keepalive.unwrap_or(Duration::MAX);
                Some(shared)
            })
            .collect()
        };
        for shared in due {
            guarded(|| {
                shared.enter(|core| {
                    core.progress();
                    core.probe_if_silent();
                });
                // The last handle may be gone meanwhile; then this lets go of all.
                drop(shared);
            });
        }
        let rested: Vec<_> = kept().pausing.extract_if(.., |(at, ..)| *at <= time).collect();
        for (.., waker) in rested {
            guarded(|| waker.wake());
        }
        let next = {
            let mut kept = kept();
            kept.leaving.append(&mut leaving);
            let Kept { watched, leaving, calling, pausing, .. } = &*kept;
            if leaving.is_empty() && watched.is_empty() && calling.is_empty() && pausing.is_empty() {
                kept.thread = None;
                return;
            }
            let ends = leaving.iter().map(|leaving| leaving.end);
            let looks = watched.iter().map(|(_, at)| *at);
            ends.chain(looks).chain(pausing.iter().map(|(at, ..)| *at)).min()
        };
        park(next.map(until));
    }
}

impl Leaving {
    /// Goes on with closing; true when there is nothing left to do.
    fn step(&mut self, waker: Option<&Waker>) -> bool {
        let ticket = &mut self.ticket;
        let over = until(self.end).is_zero();
        let done = self.shared.poll_with(waker, |core, waker| {
            let done = close(core, ticket);
            match waker {
                _ if done => {}
                Some(_) | None if over => core.abort(Cause::LingerOver),
                Some(waker) => {
                    core.add_sender(*ticket, waker);
                    core.add_closer(waker);
                }
                None => {}
            }
            if done || over { Poll::Ready(()) } else { Poll::Pending }
        });
        done.is_ready()
    }
}

/// Whether the connection has ended, one way or the other.
fn close(core: &mut Core, ticket: &mut Option<u64>) -> bool {
    match core.state() {
        State::Lost(_) => core.is_settled(),
        State::Closed => true,
        _ => match core.try_close(ticket) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => core.is_settled(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    struct Told(Sender<&'static str>);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send("woken");
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, on purpose");
        }
    }

    /// It was: the entry of a call that was over stayed until its time came, with its task.
    #[test]
    fn an_alarm_that_is_dropped_is_forgotten() {
        let (told, _hears) = channel();
        let waker = Waker::from(Arc::new(Told(told)));
        let alarm = wake_at(now() + Duration::from_secs(3600), &waker).unwrap();
        let number = alarm.number;
        let is_kept = || kept().pausing.iter().any(|(_, kept, _)| *kept == number);
        assert!(is_kept() && alarm.will_wake(&waker));
        drop(alarm);
        assert!(!is_kept());
    }

    #[test]
    fn a_waker_that_panics_does_not_stop_the_alarms_of_others() {
        let (told, hears) = channel();
        let soon = now();
        let _panics = wake_at(soon, &Waker::from(Arc::new(Panics)));
        let _wakes = wake_at(soon, &Waker::from(Arc::new(Told(told))));
        assert_eq!(hears.recv(), Ok("woken"));
    }
}

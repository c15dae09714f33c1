//! Asking for a connection.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use ferroce_verbs::cm::{self, CmError, Connecting, Established};
use ferroce_verbs::time::{Time, now, until};

use crate::call::block_on;
use crate::connection::Connection;
use crate::device;
use crate::error::ConnectError;
use crate::half::Half;
use crate::keeper::{self, Alarm};
use crate::line::Managed;
use crate::listener::{cm_options, refusal};
use crate::options::{Options, Polling};

impl Connection {
    /// Connects to a listener.
    pub fn connect(address: impl std::net::ToSocketAddrs) -> Connect {
        Self::connect_with(address, &Options::default())
    }

    /// Connects to a listener, with a connection that behaves like this.
    pub fn connect_with(address: impl std::net::ToSocketAddrs, options: &Options) -> Connect {
        match device::first(address) {
            Ok(peer) => Connect::new(Some(peer), options.clone(), Step::Begin),
            Err(error) => Connect::new(None, options.clone(), Step::Failed(Some(error.into()))),
        }
    }
}

/// An attempt to connect: waited for, or awaited. Dropping it gives it up.
///
/// It ends within [`Options::connect_timeout`], counted from when it is first waited for or polled. A listener that has
/// too many requests is asked again until then, with pauses that grow.
#[must_use = "nothing happens until it is waited for: `.wait()?` or `.await?`"]
pub struct Connect {
    peer: Option<SocketAddr>,
    options: Options,
    /// When it is over, once it has begun.
    end: Option<Time>,
    /// How often the listener was asked.
    asked: u32,
    /// What it said, if it was busy.
    busy: Option<CmError>,
    pause: Duration,
    step: Step,
}

enum Step {
    Begin,
    Asked(Box<(Half, Connecting)>),
    /// Until when, and the waker that is called then.
    Pause(Time, Option<Alarm>),
    Failed(Option<ConnectError>),
}

/// How long to wait before a listener with too many requests is asked again: at first, and at most.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl Connect {
    const fn new(peer: Option<SocketAddr>, options: Options, step: Step) -> Self {
        Self { peer, options, end: None, asked: 0, busy: None, pause: PAUSE, step }
    }

    /// Blocks this thread until it stands.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn wait(mut self) -> Result<Connection, ConnectError> {
        let poll = |waker: Option<&Waker>| {
            self.poll_connected(&mut TaskContext::from_waker(waker.unwrap_or(Waker::noop())))
        };
        // The attempt has a limit of its own.
        block_on(Polling::Event, None, poll).unwrap_or(Err(ConnectError::Over))
    }

    fn poll_connected(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<Connection, ConnectError>> {
        loop {
            match &mut self.step {
                Step::Failed(error) => return Poll::Ready(Err(error.take().unwrap_or(ConnectError::Over))),
                Step::Begin => match self.begin() {
                    Ok(asked) => self.step = Step::Asked(Box::new(asked)),
                    Err(error) => self.step = Step::Failed(Some(error)),
                },
                Step::Asked(asked) => {
                    let Poll::Ready(outcome) = asked.1.poll_established(context) else {
                        return Poll::Pending;
                    };
                    let step = std::mem::replace(&mut self.step, Step::Failed(None));
                    let Step::Asked(asked) = step else { continue };
                    match outcome {
                        Err(error) if error.is_passing() => self.step = self.after(error),
                        outcome => return Poll::Ready(finish(asked.0, outcome)),
                    }
                }
                Step::Pause(end, _) if until(*end).is_zero() => self.step = Step::Begin,
                Step::Pause(end, alarm) => {
                    if !alarm.as_ref().is_some_and(|alarm| alarm.will_wake(context.waker())) {
                        *alarm = keeper::wake_at(*end, context.waker());
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn begin(&mut self) -> Result<(Half, Connecting), ConnectError> {
        let peer = self.peer.ok_or(ConnectError::Over)?;
        let end = *self.end.get_or_insert_with(|| now() + self.options.connect_timeout);
        let context = match &self.options.context {
            Some(context) => context.clone(),
            None => device::open_towards(peer.ip())?,
        };
        let address = device::source(&context, peer.ip());
        let half = Half::new(&context, address, peer, &self.options)?;
        let options = cm_options(&self.options, &half.hello()).timeout(until(end));
        let connecting = cm::start_connect(peer, half.queue_pair(), &options).map_err(ConnectError::Cm)?;
        self.asked += 1;
        Ok((half, connecting))
    }

    /// What follows an attempt that came to nothing, but might not a moment later.
    fn after(&mut self, error: CmError) -> Step {
        let (limit, attempts) = (self.options.connect_timeout, self.asked);
        match (error, self.busy.take()) {
            (error @ CmError::Busy { .. }, _) => {
                // So that there always is time left to ask once more.
                let left = self.end.map_or(Duration::ZERO, until) / 2;
                if left < PAUSE {
                    return Step::Failed(Some(ConnectError::TimedOut { limit, attempts, last: error }));
                }
                let pause = self.pause.min(left);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.busy = Some(error);
                Step::Pause(now() + pause, None)
            }
            // The time was over before the last question was answered.
            (CmError::TimedOut { .. }, Some(last)) => {
                Step::Failed(Some(ConnectError::TimedOut { limit, attempts, last }))
            }
            (error, _) => Step::Failed(Some(ConnectError::Cm(error))),
        }
    }
}

fn finish(half: Half, outcome: Result<Established, CmError>) -> Result<Connection, ConnectError> {
    let established = outcome.map_err(|error| match (refusal(&error), &error) {
        (Some(why), CmError::Refused { peer, .. }) => ConnectError::Refused { peer: *peer, why },
        _ => ConnectError::Cm(error),
    })?;
    let (local, peer) = (established.local(), established.peer());
    let hello = established.private_data().to_vec();
    Ok(half.open(&hello, Box::new(Managed(established)), local, peer)?)
}

impl Future for Connect {
    type Output = Result<Connection, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.poll_connected(context)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connect({:?})", self.peer)
    }
}

//! Asking for a connection.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use ferroce_device::{now, park, until};
use ferroce_verbs::cm::{self, CmError, Connecting, Established};

use crate::call::block_on;
use crate::connection::Connection;
use crate::device;
use crate::error::ConnectError;
use crate::half::Half;
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
            Ok(peer) => Connect { peer: Some(peer), options: options.clone(), step: Step::Begin },
            Err(error) => {
                Connect { peer: None, options: options.clone(), step: Step::Failed(Some(error.into())) }
            }
        }
    }
}

/// An attempt to connect: waited for, or awaited. It ends within [`Options::connect_timeout`]; dropping it gives
/// it up.
#[must_use = "nothing happens until it is waited for: `.wait()?` or `.await?`"]
pub struct Connect {
    peer: Option<SocketAddr>,
    options: Options,
    step: Step,
}

enum Step {
    Begin,
    Asked(Box<(Half, Connecting)>),
    Failed(Option<ConnectError>),
}

/// How long to wait before a listener with too many requests is asked again.
const BUSY: Duration = Duration::from_millis(5);

impl Connect {
    /// Blocks this thread until it stands. A listener that has too many requests is asked again until the time
    /// is over.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn wait(mut self) -> Result<Connection, ConnectError> {
        let end = now() + self.options.connect_timeout;
        loop {
            let poll = |waker: Option<&Waker>| {
                self.poll_connected(&mut TaskContext::from_waker(waker.unwrap_or(Waker::noop())))
            };
            // The attempt has a limit of its own.
            let connected = block_on(Polling::Event, None, poll);
            match connected {
                Some(Err(ConnectError::Cm(CmError::Busy { .. }))) if !until(end).is_zero() => {
                    self.step = Step::Begin;
                    let again = now() + BUSY;
                    while !until(again).is_zero() {
                        park(Some(until(again)));
                    }
                }
                Some(outcome) => return outcome,
                None => return Err(ConnectError::Over),
            }
        }
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
                    return Poll::Ready(finish(asked.0, outcome));
                }
            }
        }
    }

    fn begin(&self) -> Result<(Half, Connecting), ConnectError> {
        let peer = self.peer.ok_or(ConnectError::Over)?;
        let context = match &self.options.context {
            Some(context) => context.clone(),
            None => device::open_towards(peer.ip())?,
        };
        let address = device::source(&context, peer.ip());
        let half = Half::new(&context, address, peer, &self.options)?;
        let options = cm_options(&self.options, &half.hello());
        let connecting = cm::start_connect(peer, half.queue_pair(), &options).map_err(ConnectError::Cm)?;
        Ok((half, connecting))
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

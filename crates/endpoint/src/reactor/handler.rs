//! What a program does when something happens: on a connection, and on a listener.

use std::fmt;

use crate::buffer::Message;
use crate::connection::Connection;
use crate::done::Done;
use crate::error::{AcceptError, Error};

/// What a program does when something happens on a connection. Made with [`Handler::new`], and given to
/// [`Reactor::serve`](super::Reactor::serve), or by the function of [`Reactor::listen`](super::Reactor::listen).
///
/// The functions run in the reactor's thread, one at a time. They may use the connection as they like: send, close
/// it, or hold on to it with a clone. One that waits lets the others of the same reactor wait too. One that panics ends
/// its own connection with [`Cause::HandlerPanicked`](crate::Cause::HandlerPanicked), and the others go on.
#[must_use = "a handler does nothing until a reactor serves a connection with it"]
pub struct Handler {
    pub(super) message: OnMessage,
    pub(super) written: Option<OnDone>,
    pub(super) read: Option<OnDone>,
    pub(super) closed: OnClosed,
}

pub(super) type OnMessage = Box<dyn FnMut(&Connection, Message) + Send>;
pub(super) type OnDone = Box<dyn FnMut(&Connection, Done) + Send>;
pub(super) type OnClosed = Box<dyn FnOnce(&Connection, Result<(), Error>) + Send>;

impl Handler {
    /// A function that is called with each message, in order.
    pub fn new(message: impl FnMut(&Connection, Message) + Send + 'static) -> Self {
        Self { message: Box::new(message), written: None, read: None, closed: Box::new(|_, _| ()) }
    }

    /// A function that is called when work of [`begin_write`](Connection::begin_write) is done. Without it, and without
    /// [`on_read`](Self::on_read), such work waits for [`next_done`](Connection::next_done).
    pub fn on_written(mut self, written: impl FnMut(&Connection, Done) + Send + 'static) -> Self {
        self.written = Some(Box::new(written));
        self
    }

    /// A function that is called when work of [`begin_read`](Connection::begin_read) is done.
    pub fn on_read(mut self, read: impl FnMut(&Connection, Done) + Send + 'static) -> Self {
        self.read = Some(Box::new(read));
        self
    }

    /// A function that is called once, after everything else: in peace, or with the reason. If another function
    /// panicked, the reason is [`Cause::HandlerPanicked`](crate::Cause::HandlerPanicked).
    pub fn on_closed(mut self, closed: impl FnOnce(&Connection, Result<(), Error>) + Send + 'static) -> Self {
        self.closed = Box::new(closed);
        self
    }

    /// Whether the reactor collects begun work.
    pub(super) const fn collects(&self) -> bool {
        self.written.is_some() || self.read.is_some()
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// What a program does when a peer connects: given to [`Reactor::listen`](super::Reactor::listen).
///
/// A function that takes the new connection and gives its [`Handler`] is one. It runs in the reactor's thread. If it
/// panics, that connection ends, and the listener goes on.
#[must_use = "an acceptor does nothing until a reactor listens with it"]
pub struct Acceptor {
    pub(super) connected: OnConnected,
    pub(super) error: OnError,
}

type OnConnected = Box<dyn FnMut(&Connection) -> Handler + Send>;
type OnError = Box<dyn FnMut(AcceptError) + Send>;

impl Acceptor {
    /// A function that is called with each new connection.
    pub fn new(connected: impl FnMut(&Connection) -> Handler + Send + 'static) -> Self {
        Self { connected: Box::new(connected), error: Box::new(|_| ()) }
    }

    /// A function that is called when a peer could not be let in, such as for lack of room. The peer was told.
    pub fn on_error(mut self, error: impl FnMut(AcceptError) + Send + 'static) -> Self {
        self.error = Box::new(error);
        self
    }
}

impl<F: FnMut(&Connection) -> Handler + Send + 'static> From<F> for Acceptor {
    fn from(connected: F) -> Self {
        Self::new(connected)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

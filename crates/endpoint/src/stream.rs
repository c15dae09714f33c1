//! A connection as a stream of bytes.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker, ready};

use crate::buffer::Message;
use crate::call::block_on;
use crate::connection::{Connection, poll_receive};
use crate::core::{Follow, Payload, Taken};
use crate::error::Error;

/// A connection as a stream of bytes, without borders between messages: made by [`Connection::into_stream`].
///
/// It is [`Read`] and [`Write`], also by reference, so that one thread reads while another writes; with the feature
/// `tokio` it is `AsyncRead` and `AsyncWrite` too. The end of the peer's stream is the end of ours: a read of nothing. What
/// is written is on its way at once, and there is nothing to flush.
///
/// Dropping it delivers what was written, like dropping a connection.
pub struct Stream {
    connection: Connection,
    /// The message that is being read, and how much of it was.
    current: Mutex<Option<(Message, usize)>>,
    /// A place in the queue of calls that wait to write.
    ticket: Mutex<Option<u64>>,
}

/// Bytes of one message that the peer reads itself. Less than that is sent at once, in pieces.
const PIECE: usize = 1 << 20;

impl Stream {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection, current: Mutex::new(None), ticket: Mutex::new(None) }
    }

    /// The connection, for its addresses, its state and what it counts.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Says that this end writes no more, and waits until the peer has everything. Reading goes on.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.connection.shutdown().wait().map_err(to_io)
    }

    /// Reads some bytes, at most so many.
    pub(crate) fn poll_read(&self, waker: Option<&Waker>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut current = lock(&self.current);
        loop {
            if let Some((message, read)) = current.as_mut() {
                let count = into.len().min(message.len() - *read);
                if count > 0 {
                    let copied = message.read_at(*read, &mut into[..count]);
                    *read += count;
                    if *read == message.len() {
                        *current = None;
                    }
                    return Poll::Ready(copied.map(|()| count).map_err(io::Error::other));
                }
                *current = None;
            }
            // Straight into the reader's bytes, if the message fits.
            let shared = self.connection.shared();
            match ready!(poll_receive(shared, waker, Some(into))).map_err(to_io)? {
                // A stream has no empty pieces, and is not interested in what was written elsewhere.
                Taken::Copied { len: 0, .. } => {}
                Taken::Copied { len, .. } => return Poll::Ready(Ok(len)),
                Taken::End => return Poll::Ready(Ok(0)),
                Taken::Message(message) => *current = Some((message, 0)),
                Taken::TooShort(_) => {
                    if let Taken::Message(message) =
                        ready!(poll_receive(shared, waker, None)).map_err(to_io)?
                    {
                        *current = Some((message, 0));
                    }
                }
            }
        }
    }

    /// Writes some bytes, and tells how many.
    pub(crate) fn poll_write(&self, waker: Option<&Waker>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let shared = self.connection.shared();
        let (most, at_once) = shared.enter(|core| (core.peer().max_message, core.most_eager()));
        let piece = match bytes.len() {
            len if len < PIECE || most < PIECE as u64 => len.min(at_once),
            _ => PIECE,
        };
        let piece = &bytes[..piece];
        let mut ticket = lock(&self.ticket);
        let sent = shared.poll_with(waker, |core, waker| {
            let sent = core.try_send(&mut Payload::Bytes(piece), None, Follow::No, &mut ticket);
            if let (true, Some(waker)) = (sent.is_pending(), waker) {
                core.add_sender(*ticket, waker);
            }
            sent
        });
        sent.map(|sent| sent.map(|_| piece.len()).map_err(to_io))
    }

    /// Says that no more comes; done when the peer has everything.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_shutdown(&self, waker: Option<&Waker>) -> Poll<io::Result<()>> {
        let shared = self.connection.shared();
        // A call that waited to write has given up, and this goes on in its place.
        let mut ticket = lock(&self.ticket);
        let finished = shared.poll_with(waker, |core, waker| {
            let finished = core.try_finish(&mut ticket);
            if let (true, Some(waker)) = (finished.is_pending(), waker) {
                core.add_sender(*ticket, waker);
                core.add_closer(waker);
            }
            finished
        });
        finished.map(|done| match done {
            // The peer is gone, and wanted nothing more.
            Err(Error::ClosedByPeer | Error::Closed) => Ok(()),
            other => other.map_err(to_io),
        })
    }

    fn read_bytes(&self, into: &mut [u8]) -> io::Result<usize> {
        let polling = self.connection.shared().polling;
        block_on(polling, None, |waker| self.poll_read(waker, into)).unwrap_or(Ok(0))
    }

    fn write_bytes(&self, bytes: &[u8]) -> io::Result<usize> {
        let polling = self.connection.shared().polling;
        block_on(polling, None, |waker| self.poll_write(waker, bytes)).unwrap_or(Ok(0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As programs that know streams expect it.
fn to_io(error: Error) -> io::Error {
    use crate::error::Cause;
    let kind = match &error {
        Error::Closed => io::ErrorKind::NotConnected,
        Error::ClosedByPeer => io::ErrorKind::BrokenPipe,
        Error::Lost(Cause::PeerReset | Cause::Accused(_)) => io::ErrorKind::ConnectionReset,
        Error::Lost(Cause::PeerSilent) | Error::TimedOut(_) => io::ErrorKind::TimedOut,
        Error::Lost(Cause::Violation(_)) => io::ErrorKind::InvalidData,
        Error::Lost(_) => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_bytes(into)
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_bytes(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.connection)
    }
}

#[cfg(feature = "tokio")]
mod tokio_traits {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Stream;
    use crate::call::poll_in_task;

    impl AsyncRead for Stream {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let polling = self.connection.shared().polling;
            let bytes = into.initialize_unfilled();
            let read = poll_in_task(polling, context.waker(), |waker| Stream::poll_read(&self, waker, bytes));
            into.advance(ready!(read)?);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let polling = self.connection.shared().polling;
            poll_in_task(polling, context.waker(), |waker| Stream::poll_write(&self, waker, bytes))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_shutdown(&self, Some(context.waker()))
        }
    }
}

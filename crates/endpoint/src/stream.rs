//! A connection as a stream of bytes.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::call::block_on;
use crate::connection::Connection;
use crate::error::Error;
use crate::pieces::Pieces;

/// A connection as a stream of bytes, without borders between messages: made by [`Connection::into_stream`].
///
/// It is [`Read`] and [`Write`], also by reference, so that one thread reads while another writes; with the feature
/// `tokio` it is `AsyncRead` and `AsyncWrite` too. The end of the peer's stream is the end of ours: a read of nothing. What
/// is written is on its way at once, and there is nothing to flush.
///
/// Dropping it delivers what was written, like dropping a connection.
pub struct Stream {
    connection: Connection,
    /// A place in the queue of calls that wait to write.
    ticket: Mutex<Option<u64>>,
}

impl Stream {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection, ticket: Mutex::new(None) }
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

    /// Reads some bytes, at most so many. `take` is called with the length of each part, and with what copies it out.
    pub(crate) fn poll_read(
        &self,
        waker: Option<&Waker>,
        most: usize,
        mut take: impl FnMut(usize, &dyn Fn(&mut [u8])),
    ) -> Poll<io::Result<usize>> {
        let read = self.connection.shared().poll_with(waker, |core, waker| {
            let read = core.try_read(most, &mut take);
            if let (true, Some(waker)) = (read.is_pending(), waker) {
                core.add_reader(waker);
            }
            read
        });
        read.map_err(to_io)
    }

    /// Writes some bytes of several pieces, one after the other, and tells how many.
    pub(crate) fn poll_write(
        &self,
        waker: Option<&Waker>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let pieces = Pieces::new(pieces);
        if pieces.len() == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut ticket = lock(&self.ticket);
        let sent = self.connection.shared().poll_with(waker, |core, waker| {
            let sent = core.try_write(pieces, &mut ticket);
            if let (true, Some(waker)) = (sent.is_pending(), waker) {
                core.add_sender(*ticket, waker);
            }
            sent
        });
        sent.map_err(to_io)
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
        let most = into.len();
        let mut filled = 0;
        let read = block_on(polling, None, |waker| {
            self.poll_read(waker, most, |len, copy| {
                copy(&mut into[filled..filled + len]);
                filled += len;
            })
        });
        read.unwrap_or(Ok(0))
    }

    fn write_bytes(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let polling = self.connection.shared().polling;
        block_on(polling, None, |waker| self.poll_write(waker, pieces)).unwrap_or(Ok(0))
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
        self.write_bytes(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_bytes(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_bytes(pieces)
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
    use std::io::{self, IoSlice};
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
            let shared = self.connection.shared();
            let read = poll_in_task(shared, context, |waker| {
                let most = into.remaining();
                Stream::poll_read(&self, waker, most, |len, copy| {
                    copy(into.initialize_unfilled_to(len));
                    into.advance(len);
                })
            });
            ready!(read)?;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let shared = self.connection.shared();
            poll_in_task(shared, context, |waker| Stream::poll_write(&self, waker, pieces))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_shutdown(&self, Some(context.waker()))
        }
    }
}

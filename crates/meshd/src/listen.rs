//! Sockets to listen on: without certificates on loopback only, and so many connections and no more.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::tls::{Credentials, Gate, HandshakeCounts, Peer, Stream};

/// After a connection could not be accepted, since files have run out, so long nothing is accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections at most that have not shown yet what they are. The oldest gives way to a new one: honest ones
/// take milliseconds, so strangers cannot keep them out by holding on.
const UNKNOWN: usize = 256;

/// Why a service cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeshListenError {
    /// The address can be reached from elsewhere.
    #[error(
        "{address} can be reached from other machines, and without certificates any of them could pose as an agent; \
         give it certificates, or listen on a loopback address, such as 127.0.0.1:{}", address.port()
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not give the address.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A socket that a service listens on.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    credentials: Option<Credentials>,
    counts: Arc<HandshakeCounts>,
}

impl Listener {
    /// Listens on a loopback address, in plain text; port 0 is any that is free.
    ///
    /// # Errors
    /// The address is no loopback address, or the system does not give it.
    pub fn bind(address: SocketAddr) -> Result<Self, MeshListenError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(MeshListenError::NotLoopback { address });
        }
        Self::open(address, None)
    }

    /// Listens on any address, for programs that have certificates of the same CA. The service shows this
    /// certificate, also to others that it connects to itself.
    ///
    /// # Errors
    /// The system does not give the address.
    pub fn bind_tls(address: SocketAddr, credentials: &Credentials) -> Result<Self, MeshListenError> {
        Self::open(address, Some(credentials.clone()))
    }

    fn open(address: SocketAddr, credentials: Option<Credentials>) -> Result<Self, MeshListenError> {
        let bind = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address, credentials, counts: Arc::default() })
        };
        bind().map_err(|source| MeshListenError::Bind { address, source })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the service shows of itself.
    pub(crate) const fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// How connections begin.
    pub(crate) fn counts(&self) -> Arc<HandshakeCounts> {
        Arc::clone(&self.counts)
    }

    /// Connections, of which this many are open at most; others wait.
    pub(crate) fn connections(self, most: usize) -> io::Result<ReceiverStream<io::Result<Connection>>> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let gate = Gate::new(self.credentials.as_ref(), self.counts);
        let (to, from) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut unknown = VecDeque::new();
            while let Ok(place) = Arc::clone(&places).acquire_owned().await {
                let stream = tokio::select! {
                    stream = socket.accept() => stream,
                    () = to.closed() => break,
                };
                let Ok((stream, _)) = stream else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (gate, to) = (gate.clone(), to.clone());
                make_room(&mut unknown, &gate);
                let task = tokio::spawn(async move {
                    let Some((stream, peer)) = gate.admit(stream).await else { return };
                    let _ = to.send(Ok(Connection { stream, peer, _place: place })).await;
                });
                unknown.push_back(task.abort_handle());
            }
        });
        Ok(ReceiverStream::new(from))
    }
}

/// Ends the oldest connection that has not shown what it is, if there are too many of these.
fn make_room(unknown: &mut VecDeque<AbortHandle>, gate: &Gate) {
    if unknown.len() < UNKNOWN {
        return;
    }
    unknown.retain(|task| !task.is_finished());
    if unknown.len() >= UNKNOWN
        && let Some(oldest) = unknown.pop_front()
    {
        oldest.abort();
        gate.counts.crowded_handshakes.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection, with its place among those that may be open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    peer: Peer,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_listened_on() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:50051", "[2001:db8::1]:1"] {
            let refused = Listener::bind(address.parse().unwrap()).unwrap_err();
            assert!(matches!(refused, MeshListenError::NotLoopback { .. }), "{address}");
            let told = refused.to_string();
            assert!(told.contains("give it certificates, or listen on a loopback address"), "{told}");
        }
        let listener = Listener::bind("127.0.140.1:0".parse().unwrap()).unwrap();
        assert_ne!(listener.address().port(), 0);
        let taken = Listener::bind(listener.address()).unwrap_err();
        assert!(matches!(taken, MeshListenError::Bind { .. }), "{taken}");
    }
}

//! Sockets to listen on: loopback only, and so many connections and no more.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// After a connection could not be accepted, since files have run out, so long nothing is accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a service cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeshListenError {
    /// The address can be reached from elsewhere.
    #[error(
        "{address} can be reached from other machines, and without certificates any of them could pose as an agent; \
         listen on a loopback address, such as 127.0.0.1:{}", address.port()
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
}

impl Listener {
    /// Listens on a loopback address; port 0 is any that is free.
    ///
    /// # Errors
    /// The address is no loopback address, or the system does not give it.
    pub fn bind(address: SocketAddr) -> Result<Self, MeshListenError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(MeshListenError::NotLoopback { address });
        }
        let bind = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address })
        };
        bind().map_err(|source| MeshListenError::Bind { address, source })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections, of which this many are open at most; others wait.
    pub(crate) fn connections(self, most: usize) -> io::Result<ReceiverStream<io::Result<Connection>>> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let places = Arc::new(Semaphore::new(most));
        let (to, from) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(place) = Arc::clone(&places).acquire_owned().await {
                let Ok((stream, _)) = socket.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                if to.send(Ok(Connection { stream, _place: place })).await.is_err() {
                    break;
                }
            }
        });
        Ok(ReceiverStream::new(from))
    }
}

/// A connection, with its place among those that may be open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
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
            assert!(refused.to_string().contains("listen on a loopback address"), "{refused}");
        }
        let listener = Listener::bind("127.0.140.1:0".parse().unwrap()).unwrap();
        assert_ne!(listener.address().port(), 0);
        let taken = Listener::bind(listener.address()).unwrap_err();
        assert!(matches!(taken, MeshListenError::Bind { .. }), "{taken}");
    }
}

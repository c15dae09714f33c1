//! The page of an analyzer: what is bad, where, and since when, for people with a browser.
//!
//! It listens on loopback addresses only, answers GET and HEAD alone, and changes nothing. Names come from
//! agents and may be anything: they are data in JSON, and the page puts them on the screen as text.

mod answers;
mod connection;
mod events;
mod files;
mod guard;
mod refusals;
mod routes;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Semaphore;

use crate::board::SharedBoard;
use crate::listen::{Listener, MeshListenError};
use crate::metrics;
use crate::service::Service;

/// How much a page allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageConfig {
    /// Connections that are open at once; others wait.
    pub connections: usize,
    /// Of these, so many that are told of new windows.
    pub followers: usize,
    /// A request has to come within this time, and the next one, too.
    pub request: Duration,
    /// An answer that is not taken for so long is given up.
    pub stuck: Duration,
    /// Connections last no longer; browsers open another one.
    pub longest: Duration,
    /// The head of a request has no more bytes.
    pub head: usize,
    /// Followers hear something this often, also if nothing is new.
    pub heartbeat: Duration,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self {
            connections: 64,
            followers: 32,
            request: Duration::from_secs(10),
            stuck: Duration::from_secs(20),
            longest: Duration::from_secs(3600),
            head: 16 << 10,
            heartbeat: Duration::from_secs(2),
        }
    }
}

/// Why there is no page.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PageError {
    /// The address can be reached from elsewhere.
    #[error(
        "{address} can be reached from other machines, and the page asks nobody for a password; \
         listen on a loopback address, such as 127.0.0.1:{}, and forward the port", address.port()
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not give the address.
    #[error(transparent)]
    Listen(#[from] MeshListenError),
    /// The system gives no thread.
    #[error("cannot start the thread of the page")]
    Thread(#[from] io::Error),
}

/// What the analyzer knows of itself.
pub(crate) type Met = dyn Fn() -> metrics::Met + Send + Sync;

/// What all connections share.
struct Shared {
    board: SharedBoard,
    met: Box<Met>,
    followers: Arc<Semaphore>,
    config: PageConfig,
}

/// Where a page is to be served: a socket that listens, in the network of the thread that made it.
#[derive(Debug)]
pub struct PageListener(Listener);

impl PageListener {
    /// Listens on a loopback address.
    ///
    /// # Errors
    /// It is none, or the system does not give it.
    pub fn bind(address: SocketAddr) -> Result<Self, PageError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(PageError::NotLoopback { address });
        }
        Ok(Self(Listener::bind(address)?))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// A page that is served until it is dropped.
pub struct PageServer {
    _service: Service,
    address: SocketAddr,
}

impl fmt::Debug for PageServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl PageServer {
    /// Serves the page of this board. `met` says what the analyzer knows of itself.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<M: Into<metrics::Met>>(
        PageListener(listener): PageListener,
        board: SharedBoard,
        config: PageConfig,
        met: impl Fn() -> M + Send + Sync + 'static,
    ) -> Result<Self, PageError> {
        let address = listener.address();
        let followers = Arc::new(Semaphore::new(config.followers.min(Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Shared { board, met: Box::new(move || met().into()), followers, config });
        let service = Service::start("mesh page", move || connection::serve(listener, shared))?;
        Ok(Self { _service: service, address })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_served_on_this_machine_only() {
        for address in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let refused = PageListener::bind(address.parse().unwrap()).unwrap_err();
            assert!(refused.to_string().contains("listen on a loopback address"), "{refused}");
        }
    }
}

//! The controller as a service: agents register with it, and are told what to probe.

mod both;
mod desk;
mod lead;
mod mesh_service;
mod rebuild_service;
mod watch;

pub(crate) use mesh_service::LOCATED;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferroce_mesh::controller::{PinglistConfig, RegistryConfig};
use thiserror::Error;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::transport::Server;

use self::both::Both;
use self::desk::Desk;
use self::mesh_service::MeshService;
use self::rebuild_service::RebuildService;
use crate::clock;
use crate::counters::ControllerCounters;
use crate::database::{Chair, Database, DatabaseConfig, DatabaseError, Role};
use crate::listen::Listener;
use crate::proto::rebuild::controller_service_server::ControllerServiceServer;
use crate::proto::v1::mesh_server::MeshServer;
use crate::service::Service;
use crate::tls::{Credentials, HandshakeCounts};

/// What a controller allows, and how much is probed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Agents, their RNICs and leases.
    pub registry: RegistryConfig,
    /// How much is probed.
    pub pinglist: PinglistConfig,
    /// How long a window is.
    pub window: Duration,
    /// After a change, agents are told no sooner than this: others may change too.
    pub settle: Duration,
    /// How long an agent of the public rebuild stays that says nothing: it has no leases, and asks seldom.
    pub rebuild_lease: Duration,
    /// Connections that are open at once.
    pub connections: usize,
    /// Streams of pinglists and rosters at once.
    pub watches: usize,
    /// Bytes of a message that is taken.
    pub message: usize,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            registry: RegistryConfig::default(),
            pinglist: PinglistConfig::default(),
            window: Duration::from_secs(20),
            settle: Duration::from_secs(1),
            rebuild_lease: Duration::from_mins(10),
            connections: 70_000,
            watches: 70_000,
            message: 256 << 10,
        }
    }
}

/// A controller that runs, until it is dropped.
///
/// Alone, it keeps nothing on disk: after a restart it learns its agents as they come back, which takes no longer than
/// a lease. They come back spread over time. Several that share a database keep there what they know, and one of them
/// leads: agents go on with another when it is gone.
#[derive(Debug)]
pub struct Controller {
    _service: Service,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    config: ControllerConfig,
    /// With them, all others show theirs, too.
    credentials: Option<Credentials>,
    handshakes: Arc<HandshakeCounts>,
    desk: Mutex<Desk>,
    /// Says the version of the RNICs, or of where the analyzer is.
    news: tokio::sync::watch::Sender<u64>,
    watches: Arc<Semaphore>,
    standing: Mutex<Standing>,
}

/// Whether a controller leads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    leads: bool,
    /// Why not, or why what it knows is not kept.
    trouble: String,
}

/// Why a controller does not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The database is none.
    #[error("the database of the controller cannot be used")]
    Database(#[from] DatabaseError),
    /// The system gives no thread.
    #[error("cannot start the thread of the controller")]
    Thread(#[from] io::Error),
}

impl Shared {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it leads; if not, what those that ask are told.
    fn leads(&self) -> Result<(), Status> {
        let standing = self.standing();
        match &*standing {
            Standing { leads: true, .. } => Ok(()),
            Standing { trouble, .. } => {
                Err(Status::unavailable(format!("this controller stands by: {trouble}")))
            }
        }
    }

    /// The desk. It is left in order by whatever panics.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.counters.set_handshakes(&self.handshakes);
        desk
    }

    /// Counts what was refused since it came in another's name.
    fn refuse_foreign<T>(&self, checked: Result<T, Status>) -> Result<T, Status> {
        checked.inspect_err(|_| self.desk().counters.foreign_names += 1)
    }

    /// Something is done at the desk; if RNICs have changed, those that watch are told.
    fn at_desk<T>(&self, work: impl FnOnce(&mut Desk) -> T) -> T {
        let mut desk = self.desk();
        let done = work(&mut desk);
        let version = desk.version();
        drop(desk);
        self.news.send_if_modified(|known| std::mem::replace(known, version) != version);
        done
    }
}

impl Controller {
    /// Serves agents of both protocols on this socket.
    ///
    /// # Errors
    /// The system gives no thread or no runtime.
    pub fn start(listener: Listener, config: ControllerConfig) -> io::Result<Self> {
        Self::begin(listener, config, None)
    }

    /// The same, as one of several that share a database: one of them leads, and the others stand by. A database that
    /// is away is waited for. `place` is where others find this one, if that is not where it listens.
    ///
    /// # Errors
    /// It is not known where the database is, or the system gives no thread.
    pub fn start_with_database(
        listener: Listener,
        config: ControllerConfig,
        database: &DatabaseConfig,
        place: Option<&str>,
    ) -> Result<Self, ControllerError> {
        let place = place.map_or_else(|| listener.address().to_string(), str::to_owned);
        let chair = Chair::new(Database::read(database)?, Role::Controller, place);
        Ok(Self::begin(listener, config, Some(chair))?)
    }

    fn begin(listener: Listener, config: ControllerConfig, chair: Option<Chair>) -> io::Result<Self> {
        let address = listener.address();
        let trouble = if chair.is_some() { "the database was not asked yet" } else { "" };
        let standing = Standing { leads: chair.is_none(), trouble: trouble.to_owned() };
        // Versions of a later controller are larger, whatever it has seen.
        let desk = Mutex::new(Desk::new(&config, clock::unix_nanos()));
        let shared = Arc::new(Shared {
            config,
            credentials: listener.credentials().cloned(),
            handshakes: listener.counts(),
            desk,
            news: tokio::sync::watch::Sender::new(0),
            watches: Arc::new(Semaphore::new(config.watches.min(Semaphore::MAX_PERMITS))),
            standing: Mutex::new(standing),
        });
        let served = Arc::clone(&shared);
        let service = Service::start("mesh controller", move || serve(listener, served, chair))?;
        Ok(Self { _service: service, address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it leads; without a database it always does.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.shared.standing().leads
    }

    /// Why it stands by, or why what it knows is not kept; empty if nothing is wrong.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.shared.standing().trouble.clone()
    }

    /// What it met.
    #[must_use]
    pub fn counters(&self) -> ControllerCounters {
        self.shared.desk().counters
    }

    /// How many agents there are, and how many RNICs they have.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.shared.desk().size()
    }
}

async fn serve(listener: Listener, shared: Arc<Shared>, chair: Option<Chair>) {
    let config = shared.config;
    let Ok(connections) = listener.connections(config.connections) else { return };
    let mesh = MeshServer::new(MeshService { shared: Arc::clone(&shared) });
    let rebuild = ControllerServiceServer::new(RebuildService { shared: Arc::clone(&shared) });
    let both = Both {
        shared: Arc::clone(&shared),
        mesh: mesh.max_decoding_message_size(config.message),
        rebuild: rebuild.max_decoding_message_size(config.message),
    };
    let server = Server::builder()
        .max_concurrent_streams(64)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .serve_with_incoming(both, connections);
    // Leases lapse while nothing is asked, too.
    let lapse = async {
        let every = (config.registry.lease / 4).max(Duration::from_millis(10));
        loop {
            tokio::time::sleep(every).await;
            shared.at_desk(|desk| desk.tick(clock::now()));
        }
    };
    tokio::select! {
        _ = server => {}
        () = lapse => {}
        () = lead::lead(&shared, chair) => {}
    }
}

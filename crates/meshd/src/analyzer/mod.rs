//! The analyzer as a service: takes the windows of all agents, and says what is bad.

mod assembly;
mod judge;
mod keeper;
mod picture;
mod roster;
mod service;
mod services;
mod slot;
mod wiring;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferroce_mesh::{AnalyzerConfig, WiringError};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tonic::transport::Server;

use self::assembly::Assembly;
use self::judge::Judge;
use self::service::AnalysisService;
use crate::backoff::BackoffConfig;
use crate::board::{BoardConfig, SharedBoard};
use crate::client::{self, UrlError};
use crate::clock;
use crate::counters::AnalyzerCounters;
use crate::ledger::InboxConfig;
use crate::listen::Listener;
use crate::page::{PageConfig, PageError, PageServer};
use crate::proto::v1::analysis_server::AnalysisServer;
use crate::service::Service;
use crate::store::{Kept, Store, StoreConfig, StoreError};
use crate::tls::{Credentials, HandshakeCounts};

/// What an analyzer allows, and how it judges.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalyzerServerConfig {
    /// Where the controller is, which knows all RNICs.
    pub controller: String,
    /// Where agents find it, if that is not where it listens.
    pub url: Option<String>,
    /// Which windows are taken.
    pub inbox: InboxConfig,
    /// How they are judged.
    pub analyzer: AnalyzerConfig,
    /// So long after the end of a window it is waited for agents that have not told theirs.
    pub grace: Duration,
    /// Agents at most.
    pub agents: usize,
    /// Flows of one window of all agents at most.
    pub flows: usize,
    /// Queue pairs of services in one window of all agents at most.
    pub services: usize,
    /// Connections that are open at once.
    pub connections: usize,
    /// Streams of windows at once.
    pub streams: usize,
    /// Bytes of a message that is taken.
    pub message: usize,
    /// How long to wait before the controller is tried again.
    pub backoff: BackoffConfig,
    /// A topology file: which switches there are. Without one, all that is above ToRs is one fabric.
    pub topology: Option<String>,
    /// Where the page is served, for people with a browser; nothing is kept for them without it.
    pub page: Option<SocketAddr>,
    /// Where findings and what came from agents are kept; in memory only, if there is none.
    pub store: Option<StoreConfig>,
}

impl AnalyzerServerConfig {
    /// The usual analyzer with this controller.
    #[must_use]
    pub fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            url: None,
            inbox: InboxConfig::default(),
            analyzer: AnalyzerConfig::default(),
            grace: Duration::from_secs(10),
            agents: 65_536,
            flows: 4 << 20,
            services: 128 << 10,
            connections: 70_000,
            streams: 70_000,
            message: 8 << 20,
            backoff: BackoffConfig::default(),
            topology: None,
            page: None,
            store: None,
        }
    }
}

/// Why an analyzer does not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AnalyzerServerError {
    /// The address of the controller is none.
    #[error("it is not known where the controller is")]
    Controller(#[source] UrlError),
    /// The address that agents are to find it at is none.
    #[error("agents would not find it")]
    Place(#[source] UrlError),
    /// The topology file is none.
    #[error("the topology file cannot be used")]
    Topology(#[from] WiringError),
    /// There is no page.
    #[error("the page cannot be served")]
    Page(#[from] PageError),
    /// What was kept cannot be read, or nothing can be kept.
    #[error("the file of the analyzer cannot be used")]
    Store(#[from] StoreError),
    /// The system gives no thread.
    #[error("cannot start the thread of the analyzer")]
    Thread(#[from] io::Error),
}

/// An analyzer that runs, until it is dropped.
#[derive(Debug)]
pub struct AnalyzerServer {
    _service: Service,
    page: Option<PageServer>,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    config: AnalyzerServerConfig,
    /// With them, all others show theirs, too.
    credentials: Option<Credentials>,
    handshakes: Arc<HandshakeCounts>,
    /// Where agents find us.
    url: String,
    assembly: Mutex<Assembly>,
    streams: Arc<Semaphore>,
    /// Why the controller is not heard; empty if it is.
    trouble: Mutex<String>,
    /// Why nothing can be kept; empty if it can.
    store_trouble: Mutex<String>,
    /// Something is new, and is to be kept.
    news: Notify,
    /// What was new up to this generation is kept.
    kept: watch::Sender<u64>,
}

impl Shared {
    fn assembly(&self) -> MutexGuard<'_, Assembly> {
        let mut assembly = self.assembly.lock().unwrap_or_else(PoisonError::into_inner);
        assembly.counters.set_handshakes(&self.handshakes);
        assembly
    }

    /// Keeps windows for people from now on, and serves them.
    fn page(self: &Arc<Self>, address: SocketAddr) -> Result<PageServer, PageError> {
        let board = SharedBoard::new(BoardConfig::default());
        self.assembly().board = Some(board.clone());
        let shared = Arc::clone(self);
        PageServer::start(address, board, PageConfig::default(), move || {
            let trouble = shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (shared.assembly().counters, trouble)
        })
    }

    fn set_store_trouble(&self, trouble: String) {
        *self.store_trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn set_trouble(&self, trouble: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

impl AnalyzerServer {
    /// Takes windows on this socket, and tells the controller that agents find it there.
    ///
    /// # Errors
    /// The controller's address or the topology file is none, or the system gives no thread. That the controller is not there is no
    /// error: it is looked for until it is.
    pub fn start(listener: Listener, config: AnalyzerServerConfig) -> Result<Self, AnalyzerServerError> {
        let credentials = listener.credentials().cloned();
        let controller = client::normal(&config.controller, credentials.as_ref());
        let controller = controller.map_err(AnalyzerServerError::Controller)?;
        let config = AnalyzerServerConfig { controller, ..config };
        let address = listener.address();
        let url = config.url.clone().unwrap_or_else(|| address.to_string());
        let url = client::normal(&url, credentials.as_ref()).map_err(AnalyzerServerError::Place)?;
        let opened = config.store.as_ref().map(Store::open).transpose()?;
        let (store, kept) = opened.map_or((None, Kept::default()), |(store, kept)| (Some(store), kept));
        let judge = Judge::new(&config, &kept)?;
        let mut assembly = Assembly::new(&config);
        assembly.restore(&kept);
        let shared = Arc::new(Shared {
            url,
            credentials,
            handshakes: listener.counts(),
            assembly: Mutex::new(assembly),
            streams: Arc::new(Semaphore::new(config.streams.min(Semaphore::MAX_PERMITS))),
            trouble: Mutex::new("the controller was not heard yet".to_owned()),
            store_trouble: Mutex::default(),
            news: Notify::new(),
            kept: watch::channel(0).0,
            config,
        });
        let page = shared.config.page.map(|place| shared.page(place)).transpose()?;
        let served = Arc::clone(&shared);
        let service = Service::start("mesh analyzer", move || serve(listener, served, judge, store))?;
        Ok(Self { _service: service, page, address, shared })
    }

    /// Where the page is served.
    #[must_use]
    pub fn page(&self) -> Option<SocketAddr> {
        self.page.as_ref().map(PageServer::address)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it met.
    #[must_use]
    pub fn counters(&self) -> AnalyzerCounters {
        self.shared.assembly().counters
    }

    /// Why nothing can be kept in its file; empty if it can. What could not be kept is kept when there is room again.
    #[must_use]
    pub fn store_trouble(&self) -> String {
        self.shared.store_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the controller is not heard; empty if it is.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: Listener, shared: Arc<Shared>, judge: Judge, store: Option<Store>) {
    let Ok(connections) = listener.connections(shared.config.connections) else { return };
    let analysis = AnalysisServer::new(AnalysisService { shared: Arc::clone(&shared) });
    let server = Server::builder()
        .max_concurrent_streams(64)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .serve_with_incoming(analysis.max_decoding_message_size(shared.config.message), connections);
    let keep = async {
        match store {
            Some(store) => keeper::keep(&shared, store).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = server => {}
        () = keep => {}
        () = look(&shared, judge) => {}
        () = roster::follow(&shared) => {}
    }
}

/// Judges slots when they are due, beside the thread that takes reports.
async fn look(shared: &Shared, mut judge: Judge) {
    let board = shared.assembly().board.clone();
    loop {
        let every = shared.assembly().every();
        tokio::time::sleep(every).await;
        loop {
            let due = shared.assembly().due(clock::unix_nanos());
            let Some(due) = due else { break };
            let board = board.clone();
            let judging = tokio::task::spawn_blocking(move || {
                let mut judged = judge.judge(&due);
                if let Some((board, window)) = board.zip(judged.board.take()) {
                    picture::put(&board, due, window);
                }
                (judge, judged)
            });
            let judged;
            match judging.await {
                Ok(done) => (judge, judged) = done,
                // It has panicked, and has said why.
                Err(_) => return,
            }
            shared.assembly().judged(judged);
            shared.news.notify_one();
        }
    }
}

//! The analyzer as a service: takes the windows of all agents, and says what is bad.

mod assembly;
mod judge;
mod keeper;
mod picture;
mod roster;
mod service;
mod services;
mod slot;
mod succession;
mod wiring;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
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
use crate::database::{Chair, Database, DatabaseConfig, DatabaseError, Role};
use crate::ledger::InboxConfig;
use crate::listen::Listener;
use crate::metrics::{self, Family, Met};
use crate::outlet::{OutletError, OutletState, OutletStates, Outlets, OutletsConfig, Plan, Source};
use crate::page::{PageConfig, PageError, PageListener, PageServer};
use crate::proto::v1;
use crate::proto::v1::analysis_server::AnalysisServer;
use crate::service::Service;
use crate::store::{Kept, Store, StoreConfig, StoreError};
use crate::tls::{Credentials, HandshakeCounts};

/// What an analyzer allows, and how it judges.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalyzerServerConfig {
    /// Where controllers are: the one that leads knows all RNICs.
    pub controllers: Vec<String>,
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
    pub store: Option<Keeping>,
    /// What leaves the analyzer, and where to.
    pub outlets: OutletsConfig,
}

impl AnalyzerServerConfig {
    /// The usual analyzer with this controller.
    #[must_use]
    pub fn new(controller: &str) -> Self {
        Self {
            controllers: vec![controller.to_owned()],
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
            outlets: OutletsConfig::default(),
        }
    }

    /// Whether windows are put together for people, or for their sums.
    const fn has_board(&self) -> bool {
        self.page.is_some() || self.outlets.has_series()
    }
}

/// Where an analyzer keeps what it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// A file, which is this analyzer's alone.
    File(StoreConfig),
    /// A database, which several analyzers may share: one of them leads, and the others stand by.
    Database(DatabaseConfig),
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
    /// The database is none.
    #[error("the database of the analyzer cannot be used")]
    Database(#[from] DatabaseError),
    /// Something cannot leave the analyzer as is wished.
    #[error("what is to leave the analyzer cannot")]
    Outlet(#[from] OutletError),
    /// The system gives no thread.
    #[error("cannot start the thread of the analyzer")]
    Thread(#[from] io::Error),
}

/// An analyzer that runs, until it is dropped.
#[derive(Debug)]
pub struct AnalyzerServer {
    _service: Service,
    /// It ends after the service, so that all that was judged leaves.
    _outlets: Option<Outlets>,
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
    /// Whether it leads, or stands by.
    leads: watch::Sender<bool>,
    /// Which time that is, of all that share a database; 0 without one.
    term: AtomicU64,
    /// Something is new, and is to be kept.
    news: Notify,
    /// What was new up to this generation is kept.
    kept: watch::Sender<u64>,
    /// When the newest window ended that is told.
    told: watch::Sender<u64>,
    outlets: OutletStates,
}

impl Source for Shared {
    fn families(&self) -> Vec<Family> {
        let board = self.assembly().board.clone();
        let met = self.met();
        if !met.leads {
            return metrics::of_itself(&met);
        }
        board.map(|board| metrics::families(&board.lock(), &met)).unwrap_or_default()
    }

    fn findings(&self) -> v1::FindingsReply {
        self.assembly().findings()
    }

    fn leads(&self) -> Option<u64> {
        self.leads.borrow().then(|| self.term())
    }
}

impl Shared {
    fn assembly(&self) -> MutexGuard<'_, Assembly> {
        let mut assembly = self.assembly.lock().unwrap_or_else(PoisonError::into_inner);
        assembly.counters.set_handshakes(&self.handshakes);
        assembly
    }

    /// Serves what is kept for people.
    fn page(self: &Arc<Self>, listener: PageListener) -> Result<PageServer, PageError> {
        let board = SharedBoard::new(BoardConfig::default());
        self.assembly().board = Some(board.clone());
        let shared = Arc::clone(self);
        PageServer::start(listener, board, PageConfig::default(), move || shared.met())
    }

    /// What is known beside what is on the board.
    fn met(&self) -> Met {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counters = self.assembly().counters;
        let leads = *self.leads.borrow();
        Met { counters, trouble, store_trouble: self.store_trouble(), leads, outlets: self.outlets.told() }
    }

    /// Something may have been told that is new.
    fn ring(&self) {
        let through = self.assembly().through();
        self.told.send_if_modified(|told| std::mem::replace(told, through) != through);
    }

    fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    fn store_trouble(&self) -> String {
        self.store_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        let page = config.page.map(PageListener::bind).transpose()?;
        Self::begin(listener, page, config)
    }

    /// The same, with a page on this socket.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with_page(
        listener: Listener,
        page: PageListener,
        config: AnalyzerServerConfig,
    ) -> Result<Self, AnalyzerServerError> {
        let config = AnalyzerServerConfig { page: Some(page.address()), ..config };
        Self::begin(listener, Some(page), config)
    }

    fn begin(
        listener: Listener,
        page: Option<PageListener>,
        config: AnalyzerServerConfig,
    ) -> Result<Self, AnalyzerServerError> {
        let credentials = listener.credentials().cloned();
        let controllers = client::all_normal(&config.controllers, credentials.as_ref());
        let controllers = controllers.map_err(AnalyzerServerError::Controller)?;
        let config = AnalyzerServerConfig { controllers, ..config };
        let address = listener.address();
        let url = config.url.clone().unwrap_or_else(|| address.to_string());
        let url = client::normal(&url, credentials.as_ref()).map_err(AnalyzerServerError::Place)?;
        let mut path = None;
        let (keeper, kept) = match &config.store {
            None => (Keeper::Memory, Kept::default()),
            Some(Keeping::File(file)) => {
                path = Some(file.path.as_path());
                let (store, kept) = Store::open(file)?;
                (Keeper::File(Box::new(store)), kept)
            }
            Some(Keeping::Database(database)) => {
                let chair = Chair::new(Database::read(database)?, Role::Analyzer, url.clone());
                (Keeper::Database(Box::new(chair)), Kept::default())
            }
        };
        // Begun here, too, for a database, so that a wrong topology is said at once.
        let judge = Judge::new(&config, &kept)?;
        let plan = Plan::read(&config.outlets, path, &kept.open)?;
        let has_outlets = !plan.is_empty();
        let mut assembly = Assembly::new(&config);
        assembly.restore(&kept);
        assembly.raw = plan.sink();
        if config.outlets.has_series() && config.page.is_none() {
            // Sums are needed, and nothing to look at.
            let config = BoardConfig { windows: 1, whole: 1, flows: 0, traces: 0, ..BoardConfig::default() };
            assembly.board = Some(SharedBoard::new(config));
        }
        let shared = Arc::new(Shared {
            url,
            credentials,
            handshakes: listener.counts(),
            assembly: Mutex::new(assembly),
            streams: Arc::new(Semaphore::new(config.streams.min(Semaphore::MAX_PERMITS))),
            trouble: Mutex::new("the controller was not heard yet".to_owned()),
            store_trouble: Mutex::new(match &config.store {
                Some(Keeping::Database(_)) => "the database was not asked yet".to_owned(),
                _ => String::new(),
            }),
            term: AtomicU64::new(0),
            leads: watch::channel(!matches!(config.store, Some(Keeping::Database(_)))).0,
            news: Notify::new(),
            kept: watch::channel(0).0,
            told: watch::channel(0).0,
            outlets: plan.states(),
            config,
        });
        let page = page.map(|page| shared.page(page)).transpose()?;
        let source: Arc<dyn Source> = Arc::clone(&shared) as _;
        let begin = || Outlets::start(plan, source, shared.told.subscribe(), &shared.url);
        let outlets = has_outlets.then(begin).transpose()?;
        let served = Arc::clone(&shared);
        let service = Service::start("mesh analyzer", move || serve(listener, served, judge, keeper))?;
        Ok(Self { _service: service, _outlets: outlets, page, address, shared })
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

    /// What is bad, and what was.
    #[must_use]
    pub fn findings(&self) -> v1::FindingsReply {
        self.shared.assembly().findings()
    }

    /// Why nothing can be kept in its file or database, or why it stands by; empty if nothing is wrong. What could not
    /// be kept is kept when that is possible again.
    #[must_use]
    pub fn store_trouble(&self) -> String {
        self.shared.store_trouble()
    }

    /// Whether it leads; without a database it always does.
    #[must_use]
    pub fn leads(&self) -> bool {
        *self.shared.leads.borrow()
    }

    /// How it is with all that leaves it.
    #[must_use]
    pub fn outlets(&self) -> Vec<OutletState> {
        self.shared.outlets.told()
    }

    /// Why the controller is not heard; empty if it is.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What keeps what is new.
#[derive(Debug)]
enum Keeper {
    Memory,
    File(Box<Store>),
    Database(Box<Chair>),
}

async fn serve(listener: Listener, shared: Arc<Shared>, judge: Judge, keeper: Keeper) {
    let Ok(connections) = listener.connections(shared.config.connections) else { return };
    let analysis = AnalysisServer::new(AnalysisService { shared: Arc::clone(&shared) });
    let server = Server::builder()
        .max_concurrent_streams(64)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .serve_with_incoming(analysis.max_decoding_message_size(shared.config.message), connections);
    let led = async {
        match keeper {
            Keeper::Memory => drop(lead(&shared, judge, std::future::pending::<()>()).await),
            Keeper::File(store) => drop(lead(&shared, judge, keeper::keep(&shared, *store)).await),
            Keeper::Database(chair) => succession::run(&shared, *chair).await,
        }
    };
    tokio::select! {
        _ = server => {}
        () = led => {}
    }
}

/// Follows the roster and judges, until there is no use in going on to keep.
async fn lead<T>(shared: &Shared, judge: Judge, keep: impl Future<Output = T>) -> Option<T> {
    shared.leads.send_replace(true);
    tokio::select! {
        kept = keep => Some(kept),
        () = look(shared, judge) => None,
        () = roster::follow(shared) => None,
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
            let Ok((back, judged)) = judging.await else {
                // It has panicked, and has said why: the slot is lost, and findings that are open stay so.
                let kept = shared.assembly().judge_lost();
                let Ok(another) = Judge::new(&shared.config, &kept) else { return };
                judge = another;
                continue;
            };
            judge = back;
            shared.assembly().judged(judged);
            shared.ring();
            shared.news.notify_one();
        }
    }
}

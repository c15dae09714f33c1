//! What leaves the analyzer by the wish of its operator: series to Prometheus and to collectors of
//! OpenTelemetry, raw windows as Parquet files, and findings to a webhook.
//!
//! Nothing here holds up the analyzer: each outlet has a bounded queue, and what finds no room or is refused is
//! counted. Requests go to this machine only, in plain text; what is to go further is carried on by a program
//! here that speaks TLS.

mod disk;
mod otlp;
mod post;
mod push;
mod queue;
mod remote_write;
mod state;
mod url;
mod webhook;
mod windows;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use self::post::{Envelope, Letter};
use self::push::Pusher;
use self::queue::Queue;
use self::state::Cell;
pub use self::state::{KeptFiles, OutletState};
pub use self::url::OutletUrlError;
use self::url::Target;
use self::webhook::{Delivered, Told};
use self::windows::Windows;
pub(crate) use self::windows::{Teller, WindowSink};
pub use self::windows::{WindowsConfig, WindowsError};
use crate::backoff::BackoffConfig;
use crate::clock;
use crate::metrics::Family;
use crate::proto::v1;
use crate::service::Service;

const REMOTE_WRITE: &str = "remote_write";
const OTLP: &str = "otlp";
const WEBHOOK: &str = "webhook";
const WINDOWS: &str = "windows";

/// The names of all outlets.
pub const NAMES: [&str; 4] = [REMOTE_WRITE, OTLP, WEBHOOK, WINDOWS];

/// What is to leave the analyzer, and where to; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutletsConfig {
    /// Series, to Prometheus or another that takes remote-write 1.0.
    pub remote_write: Option<String>,
    /// Series, to a collector that takes OTLP/HTTP.
    pub otlp: Option<String>,
    /// Findings, to a program that takes JSON.
    pub webhook: Option<String>,
    /// Raw windows, to a directory.
    pub windows: Option<WindowsConfig>,
    /// How requests are sent.
    pub push: PushConfig,
}

impl OutletsConfig {
    /// Whether series leave.
    pub(crate) const fn has_series(&self) -> bool {
        self.remote_write.is_some() || self.otlp.is_some()
    }
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// Requests that wait for one receiver at most; then the oldest is dropped.
    pub waiting: usize,
    /// Bytes of them at most.
    pub bytes: usize,
    /// How long to wait before one is sent again.
    pub backoff: BackoffConfig,
    /// An answer has to come within this time.
    pub answer: Duration,
    /// Series are sent after each window, and this often if there is none.
    pub every: Duration,
    /// At the end, what waits has so long to leave.
    pub last: Duration,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            waiting: 180,
            bytes: 64 << 20,
            backoff: BackoffConfig::default(),
            answer: Duration::from_secs(15),
            every: Duration::from_secs(30),
            last: Duration::from_secs(3),
        }
    }
}

/// Why something cannot leave.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutletError {
    /// It is not known where to.
    #[error("it is not known where {outlet} is to go")]
    Url {
        /// Which outlet.
        outlet: &'static str,
        /// Why not.
        source: OutletUrlError,
    },
    /// Windows cannot be written.
    #[error(transparent)]
    Windows(#[from] WindowsError),
    /// It is not known what was told before.
    #[error("the file beside the store that says what the webhook was told cannot be read")]
    Delivered(#[source] io::Error),
    /// The system gives no thread.
    #[error("cannot start the thread of what leaves the analyzer")]
    Thread(#[source] io::Error),
}

/// Where all that leaves comes from.
pub(crate) trait Source: Send + Sync + 'static {
    /// All series as they are now.
    fn families(&self) -> Vec<Family>;

    /// All findings that are told.
    fn findings(&self) -> v1::FindingsReply;

    /// Which time this analyzer leads, of all that share a database; 0 without one, none while it stands by.
    fn leads(&self) -> Option<u64>;
}

/// How it is with all outlets.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutletStates(Arc<Vec<Cell>>);

impl OutletStates {
    pub(crate) fn told(&self) -> Vec<OutletState> {
        self.0.iter().map(|cell| cell.lock().clone()).collect()
    }
}

/// Outlets that were looked at and can begin.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    config: PushConfig,
    pushers: Vec<Pusher>,
    windows: Option<Windows>,
    feeds: Feeds,
    delivered: Option<Delivered>,
    states: OutletStates,
}

impl Plan {
    /// Looks where everything is to go. `store` is the file of the analyzer, and `open` are the findings in it.
    pub(crate) fn read(
        config: &OutletsConfig,
        store: Option<&Path>,
        open: &[v1::Finding],
    ) -> Result<Self, OutletError> {
        let mut plan = Self { config: config.push, ..Self::default() };
        let mut cells = Vec::new();
        let mut add = |outlet: &'static str, url: &Option<String>, usual, envelope: Envelope| {
            let Some(url) = url else { return Ok::<_, OutletError>(None) };
            let to = Target::read(url, usual).map_err(|source| OutletError::Url { outlet, source })?;
            let state = Cell::new(outlet, to.to_string());
            let queue = Queue::new(config.push.waiting, config.push.bytes, state.clone());
            cells.push(state.clone());
            plan.pushers.push(Pusher { to, envelope, queue: queue.clone(), state, config: config.push });
            Ok(Some(queue))
        };
        plan.feeds.remote_write =
            add(REMOTE_WRITE, &config.remote_write, remote_write::USUAL, remote_write::ENVELOPE)?;
        plan.feeds.otlp = add(OTLP, &config.otlp, otlp::USUAL, otlp::ENVELOPE)?;
        if let Some(queue) = add(WEBHOOK, &config.webhook, webhook::USUAL, webhook::ENVELOPE)? {
            let delivered = Delivered::read(store).map_err(OutletError::Delivered)?;
            plan.feeds.webhook = Some((queue, Told::resume(open, delivered.open())));
            plan.delivered = Some(delivered);
        }
        if let Some(windows) = &config.windows {
            let state = Cell::new(WINDOWS, windows.directory.display().to_string());
            cells.push(state.clone());
            let windows = Windows::start(windows, state)?;
            plan.feeds.sink = Some(windows.sink());
            plan.windows = Some(windows);
        }
        plan.states = OutletStates(Arc::new(cells));
        Ok(plan)
    }

    /// What takes raw windows.
    pub(crate) fn sink(&self) -> Option<WindowSink> {
        self.feeds.sink.clone()
    }

    /// Whether nothing leaves.
    pub(crate) fn is_empty(&self) -> bool {
        self.pushers.is_empty() && self.windows.is_none()
    }

    pub(crate) fn states(&self) -> OutletStates {
        self.states.clone()
    }
}

/// Outlets at work, until this is dropped: then all that waits leaves, within a limit.
pub(crate) struct Outlets {
    service: Service,
    feeds: Arc<Mutex<Feeds>>,
    source: Arc<dyn Source>,
    stop: watch::Sender<bool>,
    /// Windows are written to the end.
    _windows: Option<Windows>,
}

impl std::fmt::Debug for Outlets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlets").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Outlets {
    /// Begins. `bell` changes whenever a window was told; `url` is where the analyzer is.
    pub(crate) fn start(
        plan: Plan,
        source: Arc<dyn Source>,
        bell: watch::Receiver<u64>,
        url: &str,
    ) -> Result<Self, OutletError> {
        let Plan { config, pushers, windows, mut feeds, delivered, .. } = plan;
        feeds.url = url.to_owned();
        feeds.start = clock::unix_nanos();
        let feeds = Arc::new(Mutex::new(feeds));
        let (stop, stopped) = watch::channel(false);
        let (shared, from) = (Arc::clone(&feeds), Arc::clone(&source));
        let run = move || async move {
            let mut delivered = delivered;
            let pushing = async {
                let mut all: Vec<_> = Vec::new();
                for pusher in &pushers {
                    let mut delivered =
                        if pusher.state.lock().name == WEBHOOK { delivered.take() } else { None };
                    let stopped = stopped.clone();
                    let running =
                        pusher.run(stopped, move |letter, said| settled(&mut delivered, letter, said));
                    all.push(running);
                }
                join(all).await;
                let _ = stopped.clone().wait_for(|stop| *stop).await;
            };
            let mut ending = stopped.clone();
            tokio::select! {
                () = pushing => {}
                () = feed(&shared, &*from, bell, config.every) => {}
                () = async {
                    let _ = ending.wait_for(|stop| *stop).await;
                    tokio::time::sleep(config.last).await;
                } => {}
            }
            pushers.iter().for_each(Pusher::give_up);
        };
        let service = Service::start("mesh outlets", run).map_err(OutletError::Thread)?;
        Ok(Self { service, feeds, source, stop, _windows: windows })
    }
}

impl Drop for Outlets {
    fn drop(&mut self) {
        // What came since the last window.
        lock(&self.feeds).tell(&*self.source);
        self.stop.send_replace(true);
        self.service.finish();
    }
}

/// Waits for all of them.
async fn join(all: Vec<impl Future<Output = ()>>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(move |context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// A letter needs to be sent no more: what is wrong with what was said.
fn settled(
    delivered: &mut Option<Delivered>,
    letter: &Letter,
    said: Option<&hyper::body::Bytes>,
) -> Option<String> {
    match delivered {
        Some(delivered) => {
            let kept = delivered.settle(letter);
            kept.err().map(|error| format!("what was told cannot be kept beside the store: {error}"))
        }
        None => said.and_then(otlp::wrong),
    }
}

fn lock(feeds: &Mutex<Feeds>) -> MutexGuard<'_, Feeds> {
    feeds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills the queues whenever a window was told, and now and then.
async fn feed(feeds: &Mutex<Feeds>, source: &dyn Source, mut bell: watch::Receiver<u64>, every: Duration) {
    loop {
        lock(feeds).tell(source);
        tokio::select! {
            changed = bell.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// The beginnings of all outlets.
#[derive(Debug, Default)]
struct Feeds {
    remote_write: Option<Queue>,
    otlp: Option<Queue>,
    webhook: Option<(Queue, Told)>,
    sink: Option<WindowSink>,
    /// Where the analyzer is.
    url: String,
    /// When its sums began, in nanoseconds of the Unix clock.
    start: u64,
    /// The latest time that series were told for, in milliseconds: no two have the same.
    latest: i64,
}

impl Feeds {
    fn tell(&mut self, source: &dyn Source) {
        let instance = self.url.split_once("://").map_or(self.url.as_str(), |(_, place)| place);
        if self.remote_write.is_some() || self.otlp.is_some() {
            let (families, now) = (source.families(), clock::unix_nanos());
            if let Some(queue) = &self.remote_write {
                let millis = i64::try_from(now / 1_000_000).unwrap_or(i64::MAX);
                self.latest = millis.max(self.latest.saturating_add(1));
                queue.push(series(remote_write::encode(&families, instance, self.latest)));
            }
            if let Some(queue) = &self.otlp {
                let times = otlp::Times { start: self.start, now };
                queue.push(series(otlp::encode(&families, instance, times)));
            }
        }
        if let Some((queue, told)) = &mut self.webhook {
            // Asked in this order: one that leads no more says so before it forgets what is open.
            let findings = source.findings();
            if let Some(term) = source.leads() {
                told.lead(term, &findings.over, clock::unix_nanos());
                told.news(&findings, &self.url).into_iter().for_each(|letter| queue.push(letter));
            }
        }
        if let Some(sink) = &self.sink {
            sink.close();
        }
    }
}

const fn series(body: hyper::body::Bytes) -> Letter {
    Letter { body, id: None }
}

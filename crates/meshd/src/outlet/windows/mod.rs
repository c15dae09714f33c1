//! Raw windows as Parquet files: a row for each flow of each window that an agent told.
//!
//! Rows are gathered as windows come, and a thread of its own writes them. A file is closed when a window of
//! all agents was judged, so that there is one file for each of them; what comes late is in the next one.
//! Whatever an agent is acknowledged is in one file once, unless the analyzer is killed or rows were dropped,
//! which is counted.

mod file;
mod keep;
mod row;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;

use self::file::Open;
use self::keep::Keeping;
pub(crate) use self::row::Teller;
use self::row::{Row, rows};
use super::state::Cell;
use crate::clock;
use crate::window::WindowReport;

/// Rows that are handed to the thread at once.
const CHUNK: usize = 16_384;

/// A file is also closed when it has so many rows.
const ROWS: u64 = 4 << 20;

/// Where raw windows are written, and how much of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsConfig {
    /// The directory; it is made if it is not there.
    pub directory: PathBuf,
    /// Older files are removed.
    pub longest: Duration,
    /// Bytes of all files at most: the oldest are removed.
    pub most: u64,
    /// Chunks of 16,384 rows that wait to be written at most; further rows are dropped.
    pub waiting: usize,
}

impl WindowsConfig {
    /// The usual limits: 7 days, 10 GiB.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let longest = Duration::from_hours(7 * 24);
        Self { directory: directory.into(), longest, most: 10 << 30, waiting: 64 }
    }
}

/// Why no windows can be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WindowsError {
    /// The directory cannot be made, or not be written.
    #[error("{} cannot be used for windows; does it exist, and may it be written?", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another analyzer writes there.
    #[error("{} is in use by another analyzer; end that one, or name another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// Takes windows as agents tell them.
#[derive(Clone, Debug)]
pub(crate) struct WindowSink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gathered: Mutex<Gathered>,
    state: Cell,
}

#[derive(Debug)]
struct Gathered {
    rows: Vec<Row>,
    to: Option<SyncSender<Order>>,
}

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Write(Vec<Row>),
    Close,
}

impl WindowSink {
    /// Takes a window.
    pub(crate) fn take(&self, teller: &Teller<'_>, window: &WindowReport) {
        if window.flows.is_empty() {
            return;
        }
        let mut gathered = self.gathered();
        for row in rows(teller, window) {
            gathered.rows.push(row);
            if gathered.rows.len() >= CHUNK {
                self.hand_on(&mut gathered);
            }
        }
    }

    /// A window was judged: what came until now makes a file.
    pub(crate) fn close(&self) {
        let mut gathered = self.gathered();
        self.hand_on(&mut gathered);
        if let Some(to) = &gathered.to {
            // Where there is no room, the next one closes it.
            let _ = to.try_send(Order::Close);
        }
    }

    fn gathered(&self) -> std::sync::MutexGuard<'_, Gathered> {
        self.0.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_on(&self, gathered: &mut Gathered) {
        if gathered.rows.is_empty() {
            return;
        }
        let rows = std::mem::take(&mut gathered.rows);
        let count = rows.len() as u64;
        let Some(to) = &gathered.to else { return };
        self.0.state.lock().waiting += count;
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = to.try_send(Order::Write(rows)) {
            let mut state = self.0.state.lock();
            state.waiting -= count;
            state.dropped += count;
            "windows come faster than they can be written".clone_into(&mut state.trouble);
        }
    }
}

/// The thread that writes, until this is dropped: then it writes what is left.
#[derive(Debug)]
pub(super) struct Windows {
    sink: WindowSink,
    thread: Option<JoinHandle<()>>,
}

impl Windows {
    pub(super) fn start(config: &WindowsConfig, state: Cell) -> Result<Self, WindowsError> {
        let keeping = Keeping::open(config)?;
        state.lock().kept = Some(keeping.told());
        let (to, from) = sync_channel(config.waiting.max(1));
        let gathered = Mutex::new(Gathered { rows: Vec::new(), to: Some(to) });
        let sink = WindowSink(Arc::new(Inner { gathered, state: state.clone() }));
        let writer = Writer { keeping, state, open: None };
        let spawned = thread::Builder::new().name("mesh windows".to_owned()).spawn(|| writer.run(from));
        let no_thread = |source| WindowsError::Directory { path: config.directory.clone(), source };
        Ok(Self { sink, thread: Some(spawned.map_err(no_thread)?) })
    }

    pub(super) fn sink(&self) -> WindowSink {
        self.sink.clone()
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.sink.close();
        self.sink.gathered().to = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Writes files, one after the other.
#[derive(Debug)]
struct Writer {
    keeping: Keeping,
    state: Cell,
    open: Option<Open>,
}

impl Writer {
    fn run(mut self, orders: Receiver<Order>) {
        for order in orders {
            match order {
                Order::Write(rows) => self.write(&rows),
                Order::Close => self.close(),
            }
        }
        self.close();
    }

    fn write(&mut self, rows: &[Row]) {
        let count = rows.len() as u64;
        self.state.lock().waiting -= count;
        let mut open = match self.open.take().map_or_else(|| Open::begin(&self.keeping), Ok) {
            Ok(open) => open,
            Err(error) => return self.lost(count, &error),
        };
        let lost = open.rows + count;
        match open.write(rows) {
            Ok(()) => self.open = Some(open),
            Err(error) => return self.lost(lost, &error),
        }
        if lost >= ROWS {
            self.close();
        }
    }

    fn close(&mut self) {
        let now = clock::unix_nanos();
        if let Some(open) = self.open.take() {
            let rows = open.rows;
            match open.finish(&mut self.keeping, now / 1_000_000) {
                Ok(()) => self.state.sent(rows, now),
                Err(error) => self.lost(rows, &error),
            }
        }
        self.keeping.shorten(now / 1_000_000);
        self.state.lock().kept = Some(self.keeping.told());
    }

    /// These rows are in no file.
    fn lost(&self, rows: u64, error: &io::Error) {
        let why = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full".to_owned(),
            _ => error.to_string(),
        };
        self.state
            .failed(format!("no windows can be written to {}: {why}", self.keeping.directory().display()));
        self.state.lock().dropped += rows;
    }
}

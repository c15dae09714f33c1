//! Time-lines of what a program does, for tests and for people who look for a mistake.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_device::Nic;
use ferroce_record::{Mode, RecordConfig, RecordError, Recorder, TraceError};
use ferroce_trace::{Assembler, Block, Timeline};
use thiserror::Error;

use crate::capability::Capability;
use crate::context::Context;
use crate::error::CreateError;

/// Why a program cannot be recorded, or its record not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be made.
    #[error("nothing can be recorded")]
    File(#[from] RecordError),
    /// The device is not ours.
    #[error(transparent)]
    Device(#[from] CreateError),
    /// The file cannot be read.
    #[error("the record cannot be read")]
    Unreadable(#[from] TraceError),
    /// The file cannot be copied.
    #[error("the record cannot be saved as {}", path.display())]
    Unsaved {
        /// The name of the copy.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What devices do while it is there: each work request, its packets and its completion.
///
/// The record is a file beside other temporary ones, and goes with this, unless the thread panics: then it stays, and its name is
/// printed, so that a test that fails leaves its time-line behind. `ferroce trace show FILE` and
/// `ferroce trace explain FILE` read it.
///
/// ```
/// # use ferroce_verbs::Context;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::builder("ferroce_lo").address([127, 0, 44, 9]).open()?;
/// let recording = context.record()?;
/// // ... what is to be looked at ...
/// println!("{}", recording.text()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    contexts: Vec<Context>,
    path: PathBuf,
    is_temporary: bool,
}

/// Bytes of all that a recording holds in memory.
const BYTES: u64 = 8 << 20;

/// Recordings that this process has begun, for their names.
static BEGUN: AtomicU32 = AtomicU32::new(0);

impl Recording {
    /// Records what these devices do, on one time-line.
    ///
    /// # Errors
    /// The disk has no room, or a device is of another process.
    pub fn of(contexts: &[&Context]) -> Result<Self, RecordingError> {
        loop {
            let number = BEGUN.fetch_add(1, Ordering::Relaxed);
            let name = format!("ferroce-{}-{number}.ftrace", std::process::id());
            match Self::begin(contexts, std::env::temp_dir().join(name), true) {
                // A process that had this number before may have left it.
                Err(RecordingError::File(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
    }

    /// As [`of`](Self::of), into this file, which stays.
    ///
    /// # Errors
    /// The file is there already, the disk has no room, or a device is of another process.
    pub fn into_file(contexts: &[&Context], path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        Self::begin(contexts, path.into(), false)
    }

    fn begin(contexts: &[&Context], path: PathBuf, is_temporary: bool) -> Result<Self, RecordingError> {
        let engines: usize = {
            let nics: Result<Vec<&Nic>, _> = contexts.iter().map(|context| nic(context)).collect();
            nics?.into_iter().map(Nic::engine_count).sum()
        };
        let engines = u32::try_from(engines).unwrap_or(u32::MAX);
        let config = RecordConfig { bytes: BYTES, engines, ..RecordConfig::of_this_process(Mode::Whole) };
        let recorder = Arc::new(Recorder::create(&path, &config)?);
        let recording = Self { recorder, contexts: Vec::new(), path, is_temporary };
        let mut recording = recording;
        for context in contexts {
            nic(context)?.record(&recording.recorder).map_err(CreateError::from)?;
            recording.contexts.push((*context).clone());
        }
        Ok(recording)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What happened so far, as text: a block for each work request.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn text(&self) -> Result<String, RecordingError> {
        let timeline = Timeline::open(std::slice::from_ref(&self.path))?;
        let (mut assembler, mut text) = (Assembler::new(), String::new());
        for seen in timeline.events() {
            assembler.take(&seen.stamped);
            while let Some(work) = assembler.next_over() {
                // A string takes everything.
                let _ = writeln!(text, "{}", Block(&work));
            }
        }
        assembler.settle();
        while let Some(work) = assembler.next_over() {
            let _ = writeln!(text, "{}", Block(&work));
        }
        for work in assembler.finish() {
            let _ = writeln!(text, "{}", Block(&work));
        }
        Ok(text)
    }

    /// Copies the record to another file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), RecordingError> {
        let path = path.as_ref();
        let unsaved = |source| RecordingError::Unsaved { path: path.to_owned(), source };
        std::fs::copy(&self.path, path).map_err(unsaved)?;
        Ok(())
    }

    /// Writes nothing down any more; the file is complete.
    pub fn stop(&mut self) {
        for context in self.contexts.drain(..) {
            if let Ok(nic) = nic(&context) {
                nic.stop_recording(&self.recorder);
            }
        }
        self.recorder.end();
    }
}

/// The device to be recorded; cards tell nothing.
fn nic(context: &Context) -> Result<&Nic, CreateError> {
    Ok(context.device().soft(Capability::Recording)?)
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.recorder.is_ours() {
            // The record is the parent's.
            return;
        }
        self.stop();
        if std::thread::panicking() {
            eprintln!("what happened is in {0}: ferroce trace explain {0}", self.path.display());
        } else if self.is_temporary {
            // If it cannot be removed, the system does so with its other temporary files.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Context {
    /// Records what this device does from now on, until what is returned is dropped: see [`Recording`].
    ///
    /// # Errors
    /// The disk has no room, or the device is of another process.
    pub fn record(&self) -> Result<Recording, RecordingError> {
        Recording::of(&[self])
    }
}

//! The record of a process, as the environment asks for it: one file for all of its devices.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ferroce_record::{Mode, RecordConfig, RecordError, Recorder, numbered};
use ferroce_sys::fork::PerProcess;
use ferroce_sys::sync::lock;

use crate::error::SettingError;

/// Bytes of the rings of a whole record: what happens while the thread that keeps it does not run.
const RINGS: u64 = 32 << 20;

/// Rings for engines at least: a process may open another device later.
const ENGINES: usize = 3;

/// Processes of one run that may write records beside each other.
const MOST: u32 = 4096;

/// Where a process writes down what its devices do, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSetting {
    /// The file (`FERROCE_TRACE`). If it is there already, that of another process, this one takes the next name: after
    /// `run.ftrace` comes `run.2.ftrace`.
    pub path: PathBuf,
    /// Bytes of the last events, if only those are wanted (`FERROCE_TRACE_FLIGHT`, in MiB).
    pub flight: Option<u64>,
    /// One of so many work requests is recorded (`FERROCE_TRACE_SAMPLE`).
    pub sample: u32,
}

impl TraceSetting {
    /// All of everything, into this file.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, flight: None, sample: 1 }
    }

    /// What the environment wants.
    pub(crate) fn from_env() -> Result<Option<Self>, SettingError> {
        let Some(path) = std::env::var_os("FERROCE_TRACE").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let number = |name| match std::env::var(name).ok().filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(given) => match given.parse::<u32>() {
                Ok(number @ 1..) => Ok(Some(number)),
                _ => Err(SettingError::Count { name, given }),
            },
        };
        let flight = number("FERROCE_TRACE_FLIGHT")?.map(|mib| u64::from(mib) << 20);
        let sample = number("FERROCE_TRACE_SAMPLE")?.unwrap_or(1);
        Ok(Some(Self { path: path.into(), flight, sample }))
    }
}

/// What this process records with.
static RECORDING: PerProcess<Mutex<Option<Current>>> = PerProcess::new();

/// What is recorded with.
#[derive(Debug)]
struct Current {
    /// How it was asked for.
    setting: TraceSetting,
    /// The file.
    path: PathBuf,
    recorder: Arc<Recorder>,
}

/// The recorder of this process with these settings, for a device with so many engines: all devices share it.
pub(crate) fn recorder(setting: &TraceSetting, engines: usize) -> Result<Arc<Recorder>, RecordError> {
    let path = std::path::absolute(&setting.path).unwrap_or_else(|_| setting.path.clone());
    let setting = &TraceSetting { path, ..setting.clone() };
    let mut recording = lock(RECORDING.get());
    if let Some(current) = recording.as_ref().filter(|current| current.setting == *setting) {
        return Ok(Arc::clone(&current.recorder));
    }
    let (mode, bytes) = match setting.flight {
        Some(bytes) => (Mode::Flight, bytes),
        None => (Mode::Whole, RINGS),
    };
    let engines = u32::try_from(engines.max(ENGINES)).unwrap_or(u32::MAX);
    let config =
        RecordConfig { bytes, engines, sample: setting.sample, ..RecordConfig::of_this_process(mode) };
    let (recorder, path) = create(&setting.path, &config)?;
    let recorder = Arc::new(recorder);
    *recording = Some(Current { setting: setting.clone(), path, recorder: Arc::clone(&recorder) });
    Ok(recorder)
}

/// The file that this process writes to.
pub(crate) fn current() -> Result<PathBuf, String> {
    let recording = lock(RECORDING.get());
    let none = || "it records nothing; start with `ferroce trace --attach PID`".to_owned();
    recording.as_ref().map(|current| current.path.clone()).ok_or_else(none)
}

/// What this process records with, if it does.
pub(crate) fn current_recorder() -> Option<Arc<Recorder>> {
    lock(RECORDING.get()).as_ref().map(|current| Arc::clone(&current.recorder))
}

/// Whether this process records as it is asked to.
pub(crate) fn is_current(setting: &TraceSetting) -> bool {
    lock(RECORDING.get()).as_ref().is_some_and(|current| current.setting == *setting)
}

/// Ends what this process records, if it is with this.
pub(crate) fn stop_with(recorder: &Arc<Recorder>) {
    let is_it = |current: &mut Current| Arc::ptr_eq(&current.recorder, recorder);
    if let Some(current) = lock(RECORDING.get()).take_if(is_it) {
        current.recorder.end();
    }
}

/// Ends what this process records; the file that it wrote to.
pub(crate) fn stop() -> Result<PathBuf, String> {
    // Another device may have stopped it just now.
    let Some(current) = lock(RECORDING.get()).take() else { return Ok(PathBuf::new()) };
    current.recorder.end();
    Ok(current.path)
}

/// Ends the record of this process: the file says that it is complete.
pub(crate) fn end() {
    if let Ok(recording) = RECORDING.get().try_lock()
        && let Some(current) = &*recording
    {
        current.recorder.end();
    }
}

/// Makes the file, or the next beside it that is not there.
fn create(path: &Path, config: &RecordConfig) -> Result<(Recorder, PathBuf), RecordError> {
    let mut number = 1;
    loop {
        let path = numbered(path, number);
        match Recorder::create(&path, config) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST => number += 1,
            result => return result.map(|recorder| (recorder, path)),
        }
    }
}

//! Programs that run are recorded for a while.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ferroce_device::switchboard::{RecordRequest, Recorded, record};

use crate::stat::check_process;

/// How often it is looked whether a wait is over.
const LOOK: Duration = Duration::from_millis(20);

/// How long a program is looked at, if nothing else is said.
const GLANCE: Duration = Duration::from_secs(1);

/// A program that is recorded, until this is dropped.
#[derive(Debug)]
pub(super) struct Session {
    pid: u32,
    /// The program records until this is dropped.
    recorded: Recorded,
    is_over: bool,
}

impl Session {
    /// Begins to record.
    pub(super) fn start(
        pid: u32,
        path: &Path,
        flight: Option<u64>,
        sample: Option<u32>,
    ) -> anyhow::Result<Self> {
        check_process(pid)?;
        let request = RecordRequest::Start { path: path.to_owned(), flight, sample: sample.unwrap_or(1) };
        // From here on the program is recorded as long as this process lives.
        crate::interrupt::listen()?;
        let recorded = record(pid, &request)?;
        Ok(Self { pid, recorded, is_over: false })
    }

    /// Waits for so long, or until Ctrl-C, or until the program has ended.
    pub(super) fn wait(&self, time: Option<Duration>) -> anyhow::Result<()> {
        let _patience = crate::interrupt::be_patient();
        let end = time.map(|time| ferroce_device::now() + time);
        while !crate::interrupt::is_asked()
            && is_there(self.pid)
            && end.is_none_or(|end| ferroce_device::now() < end)
        {
            ferroce_device::park(Some(LOOK));
        }
        Ok(())
    }

    /// Ends the record; its file.
    pub(super) fn stop(mut self) -> anyhow::Result<PathBuf> {
        self.is_over = true;
        match record(self.pid, &RecordRequest::Stop) {
            Ok(told) if !told.path.as_os_str().is_empty() => Ok(told.path),
            // The program has ended, and its record with it.
            Ok(_) | Err(_) if !is_there(self.pid) => Ok(self.recorded.path.clone()),
            Ok(_) => Ok(self.recorded.path.clone()),
            Err(error) => Err(error).context("the record goes on"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_over {
            // It may have ended.
            let _ = record(self.pid, &RecordRequest::Stop);
        }
    }
}

/// The file that a program writes to.
pub(super) fn current(pid: u32) -> anyhow::Result<PathBuf> {
    check_process(pid)?;
    Ok(record(pid, &RecordRequest::Where)?.path)
}

/// Whether a process runs; one that has ended may wait for its parent.
fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in brackets, and may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What a program does right now: its own record if it makes one, else one of a moment, which goes with this.
#[derive(Debug)]
pub(super) struct Glance {
    pub(super) path: PathBuf,
    is_temporary: bool,
}

impl Glance {
    pub(super) fn at(pid: u32, time: Option<Duration>) -> anyhow::Result<Self> {
        check_process(pid)?;
        if let Ok(Recorded { path, .. }) = record(pid, &RecordRequest::Where) {
            super::files::note(&format!("process {pid} records already: this is what it has so far"));
            return Ok(Self { path, is_temporary: false });
        }
        let name = format!("ferroce-attach-{pid}-{}.ftrace", std::process::id());
        let session = Session::start(pid, &std::env::temp_dir().join(name), None, None)?;
        session.wait(Some(time.unwrap_or(GLANCE)))?;
        Ok(Self { path: session.stop()?, is_temporary: true })
    }
}

impl Drop for Glance {
    fn drop(&mut self) {
        if self.is_temporary {
            // The system removes what stays here.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

//! The recorder of a process: its file, the rings in it, and in a whole record the thread that keeps events.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_sys::shared_file::{SharedFile, reserve};
use ferroce_sys::{clock, fork};
use thiserror::Error;

use crate::chunk::{CHUNK_HEAD, Chunk, MOST};
use crate::event::{EVENT_LEN, Words};
use crate::header::{ENDED_WORD, Header, Mode};
use crate::layout::{MOST_RINGS, Rings};
use crate::ring::{EngineRing, ProgramRing, Ring};

/// How often the keeper looks.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes that a whole record has on the disk in advance.
const AHEAD: u64 = 16 << 20;

/// How a record is made.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// All events, or the last ones.
    pub mode: Mode,
    /// Bytes of all rings.
    pub bytes: u64,
    /// Engines that have rings of their own; those beyond share the one of the program.
    pub engines: u32,
    /// One of so many work requests is recorded.
    pub sample: u32,
    /// The program and its arguments.
    pub program: String,
    /// The host.
    pub host: String,
}

impl RecordConfig {
    /// The usual one, of this process.
    #[must_use]
    pub fn of_this_process(mode: Mode) -> Self {
        let read = |path: &str| std::fs::read(path).unwrap_or_default();
        let words = read("/proc/self/cmdline");
        let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let host = String::from_utf8_lossy(&read("/proc/sys/kernel/hostname")).trim().to_owned();
        Self { host, ..Self::new(mode, words.join(" ").trim()) }
    }

    /// The usual one, of a program.
    #[must_use]
    pub fn new(mode: Mode, program: &str) -> Self {
        let (program, host) = (program.to_owned(), String::new());
        Self { mode, bytes: 64 << 20, engines: 3, sample: 1, program, host }
    }
}

/// Why there is no record.
#[derive(Debug, Error)]
#[error("cannot make {}", path.display())]
pub struct RecordError {
    /// The file.
    path: PathBuf,
    /// Why not.
    source: io::Error,
}

impl RecordError {
    /// What kind of error the system told.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// The recorder of a process. When it is dropped, the file says that it is complete.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Which process made it, counted in forks.
    generation: u32,
}

#[derive(Debug)]
struct Shared {
    map: Arc<SharedFile>,
    rings: Rings,
    mode: Mode,
    sample: u32,
    /// Rings of engines that are taken.
    taken: AtomicU32,
    /// Devices that were numbered.
    devices: AtomicU32,
    ends: AtomicBool,
    /// Why events are no longer kept, if so.
    trouble: Mutex<Option<io::Error>>,
}

impl Recorder {
    /// Makes a new file, and records into it from now on.
    ///
    /// # Errors
    /// The file is there already, the disk has no room for it, or there can be no thread.
    pub fn create(path: &Path, config: &RecordConfig) -> Result<Self, RecordError> {
        let wrong = |source| RecordError { path: path.to_owned(), source };
        let rings = Rings::within(config.engines.saturating_add(1).min(MOST_RINGS), config.bytes);
        let map = Arc::new(SharedFile::create(path, rings.words()).map_err(wrong)?);
        let (clock_start, wall_start) = clock::starts();
        let header = Header {
            mode: config.mode,
            sample: config.sample.max(1),
            pid: std::process::id(),
            program: config.program.clone(),
            host: config.host.clone(),
            boot: boot(),
            clock_start,
            wall_start,
            has_ended: false,
            rings,
        };
        let bytes = header.emit();
        // The first word says what it is: it comes last.
        for (word, bytes) in map.words().iter().zip(bytes.as_chunks().0).rev() {
            word.store(u64::from_le_bytes(*bytes), Ordering::Release);
        }
        let shared = Arc::new(Shared {
            map,
            rings,
            mode: config.mode,
            sample: header.sample,
            taken: AtomicU32::new(0),
            devices: AtomicU32::new(0),
            ends: AtomicBool::new(false),
            trouble: Mutex::new(None),
        });
        let keeper = match config.mode {
            Mode::Flight => None,
            Mode::Whole => {
                let keeper = Keeper::new(&shared);
                let thread = std::thread::Builder::new().name("ferroce record".to_owned());
                let spawned = thread.spawn(move || keeper.run());
                Some(spawned.map_err(|error| {
                    // It would be taken for a record.
                    let _ = std::fs::remove_file(path);
                    wrong(error)
                })?)
            }
        };
        Ok(Self { shared, keeper: Mutex::new(keeper), generation: fork::generation() })
    }

    /// A ring for an engine; none if all are taken, and then it shares that of the program.
    #[must_use]
    pub fn engine_ring(&self) -> Option<EngineRing> {
        let all = self.shared.rings.count - 1;
        let next = |taken| (taken < all).then_some(taken + 1);
        let taken = self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(EngineRing::new(self.shared.ring(taken + 1)))
    }

    /// The ring of the program.
    #[must_use]
    pub fn program_ring(&self) -> ProgramRing {
        ProgramRing::new(self.shared.ring(0))
    }

    /// Whether this process made it, and not one that it was forked from.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// A number for a device that is about to be recorded, the first 0: numbers of its objects may be those of another one.
    #[must_use]
    pub fn number_device(&self) -> u32 {
        self.shared.devices.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the work with this number is recorded.
    #[must_use]
    #[inline]
    pub fn samples(&self, work: u32) -> bool {
        self.shared.sample == 1 || work.is_multiple_of(self.shared.sample)
    }

    /// Whether all work requests are recorded.
    #[must_use]
    #[inline]
    pub fn has_all(&self) -> bool {
        self.shared.sample == 1
    }

    /// Events of a whole record that are in rings and in no chunk yet.
    #[must_use]
    pub fn unkept(&self) -> u64 {
        let unkept = |number| {
            let ring = self.shared.ring(number);
            ring.begun().saturating_sub(ring.kept())
        };
        (0..self.shared.rings.count).map(unkept).sum()
    }

    /// Why events are no longer kept, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ToString::to_string)
    }
}

impl Recorder {
    /// Ends the record: what there is is kept, and the file says that it is complete. Later events may be missing in it.
    pub fn end(&self) {
        if !self.is_ours() {
            // The thread and the file are the parent's.
            std::mem::forget(self.keeper.try_lock().ok().and_then(|mut keeper| keeper.take()));
            return;
        }
        self.shared.ends.store(true, Ordering::Release);
        if let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.thread().unpark();
            // A panic in there was printed by the thread itself.
            let _ = keeper.join();
        }
        self.shared.map.words()[ENDED_WORD].store(1, Ordering::Release);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn ring(&self, number: u32) -> Ring {
        Ring::new(&self.map, self.rings, number, self.mode == Mode::Whole)
    }
}

/// The thread that moves events from rings into chunks.
struct Keeper {
    shared: Arc<Shared>,
    rings: Vec<Ring>,
    /// Where the next chunk begins.
    at: u64,
    /// How much of the file is on the disk.
    reserved: u64,
    bytes: Vec<u8>,
}

impl Keeper {
    fn new(shared: &Arc<Shared>) -> Self {
        let rings = (0..shared.rings.count).map(|number| shared.ring(number)).collect();
        let at = shared.rings.words() as u64 * 8;
        Self { shared: Arc::clone(shared), rings, at, reserved: at, bytes: Vec::new() }
    }

    fn run(mut self) {
        loop {
            let ends = self.shared.ends.load(Ordering::Acquire);
            let kept = if ends { self.keep_the_rest().map(|()| false) } else { self.keep_all() };
            match kept {
                Ok(true) => {}
                Ok(false) if ends => break,
                Ok(false) => clock::park(Some(LOOK)),
                Err(error) => {
                    // From now on the rings fill up, and what has no room is counted.
                    *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    break;
                }
            }
        }
        // What was on the disk in advance and is not needed; nothing is lost if it stays.
        let _ = self.shared.map.file().set_len(self.at);
    }

    /// Keeps all that is there by now, and not what comes meanwhile: that may never end.
    fn keep_the_rest(&mut self) -> io::Result<()> {
        let until: Vec<u64> = self.rings.iter().map(Ring::begun).collect();
        let is_done = |rings: &[Ring]| rings.iter().zip(&until).all(|(ring, until)| ring.kept() >= *until);
        while !is_done(&self.rings) && self.keep_all()? {}
        Ok(())
    }

    /// Keeps what there is; whether there was something.
    fn keep_all(&mut self) -> io::Result<bool> {
        let mut was_something = false;
        for number in 0..self.rings.len() {
            was_something |= self.keep(number)?;
        }
        Ok(was_something)
    }

    fn keep(&mut self, number: usize) -> io::Result<bool> {
        let ring = &self.rings[number];
        let (first, begun) = (ring.kept(), ring.begun());
        let most = begun.saturating_sub(first).min(u64::from(MOST));
        self.bytes.clear();
        self.bytes.resize(CHUNK_HEAD, 0);
        let mut count = 0;
        // An event that a thread has not written to its end is waited for.
        while u64::from(count) < most
            && let Some(words) = ring.read(first + u64::from(count))
        {
            put(&mut self.bytes, &words);
            count += 1;
        }
        if count == 0 {
            return Ok(false);
        }
        let ring_number = u32::try_from(number).unwrap_or(u32::MAX);
        let chunk = Chunk { ring: ring_number, count, first, lost: ring.lost() };
        let end = self.at + chunk.len();
        let file = self.shared.map.file();
        if end + CHUNK_HEAD as u64 > self.reserved {
            let more = AHEAD.max(chunk.len() * 2);
            reserve(file, self.reserved, more)?;
            self.reserved += more;
        }
        file.write_all_at(&self.bytes[CHUNK_HEAD..], self.at + CHUNK_HEAD as u64)?;
        file.write_all_at(&chunk.emit(), self.at)?;
        self.at = end;
        self.rings[number].keep(first + u64::from(count));
        Ok(true)
    }
}

fn put(bytes: &mut Vec<u8>, words: &Words) {
    bytes.reserve(EVENT_LEN);
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// The boot of this machine; 0 where the system does not tell.
fn boot() -> u128 {
    let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&told.trim().replace('-', ""), 16).unwrap_or(0)
}

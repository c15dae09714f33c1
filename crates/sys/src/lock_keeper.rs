//! Record locks that are a copy of the code's own, and not the process's.
//!
//! To the kernel the owner of a record lock is a table of descriptors. All threads of a process have one in common, so two
//! copies of this code in a process (a drop-in library, and a plugin that brings its own) would have the same locks, and a
//! descriptor that one of them closes would end the other's. So a thread keeps them that has a table of its own, with
//! nothing but the file in it: its locks keep out other threads of the process as well as other processes. They end with
//! the thread, and so with the process, in whatever way that ends.
//!
//! Threads of a process that is killed end in any order, and the process's table may be closed before the keeper's. So what
//! must not be closed while there are locks, such as a socket with a name that a lock speaks for, is in the keeper's
//! table, too: the kernel ends the locks as it closes a table, and what was in it only when all of it is closed.
//!
//! Where the system does not let a thread have a table of its own, the locks are the process's, and there may be one copy only.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::descriptor::owned;
use crate::fork::{self, PerProcess};
use crate::record_lock;
use crate::sync::{Errands, lock};
use crate::{Random, SignalsBlocked};

/// What owns the locks of this copy of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A thread with descriptors of its own.
    Thread,
    /// The process, in which there is no other copy that has its locks so.
    Process,
    /// It would be the process, but another copy in it has its locks so already. This one must not even close a
    /// descriptor of a file with such locks.
    AnotherCopy,
}

/// What owns the locks of this copy here; found out once for a process.
pub fn owner() -> io::Result<Owner> {
    static KNOWN: PerProcess<Mutex<Option<Owner>>> = PerProcess::new();
    let mut known = lock(KNOWN.get());
    let owner = match *known {
        Some(owner) => owner,
        None if can_keep()? => Owner::Thread,
        None if is_only_copy()? => Owner::Process,
        None => return Ok(Owner::AnotherCopy),
    };
    *known = Some(owner);
    Ok(owner)
}

/// The locks of one file. They end when this is dropped.
#[derive(Debug)]
pub struct LockKeeper {
    /// `None` if the process itself has the locks.
    thread: Option<Keeper>,
}

impl LockKeeper {
    /// Begins to keep locks of a file, and keeps a companion open until they have ended. One that another thread closes
    /// meanwhile must not be the last descriptor of it.
    pub fn start(file: BorrowedFd<'_>, companion: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        match owner()? {
            Owner::Thread => match Keeper::start(file, companion)? {
                Some(keeper) => Ok(Self { thread: Some(keeper) }),
                None => Err(io::ErrorKind::PermissionDenied.into()),
            },
            Owner::Process => Ok(Self { thread: None }),
            Owner::AnotherCopy => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Locks one byte of the file that this was started with; false if another owner has it. What is locked already
    /// stays so.
    pub fn lock(&self, file: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
        self.thread
            .as_ref()
            .map_or_else(|| record_lock::lock(file, byte), |keeper| keeper.ask(Errand::Lock(byte)))
    }

    /// Gives one byte back.
    pub fn unlock(&self, file: BorrowedFd<'_>, byte: u64) -> io::Result<()> {
        let Some(keeper) = &self.thread else { return record_lock::unlock(file, byte) };
        keeper.ask(Errand::Unlock(byte)).map(drop)
    }
}

/// What the thread is asked for.
#[derive(Clone, Copy, Debug)]
enum Errand {
    /// To leave the table of the process; false if the system does not allow it.
    Part,
    Lock(u64),
    Unlock(u64),
}

/// The thread, as others see it.
#[derive(Debug)]
struct Keeper {
    errands: Arc<Errands<Errand, io::Result<bool>>>,
    thread: Option<JoinHandle<()>>,
    generation: u32,
}

impl Keeper {
    /// `None` if the system does not let a thread have a table of its own, or does not own locks by it.
    fn start(file: BorrowedFd<'_>, companion: Option<BorrowedFd<'_>>) -> io::Result<Option<Self>> {
        let errands = Arc::new(Errands::new());
        let theirs = Arc::clone(&errands);
        let kept = Kept { file: file.as_raw_fd(), companion: companion.map(|other| other.as_raw_fd()) };
        let _blocked = SignalsBlocked::new();
        let thread = std::thread::Builder::new().name("ferroce-locks".to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || serve(&theirs, kept))?;
        let keeper = Self { errands, thread: Some(thread), generation: fork::generation() };
        // Seen from here, a lock of another owner is there. The byte is drawn: no other process looks at it.
        let byte = PROBES | Random::from_system()?.next_u64() >> 8;
        let works = keeper.ask(Errand::Part)?
            && keeper.ask(Errand::Lock(byte))?
            && record_lock::is_locked_by_another(file, byte)
            && keeper.ask(Errand::Unlock(byte))?;
        Ok(works.then_some(keeper))
    }

    fn ask(&self, errand: Errand) -> io::Result<bool> {
        if self.generation != fork::generation() {
            // The thread is the parent's.
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.errands.send(errand).unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

/// What stays open in the thread's own table, by the numbers that it has in the process's.
#[derive(Clone, Copy, Debug)]
struct Kept {
    file: RawFd,
    companion: Option<RawFd>,
}

/// Bytes: it calls nothing that needs much.
const STACK: usize = 128 * 1024;

/// The first of the bytes that are locked to see whether another owner's lock is seen.
const PROBES: u64 = 1 << 61;

impl Drop for Keeper {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.generation != fork::generation() {
            // The thread is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.errands.end();
        // It has not panicked: it calls nothing that does.
        drop(thread.map(JoinHandle::join));
    }
}

/// What the thread does.
fn serve(errands: &Errands<Errand, io::Result<bool>>, kept: Kept) {
    let mut has_own = false;
    errands.work(|errand| {
        let answer = act(kept, errand);
        has_own |= matches!((errand, &answer), (Errand::Part, Ok(true)));
        answer
    });
    if has_own {
        // The kernel says that a thread has ended before it closes what the thread had: its locks would outlive it. In this
        // order: the companion is open as long as there are locks.
        for number in std::iter::once(kept.file).chain(kept.companion) {
            // SAFETY: takes a plain number. It is of this thread's own table, in which nothing else uses it.
            unsafe { libc::close(number) };
        }
    }
}

/// What the thread does for an errand. The numbers are those in its own table, too.
fn act(kept: Kept, errand: Errand) -> io::Result<bool> {
    // SAFETY: the number is of the file: in the table of the process until the first errand is done, because the thread
    // that waits for it borrows the file, and in this thread's own table from then on, where nothing closes it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(kept.file) };
    match errand {
        Errand::Part => part(kept),
        Errand::Lock(byte) => record_lock::lock(borrowed, byte),
        Errand::Unlock(byte) => record_lock::unlock(borrowed, byte).map(|()| true),
    }
}

/// Gives this thread a table of its own with what is kept alone. Others must not stay open in it: whatever waits for the
/// end of a pipe would wait for ever.
fn part(Kept { file, companion }: Kept) -> io::Result<bool> {
    let companion = companion.unwrap_or(file);
    let number = |of: RawFd| u32::try_from(of).map_err(|_| io::ErrorKind::InvalidInput);
    let (first, last) = (number(file.min(companion))?, number(file.max(companion))?);
    // In this order: what comes behind both is not even copied.
    if close_range(last + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)? {
        let before = first == 0 || close_range(0, first - 1, 0)?;
        return Ok(before && (last - first < 2 || close_range(first + 1, last - 1, 0)?));
    }
    // SAFETY: takes a plain number. Descriptors stay what they are, and other threads notice nothing.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return is_refusal(io::Error::last_os_error()).map(|()| false);
    }
    // Older than Linux 5.9. If they cannot be listed the table goes with the thread.
    let Ok(folder) = std::fs::read_dir("/proc/thread-self/fd") else { return Ok(false) };
    let number =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok();
    let open: Vec<RawFd> = folder.filter_map(number).collect();
    for other in open.into_iter().filter(|other| ![file, companion].contains(other)) {
        // SAFETY: takes a plain number. The table is this thread's alone, and nothing in it is used but what is kept. The
        // folder that was listed is closed by now.
        unsafe { libc::close(other) };
    }
    Ok(true)
}

/// Closes a range of descriptors; false if the system does not know or allow that.
fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<bool> {
    // SAFETY: takes plain numbers. With `CLOSE_RANGE_UNSHARE` this thread has a table of its own first, and without, it
    // has one already: no descriptor of another thread is closed.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if result == 0 { Ok(true) } else { is_refusal(io::Error::last_os_error()).map(|()| false) }
}

/// Whether a call failed because the system does not know or allow it: any other reason may pass.
fn is_refusal(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL) => Ok(()),
        _ => Err(error),
    }
}

/// Whether a thread can keep locks here, tried with a file that no other process has.
fn can_keep() -> io::Result<bool> {
    // SAFETY: the pointer is to a text with its zero, which is static.
    let file = owned(unsafe { libc::memfd_create(c"ferroce-locks".as_ptr(), libc::MFD_CLOEXEC) })?;
    Keeper::start(file.as_fd(), None).map(|keeper| keeper.is_some())
}

/// Whether no other copy of the code in this process has the process's locks. A lock says so that belongs to an open file,
/// and so is one copy's: on a file of `/proc` that every process has for itself, and no other user may open.
fn is_only_copy() -> io::Result<bool> {
    static MARK: PerProcess<Mutex<Option<OwnedFd>>> = PerProcess::new();
    let mut mark = lock(MARK.get());
    if mark.is_none() {
        let file = std::fs::File::open("/proc/self/environ")?;
        match file.try_lock() {
            Ok(()) => *mark = Some(file.into()),
            Err(std::fs::TryLockError::WouldBlock) => return Ok(false),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read as _, pipe};

    fn file() -> OwnedFd {
        // SAFETY: the pointer is to a text with its zero, which is static.
        owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) }).expect("a file")
    }

    /// As another copy of the code would be: in this process, with locks of its own.
    #[test]
    fn two_keepers_of_a_process_keep_each_other_out() {
        assert_eq!(owner().expect("known"), Owner::Thread);
        let file = file();
        let start = || LockKeeper::start(file.as_fd(), None).unwrap();
        let (one, two) = (start(), start());
        let file = file.as_fd();
        assert!(one.lock(file, 7).unwrap() && one.lock(file, 7).unwrap(), "it has it already");
        assert!(!two.lock(file, 7).unwrap() && two.lock(file, 8).unwrap());
        // What the process closes ends nothing.
        drop(file.try_clone_to_owned().unwrap());
        assert!([7, 8].iter().all(|byte| record_lock::is_locked_by_another(file, *byte)));
        assert!(!two.lock(file, 7).unwrap());
        two.unlock(file, 7).unwrap();
        assert!(!two.lock(file, 7).unwrap(), "what is another's cannot be given back");
        one.unlock(file, 7).unwrap();
        assert!(two.lock(file, 7).unwrap());
        drop(two);
        assert!(one.lock(file, 7).unwrap() && one.lock(file, 8).unwrap(), "locks end with their keeper");
        drop(one);
        assert!(![7, 8].iter().any(|byte| record_lock::is_locked_by_another(file, *byte)));
    }

    /// The program's pipes end when the program closes them.
    #[test]
    fn a_keeper_holds_nothing_but_its_file() {
        let end = |mut reader: PipeReader| reader.read(&mut [0]).expect("an end");
        let (before, behind) = (pipe().unwrap(), file());
        let after = pipe().unwrap();
        let keeper = LockKeeper::start(behind.as_fd(), None).unwrap();
        for (reader, writer) in [before, after] {
            drop(writer);
            assert_eq!(end(reader), 0);
        }
        assert!(keeper.lock(behind.as_fd(), 1).unwrap());
    }

    /// It was: the locks were in the keeper's table and the socket in the process's, so that the name that a lock speaks for
    /// could be free, for any user, before the lock ended.
    #[test]
    fn a_name_is_not_free_before_the_lock_that_speaks_for_it_ends() {
        use crate::unix;
        for file_is_first in [true, false] {
            let early = file_is_first.then(file);
            let name = format!("ferroce-keeper-{}-{file_is_first}", std::process::id()).into_bytes();
            let bind = || {
                let socket = unix::socket(libc::SOCK_DGRAM).unwrap();
                unix::bind(socket.as_fd(), &name).map(|()| socket)
            };
            let socket = bind().unwrap();
            let (mut reader, writer) = pipe().unwrap();
            let locked = early.unwrap_or_else(file);
            let keeper = LockKeeper::start(locked.as_fd(), Some(socket.as_fd())).unwrap();
            assert!(keeper.lock(locked.as_fd(), 1).unwrap());
            // As when the process's table is closed first.
            drop(socket);
            assert!(bind().is_err() && record_lock::is_locked_by_another(locked.as_fd(), 1));
            drop(writer);
            assert_eq!(reader.read(&mut [0]).expect("an end"), 0);
            drop(keeper);
            assert!(bind().is_ok() && !record_lock::is_locked_by_another(locked.as_fd(), 1));
        }
    }
}

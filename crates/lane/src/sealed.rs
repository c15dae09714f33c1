//! A file in memory that is mapped, shared, and sealed to its size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_sys::descriptor::owned;
use thiserror::Error;

/// What must never happen to such a file: that it becomes shorter (a mapping would then end in SIGBUS) or longer, or that
/// seals are added that take the right to write from it.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Where the magic word is in the file, and behind it the version.
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;

/// What tells the files of one kind from all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// What `/proc` shows.
    pub(crate) name: &'static std::ffi::CStr,
    pub(crate) magic: u64,
    pub(crate) version: u64,
    pub(crate) writers: Writers,
}

/// Which processes may write to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// All that have the descriptor.
    All,
    /// The one that has made it.
    Maker,
}

impl Writers {
    /// The seals of the file, set when its maker has mapped it.
    const fn seals(self) -> libc::c_int {
        match self {
            Self::All => SEALS,
            // What is mapped already stays as it is.
            Self::Maker => SEALS | libc::F_SEAL_FUTURE_WRITE,
        }
    }
}

/// Why a file for a lane or a line was not made, or not accepted from another process.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The system does not let this process make files in memory.
    #[error(
        "memfd_create is forbidden here (a seccomp filter, or a kernel without it); the shared path needs it"
    )]
    Forbidden(#[source] io::Error),
    /// The file would be longer than files of this process may be.
    #[error(
        "files of this process may have {limit} bytes (RLIMIT_FSIZE), and {needed} are needed; raise `ulimit -f`"
    )]
    FileLimit {
        /// What the limit is, in bytes.
        limit: u64,
        /// What is needed, in bytes.
        needed: u64,
    },
    /// No more descriptors can be opened.
    #[error("no descriptor is left for a file in memory; raise `ulimit -n`")]
    NoDescriptor(#[source] io::Error),
    /// There is no memory for the file or for its mapping.
    #[error("there is no memory for a file of {needed} bytes, or no room to map it")]
    NoMemory {
        /// Bytes that were asked for.
        needed: u64,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A ring cannot have so many bytes.
    #[error("a lane has whole pages of 4096 bytes, from {least} to {most} bytes, and not {given}")]
    RingSize {
        /// What was asked for.
        given: usize,
        /// The shortest ring.
        least: usize,
        /// The longest ring.
        most: usize,
    },
    /// The descriptor is not of a file in memory.
    #[error("the descriptor is not of a file made by memfd_create")]
    NotMemory(#[source] io::Error),
    /// The file could become shorter while it is mapped.
    #[error("the file has the seals {found:#x}, and must have {needed:#x} (shrink, grow, seal)")]
    NotSealed {
        /// The seals that it has.
        found: u32,
        /// Those that it must have.
        needed: u32,
    },
    /// The file is not as long as it has to be.
    #[error("the file has {found} bytes, and must have {needed}")]
    WrongSize {
        /// Bytes that it has.
        found: u64,
        /// Bytes that it must have.
        needed: u64,
    },
    /// The file begins with another word.
    #[error("the file begins with {found:#018x}, and must begin with {needed:#018x}")]
    OtherKind {
        /// Its first word.
        found: u64,
        /// What the first word has to be.
        needed: u64,
    },
    /// The other process has another version of Ferroce.
    #[error(
        "the other process has version {found} of the file, and this one {needed}; use one version of Ferroce"
    )]
    OtherVersion {
        /// The version of the file.
        found: u64,
        /// The version that is known here.
        needed: u64,
    },
    /// A system call failed for a reason that is not known here.
    #[error("{call} failed")]
    System {
        /// Its name.
        call: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

/// The file and its mapping, before it has been given a role.
#[derive(Debug)]
pub(crate) struct SealedFile {
    file: OwnedFd,
    mapping: Arc<Mapping>,
}

impl SealedFile {
    /// A new file of zeroes; the kernel gives it pages as they are touched.
    pub(crate) fn create(kind: Kind, len: usize) -> Result<Self, LaneError> {
        check_limit(file_limit()?, len as u64)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the pointer is to a text with its zero, which is static.
        let file = owned(unsafe { libc::memfd_create(kind.name.as_ptr(), flags) })
            .map_err(|error| refusal("memfd_create", len as u64, error))?;
        let length = libc::off_t::try_from(len).unwrap_or(libc::off_t::MAX);
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
            return Err(refusal("ftruncate", len as u64, io::Error::last_os_error()));
        }
        let mapping = Mapping::new(&file, len, READ_AND_WRITE)?;
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, kind.writers.seals()) } != 0 {
            return Err(refusal("fcntl(F_ADD_SEALS)", len as u64, io::Error::last_os_error()));
        }
        mapping.word(VERSION_AT).store(kind.version, Ordering::Relaxed);
        mapping.word(MAGIC_AT).store(kind.magic, Ordering::Release);
        Ok(Self { file, mapping: Arc::new(mapping) })
    }

    /// A file that another process has made, if it is what it must be. From the checks on it stays so: that is what the
    /// seals are for.
    pub(crate) fn accept(file: OwnedFd, kind: Kind, len: usize) -> Result<Self, LaneError> {
        check_seals(&file)?;
        let (found, needed) = (status(&file)?.len, len as u64);
        if found != needed {
            return Err(LaneError::WrongSize { found, needed });
        }
        let access = match kind.writers {
            Writers::All => READ_AND_WRITE,
            Writers::Maker => libc::PROT_READ,
        };
        let mapping = Mapping::new(&file, len, access)?;
        let (found, needed) = (mapping.word(MAGIC_AT).load(Ordering::Acquire), kind.magic);
        if found != needed {
            return Err(LaneError::OtherKind { found, needed });
        }
        let (found, needed) = (mapping.word(VERSION_AT).load(Ordering::Relaxed), kind.version);
        if found != needed {
            return Err(LaneError::OtherVersion { found, needed });
        }
        Ok(Self { file, mapping: Arc::new(mapping) })
    }

    /// Which file it is, on this machine: device and number.
    pub(crate) fn id(&self) -> Result<(u64, u64), LaneError> {
        status(&self.file).map(|status| status.id)
    }

    pub(crate) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a mapping may be used for.
const READ_AND_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// All bytes of a file, mapped and shared, to read, and to write unless only the maker may.
///
/// It holds numbers and bytes only, of which every value is one, since another process writes them as it likes. What is
/// read of it by words is read by atomics.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and lives until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: what this type itself does to the memory is atomic; those that take a pointer say what they do with it.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, len: usize, access: libc::c_int) -> Result<Self, LaneError> {
        let kind = libc::MAP_SHARED;
        // SAFETY: a new mapping wherever the kernel likes; nothing that exists is touched.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(refusal("mmap", len as u64, io::Error::last_os_error()));
        }
        let base = NonNull::new(at.cast())
            .ok_or_else(|| refusal("mmap", len as u64, io::Error::from_raw_os_error(libc::ENOMEM)))?;
        Ok(Self { base, len })
    }

    /// The first byte, aligned to a page; valid for `len` bytes for as long as the mapping lives.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The word at this byte.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.len, "{at} is no word of {} bytes", self.len);
        // SAFETY: the word is inside of the mapping, as was just asserted, for the length is a multiple of 8.
        let word = unsafe { self.base.add(at) };
        // SAFETY: it is aligned, as the base is and `at` was asserted to be; it lives as long as `self`; every bit
        // pattern is a number, and no reference to plain bytes ever covers a word that is taken here.
        unsafe { word.cast().as_ref() }
    }

    /// Gives the pages from this byte on back to the system: they read as zeroes, and are new when they are touched.
    pub(crate) fn forget_from(&self, at: usize) -> io::Result<()> {
        let page = page_size();
        let from = at.next_multiple_of(page);
        let Some(len) = self.len.checked_sub(from).filter(|len| *len > 0) else { return Ok(()) };
        // SAFETY: `from` is inside of the mapping, as was just checked.
        let first = unsafe { self.base.add(from) };
        // The same as `fallocate` with a hole, for files that are no longer open here.
        // SAFETY: these pages are a part of our own mapping, and zeroes are a value of all that is in it.
        if unsafe { libc::madvise(first.as_ptr().cast(), len, libc::MADV_REMOVE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length by `new`, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn check_seals(file: &OwnedFd) -> Result<(), LaneError> {
    // SAFETY: takes and gives plain numbers.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(LaneError::NotMemory(io::Error::last_os_error()));
    }
    if seals & SEALS == SEALS {
        return Ok(());
    }
    Err(LaneError::NotSealed { found: seals.cast_unsigned(), needed: SEALS.cast_unsigned() })
}

struct Status {
    len: u64,
    id: (u64, u64),
}

fn status(file: &OwnedFd) -> Result<Status, LaneError> {
    // SAFETY: a status of C is numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a status that lives during the call.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) } != 0 {
        return Err(LaneError::System { call: "fstat", error: io::Error::last_os_error() });
    }
    Ok(Status { len: status.st_size.cast_unsigned(), id: (status.st_dev, status.st_ino) })
}

/// How long files of this process may be, in bytes: to make a longer one is a signal (SIGXFSZ), which ends programs.
fn file_limit() -> Result<u64, LaneError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that lives during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0 {
        return Err(LaneError::System { call: "getrlimit", error: io::Error::last_os_error() });
    }
    Ok(limit.rlim_cur)
}

const fn check_limit(limit: u64, needed: u64) -> Result<(), LaneError> {
    if needed > limit { Err(LaneError::FileLimit { limit, needed }) } else { Ok(()) }
}

/// What it means that a system call failed so.
fn refusal(call: &'static str, needed: u64, error: io::Error) -> LaneError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) if call == "memfd_create" => {
            LaneError::Forbidden(error)
        }
        Some(libc::EMFILE | libc::ENFILE) => LaneError::NoDescriptor(error),
        Some(libc::ENOMEM | libc::ENOSPC) => LaneError::NoMemory { needed, error },
        _ => LaneError::System { call, error },
    }
}

/// Bytes of a page.
fn page_size() -> usize {
    // SAFETY: takes and gives plain numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_system_have_reasons_of_their_own() {
        let of = |call, code| refusal(call, 4096, io::Error::from_raw_os_error(code));
        assert!(matches!(of("memfd_create", libc::EPERM), LaneError::Forbidden(_)));
        assert!(matches!(of("memfd_create", libc::ENOSYS), LaneError::Forbidden(_)));
        assert!(matches!(of("memfd_create", libc::EMFILE), LaneError::NoDescriptor(_)));
        assert!(matches!(of("mmap", libc::ENOMEM), LaneError::NoMemory { needed: 4096, .. }));
        assert!(matches!(of("mmap", libc::EACCES), LaneError::System { call: "mmap", .. }));
        let text = of("memfd_create", libc::EPERM).to_string();
        assert!(text.starts_with("memfd_create is forbidden here"), "{text}");
    }

    #[test]
    fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
        assert!(check_limit(4096, 4096).is_ok());
        let error = check_limit(4095, 4096).unwrap_err();
        assert!(matches!(error, LaneError::FileLimit { limit: 4095, needed: 4096 }), "{error}");
    }
}

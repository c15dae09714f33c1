//! Opens a capture file: a new one, or one that is rightly ours to replace.
//!
//! In a folder that others write to, such as `/tmp`, the name may stand for something that another user put
//! there: a link to a file of ours that would be lost, a pipe that holds the program up, a file whose owner
//! reads the content of memory. So whatever has the name already is judged before it is opened, and what was
//! judged is opened, not what has the name by then.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferroce_sys::descriptor::owned;
use libc::c_int;

use super::CaptureError;

/// Links that are followed, one after another.
const MOST_LINKS: usize = 8;

/// Only the owner may read the file: it shows the content of memory.
const MODE: libc::mode_t = 0o600;

/// Opens the file of this name, empty.
pub(super) fn open(path: &Path) -> Result<File, CaptureError> {
    let failed = |source| CaptureError::Create { path: path.to_owned(), source };
    let mut name = path.to_owned();
    for _ in 0..MOST_LINKS {
        let new = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        match system_open(&name, new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(File::from).map_err(failed),
        }
        let found = match system_open(&name, libc::O_PATH | libc::O_NOFOLLOW) {
            Ok(found) => File::from(found),
            // It went just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        match judge(&name, &found)? {
            Found::Link => match target(&found).map_err(failed)? {
                Some(target) => name = name.parent().unwrap_or(Path::new("")).join(target),
                None => {
                    // What stands behind it has no name of its own, and is judged instead.
                    let found = File::from(system_open(&name, libc::O_PATH).map_err(failed)?);
                    judge(&name, &found)?;
                    return again(&found, 0).map_err(failed);
                }
            },
            Found::File => return again(&found, libc::O_TRUNC).map_err(failed),
            Found::Stream => return again(&found, 0).map_err(failed),
        }
    }
    Err(failed(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// What has the name.
enum Found {
    File,
    /// A pipe or a device.
    Stream,
    Link,
}

/// Sees what it is, and whether it may be written to.
fn judge(name: &Path, found: &File) -> Result<Found, CaptureError> {
    let failed = |source| CaptureError::Create { path: name.to_owned(), source };
    let status = found.metadata().map_err(failed)?;
    let (kind, uid, links) = (status.file_type(), status.uid(), status.nlink());
    // SAFETY: takes nothing, gives a number, cannot fail.
    let ours = unsafe { libc::geteuid() };
    let path = || name.to_owned();
    let (what, found) = if kind.is_file() {
        ("file", Found::File)
    } else if kind.is_symlink() {
        ("link", Found::Link)
    } else if kind.is_fifo() {
        ("pipe", Found::Stream)
    } else if kind.is_char_device() {
        ("device", Found::Stream)
    } else {
        let what = if kind.is_dir() { "a folder" } else { "no file" };
        return Err(CaptureError::NotAFile { path: path(), what });
    };
    // The links and devices of a system are root's.
    let is_trusted = uid == ours || uid == 0 && !matches!(found, Found::File);
    if !is_trusted {
        return Err(CaptureError::OtherUser { path: path(), what, uid, ours });
    }
    if matches!(found, Found::File) && links > 1 {
        return Err(CaptureError::OtherNames { path: path(), links });
    }
    Ok(found)
}

/// Opens what was judged, whatever has its name by now.
fn again(found: &File, flags: c_int) -> io::Result<File> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    system_open(&path, libc::O_WRONLY | flags).map(File::from)
}

/// Where a link leads; `None` if it is one of those in `/proc` that lead to an open file, which need not have
/// a name.
fn target(link: &File) -> io::Result<Option<PathBuf>> {
    // SAFETY: a status of C is numbers, for which zero is a value.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a status that lives during the call.
    if unsafe { libc::fstatfs(link.as_raw_fd(), &raw mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if status.f_type == libc::PROC_SUPER_MAGIC {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(libc::PATH_MAX).unwrap_or(4096)];
    let (empty, to): (&CStr, *mut libc::c_char) = (c"", bytes.as_mut_ptr().cast());
    // SAFETY: the pointers are to an empty text with its zero and to that many bytes, which live during the
    // call.
    let len = unsafe { libc::readlinkat(link.as_raw_fd(), empty.as_ptr(), to, bytes.len()) };
    bytes.truncate(usize::try_from(len).map_err(|_| io::Error::last_os_error())?);
    Ok(Some(OsString::from_vec(bytes).into()))
}

fn system_open(path: &Path, flags: c_int) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the pointer is to a text with its zero, which lives during the call.
    owned(unsafe { libc::open(path.as_ptr(), flags, MODE) })
}

//! Which paths are ours, and where their files are.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// The variable that names the folder of our files.
const FOLDER: &CStr = c"FERROCE_FILES";

/// What is to be seen of a device file that leads nowhere: there is no driver behind it, and it may be read and written.
pub(crate) const NOWHERE: &CStr = c"/dev/null";

/// Longer paths are not ours.
const ROOM: usize = 1024;

/// Folders that are ours, with all that is in them.
const FOLDERS: [&[&[u8]]; 3] =
    [&[b"dev", b"infiniband"], &[b"sys", b"class", b"infiniband"], &[b"sys", b"class", b"infiniband_verbs"]];

/// What is ours of an interface: behind its name.
const NET: &[&[u8]] = &[b"sys", b"class", b"net"];
const OF_NET: &[&[u8]] = &[b"device", b"infiniband"];

/// Room for a path, in the frame of a function that takes one.
pub(crate) struct Room(MaybeUninit<[u8; ROOM]>);

/// A path of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is none of ours.
    Other,
    /// It is ours, and its file is there.
    Ours(*const c_char),
    /// It is the file of a device.
    Device,
}

impl Room {
    pub(crate) const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// The path that the C library is to be given instead.
    ///
    /// # Safety
    /// `path` is null, or ends with a zero byte. What is returned may point into this room.
    pub(crate) unsafe fn redirect(&mut self, path: *const c_char) -> *const c_char {
        // SAFETY: the caller vouches for it.
        match unsafe { self.find(path) } {
            Found::Other => path,
            Found::Ours(path) => path,
            Found::Device => NOWHERE.as_ptr(),
        }
    }

    /// Whether a path is ours, and where its file is.
    ///
    /// # Safety
    /// As for [`redirect`](Self::redirect).
    pub(crate) unsafe fn find(&mut self, path: *const c_char) -> Found {
        // SAFETY: the caller vouches for it.
        let Some(path) = (unsafe { ours(path) }) else { return Found::Other };
        // SAFETY: the name ends with a zero byte. A program that changes its variables while other threads read them
        // does so at its own risk, as with every function that reads one.
        let folder = unsafe { libc::getenv(FOLDER.as_ptr()) };
        if folder.is_null() {
            return Found::Other;
        }
        // SAFETY: variables end with a zero byte.
        let folder = unsafe { CStr::from_ptr(folder) };
        let Some(whole) = self.join(folder.to_bytes(), path.to_bytes()) else { return Found::Other };
        if is_device(path.to_bytes()) && is_there(whole) { Found::Device } else { Found::Ours(whole) }
    }

    /// Our file: the folder, then the path as it is. `None` if there is no folder, or no room.
    fn join(&mut self, folder: &[u8], path: &[u8]) -> Option<*const c_char> {
        let len = folder.len() + path.len();
        if folder.first() != Some(&b'/') || len >= ROOM {
            return None;
        }
        let room = self.0.write([0; ROOM]);
        room[..folder.len()].copy_from_slice(folder);
        room[folder.len()..len].copy_from_slice(path);
        Some(room.as_ptr().cast())
    }
}

/// The path, if it is one of ours.
///
/// # Safety
/// `path` is null, or ends with a zero byte.
unsafe fn ours<'a>(path: *const c_char) -> Option<&'a CStr> {
    if path.is_null() {
        return None;
    }
    // SAFETY: it is not null; the caller vouches for the rest.
    let path = unsafe { CStr::from_ptr(path) };
    // Most are decided here.
    let is_ours = path.to_bytes().first() == Some(&b'/') && is_ours(path.to_bytes());
    is_ours.then_some(path)
}

/// Whether an absolute path is one of ours.
fn is_ours(path: &[u8]) -> bool {
    FOLDERS.iter().any(|folder| below(path, folder).is_some_and(stays)) || is_of_net(path)
}

fn is_of_net(path: &[u8]) -> bool {
    let Some(mut rest) = below(path, NET).map(names) else { return false };
    let Some(interface) = rest.next() else { return false };
    interface != b".."
        && OF_NET.iter().all(|name| rest.next() == Some(name))
        && rest.try_fold(0, deeper).is_some()
}

/// The names in a path; several slashes are one, and a dot is where one is.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// What is behind a folder in a path, if the path leads into it.
fn below<'a>(path: &'a [u8], folder: &[&[u8]]) -> Option<&'a [u8]> {
    let mut rest = path;
    for name in folder {
        loop {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (first, after) = (&rest[..end], rest.get(end + 1..));
            if first.is_empty() || first == b"." {
                rest = after?;
                continue;
            }
            if first != *name {
                return None;
            }
            rest = after.unwrap_or_default();
            break;
        }
    }
    Some(rest)
}

/// Whether the rest of a path stays in its folder.
fn stays(rest: &[u8]) -> bool {
    names(rest).try_fold(0, deeper).is_some()
}

/// How deep in a folder a further name leads; `None` out of it.
fn deeper(depth: usize, name: &[u8]) -> Option<usize> {
    if name == b".." { depth.checked_sub(1) } else { Some(depth + 1) }
}

/// Whether a path of ours is that of a file in `/dev/infiniband`.
fn is_device(path: &[u8]) -> bool {
    below(path, FOLDERS[0]).is_some_and(|rest| names(rest).count() == 1 && !rest.ends_with(b".."))
}

/// Whether there is a file, by a system call: the functions of the C library are those of this crate here.
fn is_there(path: *const c_char) -> bool {
    // SAFETY: the path is one that `join` made, and ends with a zero byte.
    let answer = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) };
    answer == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "//sys/./class//infiniband/ferroce_lo/ports/1/gids/0",
            "/sys/class/infiniband/ferroce_lo/../ferroce_lo",
            "/sys/class/infiniband_verbs/uverbs0/ibdev",
            "/sys/class/net/lo/device/infiniband",
            "/sys/class/net/lo/device/infiniband/ferroce_lo",
            "/dev/infiniband/uverbs0",
        ] {
            assert!(is_ours(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn what_is_not() {
        for path in [
            "/",
            "/sys",
            "/sys/class",
            "/sys/class/infinibandx",
            "/sys/class/infiniban",
            "/sys/class/infiniband/../net",
            "/sys/class/infiniband/a/../../net",
            "/sys/class/net/lo/device",
            "/sys/class/net/lo/device/infiniband/..",
            "/sys/class/net/../device/infiniband",
            "/sys/class/net/lo/device/infinibands",
            "/dev/null",
            "/dev/infiniband_",
            "/devinfiniband",
        ] {
            assert!(!is_ours(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_device_is_a_file_right_in_its_folder() {
        assert!(is_device(b"/dev/infiniband/uverbs0") && is_device(b"//dev/infiniband//uverbs0/"));
        for path in ["/dev/infiniband", "/dev/infiniband/", "/dev/infiniband/a/b", "/sys/class/infiniband/a"]
        {
            assert!(!is_device(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_path_without_room_is_left_alone() {
        let mut room = Room::new();
        assert!(room.join(b"/folder", &[b'a'; ROOM]).is_none());
        assert!(room.join(b"", b"/sys/class/infiniband").is_none());
        let joined = room.join(b"/folder", b"/sys/class/infiniband").unwrap();
        // SAFETY: it ends with a zero byte, and the room lives.
        assert_eq!(unsafe { CStr::from_ptr(joined) }, c"/folder/sys/class/infiniband");
        // SAFETY: null is allowed.
        assert!(unsafe { room.redirect(std::ptr::null()) }.is_null());
        let other = c"/etc/passwd".as_ptr();
        // SAFETY: the text ends with a zero byte.
        assert_eq!(unsafe { room.redirect(other) }, other);
    }
}

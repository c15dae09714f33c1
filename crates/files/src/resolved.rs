//! `realpath` and its like: what they answer of our files is the path that the program knows.

use std::ffi::{CStr, c_char, c_void};

use libc::size_t;

use crate::next::{Next, missing};
use crate::paths::{Found, Room};

type Resolve = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;

/// The C library's function; an errno and `None` if there is none.
fn resolve() -> Option<Resolve> {
    static NEXT: Next = Next::new(c"realpath");
    let next = NEXT.address();
    if next.is_null() {
        missing();
        return None;
    }
    // SAFETY: the C library's function of this name has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Resolve>(next) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    let Some(resolve) = resolve() else { return std::ptr::null_mut() };
    let mut room = Room::new();
    // SAFETY: the program passes a path that ends with a zero byte, or null.
    match unsafe { room.find(path) } {
        // SAFETY: the arguments are the program's.
        Found::Other => unsafe { resolve(path, to) },
        Found::Ours(ours) => {
            // SAFETY: the path is in our room, the rest is the program's.
            let found = unsafe { resolve(ours, to) };
            // SAFETY: what it returns ends with a zero byte, or is null.
            unsafe { strip_folder(found) };
            found
        }
        // SAFETY: as above. No device file is a link, so its folder is resolved, which has no other name.
        Found::Device => unsafe { device(path, to) },
    }
}

/// The path of a device file without what it need not have.
///
/// # Safety
/// As for `realpath`, and `path` is that of a file right in `/dev/infiniband`.
unsafe fn device(path: *const c_char, to: *mut c_char) -> *mut c_char {
    const FOLDER: &[u8] = b"/dev/infiniband/";
    // SAFETY: the caller vouches for it.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let name = names.next().unwrap_or_default();
    let len = FOLDER.len() + name.len();
    // SAFETY: a call for memory, which is checked.
    let to = if to.is_null() { unsafe { libc::malloc(len + 1) }.cast::<c_char>() } else { to };
    if to.is_null() {
        return to;
    }
    // SAFETY: there is room for `len` and the zero byte: it was asked for here, or the program has `PATH_MAX` bytes
    // there, of which our paths have fewer.
    let room = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len + 1) };
    room[..FOLDER.len()].copy_from_slice(FOLDER);
    room[FOLDER.len()..len].copy_from_slice(name);
    room[len] = 0;
    to
}

/// Takes the folder of our files off the beginning of a path.
///
/// # Safety
/// `path` is null, or ends with a zero byte and may be written.
unsafe fn strip_folder(path: *mut c_char) {
    // SAFETY: the name ends with a zero byte.
    let folder = unsafe { libc::getenv(c"FERROCE_FILES".as_ptr()) };
    if path.is_null() || folder.is_null() {
        return;
    }
    // SAFETY: variables end with a zero byte.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    // SAFETY: the caller vouches for it.
    let whole = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let Some(rest) = whole.strip_prefix(folder).filter(|rest| rest.first() == Some(&b'/')) else { return };
    let (from, len) = (rest.as_ptr(), rest.len());
    // SAFETY: both are in one text, and what moves to its beginning brings the zero byte along.
    unsafe { std::ptr::copy(from, path.cast::<u8>(), len) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the arguments are the program's.
    unsafe { realpath(path, std::ptr::null_mut()) }
}

/// The form of programs that were compiled with checks: it knows how much room there is.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __realpath_chk(path: *const c_char, to: *mut c_char, room: size_t) -> *mut c_char {
    if room < libc::PATH_MAX.unsigned_abs() as usize {
        // SAFETY: a call without arguments. The C library ends a program here too.
        unsafe { libc::abort() };
    }
    // SAFETY: the arguments are the program's.
    unsafe { realpath(path, to) }
}

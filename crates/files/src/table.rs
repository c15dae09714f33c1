//! The functions that take a path, and hand it on.
//!
//! All are of one form: the path is replaced if it is ours, and the function behind is called with all else as it came.
//! `open` and its like take a mode only if they make a file. C passes it like any other argument on the processors that we
//! know, so it is handed on, whatever it is.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{mode_t, size_t, ssize_t};

use crate::next::{Next, missing};
use crate::paths::Room;

/// What a function returns if there is none behind it.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for ssize_t {
    const FAILED: Self = -1;
}

impl Failed for *mut c_void {
    const FAILED: Self = std::ptr::null_mut();
}

/// Functions of the C library: what comes before the path, and what comes after it.
macro_rules! redirected {
    ($($name:ident($($before:ident: $b:ty,)* [path] $(, $after:ident: $a:ty)*) -> $answer:ty;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($before: $b,)* path: *const c_char $(, $after: $a)*) -> $answer {
            const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
            static NEXT: Next = Next::new(match std::ffi::CStr::from_bytes_with_nul(NAME) {
                Ok(name) => name,
                Err(_) => panic!("a name"),
            });
            type Function = unsafe extern "C" fn($($b,)* *const c_char $(, $a)*) -> $answer;
            let next = NEXT.address();
            if next.is_null() {
                missing();
                return <$answer>::FAILED;
            }
            // SAFETY: the C library's function of this name has this type.
            let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            let mut room = Room::new();
            // SAFETY: the program passes a path that ends with a zero byte, or null.
            let path = unsafe { room.redirect(path) };
            // SAFETY: all else is as the program passed it, which keeps to the manual page.
            unsafe { next($($before,)* path $(, $after)*) }
        }
    )*};
}

redirected! {
    access([path], mode: c_int) -> c_int;
    euidaccess([path], mode: c_int) -> c_int;
    eaccess([path], mode: c_int) -> c_int;
    faccessat(folder: c_int, [path], mode: c_int, flags: c_int) -> c_int;
    lstat([path], to: *mut c_void) -> c_int;
    lstat64([path], to: *mut c_void) -> c_int;
    stat([path], to: *mut c_void) -> c_int;
    stat64([path], to: *mut c_void) -> c_int;
    fstatat(folder: c_int, [path], to: *mut c_void, flags: c_int) -> c_int;
    fstatat64(folder: c_int, [path], to: *mut c_void, flags: c_int) -> c_int;
    statx(folder: c_int, [path], flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    open([path], flags: c_int, mode: mode_t) -> c_int;
    open64([path], flags: c_int, mode: mode_t) -> c_int;
    openat(folder: c_int, [path], flags: c_int, mode: mode_t) -> c_int;
    openat64(folder: c_int, [path], flags: c_int, mode: mode_t) -> c_int;
    __open_2([path], flags: c_int) -> c_int;
    __open64_2([path], flags: c_int) -> c_int;
    __openat_2(folder: c_int, [path], flags: c_int) -> c_int;
    __openat64_2(folder: c_int, [path], flags: c_int) -> c_int;
    getxattr([path], name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    lgetxattr([path], name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    listxattr([path], to: *mut c_char, size: size_t) -> ssize_t;
    llistxattr([path], to: *mut c_char, size: size_t) -> ssize_t;
    fopen([path], how: *const c_char) -> *mut c_void;
    fopen64([path], how: *const c_char) -> *mut c_void;
    freopen([path], how: *const c_char, file: *mut c_void) -> *mut c_void;
    freopen64([path], how: *const c_char, file: *mut c_void) -> *mut c_void;
    opendir([path]) -> *mut c_void;
    scandir([path], to: *mut c_void, choose: *mut c_void, order: *mut c_void) -> c_int;
    scandir64([path], to: *mut c_void, choose: *mut c_void, order: *mut c_void) -> c_int;
    scandirat(folder: c_int, [path], to: *mut c_void, choose: *mut c_void, order: *mut c_void) -> c_int;
    scandirat64(folder: c_int, [path], to: *mut c_void, choose: *mut c_void, order: *mut c_void) -> c_int;
    readlink([path], to: *mut c_char, size: size_t) -> ssize_t;
    readlinkat(folder: c_int, [path], to: *mut c_char, size: size_t) -> ssize_t;
    __readlink_chk([path], to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    __readlinkat_chk(folder: c_int, [path], to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
}

/// The forms of programs that were compiled before glibc 2.33. Libraries do not offer them to those that look for names, so
/// they are told by the later ones; the first argument says of which form the structure is, and there is one.
macro_rules! old_forms {
    ($($name:ident = $new:ident($($before:ident: $b:ty,)* [path], to $(, $after:ident: $a:ty)*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(
            _form: c_int, $($before: $b,)* path: *const c_char, to: *mut c_void $(, $after: $a)*
        ) -> c_int {
            // SAFETY: the arguments are those of the other function, and the structure is the same on 64-bit systems.
            unsafe { $new($($before,)* path, to $(, $after)*) }
        }
    )*};
}

old_forms! {
    __xstat = stat([path], to);
    __xstat64 = stat64([path], to);
    __lxstat = lstat([path], to);
    __lxstat64 = lstat64([path], to);
    __fxstatat = fstatat(folder: c_int, [path], to, flags: c_int);
    __fxstatat64 = fstatat64(folder: c_int, [path], to, flags: c_int);
}

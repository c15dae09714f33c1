//! What concerns the library and not a device: forks, files of the kernel, imports.

use std::ffi::{CStr, c_char};
use std::io::Read;

use ferroce_cabi::{
    IBV_FORK_UNNEEDED, ibv_ah_attr, ibv_context, ibv_ece, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr,
};
use ferroce_device::Uncancelled;
use libc::{c_int, c_void};

use crate::object::Zero;
use crate::refusal::{Refused, number, pointer, set_errno};

/// Nothing is pinned, so pages need not be kept from children.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    let _whole = Uncancelled::new();
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file of the kernel; its length, or -1.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    to: *mut c_char,
    size: usize,
) -> c_int {
    let _whole = Uncancelled::new();
    if folder.is_null() || file.is_null() || to.is_null() || size == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller passes texts that end with a zero byte.
    let folder = unsafe { CStr::from_ptr(folder) }.to_string_lossy();
    // SAFETY: as above.
    let file = unsafe { CStr::from_ptr(file) }.to_string_lossy();
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(format!("{folder}/{file}"));
    let read = opened.and_then(|file| file.take(size as u64 - 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        set_errno(error.raw_os_error().unwrap_or(libc::EIO));
        return -1;
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    bytes.push(0);
    // SAFETY: the caller vouches for `size` bytes, and there are no more than that.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    c_int::try_from(bytes.len() - 1).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_import_device(_: c_int) -> *mut ibv_context {
    pointer("ibv_import_device", Err(Refused::unsupported("devices of other processes")))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_import_pd(_: *mut ibv_context, _: u32) -> *mut ibv_pd {
    pointer("ibv_import_pd", Err(Refused::unsupported("objects of other processes")))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_unimport_pd(_: *mut ibv_pd) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_import_mr(_: *mut ibv_pd, _: u32) -> *mut ibv_mr {
    pointer("ibv_import_mr", Err(Refused::unsupported("objects of other processes")))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_unimport_mr(_: *mut ibv_mr) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_import_dm(_: *mut ibv_context, _: u32) -> *mut c_void {
    pointer("ibv_import_dm", Err(Refused::unsupported("objects of other processes")))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_unimport_dm(_: *mut c_void) {}

/// Nothing to negotiate is always fine.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_ece(_: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller passes a structure of its own, or null.
    match unsafe { ece.as_ref() } {
        Some(ece) if ece.vendor_id == 0 => 0,
        _ => number("ibv_set_ece", Err(Refused::unsupported("enhanced connection establishment"))),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_query_ece(_: *mut ibv_qp, _: *mut ibv_ece) -> c_int {
    number("ibv_query_ece", Err(Refused::unsupported("enhanced connection establishment")))
}

/// The kernel's forms of attributes. There is no kernel driver that could have filled them, so nothing is
/// known.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, _: *mut c_void) {
    // SAFETY: the caller passes a structure of its own to fill, or null.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = ibv_ah_attr::zero();
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, _: *mut c_void) {
    // SAFETY: the caller passes a structure of its own to fill, or null.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = ibv_qp_attr::zero();
    }
}

/// Path records of a kernel driver: none comes, and none goes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_copy_path_rec_from_kern(_: *mut c_void, _: *mut c_void) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_copy_path_rec_to_kern(_: *mut c_void, _: *mut c_void) {}

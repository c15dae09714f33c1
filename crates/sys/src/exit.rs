//! The end of the process.

use std::io;

/// Has the C library call `ending` when the process ends in an orderly way, or when this library is taken out
/// of it.
///
/// # Errors
/// There is no memory to remember it.
pub fn at_exit(ending: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the handler is a function of this program, or of this library: then the C library calls it
    // before the library is taken out of the process.
    let refused = unsafe { libc::atexit(ending) };
    if refused == 0 { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

//! Processors of this machine.

use std::io;

/// Keeps this thread, and all that it starts from now on, on one processor.
///
/// # Errors
/// There is none with this number, or it is not for us.
pub fn pin(number: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if number >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(number);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

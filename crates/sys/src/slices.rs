//! For how long a thread runs at a time where others want its processor.

use std::time::Duration;

/// What the kernel knows of the scheduling of a thread: the first version of its structure (`sched_setattr(2)`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For ordinary threads: the slice, in nanoseconds; 0 for that of the system.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks that this thread runs for so long at a time. One with a short slice has less of a processor in one go, but waits less for
/// it: it need not wait until the longer slice of another thread is over. It takes no rights, and nothing from the share of others.
///
/// Whether the system took note of the wish. Kernels before 6.12 do not; and a thread that is no ordinary one, since its
/// program made its threads something else, stays what it is.
#[must_use]
pub fn ask_for_slices(slice: Duration) -> bool {
    let size = u32::try_from(size_of::<Attributes>()).unwrap_or(0);
    let mut now = Attributes::default();
    // SAFETY: the pointer is to a structure of the size that is said, which lives during the call.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    if read != 0 || now.policy != libc::SCHED_OTHER.cast_unsigned() {
        return false;
    }
    let runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    let wanted = Attributes { size, runtime, deadline: 0, period: 0, ..now };
    // SAFETY: the pointer is to a structure of the size that it says, which lives during the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_may_wish_for_short_slices_and_stays_as_nice_as_it_is() {
        let attributes = || {
            let mut now = Attributes::default();
            // SAFETY: the pointer is to a structure of the size that is said, which lives during the call.
            let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, 48, 0) };
            assert_eq!(read, 0);
            now
        };
        std::thread::spawn(move || {
            let before = attributes();
            assert_eq!(size_of::<Attributes>(), 48);
            if before.policy == 0 {
                assert!(ask_for_slices(Duration::from_micros(100)), "it takes no rights");
            }
            let after = attributes();
            assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
        })
        .join()
        .unwrap();
    }
}

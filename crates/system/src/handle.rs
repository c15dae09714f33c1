//! What the library gives out, and what it answers.

use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;

use crate::error::CallError;
use crate::fork;

/// A live object of the library: whatever holds this destroys it, and nothing else does.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    object: NonNull<T>,
    /// The process that made it.
    generation: u32,
}

// SAFETY: objects of the library may be used by any thread, and by several at once, as its manual says.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// What a call that makes an object returned. It must come right after the call, whose error number it takes.
    pub(crate) fn made(call: &'static str, object: *mut T) -> Result<Self, CallError> {
        Self::alive(object).ok_or_else(|| CallError { call, code: errno() })
    }

    /// A live object that came by another way than as an answer.
    pub(crate) fn alive(object: *mut T) -> Option<Self> {
        NonNull::new(object).map(|object| Self { object, generation: fork::generation() })
    }

    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    /// Whether this process made it, and none that it was forked from.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// An error for a call that is not made because the object is the parent's.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<(), CallError> {
        if self.is_ours() { Ok(()) } else { Err(CallError::forked(call)) }
    }
}

/// The error number of this thread's last call.
fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What a call that returns a number says. It must come right after the call: most return the error number itself, old
/// ones and waits return -1 and leave it in `errno`, and a few return it with a minus.
#[inline]
pub(crate) fn answered(call: &'static str, answer: c_int) -> Result<(), CallError> {
    if answer == 0 { Ok(()) } else { Err(CallError { call, code: error_number(answer) }) }
}

/// The error number of an answer that is known to be an error: never 0, whatever the library left in `errno`.
#[cold]
pub(crate) fn error_number(answer: c_int) -> c_int {
    match answer {
        -1 if errno() == 0 => libc::EIO,
        -1 => errno(),
        code => code.saturating_abs(),
    }
}

/// Locks. Nothing that is locked here is ever left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same where the lock is not shared any more.
pub(crate) fn unlocked<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// A C structure with all bytes zero, as C programs make them.
pub(crate) trait Zero: Copy {
    /// It.
    fn zero() -> Self;
}

/// Every field of these is a number, a pointer, a function or nothing, or an array or structure of such.
macro_rules! zero {
    ($($name:ident),* $(,)?) => {$(
        impl Zero for ferroce_cabi::$name {
            fn zero() -> Self {
                // SAFETY: all bytes zero are a value of each of its fields.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

zero!(
    ibv_ah_attr,
    ibv_async_event,
    ibv_cq_init_attr_ex,
    ibv_device_attr,
    ibv_device_attr_ex,
    ibv_gid_entry,
    ibv_mw_bind,
    ibv_port_attr,
    ibv_qp_attr,
    ibv_qp_init_attr,
    ibv_send_wr,
    ibv_srq_attr,
    ibv_srq_init_attr,
    ibv_values_ex,
);

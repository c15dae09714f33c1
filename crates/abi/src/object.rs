//! What all objects have in common: how they come from C and go there, and how they count what is told of
//! them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::refusal::{Answer, Refused};

/// A structure whose fields may all be zero.
///
/// # Safety
/// Zero bytes are a value of the type: it is made of numbers, pointers, optional functions and locks of the C
/// library alone.
pub(crate) unsafe trait Zero: Sized {
    fn zero() -> Self {
        // SAFETY: every implementation of the trait says that zero bytes are a value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zero {
    ($($name:ident)*) => {$(
        // SAFETY: a C structure of numbers, pointers, optional functions and locks of the C library.
        unsafe impl Zero for ferroce_cabi::$name {}
    )*};
}

zero! {
    ibv_device ibv_device_attr ibv_device_attr_ex ibv_port_attr ibv_gid_entry ibv_qp_attr ibv_qp_init_attr
    ibv_qp_ex ibv_cq_ex ibv_srq ibv_ah_attr ibv_wc verbs_context
}

/// What a pointer of the program points to, if it is one.
///
/// # Safety
/// `pointer` is null, or to a live object that does not change meanwhile but through its own locks and
/// atomics.
pub(crate) unsafe fn seen<'a, T>(pointer: *const T, what: &str) -> Answer<&'a T> {
    check(pointer, what)?;
    // SAFETY: not null and aligned; the caller vouches for the rest.
    Ok(unsafe { &*pointer })
}

/// The same for a structure that is to be filled.
///
/// # Safety
/// As for [`seen`], and nothing else looks at it meanwhile.
pub(crate) unsafe fn filled<'a, T>(pointer: *mut T, what: &str) -> Answer<&'a mut T> {
    check(pointer, what)?;
    // SAFETY: not null and aligned; the caller vouches for the rest.
    Ok(unsafe { &mut *pointer })
}

fn check<T>(pointer: *const T, what: &str) -> Answer<()> {
    if pointer.is_null() {
        Err(Refused::invalid(format_args!("the {what} is a null pointer")))
    } else if pointer.is_aligned() {
        Ok(())
    } else {
        Err(Refused::invalid(format_args!("the {what} at {pointer:p} is not aligned")))
    }
}

/// Gives an object to C.
pub(crate) fn given<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from C.
///
/// # Safety
/// It came from [`given`] and was not taken back before; no thread uses it any more.
pub(crate) unsafe fn taken<T>(object: *mut T) -> Box<T> {
    // SAFETY: the caller vouches for it.
    unsafe { Box::from_raw(object) }
}

/// Events that the program was told of and has not acknowledged. An object is not destroyed before all are.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    outstanding: Mutex<u32>,
    none: Condvar,
}

impl Acknowledged {
    pub(crate) fn told(&self) {
        *lock(&self.outstanding) += 1;
    }

    pub(crate) fn acknowledge(&self, count: u32) {
        let mut outstanding = lock(&self.outstanding);
        *outstanding = outstanding.saturating_sub(count);
        if *outstanding == 0 {
            self.none.notify_all();
        }
    }

    pub(crate) fn wait(&self) {
        let outstanding = lock(&self.outstanding);
        drop(self.none.wait_while(outstanding, |count| *count > 0));
    }
}

/// Locks; a thread that panicked while it had the lock has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

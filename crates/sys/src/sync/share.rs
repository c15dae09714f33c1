//! A value that each of several owners may read, and that only all of them together may change.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One of a fixed number of shares in a value.
///
/// A share lends the value to be read, like any borrow of it. A thread that has *all* shares to itself at
/// once may change it ([`Share::all`]): then no thread can be reading, because reading borrows a share. The
/// shares of a device's engines lie behind their turnstiles, so reading costs the thread inside nothing, and
/// changing costs a walk through all of them.
///
/// There is no lock in here. It is the borrows of the shares that keep readers and the writer apart, and
/// whatever hands a share from thread to thread (a turnstile) that shows what was written to threads that
/// read later.
pub struct Share<T> {
    common: Arc<Common<T>>,
}

struct Common<T> {
    value: UnsafeCell<T>,
    /// How many shares there are, or were: none is ever added.
    shares: usize,
}

// SAFETY: shares in several threads read the value at the same time, which `T: Sync` allows. One thread may
// change it, or drop it with the last share, which `T: Send` allows; `all` sees to it that none reads then.
unsafe impl<T: Send + Sync> Send for Share<T> {}
// SAFETY: a share that is lent to other threads lends them the value to be read, as above.
unsafe impl<T: Send + Sync> Sync for Share<T> {}

impl<T> Share<T> {
    /// Divides a value into this many shares.
    #[must_use]
    pub fn split(value: T, shares: usize) -> Vec<Self> {
        let common = Arc::new(Common { value: UnsafeCell::new(value), shares });
        (0..shares).map(|_| Self { common: Arc::clone(&common) }).collect()
    }

    /// The value, to be changed by the thread that has all its shares. `None` if one is missing, or
    /// belongs to another value.
    pub fn all<'a>(shares: impl IntoIterator<Item = &'a mut Self>) -> Option<&'a mut T> {
        let mut shares = shares.into_iter();
        let first = shares.next()?;
        let mut had = 1;
        for share in shares {
            if !Arc::ptr_eq(&share.common, &first.common) {
                return None;
            }
            had += 1;
        }
        if had != first.common.shares {
            return None;
        }
        // SAFETY: the references were given away for 'a and are of as many shares as were ever made, no two
        // of them the same: so for 'a no other code has a share to read the value by, or to call this with.
        Some(unsafe { &mut *first.common.value.get() })
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this share is borrowed no thread has all shares to itself, so none changes the value.
        unsafe { &*self.common.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&**self).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_may_write_what_each_may_read() {
        let mut shares = Share::split(7, 3);
        assert!(shares.iter().all(|share| **share == 7));
        *Share::all(&mut shares).unwrap() += 1;
        assert!(shares.iter().all(|share| **share == 8));
    }

    #[test]
    fn a_missing_share_is_not_made_up_for() {
        let (mut shares, mut others) = (Share::split(1, 3), Share::split(1, 3));
        assert!(Share::all(&mut shares[1..]).is_none());
        assert!(Share::all(shares[1..].iter_mut().chain(&mut others[..1])).is_none());
        let dropped = shares.pop();
        drop(dropped);
        assert!(Share::all(&mut shares).is_none(), "a share that is gone never comes back");
        assert!(Share::all(&mut Vec::<Share<u8>>::new()).is_none());
    }

    #[test]
    fn a_single_share_is_all() {
        let mut shares = Share::split(String::new(), 1);
        Share::all(&mut shares).unwrap().push('x');
        assert_eq!(*shares[0], "x");
    }
}

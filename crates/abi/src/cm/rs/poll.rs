//! `rpoll` and `rselect`: sockets of ours and descriptors of the kernel, together.

use std::ffi::{c_int, c_ulong};
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::{Uncancelled, now};
use ferroce_transport::Time;
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM, fd_set, nfds_t, pollfd,
    timeval,
};

use super::connect::descriptor;
use super::socket::{Phase, Socket};
use super::table;
use super::wait::{of_bell, own_bell, poll as poll_kernel, poll_for, readable};
use crate::object::lock;
use crate::refusal::{Answer, Refused, set_errno};

/// How long a thread looks again and again before it sleeps.
const LOOKS: Duration = Duration::from_micros(50);

/// What of the readiness of a socket was asked for.
const fn of_interest(readiness: i16, events: i16) -> i16 {
    let mut all = readiness;
    if readiness & POLLIN != 0 {
        all |= POLLRDNORM;
    }
    if readiness & POLLOUT != 0 && readiness & POLLHUP == 0 {
        all |= POLLWRNORM;
    }
    all & (events | POLLERR | POLLHUP)
}

/// The entries of a call.
struct Set<'a> {
    entries: &'a mut [pollfd],
    sockets: Vec<Option<Arc<Socket>>>,
    /// Whether there are descriptors of the kernel among them.
    any_other: bool,
    /// Why the first of the sockets whose connection failed has none; 0 if there is none such.
    failure: c_int,
}

impl<'a> Set<'a> {
    fn new(entries: &'a mut [pollfd]) -> Self {
        // Entries without a descriptor are not looked at, and have no news either.
        for entry in entries.iter_mut() {
            entry.revents = 0;
        }
        let sockets: Vec<_> = entries.iter().map(|entry| table::known(entry.fd)).collect();
        let any_other = entries.iter().zip(&sockets).any(|(entry, socket)| entry.fd >= 0 && socket.is_none());
        Self { entries, sockets, any_other, failure: 0 }
    }

    /// Looks at the sockets; how many are ready.
    fn look(&mut self) -> c_int {
        let mut ready = 0;
        for (entry, socket) in self.entries.iter_mut().zip(&self.sockets) {
            let Some(socket) = socket else { continue };
            let mut inner = lock(&socket.inner);
            inner.progress();
            entry.revents = of_interest(inner.readiness(), entry.events);
            if self.failure == 0 && inner.phase == Phase::Failed {
                self.failure = inner.error;
            }
            ready += c_int::from(entry.revents != 0);
        }
        ready
    }

    /// Looks at the others, too; how many are ready.
    fn look_at_all(&mut self) -> Answer<c_int> {
        let ours = self.look();
        if !self.any_other {
            return Ok(ours);
        }
        let mut others = self.others(&[]);
        poll_for(&mut others, 0)?;
        Ok(ours + self.take(&others))
    }

    /// The entries of the kernel, in the places of all, and more behind them.
    fn others(&self, more: &[pollfd]) -> Vec<pollfd> {
        let mut others: Vec<pollfd> = Vec::with_capacity(self.entries.len() + more.len());
        for (entry, socket) in self.entries.iter().zip(&self.sockets) {
            let fd = if socket.is_some() { -1 } else { entry.fd };
            others.push(pollfd { fd, events: entry.events, revents: 0 });
        }
        others.extend(more);
        others
    }

    /// What the kernel said; of how many.
    fn take(&mut self, others: &[pollfd]) -> c_int {
        let mut ready = 0;
        for ((entry, socket), other) in self.entries.iter_mut().zip(&self.sockets).zip(others) {
            if socket.is_none() {
                entry.revents = other.revents;
                ready += c_int::from(other.revents != 0);
            }
        }
        ready
    }

    /// Sleeps until something happens to any of them, or the time is over.
    fn sleep(&mut self, until: Option<Time>) -> Answer<()> {
        let bell = own_bell()?;
        let mut more = vec![of_bell(&bell)];
        let mut changed = false;
        for socket in self.sockets.iter().flatten() {
            let mut inner = lock(&socket.inner);
            if let Some(fd) = inner.arm(&bell) {
                more.push(readable(fd));
            }
            // What completed before it was armed rings nothing.
            changed |= inner.progress();
        }
        // Something may have happened between the last look and the bell.
        changed |= self.look() > 0;
        let polled = if changed { Ok(0) } else { poll_kernel(&mut self.others(&more), until) };
        let is_silent = !changed && matches!(polled, Ok(0));
        for socket in self.sockets.iter().flatten() {
            let mut inner = lock(&socket.inner);
            inner.disarm(&bell);
            if is_silent {
                inner.knock();
            }
        }
        polled.map(|_| ())
    }
}

fn poll(entries: &mut [pollfd], until: Option<Time>, at_once: bool) -> Answer<c_int> {
    let mut set = Set::new(entries);
    let looks_until = if set.sockets.iter().any(Option::is_some) { now() + LOOKS } else { Time::default() };
    loop {
        let ready = set.look_at_all()?;
        if ready > 0 || at_once {
            // Programs that take any error for the end, rstream among them, say what `errno` says.
            if set.failure != 0 {
                set_errno(set.failure);
            }
            return Ok(ready);
        }
        let time = now();
        if until.is_some_and(|until| time >= until) {
            return Ok(0);
        }
        if time < looks_until {
            // The peer may be on the same processor.
            std::thread::yield_now();
        } else {
            set.sleep(until)?;
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rpoll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let _whole = Uncancelled::new();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let until = u64::try_from(timeout).ok().map(|timeout| now() + Duration::from_millis(timeout));
    let answer = if count == 0 {
        poll(&mut [], until, timeout == 0)
    } else if entries.is_null() || count > 1 << 20 {
        Err(Refused::invalid("no entries"))
    } else {
        // SAFETY: the caller passes so many entries.
        poll(unsafe { std::slice::from_raw_parts_mut(entries, count) }, until, timeout == 0)
    };
    descriptor("rpoll", answer)
}

/// The three sets of a select, as entries to poll.
unsafe fn entries_of(count: c_int, sets: [*mut fd_set; 3]) -> Vec<pollfd> {
    let mut entries = Vec::new();
    for fd in 0..count.min(c_int::try_from(libc::FD_SETSIZE).unwrap_or(0)) {
        let mut events = 0;
        for (set, event) in sets.into_iter().zip([POLLIN, POLLOUT, POLLPRI]) {
            // SAFETY: the caller vouches for the sets; the number is inside of one.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, set) } {
                events |= event;
            }
        }
        if events != 0 {
            entries.push(pollfd { fd, events, revents: 0 });
        }
    }
    entries
}

/// Writes into the sets what is ready; how many bits. A program may give sets that are no longer than so many descriptors
/// need, in whole words.
unsafe fn write_sets(count: c_int, entries: &[pollfd], sets: [*mut fd_set; 3]) -> c_int {
    let count = usize::try_from(count).unwrap_or(0).min(libc::FD_SETSIZE);
    let words = count.div_ceil(c_ulong::BITS as usize);
    for set in sets {
        if !set.is_null() {
            // SAFETY: the caller vouches for so many words of the sets.
            unsafe { set.cast::<c_ulong>().write_bytes(0, words) };
        }
    }
    let mut bits = 0;
    let meaning = [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];
    for entry in entries {
        for (set, (asked, told)) in sets.into_iter().zip(meaning) {
            if !set.is_null() && entry.events & asked != 0 && entry.revents & told != 0 {
                // SAFETY: the caller vouches for the sets; the number came out of one.
                unsafe { libc::FD_SET(entry.fd, set) };
                bits += 1;
            }
        }
    }
    bits
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let _whole = Uncancelled::new();
    let sets = [reads, writes, excepts];
    // SAFETY: the caller passes sets, or null.
    let mut entries = unsafe { entries_of(count, sets) };
    // SAFETY: the caller passes a time, or null.
    let span = unsafe { timeout.as_ref() }.map(|time| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    });
    let at_once = span.is_some_and(|span| span.is_zero());
    let answer = poll(&mut entries, span.map(|span| now() + span), at_once).and_then(|_| {
        if entries.iter().any(|entry| entry.revents & POLLNVAL != 0) {
            return Err(Refused::new(libc::EBADF, "a descriptor that is none"));
        }
        // SAFETY: as above.
        Ok(unsafe { write_sets(count, &entries, sets) })
    });
    descriptor("rselect", answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_descriptor_has_no_old_news() {
        let mut entries = [pollfd { fd: -1, events: POLLIN, revents: POLLIN | POLLHUP }];
        let set = Set::new(&mut entries);
        assert!(!set.any_other);
        assert_eq!(entries[0].revents, 0);
    }

    #[test]
    fn only_the_words_of_a_small_set_are_written() {
        let mut words: [c_ulong; 3] = [c_ulong::MAX; 3];
        let set = words.as_mut_ptr().cast::<fd_set>();
        let entries = [pollfd { fd: 65, events: POLLIN, revents: POLLIN }];
        // SAFETY: the set has two words and more, which is what 66 descriptors need.
        let bits = unsafe { write_sets(66, &entries, [set, std::ptr::null_mut(), std::ptr::null_mut()]) };
        assert_eq!((bits, words), (1, [0, 2, c_ulong::MAX]));
    }
}

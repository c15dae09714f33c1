//! What we keep of sets of `epoll` with sockets of ours in them, and the lock around it.
//!
//! The kernel keeps what is its own in a set, and we keep the rest. Each thread that waits for a set has a bell of its own,
//! which is rung when there is something else to wait for.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferroce_sys::Uncancelled;
use ferroce_sys::clock::now;
use ferroce_sys::descriptor::EventFd;
use ferroce_transport::Time;
use libc::{
    EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM,
    epoll_event, pollfd,
};

use crate::epoll;
use crate::numbers::{self, Kind, Way};

/// Of a process.
pub(crate) type Shared = Mutex<State>;

/// The sets of the process. Numbers of sockets and sets are changed under its lock, too.
#[derive(Default)]
pub(crate) struct State {
    sets: HashMap<u32, Set>,
    last: u32,
}

/// The lock of all sets. The thread is not cancelled meanwhile.
pub(crate) struct Locked {
    guard: MutexGuard<'static, State>,
    _whole: Uncancelled,
}

impl Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

pub(crate) fn state() -> Locked {
    let whole = Uncancelled::new();
    let mut at = numbers::STATE.load(Ordering::SeqCst);
    if at.is_null() {
        let fresh = Box::into_raw(Box::<Shared>::default());
        let known =
            numbers::STATE.compare_exchange(ptr::null_mut(), fresh, Ordering::SeqCst, Ordering::SeqCst);
        at = match known {
            Ok(_) => fresh,
            Err(known) => {
                // SAFETY: it was made just now, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                known
            }
        };
    }
    // SAFETY: what is there was made above, and is never freed.
    let shared: &'static Shared = unsafe { &*at };
    Locked { guard: shared.lock().unwrap_or_else(PoisonError::into_inner), _whole: whole }
}

/// A descriptor that a thread polls besides sockets.
struct Bell(EventFd);

impl Bell {
    fn new() -> io::Result<Self> {
        let bell = Self(EventFd::new()?);
        numbers::hide(bell.number());
        Ok(bell)
    }

    fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        numbers::forget(self.number());
    }
}

/// A thread that waits.
struct Waiter {
    bell: Bell,
    is_rung: bool,
}

/// What we keep of a set.
struct Set {
    /// How many numbers it has.
    numbers: u32,
    /// By the hidden number of the socket, and the number that the program gave.
    entries: BTreeMap<(c_int, c_int), Entry>,
    waiters: Vec<Waiter>,
    /// Bells that no thread uses. There is at least one bell, so that a single thread can always wait.
    idle: Vec<Bell>,
    /// Is in the kernel's set, and rings, while threads wait there that do not know of our sockets.
    alarm: Option<(Bell, Time)>,
    /// Counts waits: what comes first is another thing each time.
    turn: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    events: u32,
    data: u64,
    /// It was told, and is to be told once.
    is_spent: bool,
    /// What was told of it if it is edge-triggered: how often the program had used the socket by then.
    told: [Option<u32>; EDGES.len()],
}

/// The bits of epoll that `poll` has too, with the same values.
const SHARED: i16 = POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP | POLLPRI | POLLRDNORM | POLLWRNORM;

/// How long an alarm sounds at most.
const OLD: Duration = Duration::from_secs(1);

/// What is told of whether the program asks for it or not.
const ALWAYS: i16 = POLLERR | POLLHUP;

/// Events that are told once each, and again after one of these uses.
const EDGES: [(i16, &[Way]); 4] = [
    (POLLIN | POLLRDNORM | POLLPRI, &[Way::In]),
    (POLLRDHUP, &[Way::In]),
    (POLLOUT | POLLWRNORM, &[Way::Out]),
    (ALWAYS, &[Way::In, Way::Out]),
];

fn uses(hidden: c_int, ways: &[Way]) -> u32 {
    ways.iter().fold(0, |sum: u32, way| sum.wrapping_add(numbers::uses(hidden, *way)))
}

impl Entry {
    pub(crate) fn new(event: epoll_event) -> Self {
        Self { events: event.events, data: event.u64, is_spent: false, told: [None; EDGES.len()] }
    }

    /// What to poll a socket for; nothing if it is not to be told now.
    fn wanted(&self, hidden: c_int) -> Option<i16> {
        if self.is_spent {
            return None;
        }
        let mut events = i16::try_from(self.events & u32::from(SHARED.cast_unsigned())).unwrap_or(0);
        if self.events & EPOLLET as u32 != 0 {
            for (told, (event, ways)) in self.told.iter().zip(EDGES) {
                if told.is_some_and(|told| told == uses(hidden, ways)) {
                    if event & ALWAYS != 0 {
                        return None;
                    }
                    events &= !event;
                }
            }
        }
        Some(events)
    }

    /// What of the readiness of a socket the program is told now. Another thread may have told it since it was polled.
    fn tell(&mut self, hidden: c_int, ready: i16) -> Option<epoll_event> {
        let events = ready & (self.wanted(hidden)? | ALWAYS);
        if events == 0 {
            return None;
        }
        self.is_spent = self.events & EPOLLONESHOT as u32 != 0;
        if self.events & EPOLLET as u32 != 0 {
            numbers::is_told(hidden);
            for (told, (event, ways)) in self.told.iter_mut().zip(EDGES) {
                if events & event != 0 {
                    *told = Some(uses(hidden, ways));
                }
            }
        }
        Some(epoll_event { events: u32::from(events.cast_unsigned()), u64: self.data })
    }
}

impl Set {
    fn new() -> io::Result<Self> {
        let idle = vec![Bell::new()?];
        Ok(Self { numbers: 1, entries: BTreeMap::new(), waiters: Vec::new(), idle, alarm: None, turn: 0 })
    }

    /// Threads that wait are to look again.
    fn ring(&mut self) {
        for waiter in self.waiters.iter_mut().filter(|waiter| !waiter.is_rung) {
            waiter.is_rung = true;
            waiter.bell.0.signal();
        }
    }

    fn has(&self, hidden: c_int) -> bool {
        self.entries.range((hidden, c_int::MIN)..=(hidden, c_int::MAX)).next().is_some()
    }
}

/// What a thread waits for.
pub(crate) struct Wait {
    /// The bell, and then the sockets.
    pub(crate) polled: Vec<pollfd>,
    /// Which they are.
    keys: Vec<(c_int, c_int)>,
    /// Whether what the kernel has comes first this time.
    pub(crate) kernel_is_first: bool,
}

impl State {
    /// Makes a set of ours of one of the kernel.
    pub(crate) fn make_set(&mut self, number: c_int) -> io::Result<u32> {
        let mut set = Set::new()?;
        loop {
            self.last = (self.last + 1) % (1 << 30);
            if !self.sets.contains_key(&self.last) {
                break;
            }
        }
        if !numbers::made_set(number, self.last) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        // Threads that count from now on know of it.
        if numbers::any_waits(number) {
            let alarm = Bell::new()?;
            alarm.0.signal();
            epoll::sound_in_kernel(number, alarm.number());
            set.alarm = Some((alarm, now()));
        }
        self.sets.insert(self.last, set);
        Ok(self.last)
    }

    /// A thread has heard the alarm. It ends with the last one that waited in the kernel, or when it is old: a thread that
    /// was cancelled there is counted for ever.
    pub(crate) fn has_heard(&mut self, number: c_int, set: u32) {
        let Some(set) = self.sets.get_mut(&set) else { return };
        let is_over =
            |(_, since): &mut (Bell, Time)| !numbers::any_waits(number) || now().since(*since) > OLD;
        if let Some((alarm, _)) = set.alarm.take_if(is_over) {
            epoll::silence_in_kernel(number, alarm.number());
        }
    }

    /// The entry of a socket in a set is another, or none.
    pub(crate) fn change(&mut self, set: u32, fd: c_int, hidden: c_int, entry: Option<Entry>) {
        let Some(set) = self.sets.get_mut(&set) else { return };
        match entry {
            Some(entry) => set.entries.insert((hidden, fd), entry),
            None => set.entries.remove(&(hidden, fd)),
        };
        set.ring();
    }

    pub(crate) fn has(&self, set: u32, fd: c_int, hidden: c_int) -> bool {
        self.sets.get(&set).is_some_and(|set| set.entries.contains_key(&(hidden, fd)))
    }

    pub(crate) fn socket_is_used(&mut self, hidden: c_int) {
        for set in self.sets.values_mut().filter(|set| set.has(hidden)) {
            set.ring();
        }
    }

    /// A thread begins to wait for a set; nothing if there is no such set any more.
    pub(crate) fn begin(&mut self, set: u32) -> io::Result<Option<Wait>> {
        let Some(set) = self.sets.get_mut(&set) else { return Ok(None) };
        let bell = set.idle.pop().map_or_else(Bell::new, Ok)?;
        let readable = |fd| pollfd { fd, events: POLLIN, revents: 0 };
        let mut wait =
            Wait { polled: vec![readable(bell.number())], keys: Vec::new(), kernel_is_first: false };
        set.waiters.push(Waiter { bell, is_rung: false });
        set.turn = set.turn.wrapping_add(1);
        wait.kernel_is_first = set.turn % 2 == 1;
        let sockets = set.entries.iter().filter_map(|(key, entry)| Some((*key, entry.wanted(key.0)?)));
        for (key, events) in sockets {
            wait.polled.push(pollfd { fd: key.0, events, revents: 0 });
            wait.keys.push(key);
        }
        if !wait.keys.is_empty() {
            let first = set.turn % wait.keys.len();
            wait.keys.rotate_left(first);
            wait.polled[1..].rotate_left(first);
        }
        Ok(Some(wait))
    }

    /// The thread waits no more.
    pub(crate) fn end(&mut self, set: u32, wait: &Wait) {
        let Some(set) = self.sets.get_mut(&set) else { return };
        let bell = wait.polled.first().map_or(-1, |bell| bell.fd);
        if let Some(index) = set.waiters.iter().position(|waiter| waiter.bell.number() == bell) {
            let waiter = set.waiters.swap_remove(index);
            if waiter.is_rung {
                waiter.bell.0.clear();
            }
            set.idle.push(waiter.bell);
        }
    }

    /// Tells what was polled; how much.
    pub(crate) fn tell(&mut self, set: u32, wait: &Wait, events: &mut [epoll_event]) -> usize {
        let Some(set) = self.sets.get_mut(&set) else { return 0 };
        let mut count = 0;
        let polled = wait.polled.get(1..).unwrap_or_default();
        for (key, entry) in wait.keys.iter().zip(polled).filter(|(_, entry)| entry.revents != 0) {
            let Some(place) = events.get_mut(count) else { break };
            let told = set.entries.get_mut(key).and_then(|item| item.tell(key.0, entry.revents));
            if let Some(told) = told {
                *place = told;
                count += 1;
            }
        }
        count
    }

    /// A number has the same behind it as another now; false if it is too large to be remembered.
    pub(crate) fn made_copy(&mut self, of: c_int, fd: c_int) -> bool {
        let is_known = numbers::made_copy(of, fd);
        if let Some(set) = numbers::set_of(fd).filter(|_| is_known)
            && let Some(set) = self.sets.get_mut(&set)
        {
            set.numbers += 1;
        }
        is_known
    }

    /// A number is the kernel's now. A socket that has no other number is in no set any more: its hidden number is to be
    /// closed.
    pub(crate) fn forget(&mut self, fd: c_int) -> Option<c_int> {
        match numbers::forget(fd) {
            Kind::Socket(hidden) if numbers::is_last(hidden) => {
                for set in self.sets.values_mut().filter(|set| set.has(hidden)) {
                    set.entries.retain(|key, _| key.0 != hidden);
                    set.ring();
                }
                numbers::forget(hidden);
                Some(hidden)
            }
            Kind::Set(id) => {
                let set = self.sets.get_mut(&id)?;
                set.numbers = set.numbers.saturating_sub(1);
                if set.numbers == 0 {
                    // Threads that wait find that it is gone.
                    set.ring();
                    self.sets.remove(&id);
                }
                None
            }
            _ => None,
        }
    }

    /// A socket is the kernel's under all its numbers, also in the sets that it is in; false if it was no socket of ours
    /// any more.
    pub(crate) fn give_to_kernel(&mut self, hidden: c_int) -> bool {
        let fds: Vec<_> = numbers::all(0, c_int::MAX, |kind| kind == Kind::Socket(hidden)).collect();
        let mut moved = Vec::new();
        for (id, set) in &self.sets {
            let number = numbers::all(0, c_int::MAX, |kind| kind == Kind::Set(*id)).next();
            for ((_, fd), entry) in set.entries.range((hidden, c_int::MIN)..=(hidden, c_int::MAX)) {
                moved.extend(number.filter(|_| fds.contains(fd)).map(|number| (number, *fd, *entry)));
            }
        }
        let was_ours = fds.into_iter().filter_map(|fd| self.forget(fd)).next().is_some();
        for (set, fd, entry) in moved {
            let events = if entry.is_spent { 0 } else { entry.events };
            epoll::add_to_kernel(set, fd, epoll_event { events, u64: entry.data });
        }
        was_ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(events: c_int) -> Entry {
        Entry::new(epoll_event { events: events.cast_unsigned(), u64: 7 })
    }

    fn told(entry: &mut Entry, hidden: c_int, ready: i16) -> u32 {
        entry.tell(hidden, ready).map_or(0, |event| event.events)
    }

    #[test]
    fn what_was_told_once_is_not_told_to_a_second_thread() {
        let mut once = entry(EPOLLONESHOT | libc::EPOLLIN);
        assert_eq!(told(&mut once, 900, POLLIN), libc::EPOLLIN.cast_unsigned());
        // It was polled before the first one was told.
        assert_eq!(told(&mut once, 900, POLLIN), 0);
        assert_eq!(once.wanted(900), None);
    }

    #[test]
    fn an_edge_is_told_again_after_a_use_of_its_own_direction() {
        let mut edge = entry(EPOLLET | libc::EPOLLIN | libc::EPOLLOUT);
        assert_eq!(told(&mut edge, 901, POLLIN | POLLOUT), (POLLIN | POLLOUT) as u32);
        assert_eq!(edge.wanted(901), Some(0));
        numbers::has_used(901, Way::In);
        assert_eq!(told(&mut edge, 901, POLLIN | POLLOUT), POLLIN as u32);
        numbers::has_used(901, Way::Out);
        assert_eq!(edge.wanted(901), Some(POLLOUT));
        // The end is another edge, which nothing masks but itself.
        assert_eq!(told(&mut edge, 901, POLLIN | POLLHUP), POLLHUP as u32);
        assert_eq!(edge.wanted(901), None);
    }

    #[test]
    fn an_edge_that_one_set_was_told_is_still_told_to_another() {
        let mut both = [entry(EPOLLET | libc::EPOLLIN), entry(EPOLLET | libc::EPOLLIN)];
        for edge in &mut both {
            assert_eq!(told(edge, 902, POLLIN), POLLIN as u32);
        }
    }

    #[test]
    fn nothing_is_told_that_was_not_asked_for_but_the_end() {
        let mut plain = entry(libc::EPOLLIN);
        let all = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP;
        assert_eq!(told(&mut plain, 903, all), POLLIN as u32);
        assert_eq!(told(&mut plain, 903, POLLHUP), POLLHUP as u32);
        assert_eq!(told(&mut plain, 903, POLLRDNORM), 0);
    }

    #[test]
    fn each_thread_that_waits_hears_of_a_change() {
        let mut state = State::default();
        let set = state.make_set(40_000).unwrap();
        let waits = [state.begin(set).unwrap().unwrap(), state.begin(set).unwrap().unwrap()];
        let mut bells = waits.each_ref().map(|wait| wait.polled[0]);
        state.change(set, 41_000, 904, Some(entry(libc::EPOLLIN)));
        // SAFETY: the entries live during the call.
        assert_eq!(unsafe { libc::poll(bells.as_mut_ptr(), 2, 0) }, 2);
        for wait in &waits {
            state.end(set, wait);
        }
        let again = state.begin(set).unwrap().unwrap();
        assert_eq!((again.polled.len(), again.polled[1].fd, again.keys[0].1), (2, 904, 41_000));
        let mut bell = again.polled[0];
        // SAFETY: as above.
        assert_eq!(unsafe { libc::poll(&raw mut bell, 1, 0) }, 0, "it rings of the change that was seen");
        state.end(set, &again);
        assert_eq!(state.forget(40_000), None);
        assert!(state.begin(set).unwrap().is_none());
    }
}

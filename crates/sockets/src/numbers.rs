//! What is behind each number of a descriptor.
//!
//! A socket has a hidden number, by which rsockets know it, and one or more numbers of the program. Behind those is a TCP
//! socket of the kernel, which is never connected: the kernel counts the numbers of the program with it, and it is there
//! when the destination turns out to be one that no device leads to. So numbers can be doubled, closed and given to the
//! kernel without a moment in which another thread could be given them.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::sets;

/// Descriptors above are always the kernel's.
const MOST: usize = 1 << 16;

/// By number: zero if it is the kernel's, one more than the hidden number of a socket, or one of these.
static NUMBERS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// A number that the program does not know of.
const HIDDEN: u32 = 1 << 30;
/// A set of epoll: the other bits say which.
const SET: u32 = 1 << 31;

/// No number above was ever ours.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The process that the numbers are of; zero as long as there are none.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// See [`is_device_open`].
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// What is behind a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Hidden,
    /// A socket, by its hidden number.
    Socket(c_int),
    /// A set of epoll that sockets of ours are in, or were.
    Set(u32),
}

/// A socket, by its hidden number. It is never freed: a thread that is late sees what is there now, as with descriptors.
pub(crate) struct Socket {
    /// How many numbers of the program it has.
    numbers: AtomicU32,
    /// How often the program has taken something out of it, and has found it full.
    uses: [AtomicU32; 2],
    /// Whether an edge-triggered set has told of it since it was used.
    told: AtomicU32,
    is_bound: AtomicU32,
}

static SOCKETS: [Socket; MOST] = [const {
    Socket {
        numbers: AtomicU32::new(0),
        uses: [const { AtomicU32::new(0) }; 2],
        told: AtomicU32::new(0),
        is_bound: AtomicU32::new(0),
    }
}; MOST];

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

fn place(fd: c_int) -> Option<&'static AtomicU32> {
    NUMBERS.get(usize::try_from(fd).ok()?)
}

fn socket(hidden: c_int) -> Option<&'static Socket> {
    SOCKETS.get(usize::try_from(hidden).ok()?)
}

fn read(value: u32) -> Kind {
    match value {
        0 => Kind::Kernel,
        HIDDEN => Kind::Hidden,
        value if value & SET != 0 => Kind::Set(value & !SET),
        value => Kind::Socket(c_int::try_from(value - 1).unwrap_or(-1)),
    }
}

pub(crate) fn kind(fd: c_int) -> Kind {
    place(fd).map_or(Kind::Kernel, |place| read(place.load(Ordering::SeqCst)))
}

/// The hidden number of a socket of ours.
pub(crate) fn socket_of(fd: c_int) -> Option<c_int> {
    match kind(fd) {
        Kind::Socket(hidden) => Some(hidden),
        _ => None,
    }
}

/// The set that a number is of.
pub(crate) fn set_of(fd: c_int) -> Option<u32> {
    match kind(fd) {
        Kind::Set(set) => Some(set),
        _ => None,
    }
}

/// Whether the numbers are those of this process. A child of a `vfork` has the memory of its parent, but descriptors of
/// its own: what it closes stays open in the parent.
pub(crate) fn are_of_this_process() -> bool {
    // SAFETY: a function of nothing.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Whether a new socket may be one of ours: in a child of a `vfork` it may not.
pub(crate) fn may_be_made() -> bool {
    notice_children();
    let may = are_of_this_process();
    if may {
        IS_OPEN.store(true, Ordering::SeqCst);
    }
    may
}

/// Whether this process, or one that it was forked from, has made sockets of ours, so that there are descriptors of the
/// device.
pub(crate) fn is_device_open() -> bool {
    IS_OPEN.load(Ordering::SeqCst)
}

fn write(fd: c_int, value: u32) -> bool {
    let Some(place) = place(fd) else { return false };
    HIGHEST.fetch_max(usize::try_from(fd).unwrap_or(0), Ordering::SeqCst);
    place.store(value, Ordering::SeqCst);
    true
}

/// A socket of ours was made, with its first number; false if a number is too large to be remembered.
pub(crate) fn made_socket(fd: c_int, hidden: c_int) -> bool {
    let Some(socket) = socket(hidden).filter(|_| place(fd).is_some()) else { return false };
    for count in &socket.uses {
        count.store(0, Ordering::Relaxed);
    }
    socket.told.store(0, Ordering::Relaxed);
    socket.is_bound.store(0, Ordering::Relaxed);
    socket.numbers.store(1, Ordering::Relaxed);
    hide(hidden) && write(fd, hidden.cast_unsigned() + 1)
}

pub(crate) fn made_set(fd: c_int, set: u32) -> bool {
    write(fd, SET | set)
}

/// A number is not the program's.
pub(crate) fn hide(fd: c_int) -> bool {
    write(fd, HIDDEN)
}

/// A number is what the kernel says; what it was.
pub(crate) fn forget(fd: c_int) -> Kind {
    place(fd).map_or(Kind::Kernel, |place| read(place.swap(0, Ordering::SeqCst)))
}

/// A number has the same behind it as another now. Sets are counted by themselves.
pub(crate) fn made_copy(of: c_int, fd: c_int) -> bool {
    let Some(value) = place(of).map(|place| place.load(Ordering::SeqCst)) else { return false };
    if !write(fd, value) {
        return false;
    }
    if let Kind::Socket(hidden) = read(value)
        && let Some(socket) = socket(hidden)
    {
        socket.numbers.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// A number of a socket is gone; whether it was the last.
pub(crate) fn is_last(hidden: c_int) -> bool {
    socket(hidden).is_some_and(|socket| socket.numbers.fetch_sub(1, Ordering::Relaxed) == 1)
}

/// All numbers of the program from one to another that have this behind them.
pub(crate) fn all(first: c_int, last: c_int, are: impl Fn(Kind) -> bool) -> impl Iterator<Item = c_int> {
    let highest = c_int::try_from(HIGHEST.load(Ordering::SeqCst)).unwrap_or(c_int::MAX);
    (first.max(0)..=last.min(highest)).filter(move |fd| are(kind(*fd)))
}

pub(crate) fn has_bound(hidden: c_int) {
    if let Some(socket) = socket(hidden) {
        socket.is_bound.store(1, Ordering::Relaxed);
    }
}

/// Whether the program has given the socket an address.
pub(crate) fn is_bound(hidden: c_int) -> bool {
    socket(hidden).is_some_and(|socket| socket.is_bound.load(Ordering::Relaxed) != 0)
}

/// How often the program has used a socket so that an edge may follow.
pub(crate) fn uses(hidden: c_int, way: Way) -> u32 {
    socket(hidden).map_or(0, |socket| socket.uses[way as usize].load(Ordering::SeqCst))
}

/// An edge-triggered set is about to tell of a socket: it wants to hear when the socket is used.
pub(crate) fn is_told(hidden: c_int) {
    if let Some(socket) = socket(hidden) {
        // Before the uses are read: a thread that uses the socket counts first and looks here then, so that one of both
        // sees the other.
        socket.told.store(1, Ordering::SeqCst);
    }
}

/// The program has used a socket: edge-triggered sets tell of it again. The error number stays.
pub(crate) fn has_used(hidden: c_int, way: Way) {
    let Some(socket) = socket(hidden) else { return };
    socket.uses[way as usize].fetch_add(1, Ordering::SeqCst);
    if socket.told.load(Ordering::SeqCst) != 0 {
        let code = crate::next::errno();
        let mut state = sets::state();
        socket.told.store(0, Ordering::SeqCst);
        state.socket_is_used(hidden);
        drop(state);
        crate::next::set_errno(code);
    }
}

/// Threads that wait in the kernel on a set that no socket of ours is in, by its number.
static WAITING: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// A thread is about to wait in the kernel.
pub(crate) fn begins_to_wait(fd: c_int) {
    if let Some(count) = usize::try_from(fd).ok().and_then(|fd| WAITING.get(fd)) {
        count.fetch_add(1, Ordering::SeqCst);
        HIGHEST.fetch_max(usize::try_from(fd).unwrap_or(0), Ordering::SeqCst);
    }
}

pub(crate) fn ends_to_wait(fd: c_int) {
    if let Some(count) = usize::try_from(fd).ok().and_then(|fd| WAITING.get(fd)) {
        count.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) fn any_waits(fd: c_int) -> bool {
    let count = usize::try_from(fd).ok().and_then(|fd| WAITING.get(fd));
    count.is_some_and(|count| count.load(Ordering::SeqCst) != 0)
}

/// What sets are known in this process; null until the first one is.
pub(crate) static STATE: AtomicPtr<sets::Shared> = AtomicPtr::new(std::ptr::null_mut());

/// A child of a fork has no sockets of ours.
fn notice_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only writes numbers, which is all that may be done between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // SAFETY: a function of nothing.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::SeqCst);
    });
}

extern "C" fn in_child() {
    let highest = HIGHEST.load(Ordering::SeqCst);
    for (number, waiting) in NUMBERS.iter().zip(&WAITING).take(highest + 1) {
        number.store(0, Ordering::SeqCst);
        waiting.store(0, Ordering::SeqCst);
    }
    // What the parent knew stays as it is: another of its threads may have been changing it.
    STATE.store(std::ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: a function of nothing.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::SeqCst);
}

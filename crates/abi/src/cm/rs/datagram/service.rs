//! The thread that reads the UDP sockets of all datagram sockets of the process.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use ferroce_device::{Epoll, PerProcess, Watch};

use crate::cm::rs::service::without_signals;
use crate::cm::rs::socket::{Inner, Socket};
use crate::cm::rs::table;
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// Datagrams that are read at once: calls of the program wait no longer than for these.
pub(super) const BATCH: usize = 16;

/// What the thread sleeps on. A child of a fork begins with another.
static HEARD: PerProcess<Mutex<Option<Arc<Epoll>>>> = PerProcess::new();

/// What comes to this descriptor is told to the socket of this number from now on; the thread runs.
pub(super) fn hear(fd: RawFd, socket: RawFd) -> Answer<()> {
    let refused = |error: std::io::Error| Refused::new(error.raw_os_error().unwrap_or(libc::EAGAIN), error);
    let mut heard = lock(HEARD.get());
    let set = match &*heard {
        Some(set) => Arc::clone(set),
        None => {
            let set = Arc::new(Epoll::new().map_err(refused)?);
            let sleeps = Arc::clone(&set);
            let builder = std::thread::Builder::new().name("ferroce-rs-udp".into());
            without_signals(|| builder.spawn(move || serve(&sleeps))).map_err(refused)?;
            *heard = Some(Arc::clone(&set));
            set
        }
    };
    let mark = u64::try_from(socket).unwrap_or(u64::MAX);
    set.add_marked(fd, Watch::WhileReadable, mark).map_err(refused)
}

/// The descriptor is about to be closed. A child of a fork may have it still.
pub(super) fn strike(fd: RawFd) {
    if let Some(set) = &*lock(HEARD.get()) {
        let _ = set.remove(fd);
    }
}

fn serve(set: &Epoll) {
    loop {
        set.sleep(None);
        for mark in set.ready() {
            if let Some(socket) = RawFd::try_from(mark).ok().and_then(table::known) {
                socket.hear();
            }
        }
    }
}

impl Socket {
    /// Something has come to the UDP socket.
    fn hear(&self) {
        let mut inner = lock(&self.inner);
        let Inner { datagrams, options, .. } = &mut *inner;
        // Threads that wait see new messages and new queue pairs when they look again.
        if datagrams.as_mut().is_some_and(|datagrams| datagrams.hear(options.sizes)) {
            inner.ring();
        }
    }
}

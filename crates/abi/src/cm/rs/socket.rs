//! Sockets: what all threads that use one share.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use ferroce_device::{EventFd, now};
use ferroce_transport::Time;
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

use super::datagram::Datagrams;
use super::options::Options;
use super::stream::Stream;
use super::wait::{Bell, of_bell, own_bell, poll, readable};
use crate::cm::id::Id;
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// How long a thread looks again and again before it sleeps.
const LOOKS: std::time::Duration = std::time::Duration::from_micros(50);

/// A socket.
pub(crate) struct Socket {
    /// A descriptor of the kernel, for the sake of its number.
    number: EventFd,
    pub(super) domain: c_int,
    pub(super) is_datagram: bool,
    pub(super) inner: Mutex<Inner>,
}

/// What changes about a socket.
pub(super) struct Inner {
    pub(super) phase: Phase,
    /// Of a stream; none when it is closed.
    pub(super) id: Option<Arc<Id>>,
    pub(super) options: Options,
    pub(super) stream: Option<Box<Stream>>,
    /// Of a datagram socket, until it is closed.
    pub(super) datagrams: Option<Box<Datagrams>>,
    /// Why it could not connect; told once.
    pub(super) error: c_int,
    /// Of a listener: connections that the program has not accepted yet.
    pub(super) accepted: VecDeque<Arc<Socket>>,
    /// Of a listener: connections that peers have asked for and that do not stand yet.
    pub(super) pending: usize,
    /// Of a connection that a peer asked for: the listener that it came to.
    pub(super) listener: Option<std::sync::Weak<Socket>>,
    bells: Vec<Bell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Bound,
    Listening,
    Connecting,
    Connected,
    Failed,
    Closed,
}

impl Socket {
    /// A stream has an id, and a datagram socket has none.
    pub(super) fn new(
        domain: c_int,
        phase: Phase,
        id: Option<Arc<Id>>,
        options: Options,
    ) -> Answer<Arc<Self>> {
        let number = EventFd::new().map_err(|error| Refused::new(libc::EMFILE, error))?;
        let is_datagram = id.is_none();
        let inner = Inner {
            phase,
            id,
            options,
            stream: None,
            datagrams: None,
            error: 0,
            accepted: VecDeque::new(),
            pending: 0,
            listener: None,
            bells: Vec::new(),
        };
        Ok(Arc::new(Self { number, domain, is_datagram, inner: Mutex::new(inner) }))
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.number.as_fd().as_raw_fd()
    }

    /// Waits until there is an answer; the lock is free meanwhile. Nothing else gives the thread back but the time.
    pub(super) fn wait<'a, T>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        until: Option<Time>,
        mut answer: impl FnMut(&mut Inner) -> Option<Answer<T>>,
    ) -> Answer<T> {
        let looks_until = now() + LOOKS;
        loop {
            inner.progress();
            if let Some(answer) = answer(&mut inner) {
                return answer;
            }
            if until.is_some_and(|until| now() >= until) {
                return Err(Refused::quiet(libc::EAGAIN));
            }
            if (inner.stream.is_some() || inner.datagrams.is_some()) && now() < looks_until {
                drop(inner);
                // The peer may be on the same processor.
                std::thread::yield_now();
                inner = lock(&self.inner);
                continue;
            }
            let bell = own_bell()?;
            let mut entries = [of_bell(&bell), readable(-1)];
            if let Some(fd) = inner.arm(&bell) {
                entries[1] = readable(fd);
            }
            // What completed before it was armed rings nothing.
            if inner.progress() {
                inner.disarm(&bell);
                continue;
            }
            drop(inner);
            let polled = poll(&mut entries, until);
            inner = lock(&self.inner);
            inner.disarm(&bell);
            if polled? == 0 {
                inner.knock();
            }
        }
    }
}

impl Inner {
    /// Sees what has happened; whether anything had. Threads that wait for it are told.
    pub(super) fn progress(&mut self) -> bool {
        let any = self.stream.as_mut().is_some_and(|stream| stream.progress())
            || self.datagrams.as_mut().is_some_and(|datagrams| datagrams.progress());
        if any {
            self.ring();
        }
        any
    }

    /// Something has changed that threads may wait for.
    pub(super) fn ring(&self) {
        for bell in &self.bells {
            bell.signal();
        }
    }

    /// A thread is about to wait: its bell is rung when something changes, and so is the descriptor, if there is one.
    pub(super) fn arm(&mut self, bell: &Bell) -> Option<RawFd> {
        self.bells.push(Arc::clone(bell));
        if let Some(datagrams) = &self.datagrams {
            datagrams.arm();
            return Some(datagrams.descriptor());
        }
        let stream = self.stream.as_ref()?;
        stream.arm();
        Some(stream.descriptor())
    }

    pub(super) fn disarm(&mut self, bell: &Bell) {
        if let Some(index) = self.bells.iter().position(|known| Arc::ptr_eq(known, bell)) {
            self.bells.swap_remove(index);
        }
    }

    /// Nothing has happened for a while: asks whether the peer is still there.
    pub(super) fn knock(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.knock();
        }
    }

    pub(super) fn id(&self) -> Answer<Arc<Id>> {
        self.id.clone().ok_or_else(|| Refused::new(libc::EBADF, "the socket is closed"))
    }

    /// The stream of a socket that is, or was, connected.
    pub(super) fn stream(&mut self) -> Answer<&mut Stream> {
        let refused = match self.phase {
            Phase::Closed => Refused::new(libc::EBADF, "the socket is closed"),
            Phase::Connecting => Refused::quiet(libc::EAGAIN),
            _ => Refused::new(libc::ENOTCONN, "the socket is not connected"),
        };
        match (&mut self.stream, self.phase) {
            (Some(stream), Phase::Connected) => Ok(stream),
            _ => Err(refused),
        }
    }

    /// The connection failed, or was refused.
    pub(super) fn fails(&mut self, error: c_int) {
        if self.phase == Phase::Connecting {
            (self.phase, self.error) = (Phase::Failed, error);
        } else if let Some(stream) = &mut self.stream {
            stream.fails(error);
        }
        self.ring();
    }

    /// What `poll` says of it, all events.
    pub(super) fn readiness(&mut self) -> i16 {
        if let Some(datagrams) = &self.datagrams {
            return datagrams.readiness();
        }
        match (self.phase, &mut self.stream) {
            (Phase::Listening, _) => {
                if self.accepted.is_empty() {
                    0
                } else {
                    POLLIN
                }
            }
            (Phase::Connecting, _) => 0,
            (Phase::Connected, Some(stream)) => {
                let mut events = 0;
                if stream.can_read() {
                    events |= POLLIN;
                }
                if stream.can_write() {
                    events |= POLLOUT;
                }
                if !stream.reads {
                    events |= POLLRDHUP;
                }
                // While there is something to read, programs are not told of the end: some look no further.
                if !stream.reads && !stream.writes && stream.readable_bytes() == 0 {
                    events |= POLLHUP;
                }
                if stream.error.is_some() {
                    events |= POLLERR;
                }
                events
            }
            (Phase::Failed, _) => POLLIN | POLLOUT | POLLERR | POLLHUP,
            _ => POLLOUT | POLLHUP,
        }
    }
}

//! Calls that send, receive and close, and that may wait for it.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce_device::now;
use libc::{MSG_DONTWAIT, MSG_PEEK};

use super::port::Port;
use super::{Received, service};
use crate::cm::rs::buffer::Parts;
use crate::cm::rs::socket::{Inner, Phase, Socket};
use crate::cm::rs::transfer::Wish;
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// How long a close waits for what was sent to leave.
const PARTING: Duration = Duration::from_secs(1);

fn closed() -> Refused {
    Refused::new(libc::EBADF, "another thread has closed the socket")
}

impl Socket {
    /// Sends one message, to the peer if nothing else is named.
    pub(in crate::cm::rs) fn send_datagram(
        &self,
        wish: Wish,
        parts: &mut Parts<'_>,
        to: Option<SocketAddr>,
    ) -> Answer<usize> {
        let inner = lock(&self.inner);
        let at_once = inner.options.nonblocking || wish.flags & MSG_DONTWAIT != 0;
        let until = inner.options.sends_until();
        self.wait(inner, until, |inner| {
            let Inner { datagrams, options, .. } = inner;
            let Some(datagrams) = datagrams else { return Some(Err(closed())) };
            match datagrams.send(to, parts, options) {
                Ok(Some(sent)) => Some(Ok(sent)),
                Ok(None) => at_once.then(|| Err(Refused::quiet(libc::EAGAIN))),
                Err(refused) => Some(Err(refused)),
            }
        })
    }

    /// Receives one message; nothing if the program has shut the socket.
    pub(in crate::cm::rs) fn receive_datagram(
        &self,
        wish: Wish,
        parts: &mut Parts<'_>,
    ) -> Answer<Option<Received>> {
        let inner = lock(&self.inner);
        let at_once = inner.options.nonblocking || wish.flags & MSG_DONTWAIT != 0;
        let until = inner.options.receives_until();
        self.wait(inner, until, |inner| {
            let Some(datagrams) = &mut inner.datagrams else { return Some(Err(closed())) };
            match datagrams.receive(parts, wish.flags & MSG_PEEK != 0) {
                Some(received) => Some(Ok(Some(received))),
                None if !datagrams.reads => Some(Ok(None)),
                None => at_once.then(|| Err(Refused::quiet(libc::EAGAIN))),
            }
        })
    }

    /// Ends a datagram socket: what was sent leaves first.
    pub(in crate::cm::rs) fn end_datagrams(&self) {
        if let Some(datagrams) = &lock(&self.inner).datagrams {
            service::strike(datagrams.udp.descriptor());
        }
        let until = now() + PARTING;
        loop {
            let inner = lock(&self.inner);
            let left = self.wait(inner, Some(until), |inner| match &inner.datagrams {
                Some(datagrams) if !datagrams.ports.iter().all(Port::is_quiet) => None,
                _ => Some(Ok(())),
            });
            // A signal does not end the wait: the program has no way to begin it again.
            if !left.is_err_and(|refused| refused.code == libc::EINTR) {
                break;
            }
        }
        let mut inner = lock(&self.inner);
        inner.phase = Phase::Closed;
        let datagrams = inner.datagrams.take();
        inner.ring();
        drop(inner);
        drop(datagrams);
    }
}

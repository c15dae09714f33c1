//! The ends of connections.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::{Uncancelled, now};
use ferroce_transport::Time;
use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};

use super::proto::Word;
use super::socket::{Inner, Phase, Socket};
use super::table;
use crate::cm::connect::rdma_disconnect;
use crate::cm::id;
use crate::object::lock;
use crate::refusal::{Answer, Refused, minus_one};

/// How long the end of a connection waits for a peer that takes nothing. An honest one is done much sooner, and one that
/// is gone fails sooner; but a peer may answer for ever that it is not ready to receive.
const PATIENCE: Duration = Duration::from_secs(10);

impl Socket {
    /// Says what is to be said to the peer, when there is room for it. A peer that gives none for too long hears nothing.
    fn say(&self, word: Word, until: Time) {
        let _ = self.to_the_end(until, |inner| match &mut inner.stream {
            Some(stream) if stream.stands => stream.say(word).then_some(()),
            _ => Some(()),
        });
    }

    /// Waits until all that was sent has arrived, or never will. The time begins anew when something has arrived, unless
    /// the program has said how long it may take.
    fn drain(&self, mut until: Time, may_go_on: bool) {
        loop {
            let left = lock(&self.inner).stream.as_ref().map_or(0, |stream| stream.under_way());
            let fewer = self.to_the_end(until, |inner| match &inner.stream {
                Some(stream) if !stream.over && !stream.is_quiet() => {
                    (stream.under_way() < left).then_some(true)
                }
                _ => Some(false),
            });
            match fewer {
                Some(true) if may_go_on => until = now() + PATIENCE,
                Some(true) => {}
                _ => return,
            }
        }
    }

    /// A signal does not end these waits, as the program has no way to begin them again; the time does.
    fn to_the_end<T>(&self, until: Time, mut answer: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        loop {
            let waited = self.wait(lock(&self.inner), Some(until), |inner| answer(inner).map(Ok));
            match waited {
                Ok(answer) => return Some(answer),
                Err(refused) if refused.code == libc::EINTR => {}
                Err(_) => return None,
            }
        }
    }

    fn shut(&self, how: c_int) -> Answer<()> {
        let mut inner = lock(&self.inner);
        if inner.phase == Phase::Listening && how != SHUT_WR {
            inner.phase = Phase::Bound;
            inner.ring();
            return Ok(());
        }
        if inner.phase == Phase::Connecting {
            return Err(Refused::new(libc::ENOTCONN, "the socket is not connected yet"));
        }
        inner.progress();
        if let Some(datagrams) = &mut inner.datagrams {
            datagrams.shut(how)?;
            inner.ring();
            return Ok(());
        }
        let stream = inner.stream()?;
        let (reads, writes) = (stream.reads, stream.writes);
        let word = match (how, reads, writes) {
            (SHUT_RD, ..) if writes => {
                stream.reads = false;
                inner.ring();
                return Ok(());
            }
            (SHUT_WR, true, true) => Word::Shutdown,
            (SHUT_RD | SHUT_WR | SHUT_RDWR, ..) => Word::Disconnect,
            _ => return Err(Refused::invalid(format_args!("shutdown {how}"))),
        };
        stream.shut = true;
        let stands = stream.stands;
        drop(inner);
        if stands {
            // The program's own messages go first: they are posted in order.
            self.say(word, now() + PATIENCE);
        }
        let mut inner = lock(&self.inner);
        if let Some(stream) = &mut inner.stream {
            stream.writes = false;
            if word == Word::Disconnect {
                stream.parts();
            }
        }
        inner.ring();
        Ok(())
    }

    /// Ends the connection: what was sent arrives first.
    pub(super) fn drop_connection(&self) {
        let (linger, phase) = {
            let inner = lock(&self.inner);
            (inner.options.linger, inner.phase)
        };
        if linger != Some(0) && phase == Phase::Connected {
            let given = linger.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            let until = now() + given.unwrap_or(PATIENCE);
            self.say(Word::Disconnect, until);
            self.drain(until, given.is_none());
        }
        self.cut_connection();
    }

    /// Ends the connection at once. The thread of the service waits for no peer, and neither does a listener that ends.
    pub(super) fn cut_connection(&self) {
        let mut inner = lock(&self.inner);
        let accepted = std::mem::take(&mut inner.accepted);
        let was_connected = inner.phase == Phase::Connected;
        inner.phase = Phase::Closed;
        let Inner { id, stream, .. } = &mut *inner;
        let (id, stream) = (id.take(), stream.take());
        inner.ring();
        drop(inner);
        if let Some(id) = id {
            table::strike(id.as_c());
            if was_connected {
                // SAFETY: a call with an id that is alive.
                unsafe { rdma_disconnect(id.as_c()) };
            }
            // First the id: the thread of the service may be taking the queue pair to another state for an event of it.
            let _ = id::destroy(&id);
        }
        drop(stream);
        for waiting in accepted {
            waiting.cut_connection();
        }
    }
}

fn close(socket: &Arc<Socket>) -> Answer<()> {
    if !table::hide(socket) {
        return Err(Refused::new(libc::EBADF, "another thread has closed the socket"));
    }
    if socket.is_datagram {
        socket.end_datagrams();
    } else {
        socket.drop_connection();
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rshutdown", table::find(socket).and_then(|socket| socket.shut(how)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rclose", table::find(socket).and_then(|socket| close(&socket)))
}

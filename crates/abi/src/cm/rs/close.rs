//! The ends of connections.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_device::Uncancelled;
use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};

use super::proto::Word;
use super::socket::{Inner, Phase, Socket};
use super::table;
use crate::cm::connect::rdma_disconnect;
use crate::cm::id;
use crate::object::lock;
use crate::refusal::{Answer, Refused, minus_one};

impl Socket {
    /// Says what is to be said to the peer, when there is room for it.
    fn say(&self, word: Word) -> Answer<()> {
        let inner = lock(&self.inner);
        self.wait(inner, None, |inner| match &mut inner.stream {
            Some(stream) if stream.stands => stream.say(word).then_some(Ok(())),
            _ => Some(Ok(())),
        })
    }

    /// Waits until all that was sent has arrived, or never will.
    fn drain(&self) -> Answer<()> {
        let inner = lock(&self.inner);
        self.wait(inner, None, |inner| match &inner.stream {
            Some(stream) if !stream.over && !stream.is_quiet() => None,
            _ => Some(Ok(())),
        })
    }

    /// A signal does not end these waits: the program has no way to begin them again.
    fn to_the_end(&self, step: impl Fn() -> Answer<()>) {
        while step().is_err_and(|refused| refused.code == libc::EINTR) {}
    }

    fn shut(&self, how: c_int) -> Answer<()> {
        let mut inner = lock(&self.inner);
        if inner.phase == Phase::Listening && how != SHUT_WR {
            inner.phase = Phase::Bound;
            inner.ring();
            return Ok(());
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
            self.to_the_end(|| self.say(word));
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
        let ends_hard = {
            let inner = lock(&self.inner);
            inner.options.linger == Some(0)
        };
        if !ends_hard && lock(&self.inner).phase == Phase::Connected {
            self.to_the_end(|| self.say(Word::Disconnect));
            self.to_the_end(|| self.drain());
        }
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
            drop(stream);
            let _ = id::destroy(&id);
        }
        for waiting in accepted {
            waiting.drop_connection();
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

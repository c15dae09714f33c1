//! What error queues tell of packets that have left, of all sockets of a fabric.

use std::io;
use std::os::fd::RawFd;

use ferroce_sys::epoll::{Epoll, Watch};

use super::super::{PathError, Tiding};
use super::ears::Ears;
use super::error_queue::{ErrorQueue, Told};
use super::outgoing::Outgoing;
use super::senders::Senders;

/// The error queues of all sockets of a fabric, once it follows its packets.
pub(super) struct News {
    set: Epoll,
    queue: ErrorQueue,
    follows: bool,
}

/// The mark of the socket that also receives; others have their port, which is not 0.
pub(super) const MAIN: u16 = 0;

/// Looks at the set in one call, and messages of one socket: what is left waits for the next call.
const LOOKS: usize = 16;
const MESSAGES: usize = 64;

impl News {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { set: Epoll::new()?, queue: ErrorQueue::new(), follows: false })
    }

    /// Readable while there is something to tell.
    pub(super) fn descriptor(&self) -> RawFd {
        self.set.raw()
    }

    /// From now on sockets are followed; whether they were not before.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.follows, true)
    }

    /// Whether sockets are followed.
    pub(super) const fn follows(&self) -> bool {
        self.follows
    }

    /// A socket was opened, or is to be followed.
    pub(super) fn follow(&self, outgoing: &mut Outgoing, mark: u16) -> io::Result<()> {
        self.follow_marked(outgoing, mark.into())
    }

    /// The same with a mark that is no port.
    pub(super) fn follow_marked(&self, outgoing: &mut Outgoing, mark: u64) -> io::Result<()> {
        if !self.follows {
            return Ok(());
        }
        outgoing.hear_of_errors()?;
        self.set.add_marked(outgoing.socket().raw(), Watch::WhileErrors, mark)
    }

    /// Tells what the socket that receives, on this port, those that send, and those that only hear have.
    pub(super) fn tell(
        &mut self,
        main: &mut Outgoing,
        port: u16,
        senders: &mut Senders<Outgoing>,
        ears: &mut Ears,
        tell: &mut dyn FnMut(Tiding<'_>),
    ) {
        for _ in 0..LOOKS {
            let mut found = false;
            for mark in self.set.ready() {
                found |= match u16::try_from(mark) {
                    Ok(mark) => match senders.get_mut(mark) {
                        Some(outgoing) => self.tell_of(outgoing, mark, tell),
                        None => self.tell_of(main, port, tell),
                    },
                    Err(_) => match ears.get_mut(mark) {
                        Some((port, outgoing)) => self.tell_of(outgoing, port, tell),
                        None => false,
                    },
                };
            }
            if !found {
                break;
            }
        }
    }

    /// Tells what one socket has; whether that was anything.
    fn tell_of(
        &mut self,
        outgoing: &mut Outgoing,
        source_port: u16,
        tell: &mut dyn FnMut(Tiding<'_>),
    ) -> bool {
        let mut found = false;
        for _ in 0..MESSAGES {
            let Ok(Some(told)) = self.queue.next(outgoing.socket().raw()) else { break };
            found = true;
            match told {
                Told::Left { number, at } => {
                    if let Some(ticket) = outgoing.ticket(number) {
                        tell(Tiding::Left { ticket, at });
                    }
                }
                Told::SentBack { offender, remote, kind, len } => {
                    let error = PathError { offender, remote, source_port, kind };
                    tell(Tiding::SentBack(error, self.queue.quoted(len)));
                }
                Told::Other => {}
            }
        }
        // What the queue has told would else be told once more, by a call that it does not concern.
        outgoing.socket().forget_error();
        found
    }
}

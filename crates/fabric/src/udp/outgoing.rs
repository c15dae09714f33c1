//! A socket that sends, and the stamps that its packets wait for.

use std::collections::VecDeque;
use std::io;

use super::socket::Socket;

/// A socket that sends, and the stamps that its packets wait for.
#[derive(Debug)]
pub(super) struct Outgoing {
    socket: Socket,
    /// The kernel numbers the packets for which a stamp was asked, from the moment that this is on.
    stamping: bool,
    /// The number that the next of them gets.
    next: u32,
    /// The number of each, and what the engine calls it, oldest first.
    waiting: VecDeque<(u32, u32)>,
    /// A packet was refused after the kernel may have numbered it.
    lost_count: bool,
    hears: bool,
}

/// Stamps that one socket waits for at most; beyond, the oldest is given up.
const MOST: usize = 1024;

/// Times of the kernel's own, with a number and without the packet, for the packets that ask.
const REPORTED: libc::c_uint =
    libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY;

impl Outgoing {
    pub(super) const fn new(socket: Socket) -> Self {
        Self { socket, stamping: false, next: 0, waiting: VecDeque::new(), lost_count: false, hears: false }
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Makes stamps possible; whether they are.
    pub(super) fn can_stamp(&mut self) -> bool {
        if self.lost_count {
            // Numbers begin at 0 again only if they were off.
            self.stamping = false;
            self.lost_count = false;
            let _ = self.report(0);
        }
        if !self.stamping && self.report(REPORTED).is_ok() {
            self.stamping = true;
            self.next = 0;
            self.waiting.clear();
        }
        self.stamping
    }

    /// Has the kernel tell of packets that came back.
    pub(super) fn hear_of_errors(&mut self) -> io::Result<()> {
        self.socket.hear_of_errors()?;
        self.hears = true;
        Ok(())
    }

    /// Whether an error may be about a packet that left long ago.
    pub(super) const fn hears(&self) -> bool {
        self.hears
    }

    /// A packet left that asked for a stamp.
    pub(super) fn stamped(&mut self, ticket: u32) {
        if self.waiting.len() == MOST {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.next, ticket));
        self.next = self.next.wrapping_add(1);
    }

    /// A packet that asked for a stamp was refused: whether the kernel has numbered it is not known.
    pub(super) const fn refused(&mut self) {
        self.lost_count = true;
    }

    /// What the engine calls the packet that the kernel gave this number. Earlier ones may still come: the queue of
    /// one interface does not wait for that of another.
    pub(super) fn ticket(&mut self, number: u32) -> Option<u32> {
        if self.lost_count {
            return None;
        }
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == number)?;
        self.waiting.remove(at).map(|(_, ticket)| ticket)
    }

    fn report(&self, what: libc::c_uint) -> io::Result<()> {
        self.socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, what.cast_signed())
    }
}

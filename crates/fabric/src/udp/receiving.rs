//! System calls into datagrams.

use std::io;
use std::net::IpAddr;

use super::super::{Inbox, Received};
use super::control::Notes;
use super::messages::{BATCH, Messages};
use super::name::Name;
use super::socket::Socket;

/// What receiving needs and keeps from one call to the next.
pub struct Receiving {
    messages: Messages,
    /// The only address that datagrams can come to, if there is one.
    local: Option<IpAddr>,
    /// The name of the last sender, and what it says: most datagrams are from the same.
    sender: Option<(Name, (IpAddr, u16))>,
    /// Calls in a row that brought something.
    streak: u32,
    /// Looks in a row that found nothing.
    idle: u32,
    /// Whether much came the last time.
    busy: bool,
    dropped: u64,
}

/// Slots that are offered when little is expected: preparing more than come costs time in the very
/// moment when a program waits for one packet.
const FEW: usize = 4;

/// Calls in a row that brought something, after which more is expected than one datagram at a time.
const STREAK: u32 = 2;

/// Looks in a row that found nothing, after which it is first asked whether there is anything: that takes
/// less than asking for it, but a packet then takes two calls.
const LONG: u32 = 64;

/// Errors of earlier packets that one call will step over.
const PATIENCE: usize = 16;

impl Receiving {
    /// Makes all the room that will be needed.
    #[must_use]
    pub fn new(local: Option<IpAddr>) -> Self {
        Self { messages: Messages::new(), local, sender: None, streak: 0, idle: 0, busy: false, dropped: 0 }
    }

    /// Receives from a socket of this address from now on.
    pub const fn turn_to(&mut self, local: IpAddr) {
        self.local = Some(local);
    }

    /// Datagrams that came damaged or without their destination.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// As [`receive`](Self::receive); but as long as datagrams come alone, only one is asked for: a call that takes
    /// one is faster than a call that takes many.
    #[inline]
    pub(super) fn receive_next(&mut self, socket: &Socket, inbox: &mut Inbox) -> io::Result<()> {
        inbox.clear();
        // The way of most looks, and so the first one. Nothing came for long, so there is no streak.
        if self.idle >= LONG && socket.is_empty() {
            return Ok(());
        }
        if self.streak >= STREAK || inbox.capacity() == 0 {
            return self.receive(socket, inbox);
        }
        if let Some(slot) = inbox.slots().next() {
            self.messages.incoming(0, slot);
        }
        // SAFETY: a slot was given to the entry just now, and this function alone borrows the inbox.
        match unsafe { self.messages.receive_one(socket.raw(), 0) } {
            Ok(()) => {
                self.streak += 1;
                self.idle = 0;
                // It lies where it belongs, or nowhere.
                match self.judge(0) {
                    Some(received) => inbox.push(received),
                    None => self.dropped += 1,
                }
                inbox.set_full(true);
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                self.streak = 0;
                self.idle = self.idle.saturating_add(1);
                Ok(())
            }
            // Whatever else it is, the long way knows it.
            Err(_) => self.receive(socket, inbox),
        }
    }

    /// Replaces what is in the inbox by what has arrived, without waiting.
    pub fn receive(&mut self, socket: &Socket, inbox: &mut Inbox) -> io::Result<()> {
        inbox.clear();
        let capacity = inbox.capacity();
        let mut seen = 0;
        let mut patience = PATIENCE;
        while seen < capacity {
            let most = if self.busy || seen > 0 { BATCH } else { FEW };
            let offered = most.min(capacity - seen);
            match self.call(socket, inbox, offered) {
                Ok(came) => {
                    seen += came;
                    self.keep(inbox, came);
                    if came < offered {
                        break;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => break,
                    Some(libc::EINTR) => {}
                    Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => return Err(error),
                    // What became of a packet that was sent long ago is not about those that arrive.
                    _ if patience > 0 => patience -= 1,
                    _ => return Err(error),
                },
            }
        }
        // One that came alone is no more than the next look would find.
        self.streak = if seen <= 1 { 0 } else { self.streak.saturating_add(1) };
        self.idle = if seen == 0 { self.idle.saturating_add(1) } else { 0 };
        self.busy = seen > FEW;
        inbox.set_full(seen == capacity);
        Ok(())
    }

    /// Receives into the slots after those in use.
    fn call(&mut self, socket: &Socket, inbox: &mut Inbox, offered: usize) -> io::Result<usize> {
        let used = inbox.len();
        for (at, slot) in inbox.slots().skip(used).take(offered).enumerate() {
            self.messages.incoming(at, slot);
        }
        // SAFETY: a slot was given to each entry just now (`seen` is at least the slots in use, so that
        // `offered` is at most what is left), and this function alone borrows the inbox.
        unsafe { self.messages.receive(socket.raw(), 0..offered) }
    }

    /// Takes what came into the slots after those in use; what is kept moves over what is dropped.
    fn keep(&mut self, inbox: &mut Inbox, came: usize) {
        if came == 1 {
            // It lies where it belongs, or nowhere.
            return match self.judge(0) {
                Some(received) => inbox.push(received),
                None => self.dropped += 1,
            };
        }
        let first = inbox.len();
        for at in 0..came {
            let Some(received) = self.judge(at) else {
                self.dropped += 1;
                continue;
            };
            let (to, from) = (inbox.len(), first + at);
            if to < from {
                let mut slots = inbox.slots();
                if let (Some(to), Some(from)) = (slots.nth(to), slots.nth(from - to - 1)) {
                    to[..received.len].copy_from_slice(&from[..received.len]);
                }
            }
            inbox.push(received);
        }
    }

    /// What is known about a datagram; `None` if too little to judge its ICRC.
    #[inline(always)]
    fn judge(&mut self, at: usize) -> Option<Received> {
        let (len, name, notes) = self.messages.received_from(at)?;
        let source = match &self.sender {
            Some((known, source)) if name.is_same(known) => *source,
            _ => self.sender.insert((*name, name.parse()?)).1,
        };
        let local = notes.local.or(self.local)?;
        let segment = notes.segment.unwrap_or(len).min(len).max(1);
        let Notes { traffic_class, hop_limit, flow_label, stamp, .. } = notes;
        Some(Received { len, segment, source, local, traffic_class, hop_limit, flow_label, stamp })
    }
}

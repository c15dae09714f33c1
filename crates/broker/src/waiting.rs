//! Polling and waiting: where functions of the program are called.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_verbs::time::{Time, now, until};
use ferroce_verbs::{CompletionQueue, Gid, Qpn};

use crate::broker::Broker;
use crate::buffer::{Post, SendBuf};
use crate::conn::Conn;
use crate::datagrams::{Datagram, Recipient};
use crate::error::BrokerError;
use crate::lock;
use crate::peer::Peer;
use crate::receiving::{Callbacks, Change, Message, call};
use crate::sending::{Done, Look};

/// Messages of one peer before it is the turn of others.
const TURN: usize = 64;

/// How long to sleep for room at a peer: it is told by a WRITE into our memory, which wakes no thread.
const FIRST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// How long to look for room before one sleeps, if that has been of use of late. A peer that keeps up tells
/// of room within this time, and to sleep and be woken would take longer.
const LOOK_FOR_ROOM: Duration = Duration::from_micros(100);

/// How long to sleep while another thread hands over what we wait for.
const BESIDE_OTHERS: Duration = Duration::from_millis(5);

impl Broker {
    /// Hands over messages of all peers that have arrived, and tells which members came and went; how many of
    /// both. It never waits. Finding none, it rings all doorbells and lets the device work for a moment.
    ///
    /// The function may post, and poll other peers. The same peer is not handed over twice at a time, so
    /// messages stay in order.
    ///
    /// # Errors
    /// The function panicked; the message counts as taken off.
    pub fn poll_receives(&self, mut each: impl FnMut(Message<'_>)) -> Result<usize, BrokerError> {
        self.receive_all(&mut each)
    }

    /// The same for one peer.
    ///
    /// # Errors
    /// There is no such peer, or the function panicked.
    pub fn poll_receives_from(
        &self,
        peer: u32,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<usize, BrokerError> {
        let found = self.peer(peer)?;
        let mut count = 0;
        for look in [Look::Take, Look::Poll] {
            count = self.receive_from(found, look, &mut each)?.unwrap_or(0);
            if count > 0 {
                break;
            }
            found.flush();
        }
        Ok(count)
    }

    /// Tells what became of work that was posted under a name; how much. It never waits. Finding none, it
    /// rings all doorbells and lets the device work for a moment.
    ///
    /// # Errors
    /// The function panicked; what it was called for counts as told.
    pub fn poll_sends(&self, mut each: impl FnMut(Done)) -> Result<usize, BrokerError> {
        self.reap_all(&mut each)
    }

    /// The same for one peer.
    ///
    /// # Errors
    /// There is no such peer, or the function panicked.
    pub fn poll_sends_to(&self, peer: u32, mut each: impl FnMut(Done)) -> Result<usize, BrokerError> {
        let found = self.peer(peer)?;
        let mut count = 0;
        for look in [Look::Take, Look::Poll] {
            count = reap_from(found, look, &mut each)?;
            if count > 0 {
                break;
            }
            found.flush();
        }
        Ok(count)
    }

    /// [`poll_receives`](Self::poll_receives) that sleeps until there is something, or the time is over; how
    /// much there was.
    ///
    /// # Errors
    /// The function panicked.
    pub fn wait_receives(
        &self,
        timeout: Duration,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<usize, BrokerError> {
        self.sleep_until(timeout, Sleep::RECEIVES, || self.receive_all(&mut each))
    }

    /// [`poll_sends`](Self::poll_sends) that sleeps until there is something, or the time is over; how much
    /// there was.
    ///
    /// # Errors
    /// The function panicked.
    pub fn wait_sends(&self, timeout: Duration, mut each: impl FnMut(Done)) -> Result<usize, BrokerError> {
        self.sleep_until(timeout, Sleep::SENDS, || self.reap_all(&mut each))
    }

    /// Both: sleeps until there are messages, work that is done or changes, or the time is over; how much
    /// there was.
    ///
    /// # Errors
    /// A function panicked.
    pub fn wait(
        &self,
        timeout: Duration,
        mut message: impl FnMut(Message<'_>),
        mut done: impl FnMut(Done),
    ) -> Result<usize, BrokerError> {
        let both = Sleep { receives: true, sends: true, datagrams: false };
        self.sleep_until(timeout, both, || Ok(self.receive_all(&mut message)? + self.reap_all(&mut done)?))
    }

    /// [`send_buf`](Self::send_buf) that sleeps until there is room, or the time is over. Within a function
    /// that was called for a message it must not wait for a peer that waits in the same way.
    ///
    /// # Errors
    /// [`BrokerError::TimedOut`], or the peer is not there.
    pub fn wait_send_buf(&self, peer: u32, timeout: Duration) -> Result<SendBuf, BrokerError> {
        self.with_room(peer, timeout, || self.send_buf(peer))
    }

    /// [`send`](Self::send) that sleeps until there is room, or the time is over.
    ///
    /// # Errors
    /// [`BrokerError::TimedOut`], too many bytes, or the peer is not there.
    pub fn wait_send(
        &self,
        peer: u32,
        bytes: &[u8],
        post: Post,
        timeout: Duration,
    ) -> Result<(), BrokerError> {
        self.with_room(peer, timeout, || self.send(peer, bytes, post))
    }

    /// Repeats what would block until there is room, or the time is over.
    ///
    /// # Errors
    /// [`BrokerError::TimedOut`], or what else is in the way.
    pub fn with_room<T>(
        &self,
        peer: u32,
        timeout: Duration,
        mut attempt: impl FnMut() -> Result<T, BrokerError>,
    ) -> Result<T, BrokerError> {
        // Mostly there is room, and the time is not needed.
        let mut full = match attempt() {
            Err(BrokerError::WouldBlock { full, .. }) => full,
            other => return other,
        };
        let begin = now();
        let end = begin + timeout;
        let spin = self.peer(peer).ok().map(|peer| &peer.spin).filter(|spin| spin.looks_first());
        if let Some(spin) = spin {
            let attempted = repeat_until(begin + timeout.min(LOOK_FOR_ROOM), &mut attempt);
            spin.has_looked(attempted.is_some());
            if let Some(attempted) = attempted {
                return attempted;
            }
        }
        let mut nap = FIRST_NAP;
        loop {
            let left = until(end);
            if left.is_zero() {
                return Err(BrokerError::TimedOut { peer, after: timeout, full });
            }
            // What is under way makes room in the ring, which wakes us; room at the peer does not.
            self.sleep_for_sends(peer, nap.min(left));
            nap = (nap * 2).min(LONGEST_NAP);
            match attempt() {
                Err(BrokerError::WouldBlock { full: of, .. }) => full = of,
                other => return other,
            }
        }
    }

    /// Sleeps until work to a peer is done.
    fn sleep_for_sends(&self, peer: u32, limit: Duration) {
        let conn = self.peer(peer).ok().and_then(|peer| lock(&peer.sending).conn().cloned());
        CompletionQueue::sleep_for_any(conn.iter().map(|conn| &conn.send_queue), limit, |_| true);
    }

    /// Waits until all that was posted has arrived, says goodbye to all members, and waits until they have
    /// heard it.
    ///
    /// # Errors
    /// A member that has not acknowledged everything when the time is over. The broker has left then too.
    pub fn leave(&self, timeout: Duration) -> Result<(), BrokerError> {
        let end = now() + timeout;
        self.flush_all();
        let mut late = None;
        for peer in &self.inner.common.peers {
            if let Err(error) = self.settle(peer, end, timeout) {
                late = Some(error);
            }
        }
        for conn in self.inner.hang_up() {
            // A peer that does not answer has been told often enough.
            let _ = conn.established.wait_disconnected(until(end).min(Duration::from_secs(1)));
        }
        late.map_or(Ok(()), Err)
    }

    /// Waits until nothing is under way to a peer.
    fn settle(&self, peer: &Peer, end: Time, timeout: Duration) -> Result<(), BrokerError> {
        loop {
            let mut sending = lock(&peer.sending);
            sending.ring_doorbell();
            sending.reap(Look::Poll);
            if sending.is_settled() || sending.working().is_err() {
                return Ok(());
            }
            drop(sending);
            let left = until(end);
            if left.is_zero() {
                let full = crate::Full::Ring { ring: self.inner.common.party.settings.ring };
                return Err(BrokerError::TimedOut { peer: peer.member.id, after: timeout, full });
            }
            self.sleep_for_sends(peer.member.id, left.min(BESIDE_OTHERS));
        }
    }

    /// Sends one datagram to every member that is there: up to [`max_datagram`](Self::max_datagram) bytes,
    /// quick, and without a promise that any arrive.
    ///
    /// # Errors
    /// Too many bytes, or [`BrokerError::WouldBlock`]; both name ourselves.
    pub fn broadcast(&self, bytes: &[u8], imm: Option<u32>) -> Result<(), BrokerError> {
        let recipient = |peer: &Arc<Peer>| {
            let sending = lock(&peer.sending);
            let conn = sending.working().ok()?;
            Some(Recipient::of(peer.member.id, conn))
        };
        let to: Vec<_> = self.inner.common.peers.iter().filter_map(recipient).collect();
        self.inner.datagrams.send(&to, bytes, imm, self.me())
    }

    /// Bytes of the longest datagram.
    #[must_use]
    pub fn max_datagram(&self) -> usize {
        self.inner.datagrams.longest()
    }

    /// Hands over datagrams of members that have arrived; how many. It never waits.
    ///
    /// # Errors
    /// The function panicked.
    pub fn poll_datagrams(&self, mut each: impl FnMut(Datagram)) -> Result<usize, BrokerError> {
        self.datagrams(Look::Poll, &mut each)
    }

    /// The same, but sleeps until there is one, or the time is over.
    ///
    /// # Errors
    /// The function panicked.
    pub fn wait_datagrams(
        &self,
        timeout: Duration,
        mut each: impl FnMut(Datagram),
    ) -> Result<usize, BrokerError> {
        let sleep = Sleep { datagrams: true, ..Sleep::default() };
        self.sleep_until(timeout, sleep, || self.datagrams(Look::Poll, &mut each))
    }

    /// Datagrams that did not come from a member of the mesh, and were dropped.
    #[must_use]
    pub fn strange_datagrams(&self) -> u64 {
        self.inner.datagrams.strangers()
    }

    fn datagrams(&self, look: Look, each: &mut dyn FnMut(Datagram)) -> Result<usize, BrokerError> {
        let sender = |gid: Gid, qpn: Qpn| {
            let is_it = |peer: &&Arc<Peer>| {
                let sending = lock(&peer.sending);
                let from = sending.working().ok().map(|conn| Recipient::of(peer.member.id, conn));
                from.is_some_and(|from| from.gid == gid && from.qpn == qpn)
            };
            self.inner.common.peers.iter().find(is_it).map(|peer| peer.member.id)
        };
        self.inner.datagrams.poll(look, sender, each)
    }

    /// Messages of all peers.
    fn receive_all(&self, each: &mut dyn FnMut(Message<'_>)) -> Result<usize, BrokerError> {
        let peers = &self.inner.common.peers;
        let start = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let rotated = (0..peers.len()).map(|step| &peers[start.wrapping_add(step) % peers.len()]);
        let mut count = 0;
        for may_turn in [false, true] {
            // One look at one queue lets the device work for all.
            let mut has_turned = false;
            for peer in rotated.clone() {
                let look = if may_turn && !has_turned { Look::Poll } else { Look::Take };
                let found = self.receive_from(peer, look, each)?;
                count += found.unwrap_or(0);
                has_turned |= found == Some(0) && look == Look::Poll && peer.has_conn();
            }
            if count > 0 {
                break;
            }
            self.flush_all();
        }
        Ok(count)
    }

    /// Messages of one peer; nothing if another thread hands them over.
    fn receive_from(
        &self,
        peer: &Peer,
        look: Look,
        each: &mut dyn FnMut(Message<'_>),
    ) -> Result<Option<usize>, BrokerError> {
        let Ok(mut receiving) = peer.receiving.try_lock() else { return Ok(None) };
        let change = |change: &Change| (self.inner.on_change)(self, change);
        let mut callbacks = Callbacks { message: each, change: &change };
        receiving.hand_over(peer, look, TURN, &mut callbacks).map(Some)
    }

    /// Work of all peers that is done.
    fn reap_all(&self, each: &mut dyn FnMut(Done)) -> Result<usize, BrokerError> {
        let mut count = 0;
        for may_turn in [false, true] {
            let mut has_turned = false;
            for peer in &self.inner.common.peers {
                let look = if may_turn && !has_turned { Look::Poll } else { Look::Take };
                count += reap_from(peer, look, each)?;
                has_turned |= look == Look::Poll && peer.has_conn();
            }
            if count > 0 {
                break;
            }
            self.flush_all();
        }
        Ok(count)
    }

    /// Looks until something is found, sleeping in between.
    fn sleep_until(
        &self,
        timeout: Duration,
        sleep: Sleep,
        mut look: impl FnMut() -> Result<usize, BrokerError>,
    ) -> Result<usize, BrokerError> {
        // If something is found at once, the time is not needed.
        let found = look()?;
        if found > 0 {
            return Ok(found);
        }
        let end = now() + timeout;
        let common = &self.inner.common;
        loop {
            let news = common.news_so_far();
            let found = look()?;
            let left = until(end);
            if found > 0 || left.is_zero() {
                return Ok(found);
            }
            let (conns, beside_others) = self.conns_for(sleep);
            let datagrams = sleep.datagrams.then(|| self.inner.datagrams.receive_queue());
            let queues = conns.iter().flat_map(|(conn, sends)| {
                [sleep.receives.then_some(&conn.receive_queue), sends.then_some(&conn.send_queue)]
            });
            let queues = queues.chain([datagrams]).flatten();
            let limit = if beside_others { left.min(BESIDE_OTHERS) } else { left };
            CompletionQueue::sleep_for_any(queues, limit, |waker| {
                common.wake_on_news(waker);
                common.news_so_far() == news
            });
        }
    }

    /// The connections to sleep for, each with whether its sends matter; and whether another thread is
    /// handing over messages, so that some are missing.
    fn conns_for(&self, sleep: Sleep) -> (Vec<(Arc<Conn>, bool)>, bool) {
        let mut beside_others = false;
        let mut conns = Vec::new();
        for peer in &self.inner.common.peers {
            if !sleep.receives {
                conns.extend(lock(&peer.sending).conn().map(|conn| (Arc::clone(conn), sleep.sends)));
                continue;
            }
            match peer.receiving.try_lock() {
                Ok(receiving) => conns.extend(
                    receiving.sleeps_for().map(|(conn, untold)| (Arc::clone(conn), untold || sleep.sends)),
                ),
                Err(_) => beside_others = true,
            }
        }
        (conns, beside_others)
    }
}

/// Repeats what would block until it does not, for a moment.
fn repeat_until<T>(
    end: Time,
    mut attempt: impl FnMut() -> Result<T, BrokerError>,
) -> Option<Result<T, BrokerError>> {
    while now() < end {
        match attempt() {
            Err(BrokerError::WouldBlock { .. }) => std::hint::spin_loop(),
            other => return Some(other),
        }
    }
    None
}

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug, Default)]
struct Sleep {
    receives: bool,
    sends: bool,
    datagrams: bool,
}

impl Sleep {
    const RECEIVES: Self = Self { receives: true, sends: false, datagrams: false };
    const SENDS: Self = Self { receives: false, sends: true, datagrams: false };
}

/// Work of one peer that is done; how much.
fn reap_from(peer: &Peer, look: Look, each: &mut dyn FnMut(Done)) -> Result<usize, BrokerError> {
    let mut sending = lock(&peer.sending);
    sending.reap(look);
    let mut count = 0;
    while let Some(done) = sending.next_done() {
        drop(sending);
        count += 1;
        call(peer.member.id, || each(done))?;
        sending = lock(&peer.sending);
    }
    Ok(count)
}

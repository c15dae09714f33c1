//! The broker: one member's side of the mesh.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_verbs::{
    AccessError, Context, Counters, MemoryRegion, ProtectionDomain, RemoteRegion, RemoteSlice,
};

use crate::buffer::{At, Piece, Post, SendBuf};
use crate::builder::Builder;
use crate::conn::Conn;
use crate::datagrams::Datagrams;
use crate::error::{Absent, BrokerError, MemberRefusal, StartError};
use crate::hello::Exposed;
use crate::keeper::{Common, Keeper};
use crate::lock;
use crate::members::{Member, Members};
use crate::peer::Peer;
use crate::receiving::Change;
use crate::refusals::Refusals;
use crate::sending::{Memory, Operation};

/// Bytes of a message up to which it costs less to copy them while others wait than to take the lock again.
const SMALL: usize = 4096;

/// A function that is told which members come and go.
pub(crate) type OnChange = dyn Fn(&Broker, &Change) + Send + Sync;

/// One member's side of a mesh. Clones are the same broker; it may be shared between threads, or each thread
/// has its own (see [`Builder::lane`]).
///
/// When the last clone is dropped, the member leaves at once: the others learn it, and what is under way may
/// be lost. [`leave`](Self::leave) waits until it has arrived.
#[derive(Clone)]
pub struct Broker {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) common: Arc<Common>,
    pub(crate) datagrams: Datagrams,
    pub(crate) on_change: Box<OnChange>,
    /// Where the next look at all peers begins.
    pub(crate) turn: AtomicUsize,
    keeper: Mutex<Keeper>,
}

/// What is known of a member now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub member: Member,
    /// Which life of it is connected; none if it is not there.
    pub incarnation: Option<u64>,
    /// How often work for it has been handed to the device.
    pub doorbells: u64,
    /// What came of the last attempt to meet it, or of the last request in its name, if it failed.
    pub refusal: Option<MemberRefusal>,
}

impl Broker {
    /// A broker for the member with this number.
    pub fn builder(me: u32, members: Members) -> Builder {
        Builder::new(me, members)
    }

    pub(crate) fn new(
        common: Arc<Common>,
        keeper: Keeper,
        datagrams: Datagrams,
        on_change: Box<OnChange>,
    ) -> Self {
        let (turn, keeper) = (AtomicUsize::new(0), Mutex::new(keeper));
        Self { inner: Arc::new(Inner { common, datagrams, on_change, turn, keeper }) }
    }

    /// Our own number.
    #[must_use]
    pub fn me(&self) -> u32 {
        self.inner.common.party.settings.me.id
    }

    /// Which life of ours this is, as others know it.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.common.party.incarnation
    }

    /// All members of the mesh.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.inner.common.party.members
    }

    /// The numbers of all members but ourselves, in order.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        self.inner.common.peers.iter().map(|peer| peer.member.id)
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.common.party.context
    }

    /// The protection domain: memory for work must be registered in it.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.inner.common.party.domain
    }

    /// Bytes of the longest message.
    #[must_use]
    pub fn max_message(&self) -> usize {
        self.inner.common.party.settings.max_message as usize
    }

    /// What we expose under a number.
    #[must_use]
    pub fn region(&self, id: u32) -> Option<&Arc<MemoryRegion>> {
        self.inner.common.party.exposed.iter().find(|(known, _)| *known == id).map(|(_, region)| region)
    }

    /// What a peer exposes under a number.
    ///
    /// # Errors
    /// It is not there, or exposes nothing under this number.
    pub fn remote(&self, peer: u32, region: u32) -> Result<Exposed, BrokerError> {
        let found = self.peer(peer)?;
        let sending = lock(&found.sending);
        let conn = sending.working()?;
        find_region(conn, region).ok_or(BrokerError::UnknownRegion { peer, region })
    }

    /// Whether a peer is connected now, as far as is known.
    #[must_use]
    pub fn is_connected(&self, peer: u32) -> bool {
        self.peer(peer).is_ok_and(|peer| lock(&peer.sending).working().is_ok())
    }

    /// What happened on the connection to a peer so far.
    ///
    /// # Errors
    /// It is not there.
    pub fn counters(&self, peer: u32) -> Result<Counters, BrokerError> {
        let found = self.peer(peer)?;
        let sending = lock(&found.sending);
        Ok(sending.working()?.qp.counters())
    }

    /// What is known of all peers now.
    #[must_use]
    pub fn status(&self) -> Vec<MemberStatus> {
        let status = |peer: &Arc<Peer>| {
            let sending = lock(&peer.sending);
            MemberStatus {
                member: peer.member,
                incarnation: sending.working().ok().map(|conn| conn.incarnation),
                doorbells: sending.doorbells(),
                refusal: peer.refusal(),
            }
        };
        self.inner.common.peers.iter().map(status).collect()
    }

    /// How often a connection did not come about since the broker began, by reason: attempts of this member,
    /// and requests of members and strangers.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        *lock(&self.inner.common.refusals)
    }

    /// A buffer for one message to a peer: in registered memory, with a place in the ring and room at the
    /// peer.
    ///
    /// # Errors
    /// [`BrokerError::WouldBlock`] if there is no room now; the peer is not there.
    pub fn send_buf(&self, peer: u32) -> Result<SendBuf, BrokerError> {
        let found = self.peer(peer)?;
        let mut sending = lock(&found.sending);
        let (connection, slot) = sending.reserve_slot()?;
        drop(sending);
        let capacity = self.max_message();
        Ok(SendBuf { peer: Arc::clone(found), slot, connection, capacity, len: 0, posted: false })
    }

    /// Posts a message that was written into a buffer.
    ///
    /// # Errors
    /// The peer is gone since.
    pub fn post_send(&self, mut buf: SendBuf, post: Post) -> Result<(), BrokerError> {
        let peer = Arc::clone(&buf.peer);
        let mut sending = lock(&peer.sending);
        let why = match sending.working() {
            Err(gone) => Some(gone),
            // It was for an earlier connection, which has ended.
            Ok(_) if sending.connection() != buf.connection => {
                Some(BrokerError::Gone { peer: peer.member.id, why: crate::Why::CameBack })
            }
            Ok(_) => None,
        };
        if let Some(gone) = why {
            // The buffer gives back what it has, for which it takes the lock.
            drop(sending);
            return Err(gone);
        }
        buf.posted = true;
        let memory = Memory::Slot { slot: buf.slot, len: buf.len };
        sending.gather(Operation::Send, memory, post);
        peer.has_gathered.store(sending.has_gathered(), Ordering::Release);
        Ok(())
    }

    /// Posts a message: the same in one step, with a copy of these bytes.
    ///
    /// # Errors
    /// [`BrokerError::WouldBlock`] if there is no room now; too many bytes; the peer is not there.
    pub fn send(&self, peer: u32, bytes: &[u8], post: Post) -> Result<(), BrokerError> {
        self.check_message(peer, bytes.len())?;
        if bytes.len() > SMALL {
            let mut buf = self.send_buf(peer)?;
            buf.append(bytes)?;
            return self.post_send(buf, post);
        }
        let found = self.peer(peer)?;
        let mut sending = lock(&found.sending);
        let (connection, slot) = sending.reserve_slot()?;
        if let Err(error) = found.slots.write(slot, 0, bytes) {
            sending.give_up(connection, slot);
            return Err(error.into());
        }
        sending.gather(Operation::Send, Memory::Slot { slot, len: bytes.len() }, post);
        found.has_gathered.store(sending.has_gathered(), Ordering::Release);
        Ok(())
    }

    /// Posts a message from memory of our own, without a copy. The memory is held until it is done.
    ///
    /// # Errors
    /// [`BrokerError::WouldBlock`] if there is no room now; too many bytes; the peer is not there.
    pub fn post_send_from(&self, peer: u32, from: impl Into<Piece>, post: Post) -> Result<(), BrokerError> {
        let from = from.into();
        self.check_message(peer, from.len())?;
        self.post(peer, from, post, true, |_| Ok(Operation::Send))
    }

    /// Posts a WRITE of our memory into a peer's. With immediate data the peer's program is told.
    ///
    /// # Errors
    /// [`BrokerError::WouldBlock`] if there is no room now; the place is not in the peer's region; the peer
    /// is not there.
    pub fn post_write(
        &self,
        peer: u32,
        from: impl Into<Piece>,
        to: impl Into<At>,
        post: Post,
    ) -> Result<(), BrokerError> {
        let (from, to) = (from.into(), to.into());
        let len = from.len() as u64;
        self.post(peer, from, post, post.imm.is_some(), |conn| {
            Ok(Operation::Write(resolve(peer, conn, to, len)?))
        })
    }

    /// Posts a READ of a peer's memory into ours.
    ///
    /// # Errors
    /// [`BrokerError::WouldBlock`] if there is no room now; the place is not in the peer's region; the peer
    /// is not there.
    pub fn post_read(
        &self,
        peer: u32,
        into: impl Into<Piece>,
        from: impl Into<At>,
        post: Post,
    ) -> Result<(), BrokerError> {
        let (into, from) = (into.into(), from.into());
        let len = into.len() as u64;
        without_imm(post)?;
        self.post(peer, into, post, false, |conn| Ok(Operation::Read(resolve(peer, conn, from, len)?)))
    }

    /// Posts an atomic: stores `swap` into eight bytes of a peer if `compare` is there. What was there comes
    /// into our eight bytes, as a number of this machine.
    ///
    /// # Errors
    /// As for [`post_read`](Self::post_read); our piece must have eight bytes.
    pub fn compare_swap(
        &self,
        peer: u32,
        before: impl Into<Piece>,
        at: impl Into<At>,
        (compare, swap): (u64, u64),
        post: Post,
    ) -> Result<(), BrokerError> {
        let (before, at) = (before.into(), at.into());
        check_atomic(&before, post)?;
        self.post(peer, before, post, false, |conn| {
            Ok(Operation::CompareSwap { at: resolve(peer, conn, at, 8)?, compare, swap })
        })
    }

    /// Posts an atomic: adds to eight bytes of a peer. What was there comes into our eight bytes, as a number
    /// of this machine.
    ///
    /// # Errors
    /// As for [`post_read`](Self::post_read); our piece must have eight bytes.
    pub fn fetch_add(
        &self,
        peer: u32,
        before: impl Into<Piece>,
        at: impl Into<At>,
        add: u64,
        post: Post,
    ) -> Result<(), BrokerError> {
        let (before, at) = (before.into(), at.into());
        check_atomic(&before, post)?;
        self.post(peer, before, post, false, |conn| {
            Ok(Operation::FetchAdd { at: resolve(peer, conn, at, 8)?, add })
        })
    }

    fn post(
        &self,
        peer: u32,
        piece: Piece,
        post: Post,
        takes_room: bool,
        operation: impl FnOnce(&Conn) -> Result<Operation, BrokerError>,
    ) -> Result<(), BrokerError> {
        piece.check()?;
        let found = self.peer(peer)?;
        let mut sending = lock(&found.sending);
        let operation = operation(sending.working()?)?;
        sending.reserve(takes_room)?;
        sending.gather(operation, Memory::Piece(piece), post);
        found.has_gathered.store(sending.has_gathered(), Ordering::Release);
        Ok(())
    }

    /// Hands all that is gathered for a peer to the device, with one doorbell.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn flush(&self, peer: u32) -> Result<(), BrokerError> {
        self.peer(peer)?.flush();
        Ok(())
    }

    /// The same for all peers.
    pub fn flush_all(&self) {
        self.inner.common.peers.iter().for_each(|peer| peer.flush());
    }

    /// Waits until all other members are there.
    ///
    /// # Errors
    /// The member that does not fit, or the members that are missing then and why.
    pub fn wait_for_all(&self, timeout: Duration) -> Result<(), StartError> {
        let common = &self.inner.common;
        let me = common.party.settings.me;
        let waited = common.news.wait(Some(timeout), |_| {
            let misfit = common.peers.iter().find_map(|peer| Some((peer.member, Box::new(peer.misfit()?))));
            if let Some((member, refusal)) = misfit {
                return Some(Err(StartError::Refused { me, member, refusal }));
            }
            common.peers.iter().all(|peer| peer.is_there()).then_some(Ok(()))
        });
        let missing = || {
            let missing = common.peers.iter().filter(|peer| !peer.is_there());
            let absent = |peer: &Arc<Peer>| Absent { member: peer.member, refusal: peer.refusal() };
            let missing = missing.map(absent).collect();
            Err(StartError::Missing { me, after: timeout, missing })
        };
        waited.unwrap_or_else(missing)?;
        for peer in &common.peers {
            // A thread that has the lock does this as well.
            if let Ok(mut receiving) = peer.receiving.try_lock() {
                receiving.adopt(peer);
            }
        }
        Ok(())
    }

    /// The other member with this number.
    pub(crate) fn peer(&self, id: u32) -> Result<&Arc<Peer>, BrokerError> {
        let peers = &self.inner.common.peers;
        // They are in the order of their numbers.
        match peers.binary_search_by_key(&id, |peer| peer.member.id) {
            Ok(place) => Ok(&peers[place]),
            Err(_) if id == self.me() => Err(BrokerError::Myself { me: id }),
            Err(_) => Err(BrokerError::UnknownPeer { peer: id }),
        }
    }

    fn check_message(&self, peer: u32, given: usize) -> Result<(), BrokerError> {
        match self.max_message() {
            allowed if given > allowed => Err(BrokerError::TooLong { peer, given, allowed }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broker(member {} of {})", self.me(), self.members())
    }
}

impl Inner {
    /// Ends the keeper and all connections.
    pub(crate) fn hang_up(&self) -> Vec<Arc<Conn>> {
        lock(&self.keeper).stop();
        let mut ended = Vec::new();
        for peer in &self.common.peers {
            let current = lock(&peer.sending).conn().cloned();
            for conn in current.into_iter().chain(peer.take_next()) {
                conn.end(crate::Why::LeftHere);
                ended.push(conn);
            }
        }
        self.common.tell_news();
        ended
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for peer in &self.common.peers {
            peer.flush();
        }
        self.hang_up();
    }
}

fn without_imm(post: Post) -> Result<(), BrokerError> {
    if post.imm.is_some() { Err(BrokerError::NoImm) } else { Ok(()) }
}

fn check_atomic(before: &Piece, post: Post) -> Result<(), BrokerError> {
    without_imm(post)?;
    match before.len() {
        8 => Ok(()),
        given => Err(BrokerError::NotEight { given }),
    }
}

impl Piece {
    /// Whether it is inside of its memory.
    fn check(&self) -> Result<(), AccessError> {
        let (start, end, size) = self.range();
        match start <= end && end <= size {
            true => Ok(()),
            false => Err(AccessError::OutOfBounds { offset: start, len: end.saturating_sub(start), size }),
        }
    }
}

fn find_region(conn: &Conn, region: u32) -> Option<Exposed> {
    conn.peer.regions.iter().find(|exposed| exposed.id == region).copied()
}

/// The place in a peer's memory that is meant.
fn resolve(peer: u32, conn: &Conn, at: At, len: u64) -> Result<RemoteSlice, BrokerError> {
    let (region, at, is_address) = match at {
        At::Slice(slice) => return Ok(slice),
        At::Offset { region, offset } => (region, offset, false),
        At::Address { region, address } => (region, address, true),
    };
    let exposed = find_region(conn, region).ok_or(BrokerError::UnknownRegion { peer, region })?;
    let RemoteRegion { address, length: size, .. } = exposed.remote;
    let start = if is_address { address } else { 0 };
    let offset = at.checked_sub(start);
    let end = offset.and_then(|offset| offset.checked_add(len)).filter(|end| *end <= size);
    match (offset, end) {
        (Some(offset), Some(end)) => Ok(exposed.remote.slice(offset..end)),
        _ => Err(BrokerError::OutsideRegion { peer, region, at, len, start, size }),
    }
}

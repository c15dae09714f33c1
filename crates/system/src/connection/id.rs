//! Ids: one end of a connection, or what listens for them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_cabi::cm::{RDMA_PS_TCP, rdma_cm_id};
use ferroce_cabi::ibv_qp_attr;
use ferroce_transport::{Access, AttributeMask, State};
use libc::c_int;

use super::address::{self, Address};
use super::channel::Channel;
use super::event::ConnectionParameters;
use crate::card::text;
use crate::error::CallError;
use crate::events::context_of;
use crate::handle::{Handle, Zero, answered};
use crate::queue_pair::QueuePair;

/// One end of a connection, or what listens for them. Dropping it ends that, and waits for nothing: all its events are
/// acknowledged. The queue pair stays as it is.
pub struct ConnectionId {
    channel: Arc<Channel>,
    c: Handle<rdma_cm_id>,
    number: u32,
}

/// What a program wants otherwise than a connection does, where the connection sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// What the peer may do with regions that allow it.
    pub access: Option<Access>,
    /// The code of how long the peer waits when there is no receive.
    pub min_rnr_timer: Option<u8>,
}

/// The bits of these attributes.
const ACCESS: c_int = AttributeMask::ACCESS_FLAGS.bits().cast_signed();
const MIN_RNR_TIMER: c_int = AttributeMask::MIN_RNR_TIMER.bits().cast_signed();

impl ConnectionId {
    pub(super) fn new(channel: &Arc<Channel>) -> Result<Self, CallError> {
        const CALL: &str = "rdma_create_id";
        channel.c.check(CALL)?;
        let number = channel.number();
        let mut id = std::ptr::null_mut();
        let create = channel.cm.rdma_create_id;
        // SAFETY: a live channel, and a place that lives during the call. The number stands where C programs have a pointer,
        // which only we read.
        let answer = unsafe { create(channel.c.as_ptr(), &raw mut id, context_of(number), RDMA_PS_TCP) };
        answered(CALL, answer)?;
        Ok(Self { channel: Arc::clone(channel), c: Handle::made(CALL, id)?, number })
    }

    /// Takes over an id that came with a request; nothing if there is none.
    ///
    /// # Safety
    /// It is null, or live and of this channel, and nothing else has taken it.
    pub(super) unsafe fn taken(channel: &Arc<Channel>, id: *mut rdma_cm_id) -> Option<Self> {
        let c = Handle::alive(id)?;
        let number = channel.number();
        // SAFETY: the caller vouches for it; the field is the program's.
        unsafe { (*id).context = context_of(number) };
        Some(Self { channel: Arc::clone(channel), c, number })
    }

    /// Its number, by which events name it.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The card and its port that lead to the peer, once they are known: queue pairs have to be of that card.
    #[must_use]
    pub fn card(&self) -> Option<(String, u8)> {
        // SAFETY: a live id. The library fills these fields before it tells the event that they are known by.
        let verbs = unsafe { (*self.c.as_ptr()).verbs };
        if verbs.is_null() {
            return None;
        }
        // SAFETY: as above.
        let port = unsafe { (*self.c.as_ptr()).port_num };
        // SAFETY: the library holds the context open as long as the id.
        let device = unsafe { (*verbs).device };
        // SAFETY: a device lives as long as a context of it, and its name never changes.
        Some((text(unsafe { &(*device).name }), port))
    }

    /// Its own address, once it is bound or its way is known.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        // SAFETY: a live id; the library fills this field before it tells of what is known by it.
        let storage = unsafe { &raw const (*self.c.as_ptr()).route.addr.src_storage };
        // SAFETY: as above.
        unsafe { address::read(storage.cast()) }
    }

    /// The address of the peer, once it is known.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        let storage = unsafe { &raw const (*self.c.as_ptr()).route.addr.dst_storage };
        // SAFETY: as above.
        unsafe { address::read(storage.cast()) }
    }

    /// Gives it an address of this machine; port 0 is any that is free.
    ///
    /// # Errors
    /// The address is not of a card, or is taken.
    pub fn bind(&self, address: SocketAddr) -> Result<(), CallError> {
        self.c.check("rdma_bind_addr")?;
        let address = Address::from(address);
        // SAFETY: a live id, and an address that lives during the call.
        let answer = unsafe { (self.channel.cm.rdma_bind_addr)(self.c.as_ptr(), address.as_ptr()) };
        answered("rdma_bind_addr", answer)
    }

    /// Listens for connections, of which so many may wait to be taken.
    ///
    /// # Errors
    /// It is not bound.
    pub fn listen(&self, backlog: u16) -> Result<(), CallError> {
        self.c.check("rdma_listen")?;
        // SAFETY: a live id.
        let answer = unsafe { (self.channel.cm.rdma_listen)(self.c.as_ptr(), c_int::from(backlog)) };
        answered("rdma_listen", answer)
    }

    /// Looks for the card that leads to a peer, for so long. An event tells the end.
    ///
    /// # Errors
    /// What the library says.
    pub fn resolve_address(&self, peer: SocketAddr, limit: Duration) -> Result<(), CallError> {
        self.c.check("rdma_resolve_addr")?;
        let peer = Address::from(peer);
        let resolve = self.channel.cm.rdma_resolve_addr;
        // SAFETY: a live id, no address of its own, and one of the peer that lives during the call.
        let answer = unsafe { resolve(self.c.as_ptr(), std::ptr::null_mut(), peer.as_ptr(), millis(limit)) };
        answered("rdma_resolve_addr", answer)
    }

    /// Looks for the way to it, for so long. An event tells the end.
    ///
    /// # Errors
    /// What the library says.
    pub fn resolve_route(&self, limit: Duration) -> Result<(), CallError> {
        self.c.check("rdma_resolve_route")?;
        // SAFETY: a live id.
        let answer = unsafe { (self.channel.cm.rdma_resolve_route)(self.c.as_ptr(), millis(limit)) };
        answered("rdma_resolve_route", answer)
    }

    /// Moves a queue pair to INIT, RTR or RTS, with the attributes that this connection wants there.
    ///
    /// # Errors
    /// The library of connections is too old, it does not know them yet, or the queue pair cannot go there.
    pub fn prepare(&self, qp: &QueuePair, state: State) -> Result<(), CallError> {
        self.prepare_with(qp, state, Preparation::default())
    }

    /// The same, but for what the program wants otherwise.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn prepare_with(&self, qp: &QueuePair, state: State, wishes: Preparation) -> Result<(), CallError> {
        const CALL: &str = "rdma_init_qp_attr";
        self.c.check(CALL)?;
        let fill = self.channel.cm.rdma_init_qp_attr.ok_or(CallError::unsupported(CALL))?;
        let (mut attr, mut mask) = (ibv_qp_attr::zero(), 0);
        attr.qp_state = c_int::from(state.code());
        // SAFETY: a live id, and places that live during the call.
        answered(CALL, unsafe { fill(self.c.as_ptr(), &raw mut attr, &raw mut mask) })?;
        if let Some(access) = wishes.access
            && mask & ACCESS != 0
        {
            attr.qp_access_flags = access.bits();
        }
        if let Some(timer) = wishes.min_rnr_timer
            && mask & MIN_RNR_TIMER != 0
        {
            attr.min_rnr_timer = timer;
        }
        qp.modify_as(&mut attr, mask)
    }

    /// Asks the peer for a connection with a queue pair; of what the program says, the peer gets at most 56 bytes. An event
    /// tells the answer.
    ///
    /// # Errors
    /// What the library says.
    pub fn connect(&self, parameters: ConnectionParameters, private_data: &[u8]) -> Result<(), CallError> {
        self.c.check("rdma_connect")?;
        let mut c = parameters.to_c(private_data);
        // SAFETY: a live id, and parameters that live during the call.
        let answer = unsafe { (self.channel.cm.rdma_connect)(self.c.as_ptr(), &raw mut c) };
        answered("rdma_connect", answer)
    }

    /// Accepts the connection that was asked for by this id, with a queue pair that is prepared to RTS.
    ///
    /// # Errors
    /// What the library says.
    pub fn accept(&self, parameters: ConnectionParameters, private_data: &[u8]) -> Result<(), CallError> {
        self.c.check("rdma_accept")?;
        let mut c = parameters.to_c(private_data);
        // SAFETY: a live id, and parameters that live during the call.
        let answer = unsafe { (self.channel.cm.rdma_accept)(self.c.as_ptr(), &raw mut c) };
        answered("rdma_accept", answer)
    }

    /// Rejects the connection that was asked for by this id.
    ///
    /// # Errors
    /// What the library says.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CallError> {
        self.c.check("rdma_reject")?;
        let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        let reject = self.channel.cm.rdma_reject;
        // SAFETY: a live id, and bytes that live during the call.
        answered("rdma_reject", unsafe { reject(self.c.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Says that the queue pair is ready, after the peer's [response](crate::ConnectionEventKind::Response).
    ///
    /// # Errors
    /// The library is too old, or what it says.
    pub fn establish(&self) -> Result<(), CallError> {
        const CALL: &str = "rdma_establish";
        self.c.check(CALL)?;
        let establish = self.channel.cm.rdma_establish.ok_or(CallError::unsupported(CALL))?;
        // SAFETY: a live id.
        answered(CALL, unsafe { establish(self.c.as_ptr()) })
    }

    /// Ends the connection. Events tell both sides.
    ///
    /// # Errors
    /// What the library says.
    pub fn disconnect(&self) -> Result<(), CallError> {
        self.c.check("rdma_disconnect")?;
        // SAFETY: a live id.
        answered("rdma_disconnect", unsafe { (self.channel.cm.rdma_disconnect)(self.c.as_ptr()) })
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({})", self.number)
    }
}

impl Drop for ConnectionId {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // SAFETY: the id is live, nothing holds it any more, and all of its events are acknowledged.
        unsafe { (self.channel.cm.rdma_destroy_id)(self.c.as_ptr()) };
    }
}

fn millis(limit: Duration) -> c_int {
    c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)
}

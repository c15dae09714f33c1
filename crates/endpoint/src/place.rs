//! Where one-sided work goes.

use std::sync::Arc;

use ferroce_verbs::{Access, RemoteRegion, RemoteSlice, Rkey};

use crate::core::Remote;
use crate::error::Error;
use crate::exposed::RemoteMemory;
use crate::hello::Grant;

/// A place in the memory of the peer, for [`write_from`](crate::Connection::write_from),
/// [`read_into`](crate::Connection::read_into) and their friends.
///
/// | made by | names |
/// |---|---|
/// | [`RemoteMemory::at`] | an offset of memory that the peer has opened under a name |
/// | [`Place::raw`], or a [`RemoteRegion`] | an address and a key that the peer has told in some other way |
/// | [`Place::physical`] | an address of the peer's [`PhysicalWindow`](crate::PhysicalWindow) |
///
/// What is known of the place is checked before anything is sent. Of an address and a key nothing is known: if they
/// are wrong, the peer's device refuses, and that ends the connection.
#[derive(Clone, Debug)]
pub struct Place(Target);

#[derive(Clone, Debug)]
enum Target {
    Named(Arc<Remote>, u64),
    Raw { address: u64, rkey: Rkey, room: Option<u64> },
    Physical(u64),
}

impl Place {
    /// An address and the key that opens it.
    #[must_use]
    pub const fn raw(address: u64, rkey: Rkey) -> Self {
        Self(Target::Raw { address, rkey, room: None })
    }

    /// An address of the peer's [`PhysicalWindow`](crate::PhysicalWindow).
    #[must_use]
    pub const fn physical(address: u64) -> Self {
        Self(Target::Physical(address))
    }

    pub(crate) const fn named(remote: Arc<Remote>, offset: u64) -> Self {
        Self(Target::Named(remote, offset))
    }

    /// So many bytes from here, if that is possible; `window` tells what the peer has granted.
    pub(crate) fn part(
        &self,
        len: u64,
        needs: Access,
        window: impl FnOnce() -> Grant,
    ) -> Result<RemoteSlice, Error> {
        match &self.0 {
            Target::Named(remote, offset) => {
                RemoteMemory { remote: Arc::clone(remote) }.part(*offset, len, needs)
            }
            Target::Raw { address, rkey, room } => {
                let (address, rkey, length) = (*address, *rkey, len);
                let room = room.unwrap_or_else(|| (u64::MAX - address).saturating_add(1));
                match len <= room {
                    true => Ok(RemoteRegion { address, length, rkey }.slice(..)),
                    false => Err(Error::OutsidePlace { address, len, room }),
                }
            }
            Target::Physical(address) => physical(window(), *address, len, needs == Access::REMOTE_WRITE),
        }
    }

    /// What must still be open when the work is posted.
    pub(crate) fn remote(&self) -> Option<Arc<Remote>> {
        match &self.0 {
            Target::Named(remote, _) => Some(Arc::clone(remote)),
            Target::Raw { .. } | Target::Physical(_) => None,
        }
    }
}

/// So many bytes of a window, by address.
pub(crate) fn physical(grant: Grant, address: u64, len: u64, write: bool) -> Result<RemoteSlice, Error> {
    let window = match grant {
        Grant::None => return Err(Error::NoWindow),
        Grant::Refused => return Err(Error::WindowRefused),
        Grant::ReadOnly(_) if write => return Err(Error::WindowReadOnly),
        Grant::ReadOnly(window) | Grant::ReadWrite(window) => window,
    };
    let (start, size) = (window.address, window.length);
    let offset = address.checked_sub(start);
    match offset.and_then(|offset| Some((offset, offset.checked_add(len)?))) {
        Some((offset, end)) if end <= size => Ok(window.slice(offset..end)),
        _ => Err(Error::OutsideWindow { address, len, start, size }),
    }
}

impl From<RemoteRegion> for Place {
    fn from(RemoteRegion { address, length, rkey }: RemoteRegion) -> Self {
        Self(Target::Raw { address, rkey, room: Some(length) })
    }
}

impl From<&RemoteMemory> for Place {
    fn from(memory: &RemoteMemory) -> Self {
        memory.at(0)
    }
}

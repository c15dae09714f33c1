//! The sockets of the process, by descriptor and by the id behind them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

use ferroce_cabi::cm::rdma_cm_id;
use ferroce_device::PerProcess;

use super::socket::Socket;
use crate::refusal::{Answer, Refused};

/// A child of a fork begins without any.
#[derive(Default)]
struct Table {
    by_descriptor: RwLock<HashMap<RawFd, Arc<Socket>>>,
    by_id: RwLock<HashMap<usize, Arc<Socket>>>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

fn read<K: Eq + std::hash::Hash>(map: &RwLock<HashMap<K, Arc<Socket>>>, key: &K) -> Option<Arc<Socket>> {
    map.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}

/// The socket of a descriptor, if it is one of ours.
pub(super) fn known(fd: c_int) -> Option<Arc<Socket>> {
    read(&TABLE.get().by_descriptor, &fd)
}

/// The socket of a descriptor.
pub(super) fn find(fd: c_int) -> Answer<Arc<Socket>> {
    known(fd).ok_or_else(|| Refused::new(libc::EBADF, format_args!("descriptor {fd} is no rsocket")))
}

/// The socket that an id is the connection of.
pub(super) fn of_id(id: *mut rdma_cm_id) -> Option<Arc<Socket>> {
    read(&TABLE.get().by_id, &id.addr())
}

/// The program may name it from now on.
pub(super) fn show(socket: &Arc<Socket>) {
    let mut map = TABLE.get().by_descriptor.write().unwrap_or_else(PoisonError::into_inner);
    map.insert(socket.descriptor(), Arc::clone(socket));
}

/// What happens to the id is told to the socket from now on.
pub(super) fn enroll(id: *mut rdma_cm_id, socket: &Arc<Socket>) {
    let mut map = TABLE.get().by_id.write().unwrap_or_else(PoisonError::into_inner);
    map.insert(id.addr(), Arc::clone(socket));
}

pub(super) fn strike(id: *mut rdma_cm_id) {
    TABLE.get().by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&id.addr());
}

/// The program may not name it any more; false if it could not before.
pub(super) fn hide(socket: &Socket) -> bool {
    let mut map = TABLE.get().by_descriptor.write().unwrap_or_else(PoisonError::into_inner);
    map.remove(&socket.descriptor()).is_some()
}

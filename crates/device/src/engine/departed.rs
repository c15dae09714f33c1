//! Connections whose queue pair is gone.

use std::collections::VecDeque;

use ferroce_transport::{DomainId, LastAck, Time};
use ferroce_wire::Qpn;

use super::qps::Way;

/// Connections that are remembered so; the oldest makes room for the next.
pub(super) const REMEMBERED: usize = 128;

/// Reliable connections whose queue pair is gone. The acknowledgement that it sent last may have been lost,
/// and its peer would ask again until it gives up, although everything arrived.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(super) connections: VecDeque<Connection>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) qpn: Qpn,
    pub(super) domain: DomainId,
    pub(super) way: Way,
    pub(super) last: LastAck,
    pub(super) until: Time,
}

impl Departed {
    pub(crate) fn new() -> Self {
        Self { connections: VecDeque::with_capacity(REMEMBERED) }
    }
}

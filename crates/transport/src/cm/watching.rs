//! Connections that stand, and whether their peers still live.
//!
//! A process that is killed says nothing. What reads queue pair 1 in its place answers for it
//! ([`answer_unknown`](super::answer_unknown)), so a peer is asked with a message that such a reader refuses, and that a
//! peer which knows the connection takes for a repetition: an acceptance. It is answered with a confirmation, by the side
//! that asked for the connection because its own was lost, as it seems, and by the other side because a connection that
//! stands is confirmed; the Linux kernel does the same. Silence means nothing: a process that is stopped, and a machine
//! that has much to do, are silent too.

use ferroce_wire::mad::{CmMad, CmMessage, CommId, Rep, Rtu};

use super::connection::{Ends, State};
use super::event::End;
use super::manager::Manager;
use crate::time::Time;

/// A connection that stands and whose peer is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Our name for it.
    pub id: CommId,
    /// The peer's name for it.
    pub peer_id: CommId,
    /// Our address and the peer's.
    pub ends: Ends,
    /// The peer was asked for a sign of life, and has given none since.
    pub is_silent: bool,
}

impl Manager {
    /// The connections that stand and whose peers are watched ([`Patience::watched`](super::Patience)).
    pub fn standing(&self) -> impl Iterator<Item = Standing> {
        let watched = self.connections.iter().filter(|(_, it)| it.patience.watched);
        let standing = watched.filter(|(_, it)| it.state == State::Established);
        standing.map(|(id, it)| Standing {
            id: *id,
            peer_id: it.peer_id,
            ends: it.ends,
            is_silent: it.probed,
        })
    }

    /// Whether the peer of a connection is watched while it stands.
    #[must_use]
    pub fn is_watched(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|it| it.patience.watched)
    }

    /// Asks the peer of a connection that stands for a sign of life. If nothing knows of the connection there, it ends.
    pub fn probe(&mut self, id: CommId) {
        let standing = self.connections.get_mut(&id).filter(|it| it.state == State::Established);
        let Some(connection) = standing else { return };
        connection.probed = true;
        let (local_qpn, remote_comm_id) = (connection.our_qpn, connection.peer_id);
        let rep = match connection.last {
            CmMessage::Rep(rep) => rep,
            _ => Rep { local_comm_id: id, remote_comm_id, local_qpn, ..Rep::default() },
        };
        let (ends, mad) = (connection.ends, CmMad::new(connection.transaction, rep));
        self.send(Some(id), ends, mad);
    }

    /// The peer asks for a sign of life.
    pub(super) fn gives_sign(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let rtu = Rtu { local_comm_id: id, remote_comm_id: connection.peer_id, ..Rtu::default() };
        let (ends, mad) = (connection.ends, CmMad::new(connection.transaction, rtu));
        self.counters.duplicates += 1;
        self.send(Some(id), ends, mad);
    }

    /// The process of the peer is known to be gone: a connection that stands is over, without a word to anything.
    pub fn lost(&mut self, now: Time, id: CommId) {
        if self.is_established(id) {
            self.end(now, id, None, End::Stale);
        }
    }
}

//! Messages on their way to the connection that they are for.

use ferroce_wire::mad::{CmMad, CmMessage, CommId, RejectReason};
use ferroce_wire::{PKey, PKeyTable};

use super::connection::{Ends, State};
use super::manager::Manager;
use super::unknown::answer_unknown;
use crate::time::Time;

impl Manager {
    /// Whether a message in a packet with this P_Key is for us: queue pair 1 takes those of all our partitions
    /// (IBA 10.9.4). What is not is counted.
    pub fn is_of_partition(&mut self, key: PKey) -> bool {
        let is_ours = self.config.pkeys.admits(key);
        self.counters.wrong_pkey += u64::from(!is_ours);
        is_ours
    }

    /// The partitions of the device.
    #[must_use]
    pub const fn pkeys(&self) -> &PKeyTable {
        &self.config.pkeys
    }

    /// Takes in a message that arrived.
    pub fn handle_message(&mut self, now: Time, ends: Ends, mad: &CmMad) {
        self.counters.received += 1;
        match &mad.message {
            CmMessage::Req(req) => self.requested(now, ends, mad, req),
            CmMessage::SidrReq(req) => self.asked(ends, mad, req),
            CmMessage::SidrRep(rep) => self.answered(ends, rep),
            CmMessage::Rej(rej) if rej.remote_comm_id == CommId(0) => self.withdrawn(now, ends, mad),
            CmMessage::Mra(mra) => {
                if let Some(id) = self.known(ends, mad, mra.remote_comm_id, mra.local_comm_id) {
                    self.receipt(now, id, mra);
                }
            }
            CmMessage::Rej(rej) => {
                // A peer that never had a name for it names none.
                let theirs = (rej.local_comm_id != CommId(0)).then_some(rej.local_comm_id);
                let known = self.connections.get(&rej.remote_comm_id).map(|known| known.peer_id);
                let theirs = theirs.or(known).unwrap_or_default();
                if let Some(id) = self.known(ends, mad, rej.remote_comm_id, theirs) {
                    self.rejected(now, id, rej);
                }
            }
            CmMessage::Rep(rep) => {
                if let Some(id) = self.known(ends, mad, rep.remote_comm_id, rep.local_comm_id) {
                    self.replied(now, id, rep);
                }
            }
            CmMessage::Rtu(rtu) => {
                if let Some(id) = self.known(ends, mad, rtu.remote_comm_id, rtu.local_comm_id) {
                    match self.connections.get(&id).map(|connection| connection.state) {
                        Some(State::RepSent) => self.stands(id),
                        Some(State::Established) => self.counters.duplicates += 1,
                        _ => self.counters.unexpected += 1,
                    }
                }
            }
            CmMessage::Dreq(dreq) => {
                if let Some(id) = self.known(ends, mad, dreq.remote_comm_id, dreq.local_comm_id) {
                    self.parted(now, id, ends, mad, dreq);
                }
            }
            CmMessage::Drep(drep) => {
                if let Some(id) = self.known(ends, mad, drep.remote_comm_id, drep.local_comm_id) {
                    self.confirmed(now, id);
                }
            }
        }
    }

    /// The connection that a message names, if it comes from its peer. To what is unknown it is answered.
    fn known(&mut self, ends: Ends, mad: &CmMad, ours: CommId, theirs: CommId) -> Option<CommId> {
        let Some(connection) = self.connections.get_mut(&ours) else {
            self.counters.unknown += 1;
            if let Some(answer) = answer_unknown(mad) {
                self.send(None, ends, answer);
            }
            return None;
        };
        if !connection.is_from_peer(&ends, theirs) {
            self.counters.strangers += 1;
            return None;
        }
        connection.probed = false;
        Some(ours)
    }

    /// A peer gave up a request without ever having heard from us.
    fn withdrawn(&mut self, now: Time, ends: Ends, mad: &CmMad) {
        let CmMessage::Rej(rej) = &mad.message else { return };
        let id = self.requests.get(&(ends.remote, rej.local_comm_id)).copied();
        let connection = id.and_then(|id| Some((id, self.connections.get(&id)?)));
        match connection {
            Some((id, connection)) if connection.ends == ends && rej.reason == RejectReason::TIMEOUT => {
                self.rejected(now, id, rej);
            }
            _ => self.counters.unknown += 1,
        }
    }
}

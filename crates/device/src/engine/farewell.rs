//! Queue pairs that go: what their peers are told before, and for a while after.

use std::time::Duration;

use ferroce_fabric::Path;
use ferroce_transport::Accessor;
use ferroce_wire::{Packet, Qpn};

use super::departed::{Connection, Departed, REMEMBERED};
use super::sender::Sender;
use super::{Engine, qps};

/// Queue pairs of an engine that repeat their last acknowledgement when the process ends.
const MOST: usize = 256;

/// How long a peer is answered that asks again after its queue pair is gone: most have given up by then.
const TIME_WAIT: Duration = Duration::from_secs(10);

impl Engine {
    /// Has the last acknowledgement of a queue pair, or of all of them, sent once more by the next turn that
    /// leaves; false if there is none. Two packets are seldom lost together, and a process that has ended
    /// answers no more.
    pub(crate) fn repeat_acks(&mut self, of: Option<Qpn>) -> bool {
        let indices: Vec<u16> = match of {
            Some(qpn) => vec![qps::index_of(qpn)],
            None => self.qps.iter().map(|entry| qps::index_of(entry.machine.qpn())).take(MOST).collect(),
        };
        let mut any = false;
        for index in indices {
            let Some(entry) = self.qps.by_index(index) else { continue };
            if entry.path.is_some_and(|choice| choice.path != Path::Local) {
                entry.machine.repeat_ack();
                any |= entry.machine.owes_ack();
                self.after(index);
            }
        }
        any
    }

    /// A queue pair is about to be removed: its peer may ask again for a while.
    pub(crate) fn remember(&mut self, qpn: Qpn) {
        let now = self.tables.now;
        let Some(entry) = self.qps.get(qpn) else { return };
        let by_packets = entry.path.is_some_and(|choice| choice.path != Path::Local);
        let (Some(way), Some(last), true) = (entry.way, entry.machine.last_ack(), by_packets) else { return };
        let connections = &mut self.departed.connections;
        let domain = entry.shared.domain;
        if connections.len() == REMEMBERED {
            connections.pop_front();
        }
        connections.push_back(Connection { qpn, domain, way, last, until: now + TIME_WAIT });
    }

    /// Answers a packet for a queue pair that is gone, if it repeats what that had acknowledged; else false.
    #[cold]
    pub(super) fn answer_for_departed(&mut self, sender: &Sender, packet: &Packet<&[u8]>) -> bool {
        let Self { departed: Departed { connections }, tables, port, counters, .. } = self;
        while connections.front().is_some_and(|oldest| oldest.until < tables.now) {
            connections.pop_front();
        }
        let meant = |connection: &&mut Connection| {
            connection.qpn == packet.dest_qp && sender.came_along(&connection.way)
        };
        let Some(connection) = connections.iter_mut().rev().find(meant) else { return false };
        let Some(answer) = connection.last.answer(packet) else { return false };
        let by = Accessor { domain: connection.domain, qpn: connection.qpn };
        port.add(&answer, by, &mut connection.way, tables, counters);
        counters.answered_for_departed += 1;
        true
    }
}

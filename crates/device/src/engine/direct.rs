//! The local path: two queue pairs of one process meet, and work is done without packets.

use ferroce_transport::{Access, Denied, Direct, Sge, Spot};

use super::host::{Tables, View};
use super::qps::{Entry, Tally, index_of};
use super::{Engine, view};
use crate::completion::CqId;
use crate::memory::Place;
use crate::path::Path;

/// Messages of one queue pair before the next has its turn.
const BURST: u32 = 1024;

/// Bytes after which the next has its turn.
const BURST_BYTES: u64 = 4 << 20;

/// The device around two queue pairs of it.
struct Meeting<'a> {
    tables: &'a mut Tables,
    asking: (CqId, CqId),
    asking_tally: &'a mut Tally,
    answering: (CqId, CqId),
    answering_tally: &'a mut Tally,
}

impl Direct for Meeting<'_> {
    type Side<'a>
        = View<'a>
    where
        Self: 'a;

    fn requester(&mut self) -> View<'_> {
        view(self.tables, self.asking.0, self.asking.1, self.asking_tally)
    }

    fn responder(&mut self) -> View<'_> {
        view(self.tables, self.answering.0, self.answering.1, self.answering_tally)
    }

    fn copy(&mut self, from: Spot, to: Spot, len: u32) -> Result<(), Denied> {
        let source = open(self.tables, from, len, false)?;
        let target = open(self.tables, to, len, true)?;
        source.copy_to(&target)
    }
}

fn open(tables: &Tables, spot: Spot, length: u32, write: bool) -> Result<Place<'_>, Denied> {
    match spot {
        Spot::Own(domain, lkey, address) => tables.memory.local(domain, Sge { address, length, lkey }, write),
        Spot::Opened(by, rkey, address) => {
            let access = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
            tables.memory.remote(by, rkey, address, length, access)
        }
    }
}

impl Engine {
    /// Does what a queue pair has posted directly at its peer, as far as that is possible. How many
    /// messages.
    pub(super) fn execute_directly(&mut self, index: u16) -> usize {
        let Some(mut entry) = self.qps.take_out(index) else { return 0 };
        let done = self.meet_peer(&mut entry);
        let peer = entry.peer;
        self.qps.put_back(index, entry);
        if done > 0 {
            self.counters.local_messages += u64::from(done);
            self.note(index_of(peer));
            if self.qps.by_index(index).is_some_and(|entry| entry.machine.sends_waiting() > 0) {
                self.after(index);
            }
        }
        done as usize
    }

    fn meet_peer(&mut self, entry: &mut Entry) -> u32 {
        let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
        let Self { qps, tables, .. } = self;
        let Some(way) = entry.way.as_ref().filter(|_| is_local) else { return 0 };
        let Some(peer) = qps.get(entry.peer) else { return 0 };
        let back = peer
            .way
            .as_ref()
            .is_some_and(|back| back.route.remote == way.route.local && back.route.local == way.route.remote);
        if !back {
            return 0;
        }
        let now = tables.now;
        let mut meeting = Meeting {
            tables,
            asking: (entry.send_cq, entry.receive_cq),
            asking_tally: &mut entry.tally,
            answering: (peer.send_cq, peer.receive_cq),
            answering_tally: &mut peer.tally,
        };
        entry.machine.execute_directly(&mut peer.machine, &mut meeting, now, (BURST, BURST_BYTES))
    }
}

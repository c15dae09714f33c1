//! The local path: two queue pairs of one process meet, and work is done without packets.

use ferroce_fabric::Path;
use ferroce_memory::Opened;
use ferroce_switchboard::slot_of;
use ferroce_transport::{Access, Denied, Direct, QueuePair, SendRequest, Sge, Spot, Time};
use ferroce_wire::{Qpn, Service};

use super::Engine;
use super::host::view;
use super::host::{Tables, View};
use super::qps::{Entry, Tally, index_of};
use crate::completion::CqId;
use crate::engines::{Engines, Station};

/// Messages of one queue pair before the next has its turn.
const BURST: u32 = 1024;

/// Bytes after which the next has its turn.
const BURST_BYTES: u64 = 4 << 20;

/// The device around two queue pairs of it.
struct Meeting<'a> {
    tables: &'a mut Tables,
    /// The tables of the engine of the queue pair that answers, if it is another engine.
    abroad: Option<&'a mut Tables>,
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
        let tables = self.abroad.as_deref_mut().unwrap_or(self.tables);
        view(tables, self.answering.0, self.answering.1, self.answering_tally)
    }

    #[inline(always)]
    fn copy(&mut self, from: Spot, to: Spot, len: u32) -> Result<(), Denied> {
        // A WRITE, and by far the most frequent form: everything about it is known here.
        if let (Spot::Own(domain, lkey, address), Spot::Opened(by, rkey, there)) = (from, to) {
            let memory = &*self.tables.memory;
            let source = memory.local(domain, Sge { address, length: len, lkey }, false)?;
            return memory.write_remote(by, rkey, there, len, |target| source.copy_to(target));
        }
        self.copy_between(from, to, len)
    }
}

impl Meeting<'_> {
    #[inline(never)]
    fn copy_between(&self, from: Spot, to: Spot, len: u32) -> Result<(), Denied> {
        let source = open(self.tables, from, len, false)?;
        let target = open(self.tables, to, len, true)?;
        source.copy_to(&target)
    }
}

fn open(tables: &Tables, spot: Spot, length: u32, write: bool) -> Result<Opened<'_>, Denied> {
    match spot {
        Spot::Own(domain, lkey, address) => {
            tables.memory.local(domain, Sge { address, length, lkey }, write).map(Opened::plain)
        }
        Spot::Opened(by, rkey, address) => {
            let access = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
            tables.memory.remote(by, rkey, address, length, access)
        }
    }
}

impl Engine {
    /// Does what a queue pair has posted directly at its peer, as far as that is possible. How many
    /// messages.
    pub(super) fn execute_directly(&mut self, index: u16, around: &Engines) -> usize {
        let Some(mut entry) = self.qps.take_out(index) else { return 0 };
        let peer = entry.peer;
        let is_here = slot_of(peer) == self.qps.slot();
        let done = match (is_here, around.of(peer)) {
            (false, Some(there)) => self.meet_abroad(&mut entry, there, around),
            _ => {
                let Self { qps, tables, .. } = self;
                qps.get(peer).map_or(0, |peer| meet(&mut entry, peer, tables, None, execute))
            }
        };
        self.qps.put_back(index, entry);
        if done > 0 {
            self.counters.local_messages += u64::from(done);
            if is_here {
                self.note(index_of(peer));
            }
            if self.qps.by_index(index).is_some_and(|entry| entry.machine.sends_waiting() > 0) {
                self.after(index);
            }
        }
        done as usize
    }

    /// Posts send requests and does them at once, as far as the peer is in this engine and nothing speaks
    /// against it. How many; the rest is to be queued.
    pub(super) fn post_directly(&mut self, qpn: Qpn, requests: &[SendRequest<'_>]) -> usize {
        let index = index_of(qpn);
        let is_fit = |entry: &mut Entry| {
            let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
            is_local && slot_of(entry.peer) == slot_of(qpn) && entry.machine.sends_waiting() == 0
        };
        if !self.qps.get(qpn).is_some_and(is_fit) {
            return 0;
        }
        let Some(mut entry) = self.qps.take_out(index) else { return 0 };
        // Should this panic, the engine has lost a queue pair.
        let was_turning = std::mem::replace(&mut self.turning, true);
        let peer = entry.peer;
        let Self { qps, tables, .. } = self;
        let done = qps.get(peer).map_or(0, |peer| {
            meet(&mut entry, peer, tables, None, |one, other, meeting, now| {
                one.post_directly(other, requests, meeting, now, BURST_BYTES)
            })
        });
        entry.counted += done;
        entry.sends_posted += u64::from(done);
        self.qps.put_back(index, entry);
        self.turning = was_turning;
        if done > 0 {
            self.counters.local_messages += u64::from(done);
            self.note(index_of(peer));
        }
        done as usize
    }

    /// Meets a peer in another engine, if that is free: no thread ever waits for one engine inside of
    /// another. If it is not, what is to be done goes there as packets.
    #[inline(never)]
    fn meet_abroad(&mut self, entry: &mut Entry, there: usize, around: &Engines) -> u32 {
        if entry.machine.sends_waiting() == 0 || entry.machine.service() != Service::Rc {
            return 0;
        }
        let Some(mut other) = around.try_enter(there) else { return 0 };
        // If a turn of it has panicked, the thread that turns it next sees to that.
        let done =
            if other.turning { 0 } else { self.meet_in(entry, &mut other, around.station(there), around) };
        let wants = other.turning || other.wants_a_visit();
        if other.leave_ringing() || wants {
            self.errands |= 1 << there;
        }
        done
    }

    fn meet_in(&mut self, entry: &mut Entry, other: &mut Self, station: &Station, around: &Engines) -> u32 {
        // Should this panic, neither of the two can be trusted.
        other.turning = true;
        let (now, wanted) = (self.tables.now.max(other.tables.now), other.timers.next());
        (self.tables.now, other.tables.now) = (now, now);
        if let Some(record) = &mut other.tables.record {
            record.tick();
        }
        // What was posted there, and sent there as packets, comes first.
        other.take_in(station, around);
        let Self { qps, tables, .. } = &mut *other;
        let peer = qps.get(entry.peer);
        let done = peer.map_or(0, |peer| meet(entry, peer, &mut self.tables, Some(tables), execute));
        if done > 0 {
            other.note(index_of(entry.peer));
        }
        other.release_regions();
        other.tables.settle();
        // They are run when this engine was left.
        self.tables.wakes.append(&mut other.tables.wakes);
        other.called_upon |= other.timers.next() != wanted;
        other.turning = false;
        done
    }

    /// Whether the engine was left in a state that a thread has to see to.
    fn wants_a_visit(&mut self) -> bool {
        let called_upon = std::mem::take(&mut self.called_upon);
        called_upon || !self.ready.is_empty() || self.errands != 0 || self.let_go
    }
}

/// Does what was posted.
fn execute(one: &mut QueuePair, other: &mut QueuePair, meeting: &mut Meeting<'_>, now: Time) -> u32 {
    one.execute_directly(other, meeting, now, (BURST, BURST_BYTES))
}

/// Lets one queue pair meet the other, which may be in another engine (`abroad`), if they are connected and
/// the one is to. How many messages that did.
#[inline]
fn meet(
    entry: &mut Entry,
    peer: &mut Entry,
    tables: &mut Tables,
    abroad: Option<&mut Tables>,
    action: impl FnOnce(&mut QueuePair, &mut QueuePair, &mut Meeting<'_>, Time) -> u32,
) -> u32 {
    let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
    let Some(way) = entry.way.as_ref().filter(|_| is_local) else { return 0 };
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
        abroad,
        asking: (entry.send_cq, entry.receive_cq),
        asking_tally: &mut entry.tally,
        answering: (peer.send_cq, peer.receive_cq),
        answering_tally: &mut peer.tally,
    };
    action(&mut entry.machine, &mut peer.machine, &mut meeting, now)
}

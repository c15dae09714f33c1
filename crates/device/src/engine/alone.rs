//! The way of a message that is alone: a program posts it when nothing waits or is under way, as one does that waits for the
//! answer. It goes from the call that posts it to the network without a turn of the engine: a turn looks for all that may be
//! to do, and here it is known that nothing is.
//!
//! What the queue pair does is decided in `transport` ([`QueuePair::post_alone`](ferroce_transport::QueuePair::post_alone)). Here is
//! what a turn does around it, as far as it does anything; whatever is out of the ordinary is left to a turn.

use ferroce_fabric::{Path, Toward};
use ferroce_memory::{Passes, ShortCrc};
use ferroce_progress::Posting;
use ferroce_switchboard::slot_of;
use ferroce_transport::{Accessor, DataSink, PayloadSource, ReceiveRequest, SendFlags, SendRequest};
use ferroce_wire::{Aeth, Bth, DataPacket, Flow, ICRC_LEN, Qpn, Seeds};

use super::Engine;
use super::host::{View, view};
use super::port::compose;
use super::qps::index_of;

/// Bytes of an acknowledgement.
const ACK: usize = Bth::LEN + Aeth::LEN + ICRC_LEN;

/// The longest payload of a message that goes this way.
const LONGEST: usize = 4096;

/// Bytes of the longest run: a packet, and an acknowledgement behind it.
const RUN: usize = LONGEST + 64 + ACK;

impl Engine {
    /// Posts a receive, if it only has to wait for its message. Whether it does; else nothing has changed.
    #[inline(always)]
    pub(crate) fn receive_alone(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> bool {
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.get(qpn).filter(|_| !tables.is_recorded()) else { return false };
        if !entry.machine.post_receive_alone(request) {
            return false;
        }
        entry.counted_receives += 1;
        entry.receives_posted += 1;
        true
    }

    /// Posts a message and sends it, if it is alone; whether it is. Else nothing has changed. The caller has seen that no thread
    /// has rung, and that nothing was left for this engine.
    #[inline(always)]
    pub(crate) fn send_alone(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> bool {
        if !self.is_plain() || self.turning || !self.ready.is_empty() || !self.has_nothing_to_tell() {
            return false;
        }
        let Self { qps, tables, windows, port, counters, gather, timers, .. } = self;
        let Some(entry) = qps.get(qpn) else { return false };
        let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
        if is_local || entry.waiting || windows.is_waited_for(entry.window) {
            return false;
        }
        let by = Accessor { domain: entry.shared.domain, qpn };
        let Some(way) = entry.way.as_mut().filter(|way| way.lane.is_none()) else { return false };
        // Should this panic, the next turn fails all work.
        self.turning = true;
        let now = tables.now;
        let window = windows.get(entry.window);
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let (passes, crc) = (port.passes, port.crc);
        let sent = port.alone(RUN, way).and_then(|(buffer, seeds, way)| {
            let mut run = Run {
                buffer,
                flow: &way.flow,
                seeds,
                by,
                passes,
                crc,
                len: 0,
                packets: 0,
                segment: 0,
                slot: 0,
            };
            let is_sent = entry.machine.post_alone(now, request, window, &mut host, &mut run);
            is_sent.then_some((run.slot, run.segment, run.len, run.packets))
        });
        let Some((slot, segment, len, packets)) = sent else {
            self.turning = false;
            return false;
        };
        let toward = Toward { route: &way.route, slot, is_known: false };
        port.send_alone(toward, (segment, len), packets, counters);
        entry.counted = entry.counted.saturating_add(1);
        entry.sends_posted += 1;
        entry.ack_delay.sent(now);
        timers.schedule(index_of(qpn), entry.machine.poll_timeout(), &mut entry.scheduled);
        if self.gathers {
            let (bytes, is_urgent) = (request.data.bytes(), request.flags.contains(SendFlags::SOLICITED));
            // Nothing is under way: it leaves at once.
            let _ = gather.posted(now, Posting { messages: 1, bytes, under_way: 0, is_urgent });
        }
        gather.left();
        self.turning = false;
        true
    }
}

/// A message on its way out, and the acknowledgement behind it: a run of its own.
struct Run<'a> {
    buffer: &'a mut [u8],
    flow: &'a Flow,
    seeds: &'a mut Seeds,
    /// Whose memory the payload is.
    by: Accessor,
    passes: Passes,
    crc: ShortCrc,
    /// Bytes.
    len: usize,
    packets: usize,
    /// Bytes of the first packet.
    segment: usize,
    /// The slot of the queue pair that it is for.
    slot: u8,
}

impl DataSink<View<'_>> for &mut Run<'_> {
    #[inline(always)]
    fn take(&mut self, host: &mut View<'_>, data: &DataPacket, payload: &PayloadSource<'_>) -> bool {
        let len = data.packet_len();
        let is_first = self.packets == 0;
        // An acknowledgement must not be longer than the packet before it, and a long payload is read in a way of its own.
        if is_first && (len < ACK || data.payload > LONGEST || self.passes.folds(data.payload)) {
            return false;
        }
        let Some(buffer) = self.buffer.get_mut(self.len..self.len + len) else { return false };
        let place = u16::from(!is_first);
        if compose(data, payload, self.by, host.tables, buffer).is_none() {
            return false;
        }
        // Cannot fail: every packet has room for a header and an ICRC.
        let seed = self.seeds.of(self.flow, len, place);
        let crc = self.crc;
        let _ = seed.seal_by(buffer, |before, bytes| crc.of(before, bytes));
        if is_first {
            self.segment = len;
            self.slot = slot_of(data.dest_qp);
        }
        self.len += len;
        self.packets += 1;
        true
    }
}

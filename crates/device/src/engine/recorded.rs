//! Where the engine calls its record: posting, packets, what queue pairs wait for.

use std::num::NonZeroU64;

use ferroce_fabric::{Harm, Route};
use ferroce_record::{Ends, PacketFlags, PostedFlags, Refusal, Shade};
use ferroce_transport::{
    Data, Obstacle, PostListError, QueuePair, ReceiveRequest, SendFlags, SendRequest, State,
};
use ferroce_wire::{ICRC_LEN, Kept, Qpn, Role, Service};

use super::Engine;
use super::host::{Tables, view};
use super::qps::{Entry, QpTable};
use super::recording::{Bytes, Recording};
use super::sender::Sender;
use super::watch::Watch;

/// A receive is about to be posted to a queue pair, if that takes it.
#[inline(never)]
pub(super) fn post_receive(tables: &mut Tables, entry: &mut Entry, request: &ReceiveRequest<'_>) {
    let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) else { return };
    let at = record.take_posting();
    let caps = entry.machine.caps();
    let fits = entry.machine.receives_waiting() < caps.max_receive || entry.machine.state() == State::Err;
    if fits && entry.machine.rules().check_receive(request).is_ok() {
        let to = (watch.receives, entry.machine.next_receive());
        record.posted_receive(to, (request.id, request.sges), at, PostedFlags::empty());
    }
}

/// Takes note of what the machine has done: sends that ended, and its state.
#[inline(never)]
pub(super) fn note(tables: &mut Tables, entry: &mut Entry) {
    let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) else { return };
    let (oldest, state) = (entry.machine.oldest_send(), entry.machine.state());
    // Where completions wait for stamps, all sends have one.
    if entry.tally.held.is_none() && watch.sends.has_before(oldest) {
        record.sends_ended(watch, oldest);
    }
    if watch.state != state {
        record.state(watch, state, false);
    }
}

/// A packet comes for a queue pair.
#[inline(never)]
pub(super) fn came(
    tables: &mut Tables,
    entry: &mut Entry,
    (bytes, payload): (&[u8], usize),
    flags: PacketFlags,
) {
    if let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) {
        let headers = bytes.len().saturating_sub(payload.next_multiple_of(4) + ICRC_LEN);
        record.packet_in(watch, Bytes { headers: &bytes[..headers], payload }, flags);
    }
}

/// The addresses of the datagram that came.
#[inline(never)]
pub(super) fn came_from(tables: &mut Tables, entry: &Entry, sender: &Sender) {
    if let Some(record) = tables.record.as_mut().filter(|record| record.has_all()) {
        let (local, remote, port) = (sender.local(), sender.remote, sender.source_port);
        record.push(Ends { qpn: entry.machine.qpn(), local, remote, port });
    }
}

/// The machine has taken a packet in.
#[inline(never)]
pub(super) fn took(tables: &mut Tables, entry: &mut Entry) {
    if let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) {
        record.taken(watch, &entry.machine);
    }
}

impl Engine {
    /// The work that is taken out of the mail next was posted at this time.
    #[inline]
    pub(super) fn note_posting(&mut self, at: Option<NonZeroU64>) {
        if let Some(record) = &mut self.tables.record {
            record.posting = at;
        }
    }

    /// As [`queue_sends`](Self::queue_sends), while it is written down: one after the other, and never done before they
    /// are told of.
    #[inline(never)]
    pub(super) fn queue_sends_recorded(
        &mut self,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostListError> {
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.get(qpn) else { return Ok(()) };
        if !matches!(entry.machine.state(), State::Err | State::Sqe) {
            return queue_at_once(tables, entry, requests);
        }
        // They end at once, and are told of before.
        let rules = entry.machine.rules();
        for (index, request) in requests.iter().enumerate() {
            let machine = &mut entry.machine;
            if let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) {
                let length = rules.check_send(request).map_err(|error| PostListError::new(index, error))?;
                record.tick_at(tables.now);
                let at = record.take_mailed();
                let shade = shade(machine, watch, machine.next_send(), request, length);
                record.posted_send(watch, (shade, length), request, at, reports(machine, request));
            }
            let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
            machine.post_send(request, &mut view).map_err(|error| PostListError::new(index, error))?;
            entry.counted = entry.counted.saturating_add(1);
            entry.sends_posted += 1;
        }
        Ok(())
    }

    /// The device hears of the sends that were posted.
    #[inline(never)]
    pub(super) fn ring_doorbell(&mut self, index: u16) {
        let Self { qps, tables, .. } = self;
        if let Some(entry) = qps.by_index(index)
            && let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch)
        {
            record.doorbell(watch);
        }
    }

    /// A packet has left, or stays in this process.
    #[inline(never)]
    pub(super) fn record_packet(&mut self, index: u16, flags: PacketFlags) {
        let Self { qps, tables, .. } = self;
        let Some(entry) = qps.by_index(index) else { return };
        let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) else { return };
        let Some(copy) = record.leaving.take() else { return };
        let is_repeat = entry.machine.counters().retransmitted > copy.repeats;
        let sent = (entry.machine.oldest_send(), is_repeat);
        let is_told = record.packet_out(watch, copy.bytes(), sent, flags);
        if copy.is_datagram && is_told {
            let Route { local, remote, source_port: port, .. } = copy.route;
            record.push(Ends { qpn: watch.qpn, local, remote, port });
        }
    }

    /// What the queue pair waits for, if its next send cannot leave. Waiting for an answer is what most of them do all the
    /// time, and is not told.
    #[inline(never)]
    pub(super) fn record_wait(&mut self, index: u16) {
        let Self { qps, tables, windows, .. } = self;
        let Some(entry) = qps.by_index(index) else { return };
        let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) else { return };
        if watch.waits.is_none() && entry.machine.has_sent_all() {
            return;
        }
        let waiting = entry.machine.waits(tables.now, windows.get(entry.window));
        record.waits(watch, waiting.filter(|waiting| waiting.obstacle != Obstacle::Answer));
    }

    /// A packet was refused before a queue pair saw it.
    #[inline(never)]
    pub(super) fn record_refusal(
        &mut self,
        bytes: &[u8],
        packet: Option<&ferroce_wire::Packet<&[u8]>>,
        why: Refusal,
    ) {
        let Some(record) = &mut self.tables.record else { return };
        let payload = packet.map_or(0, ferroce_wire::Packet::payload_len);
        let headers = bytes.len().saturating_sub(payload.next_multiple_of(4) + ICRC_LEN).min(128);
        let qpn = packet.map_or(Qpn::SMI, |packet| packet.dest_qp);
        record.refused(qpn, Bytes { headers: &bytes[..headers], payload }, why);
    }

    /// What fault injection has done to packets that were sent.
    #[inline(never)]
    pub(super) fn record_faults(&mut self) {
        let Self { qps, tables, port, .. } = self;
        let Some(record) = &mut tables.record else { return };
        port.fabric.harm(&mut |harm, bytes, len| {
            if let Ok(packet) = ferroce_wire::Packet::parse_kept(bytes, len) {
                let headers = len.saturating_sub(packet.payload_len().next_multiple_of(4) + ICRC_LEN);
                let kept =
                    Bytes { headers: &bytes[..headers.min(bytes.len())], payload: packet.payload_len() };
                harmed(record, qps, harm, &packet, kept);
            }
        });
    }
}

/// Fault injection did something to a packet that had left.
fn harmed(
    record: &mut Recording,
    qps: &mut QpTable,
    harm: Harm,
    packet: &ferroce_wire::Packet<Kept<'_>>,
    bytes: Bytes<'_>,
) {
    let Harm { lost, twice, held, damaged } = harm;
    let mut flags = PacketFlags::OUT;
    flags.set(PacketFlags::TAKEN, lost);
    flags.set(PacketFlags::DOUBLED, twice);
    flags.set(PacketFlags::DELAYED, held);
    flags.set(PacketFlags::DAMAGED, damaged);
    // A packet does not say which queue pair it is from, but for datagrams.
    let is_from = |entry: &&mut Entry| match &packet.body {
        ferroce_wire::Body::Ud(datagram) => datagram.deth.source_qp == entry.machine.qpn(),
        _ => entry.peer == packet.dest_qp && entry.machine.service() != Service::Ud,
    };
    let Some(watch) = qps.iter_mut().find(is_from).and_then(|entry| entry.tally.watch.as_deref_mut()) else {
        return;
    };
    let mut remark = bytes.packet(watch.qpn, flags);
    let is_request = bytes.role() == Some(Role::Request);
    let psn = bytes.psn();
    let work = match watch.service {
        Service::Rc => watch.sends.find(psn).map(|shade| shade.work),
        _ => watch.recent.iter().rev().find(|(known, _)| *known == psn).map(|(_, work)| *work),
    };
    if let Some(work) = work.filter(|_| is_request) {
        remark.work = work;
        remark.flags |= PacketFlags::WORK;
    }
    record.push_packet(bytes, remark);
}

/// What is to be remembered of a send.
fn shade(machine: &QueuePair, watch: &Watch, work: u32, request: &SendRequest<'_>, length: u32) -> Shade {
    let psn = watch.sends.next_psn().unwrap_or_else(|| machine.oldest_psn());
    let packets = machine.packets_of(&request.op, length);
    Shade { work, id: request.id, kind: request.op.kind(), psn, packets }
}

/// Whether a send has a completion in any case.
fn reports(machine: &QueuePair, request: &SendRequest<'_>) -> PostedFlags {
    let is_signaled = machine.signals_all() || request.flags.contains(SendFlags::SIGNALED);
    if is_signaled { PostedFlags::REPORTS } else { PostedFlags::empty() }
}

/// Puts sends into their queue, where nothing happens to them yet, and writes them down.
fn queue_at_once(
    tables: &mut Tables,
    entry: &mut Entry,
    requests: &[SendRequest<'_>],
) -> Result<(), PostListError> {
    let first = entry.machine.next_send();
    let mut view = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
    let posted = entry.machine.post_sends(requests, &mut view);
    let taken = posted.map_or_else(|refused| refused.taken, |()| requests.len());
    entry.counted = entry.counted.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
    entry.sends_posted += taken as u64;
    if let (Some(record), Some(watch)) = (&mut tables.record, &mut entry.tally.watch) {
        record.tick_at(tables.now);
        let mut at = record.take_mailed();
        for (ahead, request) in (0_u32..).zip(&requests[..taken]) {
            let length = match request.data {
                Data::Gather(sges) => sges.iter().fold(0_u32, |sum, sge| sum.wrapping_add(sge.length)),
                Data::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            };
            let shade = shade(&entry.machine, watch, first.wrapping_add(ahead), request, length);
            record.posted_send(watch, (shade, length), request, at.take(), reports(&entry.machine, request));
        }
    }
    posted
}

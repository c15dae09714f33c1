//! What an engine tells of itself: its queue pairs, the queues that they use, and what it has refused.

use ferroce_switchboard::{QpStats, QueueStats, Report, WorkStats};
use ferroce_transport::QpTotals;

use super::Engine;
use super::qps::Entry;
use super::srq_side::PLACE_BITS;
use crate::completion::CqSide;
use crate::counters::DeviceCounters;

impl Engine {
    /// What the engine tells, of at most so many queue pairs and so many other queues of a kind.
    pub(crate) fn report(&self, most: usize) -> Report {
        let mut report = Report {
            totals: work(&self.totals()),
            queue_pairs: u32::try_from(self.qps.count()).unwrap_or(u32::MAX),
            queue_pairs_made: self.qps_made,
            rows: self.qps.iter().take(most).map(|entry| row(entry, self.index)).collect(),
            completion_queues: self.completion_queues().take(most).collect(),
            shared_queues: self.shared_queues().take(most).collect(),
            ..Report::default()
        };
        self.counted().add_to(&mut report.refused);
        report
    }

    /// What the engine has counted, and its network.
    pub(crate) fn counted(&self) -> DeviceCounters {
        DeviceCounters {
            receive_dropped: self.port.fabric.dropped(),
            receive_buffer_full: self.port.fabric.overflowed(),
            ..self.counters
        }
    }

    /// Completion queues that several engines complete into are told by the first of those.
    fn completion_queues(&self) -> impl Iterator<Item = QueueStats> {
        let of_tables = self.tables.cqs.iter().flatten().map(CqSide::shared);
        let ours = of_tables.filter(|shared| shared.engines().trailing_zeros() as usize == self.index);
        ours.map(|shared| QueueStats { id: shared.id.0, level: shared.level(), overrun: shared.is_overrun() })
    }

    fn shared_queues(&self) -> impl Iterator<Item = QueueStats> {
        self.tables.srqs.iter().map(|(place, side)| QueueStats {
            id: u32::try_from(self.index << PLACE_BITS | place).unwrap_or(u32::MAX),
            level: side.level(),
            overrun: false,
        })
    }
}

/// What an engine knows of a queue pair.
fn row(entry: &Entry, engine: usize) -> QpStats {
    let machine = &entry.machine;
    let (send_queue, receive_queue) = entry.levels();
    QpStats {
        qpn: machine.qpn(),
        engine: u8::try_from(engine).unwrap_or(u8::MAX),
        service: machine.service(),
        state: machine.state(),
        path: entry.path.map(|choice| choice.path),
        peer: entry.way.as_ref().map(|way| (entry.peer, way.route.remote)),
        from: entry.way.as_ref().map(|way| (way.route.local, way.route.source_port)),
        completion_queues: (entry.send_cq.0, entry.receive_cq.0),
        shared_queue: entry.shared.shared_queue.map(|queue| queue.0),
        send_queue,
        receive_queue,
        work: work(&entry.totals()),
    }
}

/// What is told of all that was counted.
fn work(totals: &QpTotals) -> WorkStats {
    let counters = &totals.counters;
    WorkStats {
        sends_posted: totals.sends_posted,
        sends_done: totals.sends_done,
        receives_posted: totals.receives_posted,
        completions: totals.completions,
        packets_sent: counters.requests_sent + counters.responses_sent + counters.acks_sent,
        packets_received: counters.requests_received + counters.responses_received,
        direct: counters.direct_requests + counters.direct_responses,
        retransmitted: counters.retransmitted,
        rnr_received: counters.rnr_received,
        rnr_sent: counters.rnr_sent,
        timeouts: counters.timeouts,
        errors: counters.nak_invalid_request_sent
            + counters.nak_remote_access_sent
            + counters.nak_remote_operation_sent
            + counters.nak_fatal_received
            + counters.uc_messages_dropped
            + counters.uc_refused
            + counters.no_receive
            + counters.wrong_qkey
            + counters.wrong_pkey
            + counters.wrong_service,
        waits: counters.window_waits + counters.credit_waits + counters.depth_waits + counters.rate_waits,
    }
}

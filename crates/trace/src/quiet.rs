//! The ends that a record leaves out: a send that ended well and was not signaled has no event of its own, where the end of a
//! later one tells of it.

use std::collections::VecDeque;

use ferroce_record::{
    Completed, CompletedFlags, Event, Posted, PostedFlags, Queue, QueuePair, Stamped, Step, WorkOp,
};
use ferroce_transport::Completion;
use ferroce_wire::Qpn;

use crate::fast::FastMap;

/// Sends of a queue pair that are kept in mind at most: no queue has more.
const MOST: usize = 1 << 17;

/// Adds the ends that a record leaves out.
#[derive(Debug, Default)]
pub(crate) struct QuietEnds {
    open: FastMap<Qpn, VecDeque<Open>>,
    /// What comes before the next event of the record.
    ready: VecDeque<Stamped>,
}

/// A send that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    work: u32,
    id: u64,
    op: WorkOp,
    /// Its end is told in any case; if it is not, that is missing in the record.
    reports: bool,
}

impl QuietEnds {
    /// An event that was left out, if one comes before the next of the record.
    pub(crate) fn pop(&mut self) -> Option<Stamped> {
        self.ready.pop_front()
    }

    /// Takes an event of the record, and gives back what comes first: it, or an end that it tells of.
    pub(crate) fn take(&mut self, stamped: Stamped) -> Stamped {
        match &stamped.event {
            Event::QueuePair(QueuePair { qpn, step: Step::Made | Step::Gone, .. }) => {
                self.open.remove(qpn);
                stamped
            }
            Event::Posted(Posted { queue: Queue::Send(qpn), work, id, op, flags, .. }) => {
                let open = self.open.entry(*qpn).or_default();
                if open.len() == MOST {
                    open.pop_front();
                }
                let reports = flags.contains(PostedFlags::REPORTS);
                open.push_back(Open { work: *work, id: *id, op: *op, reports });
                stamped
            }
            Event::Completed(Completed { queue: Queue::Send(qpn), work, .. }) => {
                self.end(*qpn, *work, &stamped);
                if self.ready.is_empty() {
                    return stamped;
                }
                self.ready.push_back(stamped);
                self.ready.pop_front().unwrap_or(stamped)
            }
            _ => stamped,
        }
    }

    /// This send has ended, and with it all before it.
    fn end(&mut self, qpn: Qpn, work: u32, stamped: &Stamped) {
        let Some(open) = self.open.get_mut(&qpn) else { return };
        let ahead = |of: u32| work.wrapping_sub(of).cast_signed();
        while let Some(Open { work: of, id, op, reports }) = open.pop_front_if(|open| ahead(open.work) >= 0) {
            if of == work || reports {
                continue;
            }
            let completion = Completion { id, kind: op.kind(), qpn, ..Completion::EMPTY };
            let quiet = Completed::of(Queue::Send(qpn), of, &completion, 0);
            let event = Completed { flags: CompletedFlags::QUIET, ..quiet }.into();
            self.ready.push_back(Stamped { event, ..*stamped });
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::{Lkey, Rkey};

    use super::*;

    #[test]
    fn the_end_of_a_send_is_the_end_of_all_before_it() {
        let (qpn, mut quiet) = (Qpn::new(7), QuietEnds::default());
        let queue = Queue::Send(qpn);
        let stamp = |time, event| Stamped { time, ring: 1, number: time, event };
        let first = u32::MAX - 1;
        for number in 0..4 {
            let posted = Posted {
                queue,
                work: first.wrapping_add(number),
                id: number.into(),
                op: WorkOp::Write,
                flags: PostedFlags::empty(),
                pieces: 0,
                length: 0,
                address: 0,
                lkey: Lkey(0),
                remote: 0,
                key: Rkey(0),
                imm: 0,
            };
            let posted = stamp(1, posted.into());
            assert_eq!((quiet.take(posted), quiet.pop()), (posted, None));
        }
        let completion = Completion { id: 2, qpn, ..Completion::EMPTY };
        let end = stamp(9, Completed::of(queue, first.wrapping_add(2), &completion, 3).into());
        let mut told = vec![quiet.take(end)];
        told.extend(std::iter::from_fn(|| quiet.pop()));
        let ends: Vec<(u64, u32, u64, bool)> = told
            .iter()
            .map(|stamped| match stamped.event {
                Event::Completed(it) => {
                    (stamped.time, it.work, it.id, it.flags.contains(CompletedFlags::QUIET))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ends, [(9, u32::MAX - 1, 0, true), (9, u32::MAX, 1, true), (9, 0, 2, false)]);
        assert_eq!((quiet.take(end), quiet.pop()), (end, None), "told twice, it has no others before it");
    }
}

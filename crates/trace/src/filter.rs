//! Which work is looked at.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_record::WorkOp;
use ferroce_transport::Status;
use ferroce_wire::Qpn;

use crate::work::Work;

/// Kinds of operations, as people ask for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// SENDs of all forms.
    Send,
    /// RDMA WRITEs.
    Write,
    /// RDMA READs.
    Read,
    /// Atomics of all forms, and ATOMIC WRITE.
    Atomic,
    /// Binding and invalidating memory windows.
    Window,
    /// Receives.
    Receive,
}

impl OpKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Write, Self::Read, Self::Atomic, Self::Window, Self::Receive];

    /// The kind of an operation.
    #[must_use]
    pub const fn of(op: WorkOp) -> Self {
        match op {
            WorkOp::Send | WorkOp::SendImm | WorkOp::SendInvalidate => Self::Send,
            WorkOp::Write | WorkOp::WriteImm => Self::Write,
            WorkOp::Read => Self::Read,
            WorkOp::LocalInvalidate | WorkOp::BindWindow => Self::Window,
            WorkOp::Receive => Self::Receive,
            WorkOp::CompareSwap
            | WorkOp::FetchAdd
            | WorkOp::AtomicWrite
            | WorkOp::MaskedCompareSwap
            | WorkOp::MaskedFetchAdd => Self::Atomic,
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Window => "window",
            Self::Receive => "receive",
        }
    }
}

/// The short name of a status, as it stands in JSON and on command lines.
#[must_use]
pub const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "local-length",
        Status::LocalQpOperation => "local-qp-operation",
        Status::LocalProtection => "local-protection",
        Status::Flushed => "flushed",
        Status::WindowBind => "window-bind",
        Status::BadResponse => "bad-response",
        Status::LocalAccess => "local-access",
        Status::RemoteInvalidRequest => "remote-invalid-request",
        Status::RemoteAccess => "remote-access",
        Status::RemoteOperation => "remote-operation",
        Status::RetryExceeded => "retry-exceeded",
        Status::RnrRetryExceeded => "rnr-retry-exceeded",
    }
}

/// Which work is looked at: all that every part agrees to. What is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this queue pair.
    pub qpn: Option<Qpn>,
    /// With this name of the program.
    pub id: Option<u64>,
    /// That ended like this.
    pub status: Option<Status>,
    /// Of one of these kinds.
    pub kinds: Vec<OpKind>,
    /// That was not over before this time.
    pub from: Option<u64>,
    /// That was posted before this time, or at it.
    pub to: Option<u64>,
    /// That did not end well, or lost its completion.
    pub only_errors: bool,
}

impl Filter {
    /// Whether this work is looked at.
    #[must_use]
    pub fn wants(&self, work: &Work) -> bool {
        let completed = work.completed.map(|(_, completed)| completed);
        let ended = work.polled_at.or(work.completed.map(|(time, _)| time));
        self.qpn.is_none_or(|wanted| work.qpn() == Some(wanted))
            && self.id.is_none_or(|wanted| work.posted.id == wanted)
            && self.status.is_none_or(|wanted| completed.is_some_and(|completed| completed.status == wanted))
            && (self.kinds.is_empty() || self.kinds.contains(&OpKind::of(work.posted.op)))
            && self.from.is_none_or(|from| ended.is_none_or(|ended| ended >= from))
            && self.to.is_none_or(|to| work.posted_at <= to)
            && (!self.only_errors || work.is_failure())
    }
}

/// Keeps the work that took longest.
#[derive(Debug)]
pub struct Slowest {
    most: usize,
    /// How long, which record, and the place in `works`.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    works: Vec<(usize, Work)>,
}

impl Slowest {
    /// The so many slowest.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, order: BinaryHeap::new(), works: Vec::new() }
    }

    /// Looks at work of a record; what is not over has taken no time yet, and is not kept.
    pub fn add(&mut self, source: usize, work: Work) {
        let Some(took) = work.took() else { return };
        if self.works.len() < self.most {
            self.order.push(Reverse((took, self.works.len())));
            self.works.push((source, work));
        } else if let Some(mut least) = self.order.peek_mut()
            && least.0.0 < took
        {
            let place = least.0.1;
            *least = Reverse((took, place));
            self.works[place] = (source, work);
        }
    }

    /// The slowest, slowest first.
    #[must_use]
    pub fn finish(mut self) -> Vec<(usize, Work)> {
        self.works.sort_by_key(|(_, work)| Reverse(work.took()));
        self.works
    }
}

#[cfg(test)]
mod tests;

//! What one side has posted, and whether what ends and what is written agrees with it.

use std::collections::VecDeque;

use ferroce_transport::{Completion, Sge, Status};

use crate::host::Action;

/// The requests of one side that have not ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    /// A receive of a shared queue may have gone down with a message of a queue pair that was reset.
    receives_may_vanish: bool,
    /// The memory of this side: first address, and one past the last.
    region: (u64, u64),
}

#[derive(Debug)]
struct Posted {
    id: u64,
    /// Whether its end is always told.
    signaled: bool,
    /// Where bytes may come in for it.
    into: Vec<Sge>,
}

impl Ledger {
    pub(super) fn new(region: (u64, u64)) -> Self {
        Self { region, ..Self::default() }
    }

    pub(super) fn post_send(&mut self, id: u64, signaled: bool, into: &[Sge]) {
        self.sends.push_back(Posted { id, signaled, into: into.to_vec() });
    }

    pub(super) fn post_receive(&mut self, id: u64, into: &[Sge]) {
        self.receives.push_back(Posted { id, signaled: true, into: into.to_vec() });
    }

    /// The newest send was not taken.
    pub(super) fn withdraw_send(&mut self) {
        self.sends.pop_back();
    }

    /// The newest receive was not taken.
    pub(super) fn withdraw_receive(&mut self) {
        self.receives.pop_back();
    }

    /// The queue pair was reset: what was posted to it is forgotten.
    pub(super) fn reset(&mut self, shared_receives: bool) {
        self.sends.clear();
        if shared_receives {
            self.receives_may_vanish = true;
        } else {
            self.receives.clear();
        }
    }

    /// Judges one thing that the machine did.
    pub(super) fn judge(&mut self, action: &Action) {
        match action {
            Action::SendDone(completion) => self.end_send(completion),
            Action::ReceiveDone(completion) => self.end_receive(completion),
            Action::WroteLocal { address, len } => self.judge_local(*address, *len),
            Action::WroteRemote { address, len, .. } => self.judge_region(*address, *len),
            Action::Atomic { address, .. } => self.judge_region(*address, 8),
            _ => {}
        }
    }

    fn end_send(&mut self, completion: &Completion) {
        loop {
            let Some(oldest) = self.sends.pop_front() else {
                panic!("{completion:?}: not posted, or ended before");
            };
            if oldest.id == completion.id {
                return;
            }
            assert!(!oldest.signaled, "{completion:?} before the end of {oldest:?}");
        }
    }

    fn end_receive(&mut self, completion: &Completion) {
        loop {
            let Some(oldest) = self.receives.pop_front() else {
                panic!("{completion:?}: not posted, or ended before");
            };
            if oldest.id == completion.id {
                let room: u64 = oldest.into.iter().map(|sge| u64::from(sge.length)).sum();
                let write = completion.imm.is_some();
                assert!(
                    completion.status != Status::Success || write || u64::from(completion.byte_len) <= room,
                    "{completion:?} into {room} bytes"
                );
                return;
            }
            assert!(self.receives_may_vanish, "{completion:?} before the end of {oldest:?}");
        }
    }

    fn judge_region(&self, address: u64, len: usize) {
        let (start, end) = self.region;
        let inside = address >= start && address + len as u64 <= end;
        assert!(inside, "{len} bytes written at 0x{address:x}, outside of 0x{start:x} to 0x{end:x}");
    }

    fn judge_local(&self, address: u64, len: usize) {
        self.judge_region(address, len);
        let end = address + len as u64;
        let takes = |sge: &Sge| address >= sge.address && end <= sge.address + u64::from(sge.length);
        let mut posted = self.sends.iter().chain(&self.receives);
        let named = posted.any(|posted| posted.into.iter().any(takes));
        assert!(named, "{len} bytes written at 0x{address:x}, which no request names");
    }

    /// The queue pair is in ERR: nothing waits any more. Receives of a shared queue stay there.
    pub(super) fn check_all_ended(&self, shared_receives: bool) {
        let open = self.sends.iter().find(|posted| posted.signaled);
        assert!(open.is_none(), "{open:?} has not ended");
        assert!(shared_receives || self.receives.is_empty(), "{:?} have not ended", self.receives);
    }
}

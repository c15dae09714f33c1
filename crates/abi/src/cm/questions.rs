//! Questions for datagram services, which come again if the answer is lost.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use ferroce_device::cm::Asked;

use super::devices::CmDevice;
use super::id::Id;
use super::ports::MOST_WAITING;
use crate::object::lock;

/// The last questions that came to a listener, by address and name, with the id that each became.
#[derive(Default)]
pub(crate) struct Questions(Mutex<VecDeque<(IpAddr, u32, Weak<Id>)>>);

impl Questions {
    /// Answers a question that was answered before; true also if the program has it and thinks about it. One whose id
    /// the program has destroyed is a new one when it comes again.
    pub(crate) fn answers_again(&self, device: &CmDevice, asked: &Asked) -> bool {
        let (from, name) = (asked.ends.remote, asked.req.request_id);
        let questions = lock(&self.0);
        let known = questions.iter().rev().find(|(address, known, _)| (*address, *known) == (from, name));
        let id = known.and_then(|(.., id)| id.upgrade()).filter(|id| !id.is_dead());
        drop(questions);
        let Some(id) = id else { return false };
        // A thread of the program that has the lock is about to answer.
        let answer = id.state.try_lock().ok().and_then(|state| state.answer);
        if let Some(answer) = answer {
            // If it is lost, it is asked for again.
            let _ = device.manager.answer(asked, &answer);
        }
        true
    }

    /// Remembers what became of a question.
    pub(crate) fn heard(&self, asked: &Asked, id: &Arc<Id>) {
        let mut questions = lock(&self.0);
        if questions.len() == usize::try_from(MOST_WAITING).unwrap_or(usize::MAX) {
            questions.pop_front();
        }
        questions.push_back((asked.ends.remote, asked.req.request_id, Arc::downgrade(id)));
    }
}

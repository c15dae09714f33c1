//! Which queues complete into a completion queue.

use ferroce_cabi::ibv_wc;
use ferroce_wire::{Qpn, Service};

use crate::completion::{CardCompletion, Told};
use crate::held::Source;
use crate::shadow::Tag;

/// The queues whose work a completion queue tells of, sorted by their numbers.
#[derive(Default)]
pub(crate) struct Members {
    sources: Vec<Member>,
    /// Where those stand that were told of last: at most one of the numbers that end alike. What stands there may be another by now.
    recent: [usize; RECENT],
    /// The queue pairs that take from shared receive queues, sorted by their numbers: what their receives are, and the
    /// number of their send queue, which no other has.
    services: Vec<(Qpn, Service, u32)>,
}

/// A queue pair has two queues, whose numbers mostly follow each other.
const RECENT: usize = 8;

struct Member {
    number: u32,
    source: Source,
    /// How many queue pairs complete here through it: a shared receive queue may have many.
    uses: usize,
}

impl Members {
    /// From now on, work of this queue is known.
    pub(crate) fn add(&mut self, source: &Source) {
        match self.find(source.number()) {
            Ok(at) => self.sources[at].uses += 1,
            Err(at) => {
                let member = Member { number: source.number(), source: source.clone(), uses: 1 };
                self.sources.insert(at, member);
            }
        }
    }

    /// Work of this queue is not known any more, if no other queue pair completes here through it.
    pub(crate) fn remove(&mut self, source: &Source) {
        if let Ok(at) = self.find(source.number()) {
            self.sources[at].uses -= 1;
            if self.sources[at].uses == 0 {
                self.sources.remove(at);
            }
        }
    }

    /// A queue pair takes from a shared receive queue, and completes here.
    pub(crate) fn add_service(&mut self, qpn: Qpn, service: Service, sends: u32) {
        match self.services.binary_search_by_key(&qpn, |(known, ..)| *known) {
            Ok(at) => self.services[at] = (qpn, service, sends),
            Err(at) => self.services.insert(at, (qpn, service, sends)),
        }
    }

    /// It is gone. Another may have got its number meanwhile.
    pub(crate) fn remove_service(&mut self, qpn: Qpn, sends: u32) {
        self.services.retain(|(known, _, number)| (*known, *number) != (qpn, sends));
    }

    /// The same as [`resolve`](Self::resolve) of work that is like nearly all: it went well, brought nothing along and kept nothing alive
    /// itself, and this thread has the habit of its queue. Else nothing, and nothing has changed.
    #[inline(always)]
    pub(crate) fn resolve_quickly(&self, wc: &ibv_wc) -> Option<CardCompletion> {
        let tag = Tag::of(wc.wr_id);
        let member = self.sources.get(self.recent[tag.queue as usize % RECENT])?;
        if member.number != tag.queue || wc.status != 0 || wc.wc_flags != 0 {
            return None;
        }
        let (Source::Sends(queue) | Source::Receives(queue)) = &member.source else { return None };
        if CardCompletion::is_special(wc.opcode) || queue.service == Service::Ud {
            return None;
        }
        let posted = queue.ring.lock_by_habit()?.retire_bare(tag.place)?;
        Some(CardCompletion::plain(wc, posted))
    }

    /// Lets go of what the work kept alive that the library tells of, and says what it was; nothing if it was forgotten
    /// meanwhile, with its queue pair.
    #[inline(never)]
    pub(crate) fn resolve(&mut self, told: &Told) -> Option<CardCompletion> {
        let tag = Tag::of(told.wr_id);
        let at = self.find(tag.queue).ok()?;
        self.recent[tag.queue as usize % RECENT] = at;
        let source = &self.sources[at].source;
        let posted = source.done(tag.place, told.status == 0)?;
        let service = match source {
            Source::Sends(queue) | Source::Receives(queue) => queue.service,
            Source::Shared(_) => self.service_of(Qpn::new(told.qpn)),
        };
        Some(CardCompletion::new(told, posted, service))
    }

    fn find(&self, number: u32) -> Result<usize, usize> {
        self.sources.binary_search_by_key(&number, |member| member.number)
    }

    fn service_of(&self, qpn: Qpn) -> Service {
        let found = self.services.binary_search_by_key(&qpn, |(known, ..)| *known);
        found.map_or(Service::Rc, |at| self.services[at].1)
    }
}

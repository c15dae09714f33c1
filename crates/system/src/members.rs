//! Which queues complete into a completion queue.

use ferroce_wire::{Qpn, Service};

use crate::completion::{CardCompletion, Told};
use crate::held::Source;
use crate::shadow::Tag;

/// The queues whose work a completion queue tells of, sorted by their numbers.
#[derive(Default)]
pub(crate) struct Members {
    sources: Vec<Member>,
    /// The queue pairs that take from shared receive queues, sorted by their numbers: what their receives are, and the
    /// number of their send queue, which no other has.
    services: Vec<(Qpn, Service, u32)>,
}

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

    /// Lets go of what the work kept alive that the library tells of, and says what it was; nothing if it was forgotten
    /// meanwhile, with its queue pair.
    #[inline(always)]
    pub(crate) fn resolve(&self, told: &Told) -> Option<CardCompletion> {
        let tag = Tag::of(told.wr_id);
        let Member { source, .. } = &self.sources[self.find(tag.queue).ok()?];
        let posted = source.done(tag.place, told.status == 0)?;
        let service = match source {
            Source::Sends(queue) | Source::Receives(queue) => queue.service,
            Source::Shared(_) => self.service_of(Qpn::new(told.qpn)),
        };
        Some(CardCompletion::new(told, posted, service))
    }

    #[inline]
    fn find(&self, number: u32) -> Result<usize, usize> {
        // Most queues have few members.
        if self.sources.first().is_some_and(|member| member.number == number) {
            return Ok(0);
        }
        self.sources.binary_search_by_key(&number, |member| member.number)
    }

    fn service_of(&self, qpn: Qpn) -> Service {
        let found = self.services.binary_search_by_key(&qpn, |(known, ..)| *known);
        found.map_or(Service::Rc, |at| self.services[at].1)
    }
}

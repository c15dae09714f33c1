//! The machine, and the watchers, acceptors and hearers that are told what happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use ferroce_switchboard::ServiceClaim;
use ferroce_sys::clock;
use ferroce_transport::Time;
use ferroce_transport::cm::{Event, Manager, Request};
use ferroce_wire::mad::{CmMessage, CommId, MAD_LEN, ServiceId};

use super::asked::{Asked, Hearing};
use super::heartbeat::Heartbeat;
use super::mailer::Mailer;
use super::parting::Partings;
use super::recording::Recording;
use super::service::ConnectionManager;

/// Hears what happens to a connection. Called by the connection manager's thread, in order: it may
/// call the manager and the device, but must not wait.
pub trait Watcher: Send + Sync {
    /// Something happened. After [`Event::Failed`], [`Event::Ended`] and [`Event::Resolved`] nothing more
    /// comes.
    fn happened(&self, manager: &ConnectionManager, id: CommId, event: Event);

    /// The system refuses to send to the peer. Nothing more comes.
    fn unreachable(&self, error: io::Error);

    /// Whether the program has not seen yet all that the connection did. Then it hears a little later that it has ended. No, unless
    /// the watcher cares.
    fn is_behind(&self) -> bool {
        false
    }

    /// Whether packets of the peer have arrived: then the peer has seen our acceptance, even if its
    /// confirmation was lost.
    fn has_data(&self) -> bool;

    /// Has the peer asked whether it still knows of the connection.
    fn ask(&self) -> Inquiry;

    /// How many packets have come that only the peer sends.
    fn signs_of_life(&self) -> u64;
}

/// What became of a question to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// The question is on its way; so many signs of life were there before.
    Sent(u64),
    /// A connection of this kind cannot ask.
    Cannot,
    /// The queue pair is gone, or has failed.
    Gone,
}

/// Hears of requests for a service.
pub trait Acceptor: Send + Sync {
    /// A peer asks for a connection. What happens to it from now on is told to what is returned.
    fn requested(&self, manager: &ConnectionManager, request: Box<Request>) -> Arc<dyn Watcher>;
}

/// Everything under the lock of a connection manager.
pub(super) struct Books {
    pub(super) manager: Manager,
    pub(super) watchers: BTreeMap<CommId, Arc<dyn Watcher>>,
    pub(super) acceptors: BTreeMap<ServiceId, Arc<dyn Acceptor>>,
    /// Datagram services whose questions the program answers.
    pub(super) hearing: Hearing,
    /// Accepted, and not confirmed when last looked at.
    pub(super) accepted: BTreeSet<CommId>,
    /// Connections whose peer was asked whether it knows of them, and how many signs of life it had given
    /// before.
    pub(super) doubted: BTreeMap<CommId, u64>,
    /// Services that a listener gave up a moment ago: until when requests for them are left unanswered.
    pub(super) lingering: VecDeque<(Time, ServiceId, Arc<ServiceClaim>)>,
    /// Whether the peers of connections that stand live.
    pub(super) heartbeat: Heartbeat,
    pub(super) mailer: Mailer,
    /// What is told when programs have seen what came before.
    pub(super) partings: Partings,
    /// What is to be told.
    pub(super) news: VecDeque<News>,
    /// What happens is written down, if so.
    pub(super) record: Option<Recording>,
}

pub(super) enum News {
    Happened(CommId, Event),
    Unreachable(CommId, io::Error),
    Asked(Box<Asked>),
}

impl Books {
    pub(super) fn new(manager: Manager, mailer: Mailer) -> Self {
        Self {
            manager,
            watchers: BTreeMap::new(),
            acceptors: BTreeMap::new(),
            hearing: Hearing::default(),
            accepted: BTreeSet::new(),
            doubted: BTreeMap::new(),
            lingering: VecDeque::new(),
            heartbeat: Heartbeat::default(),
            mailer,
            partings: Partings::default(),
            news: VecDeque::new(),
            record: None,
        }
    }

    /// When something has to be looked at.
    pub(super) fn wake(&self) -> Option<Time> {
        let lingers = self.lingering.front().map(|(until, ..)| *until);
        let times =
            [self.manager.poll_timeout(), lingers, self.heartbeat.next(), self.partings.looks_again()];
        times.into_iter().flatten().min()
    }

    /// Whether a message asks for a service whose listener went away a moment ago.
    pub(super) fn is_of_lingering(&self, message: &CmMessage) -> bool {
        let service = match message {
            CmMessage::Req(req) => req.service_id,
            CmMessage::SidrReq(req) => req.service_id,
            _ => return false,
        };
        let is_back = self.acceptors.contains_key(&service) || self.hearing.hearers.contains_key(&service);
        !is_back && self.lingering.iter().any(|(_, known, _)| *known == service)
    }

    /// Sends what the machine has to send, and notes what it has to tell.
    pub(super) fn settle(&mut self) {
        while let Some(outgoing) = self.manager.poll_transmit() {
            let mut bytes = [0; MAD_LEN];
            outgoing.mad.emit(&mut bytes);
            let sent = self.mailer.send(&outgoing.ends, &bytes);
            if let (Err(error), Some(id)) = (sent, outgoing.id)
                && is_final(&error)
                && self.manager.is_asking(id)
            {
                self.manager.abandon(clock::now(), id);
                self.news.push_back(News::Unreachable(id, error));
            }
        }
        while let Some((id, event)) = self.manager.poll_event() {
            if let Some(record) = &mut self.record {
                record.happened(id, &event);
            }
            if event != Event::Established || self.manager.is_watched(id) {
                self.heartbeat.notes(id, &event);
            }
            if event == Event::Doubted {
                self.ask(id);
            } else {
                self.news.push_back(News::Happened(id, event));
            }
        }
    }

    /// Asks the peer of a connection that may be stale. What cannot be asked is not doubted.
    fn ask(&mut self, id: CommId) {
        match self.watchers.get(&id).map(|watcher| watcher.ask()) {
            Some(Inquiry::Sent(signs)) => {
                self.doubted.entry(id).or_insert(signs);
            }
            Some(Inquiry::Cannot) => self.manager.vouched(id),
            Some(Inquiry::Gone) | None => {}
        }
    }

    /// Lets the machine know which of the accepted connections have shown life without being confirmed, and
    /// which of those in doubt have.
    pub(super) fn look_for_data(&mut self) {
        let Self { manager, watchers, accepted, doubted, .. } = self;
        accepted.retain(|id| {
            if manager.awaits_ready(*id) && watchers.get(id).is_some_and(|watcher| watcher.has_data()) {
                manager.data_arrived(*id);
            }
            manager.awaits_ready(*id)
        });
        doubted.retain(|id, signs| {
            let answered = watchers.get(id).is_some_and(|watcher| watcher.signs_of_life() > *signs);
            if answered {
                manager.vouched(*id);
            }
            manager.is_doubted(*id)
        });
    }
}

/// Whether sending again would not help.
fn is_final(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR, libc::ECONNREFUSED];
    error.raw_os_error().is_none_or(|code| !passing.contains(&code))
}

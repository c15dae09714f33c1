//! What a connection's handles and the connection manager share.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use ferroce_device::cm::{ConnectionManager, Inquiry, Notice, Watcher};
use ferroce_transport::cm::{End, Event, Request};
use ferroce_transport::{Attributes, State};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{CommId, Rep};

use super::error::CmError;
use super::established::Disconnected;
use super::steps::{Depths, Peer, Steps};
use crate::card::{CardQueuePair, lock};

/// A connection from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) stage: Notice<Stage>,
    /// The queue pair, once there is one.
    steps: Mutex<Option<(Qpn, Steps)>>,
    /// The same of a card.
    card: Mutex<Option<Weak<CardQueuePair>>>,
}

/// How far it has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// No outcome yet. What is known of the peer so far goes with it.
    Waiting(Facts),
    Stands(Facts),
    Failed(CmError),
    /// It stood until then, and the work of its queue pair is about to be ended.
    Ending(Facts, Disconnected),
    /// It stood until then.
    Ended(Facts, Disconnected),
}

/// What both sides agreed on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) private_data: Vec<u8>,
    pub(crate) depths: Depths,
    /// The queue pair was taken to RTS.
    pub(crate) moved: bool,
}

impl Link {
    /// For the side that asks.
    pub(crate) fn asking(peer: SocketAddr, local: SocketAddr, qpn: Qpn, steps: Steps) -> Arc<Self> {
        let stage = Notice::new(Stage::Waiting(Facts::default()));
        Arc::new(Self { peer, local, stage, steps: Mutex::new(Some((qpn, steps))), card: Mutex::default() })
    }

    /// For the side that is asked.
    pub(crate) fn asked(request: &Request) -> Arc<Self> {
        let facts = Facts { private_data: request.private_data().to_vec(), ..Facts::default() };
        let stage = Notice::new(Stage::Waiting(facts));
        let (peer, local) = (request.peer(), request.local());
        Arc::new(Self { peer, local, stage, steps: Mutex::default(), card: Mutex::default() })
    }

    /// For either side, on a card.
    pub(crate) fn on_card(
        peer: SocketAddr,
        local: SocketAddr,
        facts: Facts,
        qp: Option<&Arc<CardQueuePair>>,
    ) -> Arc<Self> {
        let stage = Notice::new(Stage::Waiting(facts));
        let card = Mutex::new(qp.map(Arc::downgrade));
        Arc::new(Self { peer, local, stage, steps: Mutex::default(), card })
    }

    /// The program answers with this queue pair of a card.
    pub(crate) fn answer_on_card(&self, qp: &Arc<CardQueuePair>, depths: Depths) {
        *lock(&self.card) = Some(Arc::downgrade(qp));
        self.has_moved(depths);
    }

    /// The program answers with this queue pair.
    pub(crate) fn answer_with(&self, qpn: Qpn, steps: Steps, depths: Depths) {
        *lock(&self.steps) = Some((qpn, steps));
        self.has_moved(depths);
    }

    fn has_moved(&self, depths: Depths) {
        self.stage.look(|stage| {
            if let Stage::Waiting(facts) = stage {
                facts.depths = depths;
                facts.moved = true;
            }
        });
    }

    /// Whatever it was, it is over: ends the work of the queue pair.
    pub(crate) fn flush(&self) {
        let steps = self.steps();
        if let Some((_, steps)) = steps {
            steps.flush();
        }
        let card = lock(&self.card).as_ref().and_then(Weak::upgrade);
        if let Some(qp) = card {
            // Cannot fail while it is there: every state leads to ERR.
            let _ = qp.modify(&Attributes::to(State::Err), None);
        }
    }

    /// Both sides know that the connection stands.
    pub(crate) fn stands(&self) {
        self.stage.change(|stage| {
            if let Stage::Waiting(facts) = stage {
                *stage = Stage::Stands(std::mem::take(facts));
            }
        });
    }

    /// It came to nothing, if it does not stand.
    pub(crate) fn fail_if_waiting(&self, error: CmError) {
        let Some(moved) = self.stage.look(|stage| match stage {
            Stage::Waiting(Facts { moved, .. }) => Some(*moved),
            _ => None,
        }) else {
            return;
        };
        // A queue pair that did not get so far can be used again.
        if moved {
            self.flush();
        }
        self.fail(error);
    }

    fn steps(&self) -> Option<(Qpn, Steps)> {
        lock(&self.steps).clone()
    }

    /// Accepted: takes the queue pair to RTS and confirms.
    fn replied(&self, manager: &ConnectionManager, id: CommId, rep: &Rep) {
        let Some((qpn, steps)) = self.steps() else { return manager.abandon(id) };
        match steps.take(&Peer::from(rep)) {
            Ok(depths) => {
                let facts = Facts { private_data: rep.private_data.0.to_vec(), depths, moved: true };
                self.stage.look(|stage| *stage = Stage::Waiting(facts));
                // If the peer has given up meanwhile, that is told next.
                let _ = manager.ready(id);
            }
            Err(error) => {
                manager.abandon(id);
                self.fail(CmError::QueuePair { qpn, error });
            }
        }
    }

    /// Ends it in two steps: a thread that sees flushed work can ask why, and a thread that waits for the end
    /// finds all work flushed.
    pub(crate) fn end(&self, how: Disconnected) {
        self.stage.look(|stage| {
            if let Stage::Waiting(facts) | Stage::Stands(facts) = stage {
                *stage = Stage::Ending(std::mem::take(facts), how);
            }
        });
        self.flush();
        self.stage.change(|stage| {
            if let Stage::Ending(facts, how) = stage {
                *stage = Stage::Ended(std::mem::take(facts), *how);
            }
        });
    }

    fn fail(&self, error: CmError) {
        self.stage.change(|stage| *stage = Stage::Failed(error));
    }
}

impl Watcher for Link {
    fn happened(&self, manager: &ConnectionManager, id: CommId, event: Event) {
        match event {
            Event::Replied(rep) => self.replied(manager, id, &rep),
            Event::Established => self.stands(),
            Event::Failed(failure) => {
                // A queue pair that did not get so far can be used again.
                let moved =
                    self.stage.look(|stage| matches!(stage, Stage::Waiting(Facts { moved: true, .. })));
                if moved {
                    self.flush();
                }
                self.fail(CmError::from_failure(self.peer, failure));
            }
            Event::Ended(end) => self.end(match end {
                End::Here => Disconnected::Here,
                End::Peer => Disconnected::Peer,
                End::Unanswered => Disconnected::Unanswered,
                End::Stale => Disconnected::Stale,
            }),
            // Not of a connection of ours.
            Event::Requested(_) | Event::Resolved(_) | Event::Doubted | Event::Forgotten => {}
        }
    }

    fn unreachable(&self, error: io::Error) {
        self.fail(CmError::Unreachable { peer: self.peer, error: error.kind() });
    }

    fn has_data(&self) -> bool {
        self.steps().is_some_and(|(_, steps)| steps.has_data())
    }

    fn ask(&self) -> Inquiry {
        self.steps().map_or(Inquiry::Gone, |(_, steps)| steps.ask())
    }

    fn signs_of_life(&self) -> u64 {
        self.steps().map_or(0, |(_, steps)| steps.signs_of_life())
    }
}

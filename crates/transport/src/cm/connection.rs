//! One connection: where it stands, and what it sent last.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_wire::Qpn;
use ferroce_wire::mad::{CmMessage, CommId, ServiceId};

use crate::time::Time;

/// The two addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// Ours.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

/// How long one side waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to one message.
    pub response: Duration,
    /// How often a message is sent again, up to 15.
    pub retries: u8,
    /// When setting up ends at the latest, whatever else is said.
    pub deadline: Time,
    /// How long a connection that is over is remembered, so that late messages and packets of it meet nothing new.
    pub time_wait: Duration,
    /// Whether the program is told when a connection that stood is forgotten ([`Event::Forgotten`](super::Event::Forgotten)).
    pub tell_end: bool,
    /// Whether the peer's life is watched while the connection stands ([`Manager::standing`](super::Manager::standing)).
    pub watched: bool,
}

/// Where a connection stands (IBA 12.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// We asked.
    ReqSent,
    /// We asked and were accepted; our queue pair is on its way to RTS.
    RepReceived,
    /// We were asked, and have not decided.
    Requested,
    /// We accepted.
    RepSent,
    /// It stands.
    Established,
    /// We asked to end it.
    DreqSent,
    /// It is over, or came to nothing, and is remembered for a while.
    TimeWait,
}

impl State {
    /// Whether it stands, or did until we asked for its end.
    pub(super) const fn is_standing(self) -> bool {
        matches!(self, Self::Established | Self::DreqSent)
    }

    /// Whether a peer made us keep it, and has not shown yet that it means it.
    pub(super) const fn is_half_open(self) -> bool {
        matches!(self, Self::Requested | Self::RepSent)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// We were asked, and did not ask.
    pub(super) passive: bool,
    pub(super) ends: Ends,
    pub(super) service: ServiceId,
    /// The same in all messages of a connection.
    pub(super) transaction: u64,
    pub(super) our_qpn: Qpn,
    /// Zero until it is known.
    pub(super) peer_id: CommId,
    /// Known from the first message of the peer on.
    pub(super) peer_qpn: Option<Qpn>,
    /// What was sent last: sent again if no answer comes, or if the question comes again. In
    /// [`State::Requested`] what is to be answered if the question comes again.
    pub(super) last: CmMessage,
    pub(super) patience: Patience,
    /// How often `last` was sent on time-outs and in the first place.
    pub(super) attempts: u32,
    /// When it has to be looked at.
    pub(super) timer: Option<Time>,
    /// How often the peer was asked whether it still knows of this connection; 0 if nothing speaks against it.
    pub(super) questions: u32,
    /// The peer was asked for a sign of life ([`Manager::probe`](super::Manager::probe)), and none came since.
    pub(super) probed: bool,
    /// It stood before it was over.
    pub(super) stood: bool,
    /// The program has heard of its end.
    pub(super) told: bool,
    /// Its place among those that are over.
    pub(super) over: Option<u64>,
}

impl Connection {
    /// The peer's queue pair, as a name that only one connection has.
    pub(super) fn peer_key(&self) -> Option<(IpAddr, Qpn)> {
        self.peer_qpn.map(|qpn| (self.ends.remote, qpn))
    }

    /// The request, as a name that its repetitions have too.
    pub(super) fn request_key(&self) -> Option<(IpAddr, CommId)> {
        self.passive.then_some((self.ends.remote, self.peer_id))
    }

    /// Whether a message that names this connection comes from its peer.
    pub(super) fn is_from_peer(&self, ends: &Ends, id: CommId) -> bool {
        self.ends == *ends && (self.peer_id == id || self.peer_id == CommId(0))
    }

    /// Whether setting up is still under way, and its time is over.
    pub(super) fn is_past_deadline(&self, now: Time) -> bool {
        let setting_up =
            matches!(self.state, State::ReqSent | State::RepReceived | State::Requested | State::RepSent);
        setting_up && now >= self.patience.deadline
    }
}

//! Which path the packets of a queue pair take, chosen when it is connected.

use ferroce_fabric::{NotShared, Path, PathChoice, PathPolicy, PathReason};
use ferroce_switchboard::slot_of;
use ferroce_wire::Qpn;

use super::Qp;
use crate::meeting;

impl Qp {
    /// Whether memory that the engine has in common with others may lead to the peer, whose address is of this device.
    pub(super) fn is_near(&self, ours: bool) -> bool {
        ours && self.nic.engines().station(self.engine).neighbours.is_open()
    }

    /// Sees to it that there is memory that the peer's process has in common with this one, if there may be; and why there
    /// is none.
    pub(super) fn meet(&self, peer: Qpn) -> Option<Result<(), NotShared>> {
        let engines = self.nic.engines();
        let there = engines.of(peer);
        if self.policy == PathPolicy::Forbid || there.is_some() && self.policy != PathPolicy::Shared {
            return None;
        }
        Some(match there {
            _ if !self.is_near(true) => Err(NotShared::SwitchedOff),
            Some(there) => meeting::meet_here(engines, self.engine, there),
            None => meeting::meet(engines, self.engine, self.nic.slot(self.engine)?, slot_of(peer)),
        })
    }

    /// What tells the process of a peer from others that its slot has had and will have.
    pub(super) fn incarnation_of(&self, peer: Qpn) -> Option<u64> {
        let engines = self.nic.engines();
        if engines.of(peer).is_some() {
            return Some(meeting::OURS);
        }
        let shares = engines.station(self.engine).neighbours.incarnation_of(slot_of(peer));
        shares.or_else(|| engines.member.living(slot_of(peer)))
    }

    /// Which path its packets take, and why.
    pub(super) fn choose_path(
        &self,
        ours: bool,
        peer: Qpn,
        near: Option<Result<(), NotShared>>,
    ) -> PathChoice {
        let wire = |reason| PathChoice { path: Path::Wire, reason };
        if self.nic.has_middleware() {
            wire(PathReason::Middleware)
        } else if self.policy == PathPolicy::Forbid {
            wire(PathReason::Forbidden)
        } else if !ours {
            wire(PathReason::OtherAddress)
        } else if let Some(near) = near {
            match near {
                // It may have gone since, or broken the rules.
                Ok(()) => match self.nic.engines().station(self.engine).neighbours.shares_with(slot_of(peer))
                {
                    Ok(()) => PathChoice { path: Path::Shared, reason: PathReason::PeerIsNear },
                    Err(why) => wire(PathReason::NotShared(why)),
                },
                Err(why) => wire(PathReason::NotShared(why)),
            }
        } else if self.nic.engines().of(peer).is_none() {
            wire(PathReason::OtherProcess)
        } else {
            PathChoice { path: Path::Local, reason: PathReason::PeerIsHere }
        }
    }
}

//! Two queue pairs of one process: what one posts is done directly at the other.

use crate::counters::Counters;
use crate::pacing::Pacer;
use crate::qp::{Introduction, Machine, QueuePair};
use crate::rc::direct::{Direct, Ends, Meeting};
use crate::state::State;
use crate::time::Time;
use crate::work::SendRequest;

impl QueuePair {
    /// Does posted work directly at `peer`, which is in the same process and connected to this
    /// queue pair; at most `limit` messages, and no more after so many bytes. How many messages.
    /// What cannot be done directly is left for [`poll_transmit`](Self::poll_transmit).
    pub fn execute_directly<D: Direct>(
        &mut self,
        peer: &mut Self,
        direct: &mut D,
        now: Time,
        (limit, bytes): (u32, u64),
    ) -> u32 {
        if !self.is_together_with(peer) || self.sends_waiting() == 0 {
            return 0;
        }
        let mut moved = 0;
        let mut done = 0;
        self.meet(peer, direct, |ends, pacer, counters| {
            while done < limit
                && moved < bytes
                && pacer.allows(now)
                && let Some(length) = ends.next()
            {
                moved += u64::from(length);
                done += 1;
                counters.rate_waits += u64::from(pacer.spend(u64::from(length), now));
            }
            done
        })
    }

    /// Posts send requests and does them directly at `peer`, as [`execute_directly`](Self::execute_directly) would, without ever
    /// putting them into the queue: as long as there is none in it, each is in order, and nothing speaks against it.
    /// How many; the rest is to be posted.
    pub fn post_directly<D: Direct>(
        &mut self,
        peer: &mut Self,
        requests: &[SendRequest<'_>],
        direct: &mut D,
        now: Time,
        bytes: u64,
    ) -> u32 {
        let rules = self.rules();
        if self.sends_waiting() > 0 || !self.is_together_with(peer) {
            return 0;
        }
        self.meet(peer, direct, |ends, pacer, counters| {
            let (mut moved, mut done) = (0, 0);
            for request in requests {
                if moved >= bytes || !pacer.allows(now) {
                    break;
                }
                let Ok(length) = rules.check_send(request) else { break };
                if ends.pass(request, length).is_none() {
                    break;
                }
                moved += u64::from(length);
                done += 1;
                counters.rate_waits += u64::from(pacer.spend(u64::from(length), now));
            }
            done
        })
    }

    /// Whether the two are connected to each other and able to work.
    fn is_together_with(&self, peer: &Self) -> bool {
        self.state == State::Rts
            && peer.state.handles_requests()
            && peer.connection.dest_qpn == self.connection.qpn
            && self.connection.dest_qpn == peer.connection.qpn
            && self.connection.mtu == peer.connection.mtu
            && peer.connection.pkey.admits(self.connection.pkey)
    }

    /// Does messages directly at a peer, if nothing is under way between the two; `action` says how many it did.
    #[inline]
    fn meet<D: Direct>(
        &mut self,
        peer: &mut Self,
        direct: &mut D,
        action: impl FnOnce(&mut Ends<'_, D>, &mut Pacer, &mut Counters) -> u32,
    ) -> u32 {
        let introduction =
            Introduction { established: &mut peer.established, state: peer.state, qpn: peer.connection.qpn };
        let (Machine::Rc { requester, .. }, Machine::Rc { responder, .. }) =
            (&mut self.machine, &mut peer.machine)
        else {
            return 0;
        };
        let (asking, answering) = (&self.connection, &peer.connection);
        let mut ends =
            Ends { requester, meeting: Meeting { asking, responder, answering, introduction, direct } };
        let done = if ends.are_idle() { action(&mut ends, &mut self.pacer, &mut self.counters) } else { 0 };
        self.counters.direct_requests += u64::from(done);
        peer.counters.direct_responses += u64::from(done);
        done
    }
}

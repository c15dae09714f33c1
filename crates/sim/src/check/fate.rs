//! Errors have reasons.

use ferroce_transport::{Event, State, Status};
use ferroce_wire::Service;

use super::model::{Cause, Model};
use super::{Violation, broken};

impl Model {
    /// Whether a request may end like this.
    ///
    /// `justified-status`: a request fails only for a reason that the run put there: a key, range or
    /// alignment that was posted wrong; memory that was taken away; a receive that could not take
    /// it. "Retry exceeded" needs as many disturbed packets as there were tries, or a peer that was
    /// away, cut off, reset or in error; "RNR retry exceeded" needs a finite count.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn check_status(&self, by: usize, index: usize, status: Status) -> Result<(), Violation> {
        let end = &self.ends[by];
        let justified = match status {
            Status::RetryExceeded => self.may_be_silent(by) || end.messages[index].allows(status),
            Status::RnrRetryExceeded => end.rnr_retry < 7 && end.messages[index].op.takes_receive(),
            status => end.messages[index].allows(status),
        };
        if justified {
            return Ok(());
        }
        let message = &end.messages[index];
        let what = format!(
            "message {index} of end {by} ({:?}, {} bytes) ended with {status:?}",
            message.op, message.len
        );
        broken(
            "justified-status",
            format!("{what}, and nothing in the run explains it ({} disturbances)", end.disturbances),
        )
    }

    fn may_be_silent(&self, by: usize) -> bool {
        let end = &self.ends[by];
        let peer_is_down = end.peer.is_some_and(|peer| !self.ends[peer].is_usable());
        end.silence || peer_is_down || end.disturbances > u32::from(end.retry_count)
    }

    /// Something happened to a queue pair beside its work.
    ///
    /// `justified-error`: a queue pair goes into error, or reports one, only if one of its own
    /// requests or receives failed, the program asked for it, or the peer asked for something
    /// that had to be refused. The events "drained" and "last work request" come only when asked for.
    ///
    /// # Errors
    /// It does not hold.
    pub fn event(&mut self, by: usize, event: Event) -> Result<(), Violation> {
        match event {
            Event::AccessError | Event::RequestError => {
                if self.ends[by].cause.is_none() {
                    self.blame_peer(by, &format!("event {event:?}"))?;
                }
            }
            Event::SendQueueDrained => {
                if !std::mem::take(&mut self.ends[by].draining) {
                    return broken(
                        "justified-error",
                        format!("end {by} is drained, but no program asked for it"),
                    );
                }
            }
            Event::LastWorkRequestReached => {
                if !self.ends[by].shared || self.ends[by].cause.is_none() {
                    return broken(
                        "justified-error",
                        format!("end {by} reports its last work request for no reason"),
                    );
                }
            }
            Event::Established => {}
        }
        Ok(())
    }

    /// A machine has returned and its queue pair is in this state.
    ///
    /// # Errors
    /// It is in error without a reason.
    pub fn state(&mut self, by: usize, state: State) -> Result<(), Violation> {
        let end = &mut self.ends[by];
        let changed = std::mem::replace(&mut end.state, state) != state;
        if changed && matches!(state, State::Err | State::Sqe) && end.cause.is_none() {
            self.blame_peer(by, &format!("state {state}"))?;
        }
        Ok(())
    }

    fn blame_peer(&mut self, by: usize, seen: &str) -> Result<(), Violation> {
        let refused = self.is_lied_to(by)
            || self.ends[by].peer.is_some_and(|peer| {
                let peer = &self.ends[peer];
                let open = &peer.messages[peer.completed.min(peer.cursor)..];
                peer.service == Service::Rc && open.iter().any(super::model::Message::may_be_refused)
            });
        if !refused {
            return broken(
                "justified-error",
                format!("end {by}: {seen}, and nothing in the run explains it"),
            );
        }
        self.ends[by].cause = Some(Cause::Peer);
        Ok(())
    }
}

//! When nothing happens any more.

use ferroce_transport::SendOp;
use ferroce_wire::Service;

use super::model::{End, Model};
use super::placement::check_content;
use super::{Violation, broken};
use crate::memory::first_difference;
use crate::world::HostState;

impl Model {
    /// The run is over and at rest.
    ///
    /// `all-completed`: every request has completed, or succeeded without a signal and has had its effect.
    ///
    /// `window-at-rest`: nothing counts as under way, and no timer runs.
    ///
    /// `memory-at-rest`: what no request may write is unchanged, every target holds its message, and
    /// every atomic cell has the value that the atomics executed on it give.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn check_rest(&self, hosts: &[HostState]) -> Result<(), Violation> {
        for (by, end) in self.ends.iter().enumerate() {
            for index in end.completed..end.messages.len() {
                if end.messages[index].signaled {
                    let what =
                        format!("message {index} of end {by} ({:?}) never completed", end.messages[index].op);
                    return broken("all-completed", what);
                }
                if end.cause.is_none() {
                    self.check_done(hosts, by, index)?;
                }
            }
            self.check_targets(hosts, by)?;
            let node = &hosts[end.at.host].node;
            if let Some(at) = node.queue_pair(end.at.slot).poll_timeout() {
                return broken(
                    "window-at-rest",
                    format!("end {by} has a timer at {at} and nothing to wait for"),
                );
            }
        }
        for (from, host) in hosts.iter().enumerate() {
            for to in 0..hosts.len() {
                let in_flight = host.node.window(to).in_flight();
                if in_flight != 0 {
                    let what = format!("{in_flight} bytes count as under way from host {from} to host {to}");
                    return broken("window-at-rest", what);
                }
            }
        }
        for (&(host, address), &value) in &self.cells {
            let seen = hosts[host].node.device.memory.word(address);
            if seen != value {
                let what = format!("cell 0x{address:x} of host {host} holds 0x{seen:x}, wanted 0x{value:x}");
                return broken("memory-at-rest", what);
            }
        }
        Ok(())
    }

    /// Targets that are still granted hold what was placed there.
    fn check_targets(&self, hosts: &[HostState], by: usize) -> Result<(), Violation> {
        let end = &self.ends[by];
        let (Some(peer), Service::Rc) = (end.peer, end.service) else { return Ok(()) };
        if self.is_lied_to(by) {
            return Ok(());
        }
        for message in end.messages.iter().filter(|message| message.target.is_some() && message.placed > 0) {
            if let SendOp::Write(remote) | SendOp::WriteImm(remote, _) = message.op {
                let memory = &hosts[self.ends[peer].at.host].node.device.memory;
                check_content(memory, remote.address, message.placed as usize, message.content, 0)
                    .map_err(|violation| Violation::new("memory-at-rest", violation.what))?;
            }
        }
        Ok(())
    }

    /// `memory-at-rest`, for a constant part of a host.
    ///
    /// # Errors
    /// A byte of it has changed.
    pub fn check_constant(
        &self,
        hosts: &[HostState],
        host: usize,
        start: u64,
        len: usize,
    ) -> Result<(), Violation> {
        let bytes = hosts[host].node.device.memory.slice(start, len);
        match first_difference(Self::constant(host).tag, 0, bytes) {
            None => Ok(()),
            Some(at) => {
                broken("memory-at-rest", format!("byte {at} of the constant part of host {host} changed"))
            }
        }
    }

    /// `neighbours-undisturbed`: where nothing but a liar is bad, every other connection of the same hosts comes to its end
    /// without an error, and so all its work succeeds.
    ///
    /// # Errors
    /// It does not hold.
    pub fn check_neighbours(&self) -> Result<(), Violation> {
        let is_hurt = |by: &usize| {
            let end = &self.ends[*by];
            !self.is_lied_to(*by) && (end.failed || end.cause.is_some())
        };
        match (0..self.ends.len()).find(is_hurt) {
            None => Ok(()),
            Some(by) => {
                let cause = self.ends[by].cause;
                broken("neighbours-undisturbed", format!("end {by} failed beside a liar: {cause:?}"))
            }
        }
    }

    /// `no-needless-repeats`: on a network that loses, doubles and reorders nothing, with room for
    /// everything and hosts that are never away, no packet is sent twice, no timer of the
    /// transport runs out and nothing is refused, between two ends that never failed.
    ///
    /// # Errors
    /// It does not hold.
    pub fn check_no_repeats(&self, hosts: &[HostState], rnr: bool) -> Result<(), Violation> {
        for (by, end) in self.ends.iter().enumerate().filter(|(_, end)| end.service == Service::Rc) {
            // An end in error answers nothing, and its peer cannot know.
            let has_failed = |end: &End| end.failed || end.cause.is_some();
            if has_failed(end) || end.peer.is_some_and(|peer| has_failed(&self.ends[peer])) {
                continue;
            }
            let counters = hosts[end.at.host].node.queue_pair(end.at.slot).counters();
            let never = [
                ("timeouts", counters.timeouts),
                ("probes", counters.probes),
                ("nak_sequence_sent", counters.nak_sequence_sent),
                ("out_of_sequence", if rnr { 0 } else { counters.out_of_sequence }),
                ("implied_naks", counters.implied_naks),
                ("ghost_acks", counters.ghost_acks),
                ("duplicate_requests", if rnr { 0 } else { counters.duplicate_requests }),
                ("retransmitted", if rnr { 0 } else { counters.retransmitted }),
            ];
            if let Some((name, count)) = never.into_iter().find(|(_, count)| *count > 0) {
                return broken(
                    "no-needless-repeats",
                    format!("{name} of end {by} is {count} in a run without faults"),
                );
            }
        }
        Ok(())
    }
}

//! Faults of hosts and queue pairs, from time to time while work is posted.

use std::time::Duration;

use ferroce_transport::{Attributes, State};
use ferroce_wire::Service;

use crate::check::Violation;
use crate::link::Fault;
use crate::run::{Run, Token};

impl Run<'_> {
    /// Something goes wrong, if anything may.
    pub(crate) fn chaos(&mut self) -> Result<(), Violation> {
        if self.budget == 0 {
            return Ok(());
        }
        let on = self.plan.chaos;
        match self.dice.below(4) {
            0 if on.away => self.away(),
            1 if on.down => self.down(),
            2 if on.restart => self.restart()?,
            3 if on.drain => self.drain()?,
            _ => {}
        }
        self.later(Token::Chaos, 20_000, 5_000_000);
        Ok(())
    }

    /// The whole process of a host is not scheduled for a while.
    fn away(&mut self) {
        let host = self.dice.index(self.world.hosts.len());
        let duration = Duration::from_nanos(self.dice.log_between(50_000, 20_000_000));
        self.world.send_away(host, duration);
        self.explain_silence(host);
        let now = self.world.now();
        self.watch.inject(now, Fault::Away, || format!("host {host} for {duration:?}"));
    }

    /// A host is cut off for a while.
    fn down(&mut self) {
        let host = self.dice.index(self.world.hosts.len());
        let duration = Duration::from_nanos(self.dice.log_between(100_000, 2_000_000_000));
        self.world.cut_off(host, duration, &mut self.watch);
        self.explain_silence(host);
        let now = self.world.now();
        self.watch.inject(now, Fault::Down, || format!("host {host} for {duration:?}"));
    }

    fn explain_silence(&mut self, host: usize) {
        let ends = &mut self.watch.model.ends;
        for end in 0..ends.len() {
            let other = ends[end].peer.map(|peer| ends[peer].at.host);
            ends[end].silence |= ends[end].at.host == host || other == Some(host);
        }
    }

    /// A queue pair is reset, or put in error, and its peer learns of it only by silence.
    fn restart(&mut self) -> Result<(), Violation> {
        let end = self.dice.index(self.ends.len());
        let known = &self.watch.model.ends[end];
        if known.service != Service::Rc || !self.watch.is_usable(end) {
            return Ok(());
        }
        let now = self.world.now();
        self.watch.inject(now, Fault::Restart, || format!("end {end}"));
        if self.dice.one_in(2) {
            return self.break_end(end);
        }
        self.watch.model.ends[end].gone = true;
        self.modify(end, &[Attributes::to(State::Reset)])?;
        self.watch.news.push(crate::watch::News::Broken(end));
        Ok(())
    }

    /// The program drains a send queue.
    fn drain(&mut self) -> Result<(), Violation> {
        let end = self.dice.index(self.ends.len());
        let known = &self.watch.model.ends[end];
        if known.state != State::Rts || !known.is_usable() {
            return Ok(());
        }
        let now = self.world.now();
        self.watch.inject(now, Fault::Drain, || format!("end {end}"));
        self.watch.model.ends[end].draining = true;
        self.modify(end, &[Attributes::to(State::Sqd).with_notify_drained(true)])
    }
}

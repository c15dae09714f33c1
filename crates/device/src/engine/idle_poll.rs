//! The shortest way through an engine: a thread polls, again, and nothing has happened.
//!
//! A thread that polls does this most of the time, and a packet that comes waits for it to be over. So it
//! does no more than look whether there is anything to do, and reads the clock only if a timer is set. Every
//! so often a whole turn is made instead.

use ferroce_sys::clock;

use super::Engine;
use crate::engines::Station;

impl Engine {
    /// Whether a timer has come up. A program that polls once a millisecond must not be late with it: too
    /// late, and it is started anew.
    #[inline]
    pub(crate) fn has_timer_due(&self) -> bool {
        self.timers.next().is_some_and(|time| time <= clock::now())
    }

    /// Nothing is left to do here, but for timers and for what the network may bring.
    #[inline]
    pub(crate) fn is_at_rest(&self, station: &Station) -> bool {
        let nothing_waits = self.ready.is_empty() && self.owing.is_empty() && self.leaving.is_empty();
        nothing_waits
            && self.tables.is_settled()
            && !self.turning
            && !self.broken
            && self.errands == 0
            && station.freight.is_empty()
            && station.mail.is_empty()
            && !self.port.fabric.holds_packets()
    }

    /// Looks at the socket of an engine [at rest](Self::is_at_rest); whether nothing has come. Else a turn
    /// has to follow, for [`Reason::InboxFilled`](super::Reason::InboxFilled).
    #[inline]
    pub(crate) fn sees_nothing(&mut self) -> bool {
        if self.port.fabric.receive_next(&mut self.inbox).is_err() {
            self.break_off();
            return false;
        }
        self.inbox.is_empty()
    }
}

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
            && !self.port.lanes.is_called()
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;
    use std::os::fd::RawFd;

    use ferroce_fabric::{Fabric, Inbox, Outbox, Sent};

    use crate::config::Config;
    use crate::engine::Reason;
    use crate::event::AsyncEvent;
    use crate::nic::Nic;

    /// A socket that is beyond use.
    struct Failing;

    impl Fabric for Failing {
        fn coalesces(&self) -> bool {
            false
        }

        fn run_limits(&self) -> (usize, usize) {
            (1, usize::MAX)
        }

        fn source_port(&mut self, wanted: u16, _: IpAddr) -> u16 {
            wanted
        }

        fn send(&mut self, outbox: &mut Outbox) -> Sent {
            outbox.clear();
            Sent::default()
        }

        fn receive(&mut self, _: &mut Inbox) -> io::Result<()> {
            Err(io::ErrorKind::NotConnected.into())
        }

        fn show_marks(&mut self) {}

        fn descriptors(&self) -> &[RawFd] {
            &[]
        }
    }

    #[test]
    fn a_poll_that_meets_a_failed_socket_breaks_the_engine_and_says_so_once() {
        let address = Some([127, 0, 48, 203].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let station = nic.engines().station(0);
        let mut visit = nic.engines().enter(0);
        assert!(visit.is_at_rest(station) && visit.sees_nothing(), "nothing happens on a new device");
        let fabric = std::mem::replace(&mut visit.port.fabric, Box::new(Failing));
        assert!(!visit.sees_nothing(), "a turn has to follow");
        assert!(visit.broken && !visit.is_at_rest(station), "later polls make whole turns");
        visit.turn(Reason::InboxFilled);
        visit.turn(Reason::Watched);
        // The driver knows the sockets by their numbers: they live as long as the device.
        visit.port.fabric = fabric;
        visit.leave();
        assert_eq!(nic.next_event(), Some(AsyncEvent::DeviceFatal));
        assert_eq!(nic.next_event(), None);
    }
}

//! A driver that looks for a moment before it sleeps again.
//!
//! A program whose memory others read and write does nothing itself: its driver is woken for each packet, which takes longer than all the
//! rest of a READ. So after packets have come, the driver looks for more for a moment, as threads do that wait for a completion. It does so
//! only while that pays ([`Spin`]), while no thread of the program relies on being woken by it, and while the program lets its processors rest: a
//! program that computes, or looks at its memory again and again, would have to share one with the driver.

use std::time::Duration;

use ferroce_progress::Spin;
use ferroce_progress::table::{LOOKOUT, SPIN};
use ferroce_sys::clock;
use ferroce_transport::Time;

/// What a driver knows of whether it pays to look for a moment.
#[derive(Debug)]
pub(crate) struct Lookout {
    spin: Spin,
    /// Processor time of the other threads of this process, and when it was asked for.
    others: Duration,
    at: Time,
}

impl Lookout {
    pub(crate) fn new() -> Self {
        Self { spin: Spin::new(), others: clock::processor_time_of_others(), at: clock::now() }
    }

    /// Whether the other threads of this process have worked less than a quarter of the time since this was asked last.
    fn program_rests(&mut self, now: Time) -> bool {
        let others = clock::processor_time_of_others();
        let worked = others.saturating_sub(self.others);
        let rests = worked * 4 < now.since(self.at);
        (self.others, self.at) = (others, now);
        rests
    }

    /// Packets have come: looks for more as long as some come within a moment. `turn` turns the engine, and says how many packets had come;
    /// `None` if another thread is inside.
    pub(crate) fn look(&mut self, may_look: impl Fn() -> bool, mut turn: impl FnMut() -> Option<usize>) {
        let mut now = clock::now();
        if !may_look() || !self.spin.looks_first() || !self.program_rests(now) {
            return;
        }
        let (mut until, mut found) = (now + SPIN, false);
        while now < until && may_look() {
            let Some(received) = turn() else { break };
            now = clock::now();
            if received > 0 {
                found = true;
                until = now + SPIN;
            }
            if now.since(self.at) > LOOKOUT && !self.program_rests(now) {
                break;
            }
            std::hint::spin_loop();
        }
        self.spin.has_looked(found);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// How often a driver looked that finds packets in its first looks.
    fn looks(lookout: &mut Lookout, finds: u32) -> u32 {
        let mut looks = 0;
        lookout.look(
            || true,
            || {
                looks += 1;
                Some(usize::from(looks <= finds))
            },
        );
        looks
    }

    #[test]
    fn it_looks_while_packets_come_and_gives_up_what_does_not_pay() {
        let mut lookout = Lookout::new();
        // Other tests of this process may be at work: then it does not look.
        let end = clock::now() + Duration::from_secs(60);
        while looks(&mut lookout, 3) <= 3 {
            assert!(clock::now() < end, "it never looked");
            clock::pause(Duration::from_millis(1));
        }
        for _ in 0..1000 {
            looks(&mut lookout, 0);
        }
        let in_vain = (0..1000).filter(|_| looks(&mut lookout, 0) > 0).count();
        assert!(in_vain <= 10, "{in_vain} of 1000");
        lookout.look(|| false, || panic!("it may not look"));
    }

    #[test]
    fn it_leaves_the_processors_to_a_program_that_works() {
        let mut lookout = Lookout::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // Until that thread runs, and while the system keeps it from running, the program rests.
            let end = clock::now() + Duration::from_secs(60);
            let mut working = 0;
            while working < 20 && clock::now() < end {
                clock::pause(Duration::from_millis(2));
                working += u32::from(looks(&mut lookout, 1) == 0);
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!(working, 20, "it looked beside a program that works");
        });
    }
}

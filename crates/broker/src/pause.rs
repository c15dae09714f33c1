//! How long a member waits before it asks again.

use std::time::Duration;

use ferroce_verbs::cm::CmError;

use crate::error::MemberRefusal;

/// The first pause, and the one after a connection that stood.
const FIRST: Duration = Duration::from_millis(20);

/// The least pause after a refusal that lasts until a person has changed something. The program that waits
/// for the member has this long to see why, before the next attempt may tell something else.
const FIRST_MISFIT: Duration = Duration::from_millis(500);

/// The longest pause while a member is not there: asking costs nothing but a packet, and it is met soon after
/// its start.
const LONGEST_ABSENT: Duration = Duration::from_millis(320);

/// The longest pause while a member is there, and refuses or ends what was begun.
const LONGEST: Duration = Duration::from_secs(5);

/// A connection that has lasted this long stood: what ends it has nothing to do with its beginning.
const STANDS: Duration = LONGEST;

/// The pause between two attempts to meet a member. It doubles with each failure, up to a limit.
///
/// A connection that is made and ends at once is a failure too. Otherwise two programs that claim one number
/// would throw each other out as fast as they can.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
}

impl Pause {
    pub(crate) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// How long to wait after an attempt came to nothing.
    pub(crate) fn after_refusal(&mut self, refusal: &MemberRefusal, chance: u32) -> Duration {
        let is_absent =
            matches!(refusal, MemberRefusal::Unreached(error) if !matches!(error, CmError::Refused { .. }));
        if refusal.is_definite() {
            self.next = self.next.max(FIRST_MISFIT);
        }
        self.take(if is_absent { LONGEST_ABSENT } else { LONGEST }, chance)
    }

    /// How long to wait after a connection ended that has lasted so long.
    pub(crate) fn after_connection(&mut self, lasted: Duration, chance: u32) -> Duration {
        if lasted >= STANDS {
            self.next = FIRST;
        }
        self.take(LONGEST, chance)
    }

    /// Between half of the pause and all of it, as chance has it: two members that disturb each other get out
    /// of step.
    fn take(&mut self, longest: Duration, chance: u32) -> Duration {
        let pause = self.next.min(longest);
        // What was refused often stays rare, also when the member is not there for a moment.
        self.next = (self.next * 2).min(longest).max(self.next);
        let half = pause / 2;
        half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn evicted(pause: &mut Pause) -> Duration {
        pause.after_connection(MILLI, u32::MAX)
    }

    #[test]
    fn a_pause_doubles_up_to_a_limit() {
        let mut pause = Pause::new();
        let pauses: Vec<_> = (0..10).map(|_| evicted(&mut pause).as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000]);
    }

    #[test]
    fn a_pause_starts_over_when_a_connection_has_stood() {
        let mut pause = Pause::new();
        for _ in 0..6 {
            evicted(&mut pause);
        }
        assert_eq!(pause.after_connection(STANDS - MILLI, u32::MAX), 1280 * MILLI);
        assert_eq!(pause.after_connection(STANDS, u32::MAX), FIRST);
        assert_eq!(evicted(&mut pause), 2 * FIRST);
    }

    #[test]
    fn a_member_that_is_not_there_is_asked_more_often_than_one_that_refuses() {
        let mut pause = Pause::new();
        let absent = MemberRefusal::Unreached(CmError::NotListening { peer: "127.0.0.1:1".parse().unwrap() });
        let longest = (0..10).map(|_| pause.after_refusal(&absent, u32::MAX)).max();
        assert_eq!(longest, Some(LONGEST_ABSENT));
        let longest = (0..10).map(|_| pause.after_refusal(&MemberRefusal::HungUp, u32::MAX)).max();
        assert_eq!(longest, Some(LONGEST));
        // What is not there now is asked soon; what refused before is remembered.
        assert_eq!(pause.after_refusal(&absent, u32::MAX), LONGEST_ABSENT);
        assert_eq!(evicted(&mut pause), LONGEST);
    }

    #[test]
    fn what_needs_a_person_is_not_tried_again_at_once() {
        let mut pause = Pause::new();
        let misfit = MemberRefusal::MaxMessage { here: 1, there: 2 };
        assert_eq!(pause.after_refusal(&misfit, u32::MAX), FIRST_MISFIT);
        assert_eq!(pause.after_refusal(&misfit, u32::MAX), 2 * FIRST_MISFIT);
    }

    #[test]
    fn chance_moves_a_pause_by_no_more_than_its_half() {
        for chance in [0, 1, u32::MAX / 3, u32::MAX] {
            let waited = Pause::new().after_connection(MILLI, chance);
            assert!((FIRST / 2..=FIRST).contains(&waited), "{waited:?}");
        }
        assert_ne!(Pause::new().after_connection(MILLI, 0), Pause::new().after_connection(MILLI, 1 << 31));
    }
}

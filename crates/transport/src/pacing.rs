//! A limit on how fast a queue pair sends: a bucket of tokens that fills as time goes by.

use core::time::Duration;

use crate::time::Time;

/// How much may be sent at once after a pause: what the rate gives in this time, and one packet more.
const BURST: Duration = Duration::from_millis(1);

/// The bucket. It is kept as the time at which everything sent so far would have left at the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pacer {
    /// Kilobits per second, the lower of the two below; 0 is no limit.
    rate: u32,
    /// What the program allows, and what the way to the peer carries.
    allowed: u32,
    carried: u32,
    paid_until: Time,
    /// What the last whole nanosecond of it leaves over, in parts of `rate`.
    remainder: u64,
    /// Nothing more before this time.
    resume: Option<Time>,
}

impl Pacer {
    /// The rate that the program allows in kilobits per second, 0 without a limit.
    pub(crate) const fn allowed(&self) -> u32 {
        self.allowed
    }

    /// Allows another rate; what was sent at the old one is forgotten.
    pub(crate) fn allow(&mut self, rate: u32) {
        *self = Self { allowed: rate, carried: self.carried, ..Self::default() }.settled();
    }

    /// The same for what the way to the peer carries.
    pub(crate) fn carry(&mut self, rate: u32) {
        *self = Self { carried: rate, allowed: self.allowed, ..Self::default() }.settled();
    }

    fn settled(self) -> Self {
        let rate = match (self.allowed, self.carried) {
            (0, other) | (other, 0) => other,
            (one, other) => one.min(other),
        };
        Self { rate, ..self }
    }

    /// Whether there is no limit at all.
    pub(crate) const fn is_open(&self) -> bool {
        self.rate == 0
    }

    /// Whether a packet may leave now.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        self.resume = self.resume.filter(|resume| *resume > now);
        self.resume.is_none()
    }

    /// So many bytes leave now. Whether the next have to wait.
    pub(crate) fn spend(&mut self, bytes: u64, now: Time) -> bool {
        if self.rate == 0 {
            return false;
        }
        // A bit lasts 1,000,000 / rate nanoseconds.
        let rate = u64::from(self.rate);
        let parts = bytes.saturating_mul(8_000_000).saturating_add(self.remainder);
        self.remainder = parts % rate;
        self.paid_until = self.paid_until.max(now) + Duration::from_nanos(parts / rate);
        if self.paid_until.since(now) <= BURST {
            return false;
        }
        // Not for every packet, but when half of the bucket is full again.
        let ahead = self.paid_until.since(now).saturating_sub(BURST / 2);
        self.resume = Some(now + ahead);
        true
    }

    /// When a packet may leave again, if none may now.
    pub(crate) const fn resume_at(&self) -> Option<Time> {
        self.resume
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that leave in `time` if packets of `size` wait all the time.
    fn sent_in(rate: u32, size: u64, time: Duration) -> u64 {
        let (mut pacer, mut now, mut sent) = (Pacer::default(), Time::from_nanos(7), 0);
        pacer.allow(rate);
        let end = now + time;
        while now < end {
            while pacer.allows(now) {
                sent += size;
                pacer.spend(size, now);
            }
            now = pacer.resume_at().unwrap();
        }
        sent
    }

    #[test]
    fn the_rate_is_kept_over_time_whatever_the_size_of_packets() {
        for rate in [64, 1000, 25_000, 1_000_000, 40_000_000] {
            for size in [16, 300, 4144] {
                let allowed = u64::from(rate) * 125 / 4;
                let burst = u64::from(rate) / 8 + size;
                let sent = sent_in(rate, size, Duration::from_millis(250));
                assert!(sent <= allowed + burst + size, "{rate} kbit/s, {size} bytes: {sent} of {allowed}");
                assert!(sent + burst >= allowed, "{rate} kbit/s, {size} bytes: {sent} of {allowed}");
            }
        }
    }

    #[test]
    fn a_pause_saves_up_no_more_than_a_burst() {
        let mut pacer = Pacer::default();
        pacer.allow(8000);
        let late = Time::from_nanos(3_600_000_000_000);
        let mut sent = 0;
        while pacer.allows(late) {
            sent += 100;
            pacer.spend(100, late);
        }
        assert_eq!(sent, 1100, "a millisecond of 8 Mbit/s, and one packet");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pacer = Pacer::default();
        assert!(!pacer.spend(u64::MAX, Time::ZERO) && pacer.allows(Time::ZERO));
        assert_eq!(pacer.resume_at(), None);
    }

    #[test]
    fn the_lower_of_both_limits_counts() {
        let mut pacer = Pacer::default();
        for (allowed, carried, rate) in [(0, 0, 0), (5, 0, 5), (0, 6, 6), (5, 6, 5), (7, 6, 6)] {
            pacer.allow(allowed);
            pacer.carry(carried);
            assert_eq!((pacer.rate, pacer.allowed()), (rate, allowed));
        }
    }

    /// At 8 Mbit/s a byte lasts a microsecond, and a burst is a thousand of them.
    #[test]
    fn a_pause_begins_after_a_burst_and_lasts_until_half_of_it_is_saved_up() {
        let mut pacer = Pacer::default();
        pacer.allow(8000);
        let now = Time::from_nanos(5_000_000);
        assert!(!pacer.spend(1000, now), "just a burst");
        assert_eq!((pacer.resume_at(), pacer.allows(now)), (None, true));
        assert!(pacer.spend(1, now));
        let resume = now + Duration::from_micros(501);
        assert_eq!(pacer.resume_at(), Some(resume));
        assert!(!pacer.allows(Time::from_nanos(resume.nanos() - 1)) && pacer.allows(resume));
        assert_eq!(pacer.resume_at(), None);
    }

    #[test]
    fn parts_of_a_nanosecond_are_not_lost() {
        let mut pacer = Pacer::default();
        pacer.allow(3_000_000);
        for _ in 0..3 {
            pacer.spend(1, Time::ZERO);
        }
        assert_eq!((pacer.paid_until, pacer.remainder), (Time::from_nanos(8), 0), "24 bits at 3 Gbit/s");
    }
}

//! How much work a queue held.

/// How much work a queue held, over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth {
    now: u64,
    pub(super) most: u64,
    /// The sum of work times nanoseconds.
    area: u128,
    first: Option<u64>,
    last: u64,
}

impl Depth {
    /// Work was posted.
    pub(super) fn rise(&mut self, time: u64) {
        self.pass(time);
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    /// Work ended. What was posted before the record began ends as well.
    pub(super) fn fall(&mut self, time: u64) {
        self.pass(time);
        self.now = self.now.saturating_sub(1);
    }

    fn pass(&mut self, time: u64) {
        self.first.get_or_insert(time);
        // Times of posts may be a little behind.
        let gone = time.saturating_sub(self.last);
        if self.now > 0 {
            self.area += u128::from(self.now) * u128::from(gone);
        }
        self.last = self.last.max(time);
    }

    /// How much it held on average, from its first work to its last event.
    pub(super) fn mean(&self) -> f64 {
        let time = self.last.saturating_sub(self.first.unwrap_or(self.last));
        #[expect(clippy::cast_precision_loss, reason = "two places are shown")]
        if time == 0 { self.now as f64 } else { self.area as f64 / time as f64 }
    }
}

//! What a broker was told, after it was checked.

use std::time::Duration;

use ferroce_verbs::{ConnectOptions, PathPolicy};

use crate::members::Member;

/// The settings of one broker.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) me: Member,
    pub(crate) lane: u8,
    /// Places in each direction, for each peer.
    pub(crate) ring: u32,
    /// Requests that are gathered before the doorbell is rung.
    pub(crate) batch: u32,
    pub(crate) max_message: u32,
    /// How long a silent peer is waited for.
    pub(crate) patience: Duration,
    pub(crate) path: Option<PathPolicy>,
}

impl Settings {
    /// Slots begin at multiples of a cache line.
    const LINE: usize = 64;

    /// Bytes from one slot to the next.
    pub(crate) const fn stride(&self) -> usize {
        (self.max_message as usize).next_multiple_of(Self::LINE)
    }

    /// Messages that are taken off before the peer is told. Until it is told it has room for all the others.
    pub(crate) fn tell_after(&self) -> u64 {
        u64::from((self.ring / 4).max(1))
    }

    /// How often an idle connection is looked after.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.patience / 6
    }

    /// How queue pairs work: a silent peer is given up after eight times the time-out.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        let all = (self.patience - self.heartbeat()).as_nanos();
        // The largest 4.096 us * 2^code of which eight are not more than that.
        let code = (all / (8 * 4096)).checked_ilog2().unwrap_or(0);
        let timeout = u8::try_from(code).unwrap_or(31).clamp(1, 31);
        ConnectOptions { timeout, retry_count: 7, ..ConnectOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_given_up_within_the_patience() {
        for millis in [60, 100, 1000, 1500, 2000, 60_000] {
            let settings = Settings {
                me: Member { id: 0, address: "127.0.0.1:1".parse().unwrap() },
                lane: 0,
                ring: 8,
                batch: 1,
                max_message: 1,
                patience: Duration::from_millis(millis),
                path: None,
            };
            let timeout = Duration::from_nanos(4096 << settings.connect_options().timeout);
            let all = settings.heartbeat() + timeout * 8;
            assert!(all <= settings.patience, "{all:?}");
            assert!(all * 3 > settings.patience, "{all:?}");
        }
    }
}

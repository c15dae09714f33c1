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

    /// Messages that are taken off before the peer is told, and their receives posted again. Until it is told
    /// it has room for all the others: telling it costs a packet, which so is for half of the ring.
    pub(crate) fn tell_after(&self) -> u64 {
        u64::from((self.ring / 2).max(1))
    }

    /// How often an idle connection is looked after.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.patience / 6
    }

    /// How queue pairs work: a silent peer is given up after the time-out has passed so often, and once more.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        let all = (self.patience - self.heartbeat()).as_nanos();
        // Time-outs are 4.096 us * 2^code. Each is noticed a little late, so it is better to have few of
        // them; but the peer is asked often enough that some loss does not matter.
        let choices = (1..=31_u8).flat_map(|code| (4..=7_u8).map(move |retries| (code, retries)));
        let silence = |(code, retries): &(u8, u8)| (u128::from(*retries) + 1) * (4096 << code);
        let longest = choices.filter(|choice| silence(choice) <= all).max_by_key(silence);
        let (timeout, retry_count) = longest.unwrap_or((1, 4));
        ConnectOptions { timeout, retry_count, ..ConnectOptions::default() }
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
            let ConnectOptions { timeout, retry_count, .. } = settings.connect_options();
            let timeout = Duration::from_nanos(4096 << timeout);
            let all = settings.heartbeat() + timeout * (u32::from(retry_count) + 1);
            assert!(all <= settings.patience, "{all:?}");
            assert!(all * 5 > settings.patience * 4, "{all:?} of {:?} is used", settings.patience);
        }
    }
}

//! When an agent reports a window: not at the moment at which all others do.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// Reports are spread over this part of a window,
const PART: u32 = 3;

/// and over no more than this: an analyzer waits for ten seconds.
const MOST: Duration = Duration::from_secs(5);

/// How long an agent waits after the end of a window before it reports it.
///
/// It follows from its name, so that ten thousand agents come one after the other, and each after the same time: up to a
/// third of a window, and five seconds at most.
#[must_use]
pub fn report_delay(agent: &str, window: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    agent.hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 1024).unwrap_or(0);
    (window / PART).min(MOST) * part / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_spread_over_a_third_of_a_window_or_over_five_seconds() {
        for (window, most) in [(3_000, 1_000), (20_000, 5_000), (600_000, 5_000)]
            .map(|(window, most)| (Duration::from_millis(window), Duration::from_millis(most)))
        {
            let delay = |agent: u32| report_delay(&format!("a{agent}"), window);
            let delays: Vec<Duration> = (0..10_000).map(delay).collect();
            assert_eq!(delays[7], delay(7), "always the same");
            for slice in 0..10 {
                let (from, to) = (most * slice / 10, most * (slice + 1) / 10);
                let here = delays.iter().filter(|delay| (from..to).contains(*delay)).count();
                assert!((900..1100).contains(&here), "{here} of 10000 in a tenth");
            }
            assert!(delays.iter().all(|delay| *delay < most));
        }
    }
}

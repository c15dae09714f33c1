//! Probes to a peer that does not answer.

mod common;

use std::time::Duration;

use common::*;
use ferroce_sim::Side;

/// Each that is not answered doubles the wait for the next, up to 64 times the first.
#[test]
fn probes_to_a_silent_peer_come_ever_more_seldom() {
    let mut pair = pair(|setup| setup.timeout = 20);
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 100);
    pair.run_for(Duration::from_millis(500));
    let times: Vec<_> = pair.sent.iter().map(|sent| sent.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64]);
    assert_eq!(pair.counters(Side::A).probes, 12);
}

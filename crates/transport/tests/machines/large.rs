//! Messages far larger than any window.

use crate::common::*;
use ferroce_sim::Side;
use ferroce_transport::Status;
use ferroce_wire::PathMtu;

const LEN: u32 = 64 << 20;

/// 16,384 packets one way, with one lost here and there.
#[test]
fn a_write_of_64_mib_arrives_whole() {
    let mut pair = pair(|setup| {
        setup.mtu = PathMtu::B4096;
        setup.memory = LEN as usize;
        setup.psns[0] = 0xff_f000;
    });
    fill(&mut pair, Side::A, 0, LEN as usize, 1);
    post_write(&mut pair, 1, LEN);
    lose(&mut pair, Side::A, &[1, 5000, 12_345]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, LEN)]);
    assert_filled(&mut pair, Side::B, 0, LEN as usize, 1);
    assert_eq!(pair.counters(Side::A).timeouts, 0);
    assert_at_peace(&mut pair);
}

/// And back by a READ, which leaves as many requests.
#[test]
fn a_read_of_64_mib_arrives_whole() {
    let mut pair = pair(|setup| {
        setup.mtu = PathMtu::B4096;
        setup.memory = LEN as usize;
    });
    fill(&mut pair, Side::B, 0, LEN as usize, 1);
    post_read(&mut pair, 1, LEN);
    lose(&mut pair, Side::B, &[1, 5000, 12_345]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, LEN)]);
    assert_filled(&mut pair, Side::A, 0, LEN as usize, 1);
    assert_eq!(pair.counters(Side::A).timeouts, 0);
    assert_at_peace(&mut pair);
}

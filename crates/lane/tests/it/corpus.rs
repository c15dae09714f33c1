//! The fuzz corpus, replayed.

use ferroce_testkit::fuzz;

#[test]
fn the_lane_corpus_finds_nothing() {
    assert!(fuzz::replay("lane", fuzz::lane) >= 5);
}

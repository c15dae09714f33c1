//! The fuzz corpora, replayed.

use ferroce_testkit::fuzz;

#[test]
fn the_packet_corpus_finds_nothing() {
    assert!(fuzz::replay("packet", fuzz::packet) >= 100);
}

#[test]
fn the_cm_corpus_finds_nothing() {
    assert!(fuzz::replay("cm", fuzz::cm) >= 20);
}
